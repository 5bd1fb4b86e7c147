# Rows of one table version: tuples of messages in, change rows out; and steps over what is not ours.


def _kind_of(type_):
    """Return kind, width, precision and scale of a column's type."""
    if pa.types.is_string(type_):
        return K_TEXT, 0, 0, 0
    if pa.types.is_binary(type_):
        return K_BYTES, 0, 0, 0
    if pa.types.is_boolean(type_):
        return K_BOOL, 0, 0, 0
    if pa.types.is_decimal128(type_):
        return K_DECIMAL, 16, type_.precision, type_.scale
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return (K_TIMESTAMP_TZ if type_.tz else K_TIMESTAMP), 8, 0, 0
    plain = {
        pa.int16(): K_INT16,
        pa.int32(): K_INT32,
        pa.int64(): K_INT64,
        pa.float32(): K_FLOAT,
        pa.float64(): K_DOUBLE,
        pa.date32(): K_DATE,
    }
    return plain[type_], type_.bit_width // 8, 0, 0


cdef class NativeRows:
    """Rows of one table version, in ``(scn, ord)`` order; see `headrace.sources.postgres.rows.ChangeRows`."""

    cdef readonly object schema
    cdef readonly object schema_id
    cdef object _arrow
    cdef Rows rows

    def __cinit__(self, schema, schema_id, forms=()):
        cdef int i
        cdef int count = len(schema.columns)
        memset(&self.rows, 0, sizeof(Rows))
        self.rows.owner = <void *> self
        self.rows.ncols = count
        self.rows.mask_bytes = (count + 7) // 8
        self.rows.cols = <Col *> malloc(max(1, count) * sizeof(Col))
        self.rows.mask = <uint8_t *> malloc(3 * (self.rows.mask_bytes + 1))
        if self.rows.cols == NULL or self.rows.mask == NULL:
            raise MemoryError
        memset(self.rows.cols, 0, max(1, count) * sizeof(Col))
        memset(self.rows.mask, 0, 3 * (self.rows.mask_bytes + 1))
        self.rows.before = self.rows.mask + self.rows.mask_bytes
        self.rows.key_only = self.rows.before + self.rows.mask_bytes
        self.rows.immediate = schema.key_check is KeyCheck.IMMEDIATE

    def __init__(self, schema, schema_id, forms=()):
        cdef int i
        cdef Col *c
        if forms and len(forms) != len(schema.columns):
            raise ValueError("a form for each column, or none at all")
        self.schema = schema
        self.schema_id = schema_id
        self._arrow = change_schema(schema)
        for i, column in enumerate(schema.columns):
            c = &self.rows.cols[i]
            c.kind, c.width, c.precision, c.scale = _kind_of(column.type)
            c.form = forms[i] if forms else F_UNKNOWN
            c.way = _way_of(c.kind, c.form)
            if c.kind != K_TEXT and c.form in (F_UUID, F_JSONB, F_OID, F_TIME, F_SKIPPED):
                raise ValueError("a form that makes text for a column that is none")
            c.in_key = column.name in schema.key
            if not c.in_key:
                self.rows.key_only[i >> 3] |= <uint8_t> (1 << (i & 7))
        self._begin()

    def __dealloc__(self):
        cdef int i
        if self.rows.cols != NULL:
            for i in range(self.rows.ncols):
                free(self.rows.cols[i].valid.p)
                free(self.rows.cols[i].data.p)
                free(self.rows.cols[i].offsets.p)
            free(self.rows.cols)
        free(self.rows.mask)
        free(self.rows.scn.p)
        free(self.rows.ord.p)
        free(self.rows.op.p)
        free(self.rows.miss_valid.p)
        free(self.rows.miss_data.p)
        free(self.rows.miss_offsets.p)

    def __len__(self):
        return self.rows.n

    @property
    def first(self):
        """Place ``(scn, ord)`` of the first row."""
        return (<int64_t *> self.rows.scn.p)[0], (<int32_t *> self.rows.ord.p)[0]

    cdef int _begin(self) except -1:
        """Start the offsets of an empty batch."""
        cdef int i
        cdef int32_t zero = 0
        self.rows.n = 0
        self.rows.missing = 0
        for i in range(self.rows.ncols):
            self.rows.cols[i].nulls = 0
            if self.rows.cols[i].kind <= K_BYTES:
                _put(&self.rows.cols[i].offsets, &zero, 4)
        return 0

    def body(self):
        """Return everything added so far as one body and start anew."""
        cdef Py_ssize_t n = self.rows.n
        cdef Py_ssize_t i
        cdef Vec text
        cdef Vec offsets
        cdef int32_t end
        cdef ArrowArray batch
        memset(&text, 0, sizeof(Vec))
        memset(&offsets, 0, sizeof(Vec))
        _room(&text, 2 * n + 8)
        _room(&offsets, 4 * (n + 1))
        for i in range(n):
            memcpy(text.p + 2 * i, OPS + 2 * self.rows.op.p[i], 2)
            (<int32_t *> offsets.p)[i] = <int32_t> (2 * i)
        (<int32_t *> offsets.p)[n] = <int32_t> (2 * n)
        text.n = 2 * n
        offsets.n = 4 * (n + 1)
        self.rows.op.n = 0
        if not self.rows.missing:
            _fill(&self.rows.miss_valid, 0, (n + 7) >> 3)
            _fill(&self.rows.miss_offsets, 0, 4 * (n + 1))
        _begin_batch(&batch, 4 + self.rows.ncols)
        try:
            _add_column(&batch, 0, n, 0, NULL, NULL, &self.rows.scn)
            _add_column(&batch, 1, n, 0, NULL, NULL, &self.rows.ord)
            _add_column(&batch, 2, n, 0, NULL, &offsets, &text)
            _add_column(
                &batch, 3, n, n - self.rows.missing,
                &self.rows.miss_valid, &self.rows.miss_offsets, &self.rows.miss_data,
            )
            self._add_columns(&batch, 4)
            found = _batch(&batch, self._arrow)
        finally:
            _give_up_batch(&batch)
        self.rows.miss_valid.n = 0
        self._begin()
        return Body(self.schema_id, self.schema.table, found)

    cdef list _columns(self):
        """Return the table's own columns; their memory is no longer ours."""
        cdef ArrowArray batch
        _begin_batch(&batch, self.rows.ncols)
        try:
            self._add_columns(&batch, 0)
            return _batch(&batch, pa.schema(list(self._arrow)[4:])).columns
        finally:
            _give_up_batch(&batch)

    cdef int _add_columns(self, ArrowArray *batch, int first) except -1:
        """Hand the table's own columns over, from a place of the batch on."""
        cdef int place
        cdef Col *c
        for place in range(self.rows.ncols):
            c = &self.rows.cols[place]
            _add_column(
                batch, first + place, self.rows.n, c.nulls,
                &c.valid, &c.offsets if c.kind <= K_BYTES else NULL, &c.data,
            )
            c.valid.n = 0
        return 0

    cdef int _slow_value(self, int place, const uint8_t *s, Py_ssize_t n, bint binary) except -1:
        """Add a cell by the function that the other twin uses.

        Raises:
            UndecodableValue: it has no exact place in the column's type.
            ProtocolError: it is no binary value of the column's type.
        """
        cdef Col *c = &self.rows.cols[place]
        cdef const uint8_t[::1] raw
        cdef Py_ssize_t row = self.rows.n
        cells = [(<const char *> s)[:n]]
        if binary:
            array = binary_column(self.schema, place, Form(c.form), cells)
        else:
            array = build_column(self.schema, place, cells)
        if c.kind <= K_BYTES:
            value = array[0].as_buffer()
            raw = memoryview(value).cast("B")
            if raw.shape[0]:
                _put(&c.data, &raw[0], raw.shape[0])
            _end_text(c)
        elif c.kind == K_BOOL:
            _bit(&c.data, row, array[0].as_py())
        else:
            raw = memoryview(array.buffers()[1]).cast("B")
            _put(&c.data, &raw[0], c.width)
        _valid(c, row)
        return 0


cdef int _add_tuple(
    Rows *r, const uint8_t *msg, Py_ssize_t *at, Py_ssize_t end, int mode
) except -1 nogil:
    """Read one tuple; return 0 when it is malformed or not ours to judge."""
    cdef Py_ssize_t place = at[0]
    cdef Py_ssize_t row = r.n
    cdef Py_ssize_t size
    cdef int i
    cdef int count
    cdef uint8_t kind
    cdef bint holes = False
    cdef bint taken
    if end - place < 2:
        return 0
    count = hr_be16(msg + place)
    place += 2
    if count != r.ncols:
        return 0
    memset(r.mask, 0, r.mask_bytes)
    for i in range(count):
        if place >= end:
            return 0
        kind = msg[place]
        place += 1
        if kind == c't' or kind == c'b':
            if end - place < 4:
                return 0
            size = <int32_t> hr_be32(msg + place)
            place += 4
            if size < 0 or size > end - place:
                return 0
            if kind == c't':
                taken = _add_text_value(&r.cols[i], row, msg + place, size)
            elif r.cols[i].way == W_UNKNOWN:
                return 0
            else:
                taken = _add_binary_value(&r.cols[i], row, msg + place, size)
            if not taken:
                with gil:
                    (<NativeRows> r.owner)._slow_value(i, msg + place, size, kind == c'b')
            place += size
        elif kind == c'n':
            if mode == T_KEY and r.cols[i].in_key:
                return 0
            _add_null(&r.cols[i], row)
        elif kind == c'u':
            if mode == T_KEY:
                return 0
            if mode == T_AFTER_OLD and not (r.before[i >> 3] >> (i & 7)) & 1:
                _copy_before(&r.cols[i], row)
            else:
                _add_null(&r.cols[i], row)
                r.mask[i >> 3] |= <uint8_t> (1 << (i & 7))
                holes = True
        else:
            return 0
    if mode == T_KEY:
        memcpy(r.mask, r.key_only, r.mask_bytes)
        holes = False
        for i in range(r.mask_bytes):
            holes = holes or r.mask[i] != 0
    _end_mask(r, row, holes)
    at[0] = place
    return 1


cdef int _end_mask(Rows *r, Py_ssize_t row, bint holes) except -1 nogil:
    cdef int32_t end
    if holes and not r.missing:
        _fill(&r.miss_valid, 0, (row >> 3) + 1)
        _fill(&r.miss_offsets, 0, 4 * (row + 1))
    if holes:
        _put(&r.miss_data, r.mask, r.mask_bytes)
        r.missing += 1
    if r.missing:
        _bit(&r.miss_valid, row, holes)
        end = <int32_t> r.miss_data.n
        _put(&r.miss_offsets, &end, 4)
    memcpy(r.before, r.mask, r.mask_bytes)
    return 0


cdef int _end_row(Rows *r, int64_t scn, int64_t ordinal, int op) except -1 nogil:
    cdef int32_t narrow = <int32_t> ordinal
    cdef uint8_t code = <uint8_t> op
    _put(&r.scn, &scn, 8)
    _put(&r.ord, &narrow, 4)
    _put(&r.op, &code, 1)
    r.n += 1
    return 0


cdef int _add_message(
    Rows *r, const uint8_t *msg, Py_ssize_t at, Py_ssize_t end, uint8_t kind,
    int64_t scn, int64_t ordinal,
) except -1 nogil:
    """Add the rows of an I, U or D from behind its relation's oid; return how many, 0 when it is malformed."""
    cdef uint8_t part
    if at >= end:
        return 0
    part = msg[at]
    at += 1
    if kind == c'I':
        if part != c'N' or not _add_tuple(r, msg, &at, end, T_WHOLE) or at != end:
            return 0
        _end_row(r, scn, ordinal, OP_INSERT)
        return 1
    if kind == c'D':
        if part == c'O':
            if not _add_tuple(r, msg, &at, end, T_WHOLE) or at != end:
                return 0
        elif part != c'K' or not r.immediate:
            return 0
        elif not _add_tuple(r, msg, &at, end, T_KEY) or at != end:
            return 0
        _end_row(r, scn, ordinal, OP_DELETE)
        return 1
    if part == c'N':
        if not r.immediate:
            return 0
        if not _add_tuple(r, msg, &at, end, T_WHOLE) or at != end:
            return 0
        _end_row(r, scn, ordinal, OP_PATCH)
        return 1
    if part == c'K':
        if not r.immediate or not _add_tuple(r, msg, &at, end, T_KEY):
            return 0
    elif part != c'O' or not _add_tuple(r, msg, &at, end, T_WHOLE):
        return 0
    _end_row(r, scn, ordinal, OP_OLD)
    if at >= end or msg[at] != c'N':
        return 0
    at += 1
    # Behind a key, too: one that is stored out of line has an old image though it has not changed.
    if not _add_tuple(r, msg, &at, end, T_AFTER_OLD):
        return 0
    if at != end:
        return 0
    _end_row(r, scn, ordinal + 1, OP_NEW)
    return 2


cdef bint _skip_tuple(const uint8_t *msg, Py_ssize_t *at, Py_ssize_t end) noexcept nogil:
    """Step over a tuple of a table that is not ours; False when it is malformed."""
    cdef Py_ssize_t place = at[0]
    cdef int64_t size
    cdef int i, count
    if end - place < 2:
        return False
    count = <int16_t> hr_be16(msg + place)
    place += 2
    if count < 0 or count > MAX_COLUMNS:
        return False
    for i in range(count):
        if place >= end:
            return False
        if msg[place] == c't' or msg[place] == c'b':
            if end - place < 5:
                return False
            size = <int32_t> hr_be32(msg + place + 1)
            if size < 0 or size > end - place - 5:
                return False
            place += 5 + size
        elif msg[place] == c'n' or msg[place] == c'u':
            place += 1
        else:
            return False
    at[0] = place
    return True


cdef bint _skip_message(const uint8_t *msg, Py_ssize_t at, Py_ssize_t end, uint8_t kind) noexcept nogil:
    """Check a row message of a table that is not ours."""
    cdef uint8_t part
    if at >= end:
        return False
    part = msg[at]
    at += 1
    if kind == c'U' and (part == c'K' or part == c'O'):
        if not _skip_tuple(msg, &at, end) or at >= end:
            return False
        part = msg[at]
        at += 1
    if kind == c'D':
        if part != c'K' and part != c'O':
            return False
    elif part != c'N':
        return False
    return _skip_tuple(msg, &at, end) and at == end

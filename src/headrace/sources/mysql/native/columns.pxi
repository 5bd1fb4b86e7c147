# Columns under construction: values, validity, and where bytes end.


cdef struct Column:
    int op
    int form         # how a cell lies in a row of a select
    int width        # bytes of a value in an image, or of a number in a row; -n: a length of n bytes stands before it
    int out          # bytes of a value in the column; 0: bytes behind offsets
    int plain        # bytes of a value that is copied as it is, in images and in rows alike; 0: it is made of its bytes
    int precision
    int scale
    uint64_t date    # the date of the cell before, as its bytes have it; 0: none
    int32_t days     # of that date
    Vec valid        # one bit per row, from the first null on
    Vec data
    Vec offsets      # int32, rows + 1
    int64_t nulls
    int64_t no_days  # dates that are no days; they are null
    int64_t unfit    # what is no value of the type; null, too


cdef struct Set:
    Column *columns
    Py_ssize_t width
    Py_ssize_t mask_bytes
    Py_ssize_t count


cdef inline int _put_number(Vec *v, const void *value, int size) except -1 nogil:
    """Add a number of 2, 4 or 8 bytes; each size by itself, so that none is copied by a call."""
    _room(v, 8)
    if size == 4:
        memcpy(v.p + v.n, value, 4)
    elif size == 8:
        memcpy(v.p + v.n, value, 8)
    else:
        memcpy(v.p + v.n, value, 2)
    v.n += size
    return 0


cdef inline int _put_plain(Column *c, const uint8_t *p) except -1 nogil:
    """Add a value that is copied as it is."""
    return _put_number(&c.data, p, c.plain)


cdef int _too_much() except -1 nogil:
    with gil:
        raise OverflowError("more than 2 GiB of one column in one batch")


cdef inline int _end_bytes(Column *c) except -1 nogil:
    cdef int32_t end = <int32_t> c.data.n
    if c.data.n > 0x7FFFFFF0:
        _too_much()
    _room(&c.offsets, 4)
    memcpy(c.offsets.p + c.offsets.n, &end, 4)
    c.offsets.n += 4
    return 0


cdef inline int _put_bytes(Column *c, const uint8_t *p, Py_ssize_t n, Py_ssize_t readable) except -1 nogil:
    """Add bytes and their end; ``readable`` of them may be read, so that few are copied without a call."""
    if n <= 16 and readable >= 16:
        _room(&c.data, 16)
        memcpy(c.data.p + c.data.n, p, 16)
        c.data.n += n
    else:
        _put(&c.data, p, n)
    return _end_bytes(c)


cdef inline bint _is_day(Column *c, uint64_t date, int year, int month, int day, int32_t *days) noexcept nogil:
    """Give days since 1970, as `_day_of`; neighbours often have one date, which is known already."""
    if date == c.date and date:
        days[0] = c.days
        return True
    if not _day_of(year, month, day, days):
        return False
    c.date, c.days = date, days[0]
    return True


cdef inline int _begin_bytes(Column *c) except -1 nogil:
    cdef int32_t zero = 0
    if not c.out and not c.offsets.n:
        _put(&c.offsets, &zero, 4)
    return 0


cdef inline int _valid(Column *c, Py_ssize_t row) except -1 nogil:
    """Take note that the cell of a row has a value."""
    if c.nulls:
        _bit(&c.valid, row, True)
    return 0


cdef int _begin_valid(Column *c, Py_ssize_t rows) except -1 nogil:
    """Write down that the cells of all rows so far have values; until then nothing says so."""
    _fill(&c.valid, 0xFF, rows >> 3)
    _fill(&c.valid, (1 << (rows & 7)) - 1, 1)
    return 0


cdef int _add_null(Column *c, Py_ssize_t row) except -1 nogil:
    if not c.nulls:
        _begin_valid(c, row)
    c.nulls += 1
    _bit(&c.valid, row, False)
    if c.out:
        _fill(&c.data, 0, c.out)
    else:
        _end_bytes(c)
    return 0


cdef int _add_no_day(Column *c, Py_ssize_t row) except -1 nogil:
    c.no_days += 1
    return _add_null(c, row)


cdef int _add_unfit(Column *c, Py_ssize_t row) except -1 nogil:
    c.unfit += 1
    return _add_null(c, row)


cdef int _append_bits(Column *c, Py_ssize_t rows, Column *more, Py_ssize_t more_rows) except -1 nogil:
    """Add the validity of ``more_rows`` behind that of ``rows``; neither has any where it has no nulls."""
    cdef Py_ssize_t row
    if not c.nulls and not more.nulls:
        return 0
    if not c.nulls:
        _begin_valid(c, rows)
    for row in range(more_rows):
        _bit(&c.valid, rows + row, not more.nulls or more.valid.p[row >> 3] >> (row & 7) & 1)
    return 0


cdef int _append(Column *c, Py_ssize_t rows, Column *more, Py_ssize_t more_rows) except -1 nogil:
    """Add the cells of ``more_rows`` behind those of ``rows``."""
    cdef int32_t base = <int32_t> c.data.n, end
    cdef Py_ssize_t row
    if not c.out:
        if c.data.n + more.data.n > 0x7FFFFFF0:
            _too_much()
        _room(&c.offsets, 4 * more_rows)
        for row in range(1, more_rows + 1):
            memcpy(&end, more.offsets.p + 4 * row, 4)
            end += base
            memcpy(c.offsets.p + c.offsets.n, &end, 4)
            c.offsets.n += 4
    _append_bits(c, rows, more, more_rows)
    _put(&c.data, more.data.p, more.data.n)
    c.nulls += more.nulls
    c.no_days += more.no_days
    c.unfit += more.unfit
    return 0


cdef Py_ssize_t _held(Set *set) noexcept nogil:
    """Return the bytes of all values."""
    cdef Py_ssize_t place, total = 0
    for place in range(set.width):
        total += set.columns[place].data.n
    return total


cdef int _plain(Column *c) noexcept:
    """Return the bytes of a value that is copied as it is."""
    if c.width != c.out or c.out not in (2, 4, 8):
        return 0
    if c.op == OP_INT:
        # A number without a sign must be looked at before it gets one.
        return c.out if c.form != FORM_UNSIGNED else 0
    return c.out if c.op == OP_COPIED or c.op == OP_UNSIGNED and c.form == FORM_COUNTED else 0


cdef class Columns:
    """Columns of rows that come one by one; `headrace.sources.mysql.built` says what becomes of them.

    Args:
        plan: per column what it is made of (`built.Op`), how a cell lies in a row (`wire.Form`), its bytes there or in an
            image or the negative bytes of their length, the bytes of its values here (0: any), and a decimal's digits
            and those behind its point.
    """

    cdef Set set

    def __cinit__(self, plan):
        cdef Column *c
        self.set.width = len(plan)
        self.set.mask_bytes = (self.set.width + 7) // 8
        self.set.columns = <Column*> calloc(max(1, self.set.width), sizeof(Column))
        if self.set.columns == NULL:
            raise MemoryError
        for place, (op, form, width, out, precision, scale) in enumerate(plan):
            c = &self.set.columns[place]
            c.op, c.form, c.width, c.out, c.precision, c.scale = op, form, width, out, precision, scale
            c.plain = _plain(c)
            _begin_bytes(c)

    def __dealloc__(self):
        cdef Py_ssize_t place
        if self.set.columns != NULL:
            for place in range(self.set.width):
                free(self.set.columns[place].valid.p)
                free(self.set.columns[place].data.p)
                free(self.set.columns[place].offsets.p)
            free(self.set.columns)

    @property
    def count(self):
        """Rows."""
        return self.set.count

    @property
    def nbytes(self):
        """Bytes of all values."""
        return _held(&self.set)

    def clear(self):
        """Forget all rows."""
        cdef Column *c
        cdef Py_ssize_t place
        for place in range(self.set.width):
            c = &self.set.columns[place]
            c.valid.n = c.data.n = c.offsets.n = 0
            c.nulls = c.no_days = c.unfit = 0
            _begin_bytes(c)
        self.set.count = 0

    def append(self, Columns more not None):
        """Add the rows of other columns of the same plan behind ours; they are forgotten there."""
        cdef Py_ssize_t place
        if more is self or more.set.width != self.set.width:
            raise ValueError("rows of other columns")
        with nogil:
            for place in range(self.set.width):
                _append(&self.set.columns[place], self.set.count, &more.set.columns[place], more.set.count)
        self.set.count += more.set.count
        more.clear()

    def take(self, Py_ssize_t place):
        """Hand over a column; to be cleared before the next row.

        Returns:
            the buffers of validity (None: no nulls) and values, and of offsets (None: values of one width); how many
            of the nulls were dates that are no days, and how many were no values at all.
        """
        if place < 0 or place >= self.set.width:
            raise IndexError(place)
        cdef Column *c = &self.set.columns[place]
        valid = _hand_over(&c.valid) if c.nulls else None
        offsets = None if c.out else _hand_over(&c.offsets)
        return valid, _hand_over(&c.data), offsets, c.no_days, c.unfit

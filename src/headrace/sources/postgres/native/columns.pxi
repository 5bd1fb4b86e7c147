# Columns under construction: values, validity, text offsets; and the rows that they make.


cdef struct Col:
    int kind
    int form
    int way        # how the binary form is read
    int width      # bytes of a fixed-width value
    int precision
    int scale
    bint in_key
    Vec valid      # one bit per row, from the first null on
    Vec data       # values, bits of booleans, or text
    Vec offsets    # int32, rows + 1
    int64_t nulls


cdef struct Rows:
    void *owner    # the `NativeRows` that lives as long
    int ncols
    int mask_bytes
    bint immediate
    Py_ssize_t n
    Py_ssize_t cap   # rows for which every bit vector has room
    Col *cols
    Vec scn
    Vec ord
    Vec op
    Vec miss_valid
    Vec miss_data
    Vec miss_offsets
    int64_t missing    # `miss_valid` and `miss_offsets` begin with the first of them
    uint8_t *mask      # of the row being read
    uint8_t *before    # of the row before it
    uint8_t *key_only


cdef inline bint _bit_at(Vec *v, Py_ssize_t place) noexcept nogil:
    return (v.p[place >> 3] >> (place & 7)) & 1


cdef inline int _end_text(Col *c) except -1 nogil:
    cdef int32_t end
    if c.data.n > 0x7FFFFFF0:
        with gil:
            raise OverflowError("more than 2 GiB of text in one batch")
    end = <int32_t> c.data.n
    _put(&c.offsets, &end, 4)
    return 0


cdef inline int _valid(Col *c, Py_ssize_t row) except -1 nogil:
    """Take note that the cell of a row has a value."""
    if c.nulls:
        _bit(&c.valid, row, True)
    return 0


cdef int _add_null(Col *c, Py_ssize_t row) except -1 nogil:
    if not c.nulls:
        _fill(&c.valid, 0xFF, row >> 3)
        _fill(&c.valid, (1 << (row & 7)) - 1, 1)
    c.nulls += 1
    _bit(&c.valid, row, False)
    if c.kind <= K_BYTES:
        _end_text(c)
    elif c.kind == K_BOOL:
        _bit(&c.data, row, False)
    else:
        _room(&c.data, c.width)
        memset(c.data.p + c.data.n, 0, c.width)
        c.data.n += c.width
    return 0


cdef int _copy_before(Col *c, Py_ssize_t row) except -1 nogil:
    """Repeat the cell of the row before."""
    cdef Py_ssize_t start, size
    cdef int32_t *ends
    if c.nulls and not _bit_at(&c.valid, row - 1):
        return _add_null(c, row)
    _valid(c, row)
    if c.kind <= K_BYTES:
        ends = <int32_t *> c.offsets.p
        start = ends[row - 1]
        size = ends[row] - start
        if size:
            _room(&c.data, size)
            memcpy(c.data.p + c.data.n, c.data.p + start, size)
            c.data.n += size
        _end_text(c)
    elif c.kind == K_BOOL:
        _bit(&c.data, row, _bit_at(&c.data, row - 1))
    else:
        _room(&c.data, c.width)
        memcpy(c.data.p + c.data.n, c.data.p + c.data.n - c.width, c.width)
        c.data.n += c.width
    return 0

# Columns under construction: values, validity, text offsets; and the rows that they make.


cdef struct Col:
    int kind
    int form
    int width      # bytes of a fixed-width value
    int precision
    int scale
    bint in_key
    Vec valid      # one bit per row
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
    int64_t missing
    uint8_t *mask      # of the row being read
    uint8_t *before    # of the row before it
    uint8_t *key_only


cdef inline int _bit(Vec *v, Py_ssize_t place, bint value) except -1 nogil:
    cdef Py_ssize_t need = (place >> 3) + 1
    if need > v.n:
        _room(v, need - v.n)
        memset(v.p + v.n, 0, need - v.n)
        v.n = need
    if value:
        v.p[place >> 3] |= <uint8_t> (1 << (place & 7))
    return 0


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


cdef int _add_null(Col *c, Py_ssize_t row) except -1 nogil:
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
    if not _bit_at(&c.valid, row - 1):
        return _add_null(c, row)
    _bit(&c.valid, row, True)
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

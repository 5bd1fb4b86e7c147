# Values as they lie in a row of a prepared select.


cdef int64_t[9] FIRST_INT
cdef int64_t[9] LAST_INT
for _out in (2, 4, 8):
    FIRST_INT[_out] = -(1 << 8 * _out - 1)
    LAST_INT[_out] = (1 << 8 * _out - 1) - 1


cdef int _add_decimal(Column *c, Py_ssize_t row, const uint8_t *s, Py_ssize_t n) except -1 nogil:
    """Add a cell from a decimal's text."""
    # With ZEROFILL there are zeros in front, which are no part of the value.
    while n > 1 and s[0] == c'0' and _is_digit(s[1]):
        s += 1
        n -= 1
    _room(&c.data, 16)
    if not _parse_decimal(s, n, c.precision, c.scale, c.data.p + c.data.n):
        return _add_unfit(c, row)
    c.data.n += 16
    _valid(c, row)
    return 0


cdef int _add_whole(Column *c, Py_ssize_t row, const uint8_t *p) except -1 nogil:
    """Add a cell from a number of as many bytes as its column has."""
    cdef uint64_t value = _little(p, c.width)
    cdef bint negative = c.form == FORM_SIGNED and p[c.width - 1] & 0x80
    cdef int64_t signed
    cdef uint8_t[20] text
    cdef int at = 20
    if negative and c.width < 8:
        value |= ~<uint64_t> 0 << 8 * c.width
    if c.op == OP_INT:
        signed = <int64_t> value
        if (signed < 0) != negative or signed < FIRST_INT[c.out] or signed > LAST_INT[c.out]:
            return _add_unfit(c, row)
        _put_number(&c.data, &signed, c.out)
    elif c.op == OP_UNSIGNED_LONG:
        if negative:
            return _add_unfit(c, row)
        _room(&c.data, 16)
        _put_signed(c.data.p + c.data.n, value, False)
        c.data.n += 16
    else:
        # Bits, whose numbers have no sign.
        if negative:
            value = 0 - value
        while True:
            at -= 1
            text[at] = <uint8_t> (48 + value % 10)
            value //= 10
            if not value:
                break
        if negative:
            _fill(&c.data, c'-', 1)
        _put(&c.data, &text[at], 20 - at)
        _end_bytes(c)
    _valid(c, row)
    return 0


cdef int _add_float(Column *c, Py_ssize_t row, const uint8_t *p) except -1 nogil:
    """Add a cell from a float of as many bytes as its column has."""
    cdef float narrow
    cdef double wide
    if c.width == 4:
        memcpy(&narrow, p, 4)
        wide = narrow
    else:
        memcpy(&wide, p, 8)
        narrow = <float> wide
    if c.out == 4:
        _put(&c.data, &narrow, 4)
    else:
        _put(&c.data, &wide, 8)
    _valid(c, row)
    return 0


cdef int _add_moment(Column *c, Py_ssize_t row, const uint8_t *p, Py_ssize_t n) except -1 nogil:
    """Add a cell from as many of a time's parts as are not zero."""
    cdef uint8_t[11] parts
    cdef int32_t days
    cdef int64_t signed
    memset(parts, 0, 11)
    memcpy(parts, p, n)
    signed = <int64_t> _little(parts + 7, 4)
    if (
        _little(parts, 2) > 9999
        or not _is_day(c, _little(parts, 4), <int> _little(parts, 2), parts[2], parts[3], &days)
        or parts[4] > 23
        or parts[5] > 59
        or parts[6] > 59
        or signed > 999999
    ):
        return _add_no_day(c, row)
    if c.op == OP_DATE:
        _put(&c.data, &days, 4)
    else:
        signed += ((<int64_t> days * 24 + parts[4]) * 3600 + parts[5] * 60 + parts[6]) * 1000000
        _put(&c.data, &signed, 8)
    _valid(c, row)
    return 0

# Values as the server renders them in a select.


cdef bint _parse_unsigned(const uint8_t *s, Py_ssize_t n, uint64_t *out) noexcept nogil:
    cdef hr_u128 value = 0
    cdef Py_ssize_t i
    if n < 1 or n > 20:
        return False
    for i in range(n):
        if not _is_digit(s[i]):
            return False
        value = value * 10 + (s[i] - 48)
    out[0] = <uint64_t> value
    return value >> 64 == 0


cdef int _add_rendered(Column *c, Py_ssize_t row, const uint8_t *s, Py_ssize_t n) except -1 nogil:
    """Add a cell from its text."""
    cdef uint64_t value
    cdef int64_t signed
    cdef int32_t days
    cdef hr_u128 wide
    cdef int op = c.op
    if op == OP_BYTES:
        _put(&c.data, s, n)
        _end_bytes(c)
        _valid(c, row)
        return 0
    if op >= OP_DATE:
        if op == OP_DATE:
            if not _parse_date(s, n, &days):
                return _add_no_day(c, row)
            _put(&c.data, &days, 4)
        else:
            if not _parse_timestamp(s, n, False, &signed):
                return _add_no_day(c, row)
            _put(&c.data, &signed, 8)
        _valid(c, row)
        return 0
    # With ZEROFILL there are zeros in front, which are no part of the value.
    while n > 1 and s[0] == c'0' and _is_digit(s[1]):
        s += 1
        n -= 1
    if op == OP_DECIMAL:
        if not _parse_decimal(s, n, c.precision, c.scale, <uint8_t*> &wide):
            return _add_unfit(c, row)
        _put(&c.data, &wide, 16)
    elif op == OP_UNSIGNED_LONG:
        if not _parse_unsigned(s, n, &value):
            return _add_unfit(c, row)
        wide = value
        _put(&c.data, &wide, 16)
    else:
        if not _parse_int(s, n, FIRST_INT[c.out], LAST_INT[c.out], &signed):
            return _add_unfit(c, row)
        _put(&c.data, &signed, c.out)
    _valid(c, row)
    return 0


cdef int64_t[9] FIRST_INT
cdef int64_t[9] LAST_INT
for _out in (2, 4, 8):
    FIRST_INT[_out] = -(1 << 8 * _out - 1)
    LAST_INT[_out] = (1 << 8 * _out - 1) - 1

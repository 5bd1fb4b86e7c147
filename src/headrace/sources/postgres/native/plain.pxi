# Numbers and times in the plain text form of SQL databases, likewise.


cdef bint _parse_int(const uint8_t *s, Py_ssize_t n, int64_t low, int64_t high, int64_t *out) noexcept nogil:
    cdef bint negative = n > 0 and s[0] == c'-'
    cdef Py_ssize_t i = 1 if negative else 0
    cdef uint64_t value = 0
    if n - i < 1 or n - i > 19:
        return False
    if s[i] == c'0' and (n - i > 1 or negative):
        return False
    while i < n:
        if not _is_digit(s[i]):
            return False
        value = value * 10 + (s[i] - 48)
        i += 1
    if negative:
        if value > (<uint64_t> 1 << 63):
            return False
        out[0] = <int64_t> (0 - value)
    else:
        if value > <uint64_t> 0x7FFFFFFFFFFFFFFF:
            return False
        out[0] = <int64_t> value
    return low <= out[0] <= high


cdef inline int _two(const uint8_t *s) noexcept nogil:
    """Return a number of two digits, negative when it is none."""
    if not _is_digit(s[0]) or not _is_digit(s[1]):
        return -1
    return (s[0] - 48) * 10 + (s[1] - 48)


cdef bint _parse_date(const uint8_t *s, Py_ssize_t n, int32_t *out) noexcept nogil:
    """Read YYYY-MM-DD with a year from 1 to 9999."""
    cdef int high, low, month, day
    if n != 10 or s[4] != c'-' or s[7] != c'-':
        return False
    high, low, month, day = _two(s), _two(s + 2), _two(s + 5), _two(s + 8)
    if high < 0 or low < 0:
        return False
    return _day_of(high * 100 + low, month, day, out)


cdef bint _parse_timestamp(const uint8_t *s, Py_ssize_t n, bint zone, int64_t *out) noexcept nogil:
    """Read YYYY-MM-DD HH:MM:SS[.ffffff], with +00 behind it when it has a zone."""
    cdef int32_t days
    cdef int hour, minute, second, digits = 0
    cdef int64_t fraction = 0
    cdef Py_ssize_t i
    if zone:
        if n < 22 or s[n - 3] != c'+' or s[n - 2] != c'0' or s[n - 1] != c'0':
            return False
        n -= 3
    if n < 19 or s[10] != c' ' or s[13] != c':' or s[16] != c':' or not _parse_date(s, 10, &days):
        return False
    hour, minute, second = _two(s + 11), _two(s + 14), _two(s + 17)
    if hour < 0 or hour > 23 or minute < 0 or minute > 59 or second < 0 or second > 59:
        return False
    if n > 19:
        if s[19] != c'.' or n < 21 or n > 26:
            return False
        for i in range(20, n):
            if not _is_digit(s[i]):
                return False
            fraction = fraction * 10 + (s[i] - 48)
            digits += 1
        while digits < 6:
            fraction *= 10
            digits += 1
    out[0] = ((<int64_t> days * 24 + hour) * 60 + minute) * 60 + second
    out[0] = out[0] * 1000000 + fraction
    return True

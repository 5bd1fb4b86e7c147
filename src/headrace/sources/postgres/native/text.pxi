# Values in PostgreSQL's text form that other databases do not have, and how a cell is made of its text.


cdef double[23] POWERS
cdef int _power
POWERS[0] = 1.0
for _power in range(1, 23):
    POWERS[_power] = POWERS[_power - 1] * 10.0


cdef bint _parse_float(const uint8_t *s, Py_ssize_t n, bint single, double *wide, float *narrow) noexcept nogil:
    """Clinger's exact case by one multiplication or division; else the C library, which rounds once."""
    cdef char[64] copy
    cdef char *stop
    cdef Py_ssize_t i = 0
    cdef uint64_t mantissa = 0
    cdef int digits = 0, exponent = 0, written = 0, power = 0
    cdef bint negative = False, minus = False, any_digit = False
    if n < 1 or n > 60:
        return False
    if s[0] == c'-':
        negative = True
        i = 1
    while i < n and _is_digit(s[i]):
        any_digit = True
        if digits < 19:
            mantissa = mantissa * 10 + (s[i] - 48)
            if mantissa:
                digits += 1
        else:
            exponent += 1
            digits += 1
        i += 1
    if not any_digit:
        return False
    if i < n and s[i] == c'.':
        i += 1
        if i >= n or not _is_digit(s[i]):
            return False
        while i < n and _is_digit(s[i]):
            if digits < 19:
                mantissa = mantissa * 10 + (s[i] - 48)
                exponent -= 1
                if mantissa:
                    digits += 1
            else:
                digits += 1
            i += 1
    if i < n and s[i] == c'e':
        i += 1
        if i < n and (s[i] == c'+' or s[i] == c'-'):
            minus = s[i] == c'-'
            i += 1
        if i >= n:
            return False
        while i < n and _is_digit(s[i]):
            written += 1
            power = power * 10 + (s[i] - 48)
            if power > 400 or written > 4:
                return False
            i += 1
        if not written:
            return False
        exponent += -power if minus else power
    if i != n:
        return False
    if single and digits <= 7 and -10 <= exponent <= 10 and mantissa <= (1 << 24):
        narrow[0] = <float> mantissa
        if exponent < 0:
            narrow[0] = narrow[0] / <float> POWERS[-exponent]
        else:
            narrow[0] = narrow[0] * <float> POWERS[exponent]
        if negative:
            narrow[0] = -narrow[0]
        return True
    if not single and digits <= 19 and -22 <= exponent <= 22 and mantissa <= (<uint64_t> 1 << 53):
        wide[0] = <double> mantissa
        if exponent < 0:
            wide[0] = wide[0] / POWERS[-exponent]
        else:
            wide[0] = wide[0] * POWERS[exponent]
        if negative:
            wide[0] = -wide[0]
        return True
    memcpy(copy, s, n)
    copy[n] = 0
    if single:
        narrow[0] = hr_strtof(copy, &stop)
        wide[0] = narrow[0]
    else:
        wide[0] = hr_strtod(copy, &stop)
    if stop != copy + n:
        return False
    # Beyond the range or lost below it: not for us to decide.
    return wide[0] - wide[0] == 0 and (wide[0] != 0 or mantissa == 0)


cdef int _endless(const uint8_t *s, Py_ssize_t n) noexcept nogil:
    """Return 1 for infinity, -1 for -infinity, else 0."""
    if n == 8 and memcmp(s, b"infinity", 8) == 0:
        return 1
    if n == 9 and memcmp(s, b"-infinity", 9) == 0:
        return -1
    return 0


cdef bint _is_utf8(const uint8_t *s, Py_ssize_t n) noexcept nogil:
    cdef Py_ssize_t i = 0
    cdef uint64_t eight
    cdef uint64_t many[4]
    cdef uint8_t c
    while i < n:
        if n - i >= 32:
            memcpy(many, s + i, 32)
            if not ((many[0] | many[1] | many[2] | many[3]) & <uint64_t> 0x8080808080808080):
                i += 32
                continue
        if n - i >= 8:
            memcpy(&eight, s + i, 8)
            if not (eight & <uint64_t> 0x8080808080808080):
                i += 8
                continue
        c = s[i]
        if c < 0x80:
            i += 1
        elif c < 0xC2:
            return False
        elif c < 0xE0:
            if n - i < 2 or (s[i + 1] & 0xC0) != 0x80:
                return False
            i += 2
        elif c < 0xF0:
            if n - i < 3 or (s[i + 1] & 0xC0) != 0x80 or (s[i + 2] & 0xC0) != 0x80:
                return False
            if (c == 0xE0 and s[i + 1] < 0xA0) or (c == 0xED and s[i + 1] > 0x9F):
                return False
            i += 3
        elif c < 0xF5:
            if n - i < 4 or (s[i + 1] & 0xC0) != 0x80 or (s[i + 2] & 0xC0) != 0x80:
                return False
            if (s[i + 3] & 0xC0) != 0x80:
                return False
            if (c == 0xF0 and s[i + 1] < 0x90) or (c == 0xF4 and s[i + 1] > 0x8F):
                return False
            i += 4
        else:
            return False
    return True


cdef inline int _hex(uint8_t c) noexcept nogil:
    if _is_digit(c):
        return c - 48
    c |= 0x20
    if 97 <= c <= 102:
        return c - 87
    return -1


cdef bint _add_hex(Col *c, const uint8_t *s, Py_ssize_t n) except -1 nogil:
    cdef Py_ssize_t i, size = (n - 2) // 2
    cdef int high, low
    cdef uint8_t *out
    if n < 2 or n % 2 or s[0] != c'\\' or s[1] != c'x':
        return False
    _room(&c.data, size)
    out = c.data.p + c.data.n
    for i in range(size):
        high, low = _hex(s[2 + 2 * i]), _hex(s[3 + 2 * i])
        if high < 0 or low < 0:
            return False
        out[i] = <uint8_t> (high << 4 | low)
    c.data.n += size
    return True


cdef int _add_text_value(Col *c, Py_ssize_t row, const uint8_t *s, Py_ssize_t n) except -1 nogil:
    """Add a cell from its text; return 0 when it is not in plain form and nothing was added."""
    cdef int64_t wide
    cdef int32_t days
    cdef int16_t small
    cdef double real
    cdef float single
    cdef int kind = c.kind
    cdef int end
    if kind == K_TEXT:
        if not _is_utf8(s, n):
            return 0
        _put(&c.data, s, n)
        _end_text(c)
    elif kind == K_INT32:
        if not _parse_int(s, n, -2147483648, 2147483647, &wide):
            return 0
        days = <int32_t> wide
        _put(&c.data, &days, 4)
    elif kind == K_INT64:
        if not _parse_int(s, n, <int64_t> (<uint64_t> 1 << 63), 0x7FFFFFFFFFFFFFFF, &wide):
            return 0
        _put(&c.data, &wide, 8)
    elif kind == K_DECIMAL:
        _room(&c.data, 16)
        if not _parse_decimal(s, n, c.precision, c.scale, c.data.p + c.data.n):
            return 0
        c.data.n += 16
    elif kind == K_TIMESTAMP or kind == K_TIMESTAMP_TZ:
        if not _parse_timestamp(s, n, kind == K_TIMESTAMP_TZ, &wide):
            end = _endless(s, n)
            if not end:
                return 0
            wide = LAST_US if end > 0 else FIRST_US
        _put(&c.data, &wide, 8)
    elif kind == K_DOUBLE:
        if not _parse_float(s, n, False, &real, &single):
            return 0
        _put(&c.data, &real, 8)
    elif kind == K_BOOL:
        if n != 1 or (s[0] != c't' and s[0] != c'f'):
            return 0
        _bit(&c.data, row, s[0] == c't')
    elif kind == K_DATE:
        if not _parse_date(s, n, &days):
            end = _endless(s, n)
            if not end:
                return 0
            days = <int32_t> (LAST_DAY if end > 0 else FIRST_DAY)
        _put(&c.data, &days, 4)
    elif kind == K_INT16:
        if not _parse_int(s, n, -32768, 32767, &wide):
            return 0
        small = <int16_t> wide
        _put(&c.data, &small, 2)
    elif kind == K_FLOAT:
        if not _parse_float(s, n, True, &real, &single):
            return 0
        _put(&c.data, &single, 4)
    else:
        if not _add_hex(c, s, n):
            return 0
        _end_text(c)
    _valid(c, row)
    return 1

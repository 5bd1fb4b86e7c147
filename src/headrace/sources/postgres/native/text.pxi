# Values in PostgreSQL's text form: each parser takes the server's plain form only and returns 0 for everything else.


cdef inline bint _is_digit(uint8_t c) noexcept nogil:
    return <uint8_t> (c - 48) < 10


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


cdef bint _parse_decimal(const uint8_t *s, Py_ssize_t n, int precision, int scale, uint8_t *out) noexcept nogil:
    cdef bint negative = n > 0 and s[0] == c'-'
    cdef Py_ssize_t i = 1 if negative else 0
    cdef Py_ssize_t first = i
    cdef int whole = 0, part = 0
    cdef hr_u128 value = 0
    while i < n and _is_digit(s[i]):
        value = value * 10 + (s[i] - 48)
        whole += 1
        i += 1
        if whole > 39:
            return False
    if whole < 1 or (whole > 1 and s[first] == c'0'):
        return False
    if i < n:
        if s[i] != c'.':
            return False
        i += 1
        while i < n and _is_digit(s[i]):
            value = value * 10 + (s[i] - 48)
            part += 1
            i += 1
            if part > 38:
                return False
        if part < 1:
            return False
    if i != n or part != scale:
        return False
    if whole == 1 and s[first] == c'0':
        whole = 0
    if whole > precision - scale:
        return False
    if negative:
        value = 0 - value
    memcpy(out, &value, 16)
    return True


cdef inline int _two(const uint8_t *s) noexcept nogil:
    """Return a number of two digits, negative when it is none."""
    if not _is_digit(s[0]) or not _is_digit(s[1]):
        return -1
    return (s[0] - 48) * 10 + (s[1] - 48)


cdef bint _parse_date(const uint8_t *s, Py_ssize_t n, int32_t *out) noexcept nogil:
    """Read YYYY-MM-DD with a year from 1 to 9999."""
    cdef int high, low, year, month, day, last
    cdef int64_t era, of_era, of_year, y
    if n != 10 or s[4] != c'-' or s[7] != c'-':
        return False
    high, low, month, day = _two(s), _two(s + 2), _two(s + 5), _two(s + 8)
    if high < 0 or low < 0 or month < 1 or month > 12 or day < 1:
        return False
    year = high * 100 + low
    if year < 1:
        return False
    last = 31
    if month == 2:
        last = 29 if (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)) else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        last = 30
    if day > last:
        return False
    # Days of the civil calendar with years that begin in March.
    y = year - 1 if month <= 2 else year
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    out[0] = <int32_t> (era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468)
    return True


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
    cdef uint8_t[16] decimal
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
        if not _parse_decimal(s, n, c.precision, c.scale, decimal):
            return 0
        _put(&c.data, decimal, 16)
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

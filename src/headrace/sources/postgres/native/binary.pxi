# Values in PostgreSQL's binary form.

cdef int64_t DAYS_TO_2000 = 10957

cdef hr_u128[39] TENS
cdef int _ten
TENS[0] = 1
for _ten in range(1, 39):
    TENS[_ten] = TENS[_ten - 1] * 10


cdef bint _small_decimal(
    const uint8_t *s, int count, int weight, int sign, int precision, int scale, uint8_t *out
) noexcept nogil:
    """Read a numeric whose digits fit a machine word, wherever its point is: at most twelve before it, four behind."""
    cdef uint64_t value = 0, divisor = 1
    cdef int i, places = 4 * (count - 1 - weight)
    for i in range(count):
        if hr_be16(s + 8 + 2 * i) > 9999:
            return False
        value = value * 10000 + hr_be16(s + 8 + 2 * i)
    while places < 0:
        value *= 10000
        places += 4
    if not count:
        places = scale
    while places > scale:
        divisor *= 10
        places -= 1
    if value % divisor:
        return False
    value = value // divisor
    while places < scale:
        value *= 10
        places += 1
    if value >= TENS[precision]:
        return False
    _put_signed(out, value, sign)
    return True


cdef bint _numeric_decimal(const uint8_t *s, Py_ssize_t n, int precision, int scale, uint8_t *out) noexcept nogil:
    cdef int count, weight, sign, places, i
    cdef hr_u128 value = 0, divisor
    if n < 8:
        return False
    count = hr_be16(s)
    weight = <int16_t> hr_be16(s + 2)
    sign = hr_be16(s + 4)
    if n != 8 + 2 * count or (sign != 0 and sign != 0x4000) or hr_be16(s + 6) != scale:
        return False
    if count <= 4 and 0 <= weight < 3 and scale <= 4:
        return _small_decimal(s, count, weight, sign, precision, scale, out)
    if count > 10 or (count == 10 and hr_be16(s + 8) > 33):
        return False
    for i in range(count):
        if hr_be16(s + 8 + 2 * i) > 9999:
            return False
        value = value * 10000 + hr_be16(s + 8 + 2 * i)
    # The last digit stands so many decimal places behind the point.
    places = 4 * (count - 1 - weight)
    if count and places > scale:
        if places - scale > 38:
            return False
        divisor = TENS[places - scale]
        if value % divisor:
            return False
        value = value // divisor
    elif count and places < scale:
        if scale - places > 38 or (value and value > TENS[38] // TENS[scale - places]):
            return False
        value = value * TENS[scale - places]
    if value >= TENS[precision]:
        return False
    if sign:
        value = 0 - value
    memcpy(out, &value, 16)
    return True


cdef bint _numeric_text(Col *c, const uint8_t *s, Py_ssize_t n) except -1 nogil:
    """Add the text of a numeric as the server writes it."""
    cdef int count, weight, sign, scale, i, digit, left, power
    cdef bint begun = False
    cdef uint8_t *out
    cdef Py_ssize_t start
    if n < 8:
        return False
    count = hr_be16(s)
    weight = <int16_t> hr_be16(s + 2)
    sign = hr_be16(s + 4)
    scale = hr_be16(s + 6)
    if n != 8 + 2 * count or (sign != 0 and sign != 0x4000) or scale > 0x3FFF:
        return False
    for i in range(count):
        if hr_be16(s + 8 + 2 * i) > 9999:
            return False
    _room(&c.data, 4 * (<Py_ssize_t> max(weight, 0) + 2) + scale + 8)
    out = c.data.p
    start = c.data.n
    if sign:
        out[start] = c'-'
        start += 1
    for i in range(weight + 1):
        digit = hr_be16(s + 8 + 2 * i) if i < count else 0
        power = 1000
        while power:
            if begun or digit // power:
                begun = True
                out[start] = <uint8_t> (48 + digit // power)
                start += 1
            digit = digit % power
            power = power // 10
    if not begun:
        out[start] = c'0'
        start += 1
    if scale:
        out[start] = c'.'
        start += 1
        left = scale
        i = weight + 1
        while left > 0:
            digit = hr_be16(s + 8 + 2 * i) if 0 <= i < count else 0
            power = 1000
            while power and left > 0:
                out[start] = <uint8_t> (48 + digit // power)
                start += 1
                left -= 1
                digit = digit % power
                power = power // 10
            i += 1
    c.data.n = start
    return True


cdef int _put_number(Col *c, uint64_t value, int least) except -1 nogil:
    """Add digits, at least so many."""
    cdef uint8_t[20] digits
    cdef int i = 20
    while value or 20 - i < least:
        i -= 1
        digits[i] = <uint8_t> (48 + value % 10)
        value = value // 10
    return _put(&c.data, digits + i, 20 - i)


cdef int _put_time(Col *c, uint64_t us) except -1 nogil:
    """Add HH:MM:SS[.ffffff] without zeros at its end, as the server writes it."""
    cdef uint64_t seconds = us // 1000000, fraction = us % 1000000
    cdef int places = 6
    _put_number(c, seconds // 3600, 2)
    _put(&c.data, b":", 1)
    _put_number(c, seconds // 60 % 60, 2)
    _put(&c.data, b":", 1)
    _put_number(c, seconds % 60, 2)
    if fraction:
        while fraction % 10 == 0:
            fraction = fraction // 10
            places -= 1
        _put(&c.data, b".", 1)
        _put_number(c, fraction, places)
    return 0


cdef const char *HEX = b"0123456789abcdef"


# How a column's binary form becomes its values: one choice for kind and form together, made once for a table.
cdef enum:
    W_UNKNOWN = 0
    W_INT16 = 1
    W_INT32 = 2
    W_INT64 = 3
    W_TIMESTAMP = 4
    W_DOUBLE = 5
    W_FLOAT = 6
    W_DATE = 7
    W_BOOL = 8
    W_TEXT = 9
    W_BYTES = 10
    W_DECIMAL = 11
    W_JSONB = 12
    W_UUID = 13
    W_NUMERIC = 14
    W_OID = 15
    W_TIME = 16
    W_SKIPPED = 17

cdef dict _WAYS_OF_FORMS = {
    F_UUID: W_UUID, F_JSONB: W_JSONB, F_OID: W_OID, F_TIME: W_TIME, F_SKIPPED: W_SKIPPED, F_UNKNOWN: W_UNKNOWN,
}
cdef dict _WAYS_OF_KINDS = {
    K_TEXT: W_TEXT, K_BYTES: W_BYTES, K_BOOL: W_BOOL, K_INT16: W_INT16, K_INT32: W_INT32, K_INT64: W_INT64,
    K_FLOAT: W_FLOAT, K_DOUBLE: W_DOUBLE, K_DATE: W_DATE, K_TIMESTAMP: W_TIMESTAMP, K_TIMESTAMP_TZ: W_TIMESTAMP,
    K_DECIMAL: W_DECIMAL,
}


def _way_of(kind, form):
    """Return how the values of a column are made of their binary form."""
    if form == F_NUMERIC and kind == K_TEXT:
        return W_NUMERIC
    return _WAYS_OF_FORMS.get(form, _WAYS_OF_KINDS[kind])


cdef bint _add_made_text(Col *c, const uint8_t *s, Py_ssize_t n) except -1 nogil:
    """Add a text that the value's binary form is not yet; False when it is for Python to judge."""
    cdef uint8_t[36] text
    cdef int i, at = 0
    if c.way == W_UUID:
        if n != 16:
            return False
        for i in range(16):
            if i == 4 or i == 6 or i == 8 or i == 10:
                text[at] = c'-'
                at += 1
            text[at] = HEX[s[i] >> 4]
            text[at + 1] = HEX[s[i] & 15]
            at += 2
        _put(&c.data, text, 36)
    elif c.way == W_NUMERIC:
        if not _numeric_text(c, s, n):
            return False
    elif c.way == W_OID:
        if n != 4:
            return False
        _put_number(c, hr_be32(s), 1)
    elif c.way == W_TIME:
        if n != 8 or hr_be64(s) > <uint64_t> DAY_US:
            return False
        _put_time(c, hr_be64(s))
    elif c.way == W_JSONB:
        if n < 1 or s[0] != 1 or not _is_utf8(s + 1, n - 1):
            return False
        _put(&c.data, s + 1, n - 1)
    _end_text(c)
    return True


cdef inline bint _add_binary_value(Col *c, Py_ssize_t row, const uint8_t *s, Py_ssize_t n) except -1 nogil:
    """Add a cell from its binary form; False when it is for Python to judge."""
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    cdef int64_t wide
    cdef double real
    cdef float single
    if c.way == W_INT64:
        if n != 8:
            return False
        eight = hr_be64(s)
        _put(&c.data, &eight, 8)
    elif c.way == W_INT32:
        if n != 4:
            return False
        four = hr_be32(s)
        _put(&c.data, &four, 4)
    elif c.way == W_INT16:
        if n != 2:
            return False
        two = hr_be16(s)
        _put(&c.data, &two, 2)
    elif c.way == W_TIMESTAMP:
        if n != 8:
            return False
        wide = <int64_t> hr_be64(s)
        if wide != LAST_US and wide != FIRST_US:
            if wide >= LAST_US - US_TO_2000:
                return False
            wide += US_TO_2000
        _put(&c.data, &wide, 8)
    elif c.way == W_DOUBLE:
        if n != 8:
            return False
        eight = hr_be64(s)
        memcpy(&real, &eight, 8)
        if real != real:
            eight = <uint64_t> 0x7FF8000000000000
        _put(&c.data, &eight, 8)
    elif c.way == W_FLOAT:
        if n != 4:
            return False
        four = hr_be32(s)
        memcpy(&single, &four, 4)
        if single != single:
            four = 0x7FC00000
        _put(&c.data, &four, 4)
    elif c.way == W_DATE:
        if n != 4:
            return False
        four = hr_be32(s)
        wide = <int32_t> four
        if wide != LAST_DAY and wide != FIRST_DAY:
            if wide >= LAST_DAY - DAYS_TO_2000:
                return False
            four = <uint32_t> (wide + DAYS_TO_2000)
        _put(&c.data, &four, 4)
    elif c.way == W_BOOL:
        if n != 1 or s[0] > 1:
            return False
        _bit(&c.data, row, s[0])
    elif c.way == W_DECIMAL:
        _room(&c.data, 16)
        if not _numeric_decimal(s, n, c.precision, c.scale, c.data.p + c.data.n):
            return False
        c.data.n += 16
    elif c.way == W_TEXT or c.way == W_BYTES:
        if c.way == W_TEXT and not _is_utf8(s, n):
            return False
        _put(&c.data, s, n)
        _end_text(c)
    elif not _add_made_text(c, s, n):
        return False
    _valid(c, row)
    return True

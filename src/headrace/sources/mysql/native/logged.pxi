# Values as an image has them.

cdef int[9] DIGIT_BYTES
DIGIT_BYTES[:] = [0, 1, 1, 2, 2, 3, 3, 4, 4]

cdef uint64_t[10] TENS
TENS[:] = [1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000]

# Fractions of one and two digits are hundredths, those of three and four ten-thousandths.
cdef int64_t[4] MICROS
MICROS[:] = [1, 10000, 100, 1]


cdef inline uint64_t _little(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    cdef uint64_t value = 0
    if n == 4:
        memcpy(&value, p, 4)
    elif n == 8:
        memcpy(&value, p, 8)
    elif n == 2:
        memcpy(&value, p, 2)
    elif n == 1:
        value = p[0]
    else:
        while n:
            n -= 1
            value = value << 8 | p[n]
    return value


cdef inline uint32_t _word(const uint8_t *p) noexcept nogil:
    return <uint32_t> p[0] << 24 | <uint32_t> p[1] << 16 | <uint32_t> p[2] << 8 | p[3]


cdef inline int64_t _big(const uint8_t *p, Py_ssize_t n) noexcept nogil:
    cdef uint64_t value = 0
    cdef Py_ssize_t i
    # What most moments and decimals have is read as a word.
    if n == 4:
        return _word(p)
    if n == 5:
        return <int64_t> p[0] << 32 | _word(p + 1)
    for i in range(n):
        value = value << 8 | p[i]
    return <int64_t> value


cdef bint _group(const uint8_t *p, int digits, uint8_t flip, uint8_t first, hr_u128 *value) noexcept nogil:
    """Add a group of digits to a decimal; return 0 when it has more than it should."""
    cdef int i, n = DIGIT_BYTES[digits] if digits < 9 else 4
    cdef uint64_t group = p[0] ^ flip ^ first
    for i in range(1, n):
        group = group << 8 | <uint8_t> (p[i] ^ flip)
    value[0] = value[0] * TENS[digits] + group
    return group < TENS[digits]


cdef bint _logged_decimal(const uint8_t *p, int precision, int scale, uint8_t *out) noexcept nogil:
    """Read groups of up to nine digits, the first bit turned, all bits turned when it is negative."""
    cdef uint8_t flip = 0 if p[0] & 0x80 else 0xFF
    cdef uint8_t first = 0x80
    cdef hr_u128 value = 0
    cdef int whole = precision - scale, digits, side
    for side in range(2):
        # Before the point the short group comes first, behind it last.
        digits = whole if side == 0 else scale
        if side == 0 and digits % 9:
            if not _group(p, digits % 9, flip, first, &value):
                return False
            p += DIGIT_BYTES[digits % 9]
            first = 0
        while digits >= 9:
            if not _group(p, 9, flip, first, &value):
                return False
            p += 4
            first = 0
            digits -= 9
        if side == 1 and digits:
            if not _group(p, digits, flip, first, &value):
                return False
    value = 0 - value if flip else value
    memcpy(out, &value, 16)
    return True


cdef bint _small_decimal(const uint8_t *p, int whole, int scale, uint8_t *out) noexcept nogil:
    """Likewise where at most nine digits are on each side of the point."""
    cdef uint8_t flip = 0 if p[0] & 0x80 else 0xFF
    cdef int left = DIGIT_BYTES[whole] if whole < 9 else 4, right = DIGIT_BYTES[scale] if scale < 9 else 4
    cdef uint64_t value = <uint64_t> _big(p, left), part = <uint64_t> _big(p + left, right)
    if flip:
        value ^= (<uint64_t> 1 << 8 * left) - 1
        part ^= (<uint64_t> 1 << 8 * right) - 1
    # The first bit is turned, whichever group has it.
    if left:
        value ^= <uint64_t> 0x80 << 8 * (left - 1)
    else:
        part ^= <uint64_t> 0x80 << 8 * (right - 1)
    if value >= TENS[whole] or part >= TENS[scale]:
        return False
    value = value * TENS[scale] + part
    _put_signed(out, value, flip)
    return True


cdef int _add_logged(Column *c, Py_ssize_t row, const uint8_t *p, Py_ssize_t n) except -1 nogil:
    """Add a cell that is neither plain nor bytes from its bytes in an image, of which there are as many as its type has."""
    cdef uint64_t value
    cdef int64_t signed
    cdef int32_t days
    cdef int op = c.op
    cdef bint good
    if op == OP_INT:
        value = _little(p, n)
        if n < 8 and p[n - 1] & 0x80:
            value |= ~<uint64_t> 0 << 8 * n
        _put_number(&c.data, &value, c.out)
    elif op == OP_UNSIGNED:
        value = _little(p, n)
        _put_number(&c.data, &value, c.out)
    elif op == OP_UNSIGNED_LONG:
        _room(&c.data, 16)
        _put_signed(c.data.p + c.data.n, _little(p, 8), False)
        c.data.n += 16
    elif op == OP_DECIMAL:
        _room(&c.data, 16)
        if c.precision - c.scale <= 9 and c.scale <= 9:
            good = _small_decimal(p, c.precision - c.scale, c.scale, c.data.p + c.data.n)
        else:
            good = _logged_decimal(p, c.precision, c.scale, c.data.p + c.data.n)
        if not good:
            return _add_unfit(c, row)
        c.data.n += 16
    elif op == OP_DATETIME:
        # From the year down; months are counted thirteen to a year.
        signed = _big(p, 5) - (<int64_t> 1 << 39)
        value = <uint64_t> signed >> 17
        if signed < 0 or not _is_day(
            c, value, <int> ((value >> 5) // 13), <int> ((value >> 5) % 13), value & 31, &days
        ):
            return _add_no_day(c, row)
        value = signed & 0x1FFFF
        signed = <int64_t> days * 86400 + (value >> 12) * 3600 + (value >> 6 & 63) * 60 + (value & 63)
        signed = signed * 1000000 + _big(p + 5, n - 5) * MICROS[n - 5]
        _put(&c.data, &signed, 8)
    elif op == OP_TIMESTAMP:
        signed = _big(p, 4) * 1000000 + _big(p + 4, n - 4) * MICROS[n - 4]
        if not signed:
            return _add_no_day(c, row)
        _put(&c.data, &signed, 8)
    elif op == OP_DATE:
        value = _little(p, 3)
        if not _is_day(c, value, <int> (value >> 9), value >> 5 & 15, value & 31, &days):
            return _add_no_day(c, row)
        _put(&c.data, &days, 4)
    elif op == OP_YEAR:
        value = p[0] + 1900 if p[0] else 0
        _put(&c.data, &value, 2)
    else:
        _put_number(&c.data, p, c.out)
    _valid(c, row)
    return 0

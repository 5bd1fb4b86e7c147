# Values in the plain text form of SQL databases: each parser takes that form only and returns 0 for everything else.


cdef extern from *:
    """
    typedef unsigned __int128 hr_u128;

    /* Writes a number of 16 bytes. Its words one by one: kept as a whole they go through memory and are read again before
       both have arrived, which cost a third of a row's time. */
    static inline void hr_put_signed(unsigned char *out, unsigned long long value, int negative) {
        unsigned long long low = negative ? 0 - value : value, high = 0 - (unsigned long long) (negative && value);
        memcpy(out, &low, 8);
        memcpy(out + 8, &high, 8);
    }
    """
    ctypedef unsigned long long hr_u128
    void _put_signed "hr_put_signed"(uint8_t *out, uint64_t value, bint negative) noexcept nogil


cdef inline bint _is_digit(uint8_t c) noexcept nogil:
    return <uint8_t> (c - 48) < 10


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


cdef bint _day_of(int year, int month, int day, int32_t *out) noexcept nogil:
    """Give days since 1970 of a day of the civil calendar; return 0 when it is none."""
    cdef int last = 31
    cdef int64_t era, of_era, of_year, y
    if year < 1 or month < 1 or month > 12 or day < 1:
        return False
    if month == 2:
        last = 29 if (year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)) else 28
    elif month == 4 or month == 6 or month == 9 or month == 11:
        last = 30
    if day > last:
        return False
    # Years that begin in March.
    y = year - 1 if month <= 2 else year
    era = y // 400
    of_era = y - era * 400
    of_year = (153 * (month - 3 if month > 2 else month + 9) + 2) // 5 + day - 1
    out[0] = <int32_t> (era * 146097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719468)
    return True

# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False
"""The stream's hot path in C: frames in, Arrow buffers out. `decoder` and `rows` are its twin in Python.

Whatever is rare is left to Python: `NativeDecoder.walk` stops at a message that is not a row, a begin or a commit, and at
everything that looks broken, and hands its bytes over, so that only one place explains an error. A value that is not in
the server's plain form goes through `values.build_column` or `binary.binary_column`, so both twins agree on every
value by construction.

No parser reads past its field: each gets a pointer and a length that were checked against the message.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

import numpy as np
import pyarrow as pa

from headrace.errors import ProtocolError
from headrace.model.block import TRANSACTION_DTYPE, Body
from headrace.model.change import change_schema, pack_missing
from headrace.model.schema import KeyCheck
from headrace.sources.postgres.binary import binary_column
from headrace.sources.postgres.types import Form
from headrace.sources.postgres.values import build_column

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <locale.h>
    #include <stdlib.h>
    #if defined(__APPLE__)
    #include <xlocale.h>
    #endif
    typedef unsigned __int128 hr_u128;
    static locale_t hr_c_locale = (locale_t)0;
    static void hr_make_locale(void) { hr_c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0); }
    static double hr_strtod(const char *s, char **e) { return strtod_l(s, e, hr_c_locale); }
    static float hr_strtof(const char *s, char **e) { return strtof_l(s, e, hr_c_locale); }
    static inline unsigned short hr_be16(const unsigned char *p) {
        return (unsigned short)((p[0] << 8) | p[1]);
    }
    static inline unsigned int hr_be32(const unsigned char *p) {
        unsigned int v; __builtin_memcpy(&v, p, 4); return __builtin_bswap32(v);
    }
    static inline unsigned long long hr_be64(const unsigned char *p) {
        unsigned long long v; __builtin_memcpy(&v, p, 8); return __builtin_bswap64(v);
    }
    """
    ctypedef unsigned long long hr_u128
    void hr_make_locale() nogil
    double hr_strtod(const char *s, char **end) nogil
    float hr_strtof(const char *s, char **end) nogil
    uint16_t hr_be16(const uint8_t *p) nogil
    uint32_t hr_be32(const uint8_t *p) nogil
    uint64_t hr_be64(const uint8_t *p) nogil

hr_make_locale()

__all__ = ["COLD", "FULL", "NEED", "SPOOLED", "NativeDecoder", "NativeRows", "copy_columns"]

# Why a walk stopped; `decoder` has the same.
NEED = 0
FULL = 1
COLD = 2
SPOOLED = 3

cdef enum:
    _NEED = 0
    _FULL = 1
    _COLD = 2
    _SPOOLED = 3
    _GO_ON = 4

cdef int64_t US_TO_2000 = 946684800000000
cdef int64_t DAY_US = 86400000000

# The ends of the integers, here and in PostgreSQL: the infinities of dates and timestamps.
cdef int64_t FIRST_DAY = -<int64_t> 0x80000000
cdef int64_t LAST_DAY = 0x7FFFFFFF
cdef int64_t FIRST_US = <int64_t> (<uint64_t> 1 << 63)
cdef int64_t LAST_US = 0x7FFFFFFFFFFFFFFF
cdef int64_t MAX_ORD = (<int64_t> 1 << 31) - 3
cdef Py_ssize_t SPOOL_BYTES = 1 << 20
cdef int MAX_COLUMNS = 1664

# Places in OPS.
cdef enum:
    OP_INSERT = 0
    OP_OLD = 1
    OP_NEW = 2
    OP_PATCH = 3
    OP_DELETE = 4

cdef const char *OPS = b"+I-U+U=U-D"

cdef enum:
    K_TEXT = 0
    K_BYTES = 1
    K_BOOL = 2
    K_INT16 = 3
    K_INT32 = 4
    K_INT64 = 5
    K_FLOAT = 6
    K_DOUBLE = 7
    K_DATE = 8
    K_TIMESTAMP = 9
    K_TIMESTAMP_TZ = 10
    K_DECIMAL = 11

# How the binary form of a column is read: the numbers of `types.Form`.
cdef enum:
    F_PLAIN = 0
    F_NUMERIC = 1
    F_UUID = 2
    F_JSONB = 3
    F_OID = 4
    F_TIME = 5
    F_SKIPPED = 6
    F_UNKNOWN = 7

# What a row message asks of a tuple.
cdef enum:
    T_WHOLE = 0      # its cells, unchanged ones are missing
    T_KEY = 1        # a key-only image
    T_AFTER_OLD = 2  # unchanged cells are those of the row before
    T_SKIP = 3       # only checked


# ---------------------------------------------------------------------------------------------
# Memory


cdef struct Vec:
    uint8_t *p
    Py_ssize_t n
    Py_ssize_t cap


cdef int _room(Vec *v, Py_ssize_t more) except -1 nogil:
    cdef Py_ssize_t cap
    cdef uint8_t *p
    if v.n + more <= v.cap:
        return 0
    cap = v.cap * 2
    if cap < v.n + more:
        cap = v.n + more
    if cap < 256:
        cap = 256
    p = <uint8_t *> realloc(v.p, cap)
    if p == NULL:
        with gil:
            raise MemoryError
    v.p = p
    v.cap = cap
    return 0


cdef inline int _put(Vec *v, const void *data, Py_ssize_t size) except -1 nogil:
    if size:
        _room(v, size)
        memcpy(v.p + v.n, data, size)
        v.n += size
    return 0


cdef class _Memory:
    """Owns what a vector held; Arrow reads it and lets it go."""

    cdef uint8_t *p
    cdef Py_ssize_t n

    def __getbuffer__(self, Py_buffer *view, int flags):
        PyBuffer_FillInfo(view, self, self.p, self.n, 1, flags)

    def __dealloc__(self):
        free(self.p)


cdef object _hand_over(Vec *v):
    """Return a vector's memory as an Arrow buffer; the vector is empty afterwards."""
    cdef _Memory memory = _Memory.__new__(_Memory)
    _room(v, 8)
    memory.p = v.p
    memory.n = v.n
    v.p = NULL
    v.n = 0
    v.cap = 0
    return pa.py_buffer(memory)


# ---------------------------------------------------------------------------------------------
# Columns and rows


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


# ---------------------------------------------------------------------------------------------
# Values: each parser takes the server's plain form only and returns 0 for everything else


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
    cdef uint8_t c
    while i < n:
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
    _bit(&c.valid, row, True)
    return 1


# ---------------------------------------------------------------------------------------------
# Binary values

cdef int64_t DAYS_TO_2000 = 10957

cdef hr_u128[39] TENS
cdef int _ten
TENS[0] = 1
for _ten in range(1, 39):
    TENS[_ten] = TENS[_ten - 1] * 10


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


cdef bint _add_binary_value(Col *c, Py_ssize_t row, const uint8_t *s, Py_ssize_t n) except -1 nogil:
    """Add a cell from its binary form; False when it is for Python to judge."""
    cdef uint8_t[36] text
    cdef uint8_t[16] decimal
    cdef int kind = c.kind
    cdef int form = c.form
    cdef int i, at = 0
    cdef uint16_t two
    cdef uint32_t four
    cdef uint64_t eight
    cdef int64_t wide
    cdef double real
    cdef float single
    if form == F_UUID:
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
        _end_text(c)
    elif form == F_SKIPPED:
        _end_text(c)
    elif form == F_NUMERIC and kind == K_TEXT:
        if not _numeric_text(c, s, n):
            return False
        _end_text(c)
    elif form == F_OID:
        if n != 4:
            return False
        _put_number(c, hr_be32(s), 1)
        _end_text(c)
    elif form == F_TIME:
        if n != 8 or hr_be64(s) > <uint64_t> DAY_US:
            return False
        _put_time(c, hr_be64(s))
        _end_text(c)
    elif kind == K_TEXT:
        if form == F_JSONB:
            if n < 1 or s[0] != 1:
                return False
            s += 1
            n -= 1
        if not _is_utf8(s, n):
            return False
        _put(&c.data, s, n)
        _end_text(c)
    elif kind == K_BYTES:
        _put(&c.data, s, n)
        _end_text(c)
    elif kind == K_DECIMAL:
        if not _numeric_decimal(s, n, c.precision, c.scale, decimal):
            return False
        _put(&c.data, decimal, 16)
    elif kind == K_BOOL:
        if n != 1 or s[0] > 1:
            return False
        _bit(&c.data, row, s[0])
    elif n != c.width:
        return False
    elif kind == K_INT16:
        two = hr_be16(s)
        _put(&c.data, &two, 2)
    elif kind == K_INT32 or kind == K_FLOAT or kind == K_DATE:
        four = hr_be32(s)
        if kind == K_DATE:
            wide = <int32_t> four
            if wide != LAST_DAY and wide != FIRST_DAY:
                if wide >= LAST_DAY - DAYS_TO_2000:
                    return False
                four = <uint32_t> (wide + DAYS_TO_2000)
        elif kind == K_FLOAT:
            memcpy(&single, &four, 4)
            if single != single:
                four = 0x7FC00000
        _put(&c.data, &four, 4)
    else:
        eight = hr_be64(s)
        if kind == K_DOUBLE:
            memcpy(&real, &eight, 8)
            if real != real:
                eight = <uint64_t> 0x7FF8000000000000
        elif kind != K_INT64:
            wide = <int64_t> eight
            if wide != LAST_US and wide != FIRST_US:
                if wide >= LAST_US - US_TO_2000:
                    return False
                eight = <uint64_t> (wide + US_TO_2000)
        _put(&c.data, &eight, 8)
    _bit(&c.valid, row, True)
    return True


def _kind_of(type_):
    """Return kind, width, precision and scale of a column's type."""
    if pa.types.is_string(type_):
        return K_TEXT, 0, 0, 0
    if pa.types.is_binary(type_):
        return K_BYTES, 0, 0, 0
    if pa.types.is_boolean(type_):
        return K_BOOL, 0, 0, 0
    if pa.types.is_decimal128(type_):
        return K_DECIMAL, 16, type_.precision, type_.scale
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return (K_TIMESTAMP_TZ if type_.tz else K_TIMESTAMP), 8, 0, 0
    plain = {
        pa.int16(): K_INT16,
        pa.int32(): K_INT32,
        pa.int64(): K_INT64,
        pa.float32(): K_FLOAT,
        pa.float64(): K_DOUBLE,
        pa.date32(): K_DATE,
    }
    return plain[type_], type_.bit_width // 8, 0, 0


cdef class NativeRows:
    """Rows of one table version, in ``(scn, ord)`` order; see `headrace.sources.postgres.rows.ChangeRows`."""

    cdef readonly object schema
    cdef readonly object schema_id
    cdef object _arrow
    cdef Rows rows

    def __cinit__(self, schema, schema_id, forms=()):
        cdef int i
        cdef int count = len(schema.columns)
        memset(&self.rows, 0, sizeof(Rows))
        self.rows.ncols = count
        self.rows.mask_bytes = (count + 7) // 8
        self.rows.cols = <Col *> malloc(max(1, count) * sizeof(Col))
        self.rows.mask = <uint8_t *> malloc(3 * (self.rows.mask_bytes + 1))
        if self.rows.cols == NULL or self.rows.mask == NULL:
            raise MemoryError
        memset(self.rows.cols, 0, max(1, count) * sizeof(Col))
        memset(self.rows.mask, 0, 3 * (self.rows.mask_bytes + 1))
        self.rows.before = self.rows.mask + self.rows.mask_bytes
        self.rows.key_only = self.rows.before + self.rows.mask_bytes
        self.rows.immediate = schema.key_check is KeyCheck.IMMEDIATE

    def __init__(self, schema, schema_id, forms=()):
        cdef int i
        cdef Col *c
        if forms and len(forms) != len(schema.columns):
            raise ValueError("a form for each column, or none at all")
        self.schema = schema
        self.schema_id = schema_id
        self._arrow = change_schema(schema)
        for i, column in enumerate(schema.columns):
            c = &self.rows.cols[i]
            c.kind, c.width, c.precision, c.scale = _kind_of(column.type)
            c.form = forms[i] if forms else F_UNKNOWN
            if c.kind != K_TEXT and c.form in (F_UUID, F_JSONB, F_OID, F_TIME, F_SKIPPED):
                raise ValueError("a form that makes text for a column that is none")
            c.in_key = column.name in schema.key
            if not c.in_key:
                self.rows.key_only[i >> 3] |= <uint8_t> (1 << (i & 7))
        self._begin()

    def __dealloc__(self):
        cdef int i
        if self.rows.cols != NULL:
            for i in range(self.rows.ncols):
                free(self.rows.cols[i].valid.p)
                free(self.rows.cols[i].data.p)
                free(self.rows.cols[i].offsets.p)
            free(self.rows.cols)
        free(self.rows.mask)
        free(self.rows.scn.p)
        free(self.rows.ord.p)
        free(self.rows.op.p)
        free(self.rows.miss_valid.p)
        free(self.rows.miss_data.p)
        free(self.rows.miss_offsets.p)

    def __len__(self):
        return self.rows.n

    @property
    def first(self):
        """Place ``(scn, ord)`` of the first row."""
        return (<int64_t *> self.rows.scn.p)[0], (<int32_t *> self.rows.ord.p)[0]

    cdef int _begin(self) except -1:
        """Start the offsets of an empty batch."""
        cdef int i
        cdef int32_t zero = 0
        self.rows.n = 0
        self.rows.missing = 0
        for i in range(self.rows.ncols):
            self.rows.cols[i].nulls = 0
            if self.rows.cols[i].kind <= K_BYTES:
                _put(&self.rows.cols[i].offsets, &zero, 4)
        _put(&self.rows.miss_offsets, &zero, 4)
        return 0

    def body(self):
        """Return everything added so far as one body and start anew."""
        cdef Py_ssize_t n = self.rows.n
        cdef Py_ssize_t i
        cdef Vec text
        cdef Vec offsets
        cdef int32_t end
        memset(&text, 0, sizeof(Vec))
        memset(&offsets, 0, sizeof(Vec))
        _room(&text, 2 * n + 8)
        _room(&offsets, 4 * (n + 1))
        for i in range(n):
            memcpy(text.p + 2 * i, OPS + 2 * self.rows.op.p[i], 2)
            (<int32_t *> offsets.p)[i] = <int32_t> (2 * i)
        (<int32_t *> offsets.p)[n] = <int32_t> (2 * n)
        text.n = 2 * n
        offsets.n = 4 * (n + 1)
        self.rows.op.n = 0
        missing = [None, _hand_over(&self.rows.miss_offsets), _hand_over(&self.rows.miss_data)]
        if self.rows.missing < n:
            missing[0] = _hand_over(&self.rows.miss_valid)
        else:
            self.rows.miss_valid.n = 0
        arrays = [
            pa.Array.from_buffers(pa.int64(), n, [None, _hand_over(&self.rows.scn)]),
            pa.Array.from_buffers(pa.int32(), n, [None, _hand_over(&self.rows.ord)]),
            pa.Array.from_buffers(
                pa.string(), n, [None, _hand_over(&offsets), _hand_over(&text)], 0
            ),
            pa.Array.from_buffers(pa.binary(), n, missing, n - self.rows.missing),
        ]
        arrays += self._columns()
        self._begin()
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        return Body(self.schema_id, self.schema.table, batch)

    cdef list _columns(self):
        """Return the table's own columns; their memory is no longer ours."""
        cdef Py_ssize_t n = self.rows.n
        cdef int place
        cdef Col *c
        arrays = []
        for place in range(self.rows.ncols):
            c = &self.rows.cols[place]
            valid = None
            nulls = c.nulls
            if nulls:
                valid = _hand_over(&c.valid)
            else:
                c.valid.n = 0
            buffers = [valid]
            if c.kind <= K_BYTES:
                buffers.append(_hand_over(&c.offsets))
            buffers.append(_hand_over(&c.data))
            arrays.append(
                pa.Array.from_buffers(self.schema.columns[place].type, n, buffers, nulls)
            )
        return arrays

    cdef int _slow_value(self, int place, const uint8_t *s, Py_ssize_t n, bint binary) except -1:
        """Add a cell by the function that the other twin uses.

        Raises:
            UndecodableValue: it has no exact place in the column's type.
            ProtocolError: it is no binary value of the column's type.
        """
        cdef Col *c = &self.rows.cols[place]
        cdef const uint8_t[::1] raw
        cdef Py_ssize_t row = self.rows.n
        cells = [(<const char *> s)[:n]]
        if binary:
            array = binary_column(self.schema, place, Form(c.form), cells)
        else:
            array = build_column(self.schema, place, cells)
        if c.kind <= K_BYTES:
            value = array[0].as_buffer()
            raw = memoryview(value).cast("B")
            if raw.shape[0]:
                _put(&c.data, &raw[0], raw.shape[0])
            _end_text(c)
        elif c.kind == K_BOOL:
            _bit(&c.data, row, array[0].as_py())
        else:
            raw = memoryview(array.buffers()[1]).cast("B")
            _put(&c.data, &raw[0], c.width)
        _bit(&c.valid, row, True)
        return 0

    cdef int _add_tuple(
        self, const uint8_t *msg, Py_ssize_t *at, Py_ssize_t end, int mode
    ) except -1 nogil:
        """Read one tuple; return 0 when it is malformed or not ours to judge."""
        cdef Rows *r = &self.rows
        cdef Py_ssize_t place = at[0]
        cdef Py_ssize_t row = r.n
        cdef Py_ssize_t size
        cdef int i
        cdef int count
        cdef uint8_t kind
        cdef bint holes = False
        cdef bint taken
        if end - place < 2:
            return 0
        count = hr_be16(msg + place)
        place += 2
        if count != r.ncols:
            return 0
        memset(r.mask, 0, r.mask_bytes)
        for i in range(count):
            if place >= end:
                return 0
            kind = msg[place]
            place += 1
            if kind == c't' or kind == c'b':
                if end - place < 4:
                    return 0
                size = <int32_t> hr_be32(msg + place)
                place += 4
                if size < 0 or size > end - place:
                    return 0
                if kind == c't':
                    taken = _add_text_value(&r.cols[i], row, msg + place, size)
                elif r.cols[i].form == F_UNKNOWN:
                    return 0
                else:
                    taken = _add_binary_value(&r.cols[i], row, msg + place, size)
                if not taken:
                    with gil:
                        self._slow_value(i, msg + place, size, kind == c'b')
                place += size
            elif kind == c'n':
                _add_null(&r.cols[i], row)
            elif kind == c'u':
                if mode == T_KEY:
                    return 0
                if mode == T_AFTER_OLD and not (r.before[i >> 3] >> (i & 7)) & 1:
                    _copy_before(&r.cols[i], row)
                else:
                    _add_null(&r.cols[i], row)
                    r.mask[i >> 3] |= <uint8_t> (1 << (i & 7))
                    holes = True
            else:
                return 0
        if mode == T_KEY:
            memcpy(r.mask, r.key_only, r.mask_bytes)
            holes = False
            for i in range(r.mask_bytes):
                holes = holes or r.mask[i] != 0
        self._end_mask(row, holes)
        at[0] = place
        return 1

    cdef int _end_mask(self, Py_ssize_t row, bint holes) except -1 nogil:
        cdef Rows *r = &self.rows
        cdef int32_t end
        if holes:
            _put(&r.miss_data, r.mask, r.mask_bytes)
            r.missing += 1
        _bit(&r.miss_valid, row, holes)
        end = <int32_t> r.miss_data.n
        _put(&r.miss_offsets, &end, 4)
        memcpy(r.before, r.mask, r.mask_bytes)
        return 0

    cdef int _end_row(self, int64_t scn, int64_t ordinal, int op) except -1 nogil:
        cdef Rows *r = &self.rows
        cdef int32_t narrow = <int32_t> ordinal
        cdef uint8_t code = <uint8_t> op
        _put(&r.scn, &scn, 8)
        _put(&r.ord, &narrow, 4)
        _put(&r.op, &code, 1)
        r.n += 1
        return 0

    cdef int _message(
        self, const uint8_t *msg, Py_ssize_t at, Py_ssize_t end, uint8_t kind,
        int64_t scn, int64_t ordinal,
    ) except -1 nogil:
        """Add the rows of an I, U or D from behind its relation's oid; return how many, 0 when it is malformed."""
        cdef uint8_t part
        if at >= end:
            return 0
        part = msg[at]
        at += 1
        if kind == c'I':
            if not self._add_tuple(msg, &at, end, T_WHOLE) or at != end:
                return 0
            self._end_row(scn, ordinal, OP_INSERT)
            return 1
        if kind == c'D':
            if part == c'O':
                if not self._add_tuple(msg, &at, end, T_WHOLE) or at != end:
                    return 0
            elif part != c'K' or not self.rows.immediate:
                return 0
            elif not self._add_tuple(msg, &at, end, T_KEY) or at != end:
                return 0
            self._end_row(scn, ordinal, OP_DELETE)
            return 1
        if part == c'N':
            if not self.rows.immediate:
                return 0
            if not self._add_tuple(msg, &at, end, T_WHOLE) or at != end:
                return 0
            self._end_row(scn, ordinal, OP_PATCH)
            return 1
        if part == c'K':
            if not self.rows.immediate or not self._add_tuple(msg, &at, end, T_KEY):
                return 0
        elif part != c'O' or not self._add_tuple(msg, &at, end, T_WHOLE):
            return 0
        self._end_row(scn, ordinal, OP_OLD)
        if at >= end or msg[at] != c'N':
            return 0
        at += 1
        if not self._add_tuple(msg, &at, end, T_AFTER_OLD if part == c'O' else T_WHOLE):
            return 0
        if at != end:
            return 0
        self._end_row(scn, ordinal + 1, OP_NEW)
        return 2


cdef bint _skip_tuple(const uint8_t *msg, Py_ssize_t *at, Py_ssize_t end) noexcept nogil:
    """Step over a tuple of a table that is not ours; False when it is malformed."""
    cdef Py_ssize_t place = at[0]
    cdef int64_t size
    cdef int i, count
    if end - place < 2:
        return False
    count = <int16_t> hr_be16(msg + place)
    place += 2
    if count < 0 or count > MAX_COLUMNS:
        return False
    for i in range(count):
        if place >= end:
            return False
        if msg[place] == c't' or msg[place] == c'b':
            if end - place < 5:
                return False
            size = <int32_t> hr_be32(msg + place + 1)
            if size < 0 or size > end - place - 5:
                return False
            place += 5 + size
        elif msg[place] == c'n' or msg[place] == c'u':
            place += 1
        else:
            return False
    at[0] = place
    return True


cdef bint _skip_message(const uint8_t *msg, Py_ssize_t at, Py_ssize_t end, uint8_t kind) noexcept nogil:
    """Check a row message of a table that is not ours."""
    cdef uint8_t part
    if at >= end:
        return False
    part = msg[at]
    at += 1
    if kind == c'U' and (part == c'K' or part == c'O'):
        if not _skip_tuple(msg, &at, end) or at >= end:
            return False
        part = msg[at]
        at += 1
    if kind == c'D':
        if part != c'K' and part != c'O':
            return False
    elif part != c'N':
        return False
    return _skip_tuple(msg, &at, end) and at == end


# ---------------------------------------------------------------------------------------------
# Transactions


cdef struct Entry:
    int64_t scn
    int64_t commit_us
    int64_t xid
    int32_t changes
    uint8_t origin
    uint8_t last_piece
    uint16_t reserved


cdef class NativeDecoder:
    """Walks frames; see `headrace.sources.postgres.decoder.PythonDecoder`, whose attributes it has."""

    cdef public int64_t scn, commit_us, xid, ord, changes, pieces
    cdef public bint data, cold_commit, spooling, prefixed
    cdef public int64_t covered, position, last_scn, epoch_xid
    cdef public int64_t rows, held_bytes, max_rows, max_bytes
    cdef public int64_t wal_end, written, sent_us
    cdef public bint reply_wanted
    cdef readonly int stop
    cdef readonly Py_ssize_t cold_at
    cdef readonly object cold_frame, cold
    cdef readonly uint32_t cold_xid
    cdef dict _tables
    cdef object _held
    cdef uint32_t _last_oid
    cdef NativeRows _last_rows
    cdef int _last_verdict
    cdef Vec _index
    cdef Vec _spool
    cdef Vec _aborted

    def __init__(self, epoch_xid, max_rows, max_bytes):
        self.epoch_xid = epoch_xid
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self._tables = {}
        self._last_verdict = -1

    def __dealloc__(self):
        free(self._index.p)
        free(self._spool.p)
        free(self._aborted.p)

    def rows_of(self, schema, schema_id, forms=()):
        """Return an empty collector of rows."""
        return NativeRows(schema, schema_id, forms)

    def set_table(self, oid, rows, cold=False):
        """Say what becomes of a relation's rows: collected, left out (None), or handed over as they are."""
        self._tables[oid] = False if cold else rows
        self._last_verdict = -1

    def set_aborted(self, xids):
        """Say which subtransactions are left out of the replay."""
        cdef uint32_t one
        self._aborted.n = 0
        for xid in sorted(xids):
            one = xid
            _put(&self._aborted, &one, 4)

    def take_index(self):
        """Return the index entries so far and start anew."""
        cdef Py_ssize_t size = self._index.n
        found = np.frombuffer((<const char *> self._index.p)[:size], TRANSACTION_DTYPE)
        self._index.n = 0
        return found

    @property
    def entries(self):
        """Index entries so far."""
        return self._index.n // sizeof(Entry)

    def take_spool(self):
        """Return the frames of streamed transactions so far and start anew."""
        cdef Py_ssize_t size = self._spool.n
        found = (<const char *> self._spool.p)[:size]
        self._spool.n = 0
        return found

    def entry(self, last):
        """Close the open transaction's entry in this block."""
        self._entry(last)

    cdef int _entry(self, bint last) except -1 nogil:
        cdef Entry e
        e.scn = self.scn
        e.commit_us = self.commit_us
        e.xid = self.xid
        e.changes = <int32_t> self.changes
        e.origin = 0
        e.last_piece = last
        e.reserved = 0
        _put(&self._index, &e, sizeof(Entry))
        self.changes = 0
        self.pieces += 1
        return 0

    cdef int64_t _widened(self, uint32_t xid) noexcept nogil:
        cdef int64_t wide = (self.epoch_xid & ~<int64_t> 0xFFFFFFFF) | xid
        if wide > self.epoch_xid + (<int64_t> 1 << 31):
            wide -= <int64_t> 1 << 32
        elif wide < self.epoch_xid - (<int64_t> 1 << 31):
            wide += <int64_t> 1 << 32
        if wide > self.epoch_xid:
            self.epoch_xid = wide
        return wide

    def widen(self, xid):
        """Return the 64-bit id of a 32-bit one: the nearest to the newest that is known."""
        return self._widened(xid)

    cdef bint _is_aborted(self, uint32_t xid) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self._aborted.n // 4, middle
        cdef uint32_t *ids = <uint32_t *> self._aborted.p
        while low < high:
            middle = (low + high) // 2
            if ids[middle] < xid:
                low = middle + 1
            else:
                high = middle
        return low < self._aborted.n // 4 and ids[low] == xid

    def walk(self, const uint8_t[::1] buffer, Py_ssize_t at, Py_ssize_t end):
        """Take in whole frames from ``at`` on; return where the next one begins. ``stop`` says why it ended."""
        cdef Py_ssize_t size, first
        if end > buffer.shape[0] or at > end:
            raise ValueError("outside the buffer")
        self.cold = self.cold_frame = None
        if at == end:
            self.stop = _NEED
            return at
        with nogil:
            at = self._walk(&buffer[0], at, end)
        if self.stop == _COLD:
            first = self.cold_at
            size = <Py_ssize_t> hr_be32(&buffer[first + 1]) + 1
            self.cold_frame = bytes(buffer[first : first + 1])
            self.cold_xid = 0
            if buffer[first] == c'd' and size > 30 and buffer[first + 5] == c'w':
                self.cold_frame = b"w"
                self.sent_us = <int64_t> hr_be64(&buffer[first + 22]) + US_TO_2000
                if self.prefixed and size >= 35:
                    self.cold_xid = hr_be32(&buffer[first + 31])
                    self.cold = bytes(buffer[first + 30 : first + 31]) + bytes(
                        buffer[first + 35 : first + size]
                    )
                else:
                    self.cold = bytes(buffer[first + 30 : first + size])
            else:
                self.cold = bytes(buffer[first + 5 : first + size])
        return at

    cdef Py_ssize_t _walk(self, const uint8_t *p, Py_ssize_t at, Py_ssize_t end) except -1 nogil:
        cdef int64_t size
        cdef int verdict
        while True:
            if self.rows >= self.max_rows or self.held_bytes >= self.max_bytes:
                self.stop = _FULL
                return at
            if self._spool.n >= SPOOL_BYTES:
                self.stop = _SPOOLED
                return at
            if end - at < 5:
                self.stop = _NEED
                return at
            size = <int64_t> hr_be32(p + at + 1) + 1
            if size < 5 or size > 0x7FFFFFFF:
                # Not a length: whoever reads on would read anything.
                with gil:
                    raise ProtocolError(
                        "The replication stream holds a frame of an impossible length.",
                        next_step="report it with the server's version; capture stops rather than guess.",
                    )
            if size > end - at:
                self.stop = _NEED
                return at
            verdict = _COLD
            if p[at] == c'd' and size > 5:
                verdict = self._frame(p + at, size)
            if verdict == _COLD:
                self.stop = _COLD
                self.cold_at = at
                return at + size
            at += size

    cdef int _frame(self, const uint8_t *p, Py_ssize_t size) except -1 nogil:
        """Take in one CopyData frame; `_COLD` when it is left to Python."""
        cdef int64_t first, last
        cdef uint8_t kind
        if p[5] == c'k':
            if size != 23:
                return _COLD
            first = <int64_t> hr_be64(p + 6)
            if first < 0:
                return _COLD
            if first > self.wal_end:
                self.wal_end = first
            if first > self.written:
                self.written = first
            if p[22]:
                self.reply_wanted = True
            return _GO_ON
        if p[5] != c'w' or size < 31:
            return _COLD
        first = <int64_t> hr_be64(p + 6)
        last = <int64_t> hr_be64(p + 14)
        if first > self.written:
            self.written = first
        if last > self.written:
            self.written = last
        kind = p[30]
        if self.spooling:
            if kind == c'E':
                return _COLD
            _put(&self._spool, p, size)
            return _GO_ON
        if kind == c'I' or kind == c'U' or kind == c'D':
            return self._row(p, size, kind)
        if self.prefixed:
            if size < 35:
                return _COLD
            # What describes a table counts even where its subtransaction does not.
            if kind != c'R' and kind != c'Y' and self._is_aborted(hr_be32(p + 31)):
                return _GO_ON
            return _COLD
        if kind == c'B':
            return self._begin(p + 30, size - 30)
        if kind == c'C':
            return self._commit(p + 30, size - 30)
        return _COLD

    cdef int _begin(self, const uint8_t *msg, Py_ssize_t size) except -1 nogil:
        cdef int64_t lsn, us
        if size != 21:
            return _COLD
        lsn = <int64_t> hr_be64(msg + 1)
        us = <int64_t> hr_be64(msg + 9)
        if self.scn or lsn <= self.last_scn or lsn <= 0:
            return _COLD
        if us >= (<int64_t> 1 << 62) or us <= -(<int64_t> 1 << 62):
            return _COLD
        self._open(lsn, us + US_TO_2000, self._widened(hr_be32(msg + 17)))
        return _GO_ON

    def open(self, scn, commit_us, xid):
        """Begin a transaction."""
        self._open(scn, commit_us, xid)

    def close(self):
        """End the open transaction."""
        self._close()

    cdef int _open(self, int64_t scn, int64_t commit_us, int64_t xid) except -1 nogil:
        self.scn = scn
        self.commit_us = commit_us
        self.xid = xid
        self.ord = self.changes = self.pieces = 0
        self.data = self.cold_commit = False
        return 0

    cdef int _commit(self, const uint8_t *msg, Py_ssize_t size) except -1 nogil:
        if size != 26 or not self.scn or self.cold_commit:
            return _COLD
        if <int64_t> hr_be64(msg + 2) != self.scn:
            return _COLD
        self._close()
        return _GO_ON

    cdef int _close(self) except -1 nogil:
        self.last_scn = self.scn
        if self.scn + 1 > self.position:
            self.position = self.scn + 1
        self.covered = self.scn
        if self.changes or self.pieces:
            self._entry(True)
        self.scn = 0
        return 0

    def count(self, rows, size):
        """Count changes that were taken in elsewhere."""
        self.ord += rows
        self.changes += rows
        self.rows += rows
        self.held_bytes += size

    cdef int _row(self, const uint8_t *p, Py_ssize_t size, uint8_t kind) except -1 nogil:
        cdef Py_ssize_t at = 31
        cdef uint32_t oid
        cdef int added
        if self.prefixed:
            if size < 35:
                return _COLD
            if self._is_aborted(hr_be32(p + 31)):
                return _GO_ON
            at = 35
        if size < at + 4:
            return _COLD
        oid = hr_be32(p + at)
        at += 4
        if oid != self._last_oid or self._last_verdict < 0:
            with gil:
                self._look_up(oid)
        if self._last_verdict == _COLD:
            return _COLD
        if self._last_verdict == T_SKIP:
            return _GO_ON if _skip_message(p, at, size, kind) else _COLD
        if not self.scn or self.ord > MAX_ORD:
            return _COLD
        added = self._last_rows._message(p, at, size, kind, self.scn, self.ord)
        if not added:
            return _COLD
        self.data = True
        self.ord += added
        self.changes += added
        self.rows += added
        # Without what the replay's messages have in front: pieces are cut alike.
        self.held_bytes += size - 5
        return _GO_ON

    cdef int _look_up(self, uint32_t oid) except -1:
        found = self._tables.get(oid, False)
        self._last_oid = oid
        if found is False:
            self._last_verdict = _COLD
        elif found is None:
            self._last_verdict = T_SKIP
        else:
            self._last_rows = found
            self._last_verdict = 0
        return 0


# ---------------------------------------------------------------------------------------------
# Binary COPY


def copy_columns(const uint8_t[::1] data, Py_ssize_t start, schema, forms):
    """Return the columns of a binary COPY from its first row on, or None where Python has to judge.

    Args:
        data: the COPY up to its trailer.
        start: place of the first row.
        schema: the table's shape.
        forms: how the binary form of each column is read.
    """
    cdef NativeRows rows = NativeRows(schema, 0, forms)
    cdef Rows *r = &rows.rows
    cdef Py_ssize_t at = start, end = data.shape[0]
    cdef int64_t size
    cdef int i, count
    cdef bint done = False
    cdef const uint8_t *p
    if at > end or end == 0:
        return None
    p = &data[0]
    with nogil:
        while end - at >= 2:
            count = <int16_t> hr_be16(p + at)
            at += 2
            if count == -1:
                done = at == end
                break
            if count != r.ncols:
                break
            for i in range(count):
                if end - at < 4:
                    count = -2
                    break
                size = <int32_t> hr_be32(p + at)
                at += 4
                if size == -1:
                    _add_null(&r.cols[i], r.n)
                    continue
                if size < 0 or size > end - at:
                    count = -2
                    break
                if not _add_binary_value(&r.cols[i], r.n, p + at, size):
                    count = -2
                    break
                at += size
            if count == -2:
                break
            r.n += 1
    return rows._columns() if done else None

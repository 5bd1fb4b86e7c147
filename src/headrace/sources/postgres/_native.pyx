# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False
"""The stream's hot path in C: frames in, Arrow buffers out. `decoder` and `rows` are its twin in Python.

Whatever is rare is left to Python: `NativeDecoder.walk` stops at a message that is not a row, a begin or a commit, and at
everything that looks broken, and hands its bytes over, so that only one place explains an error. A value that is not in
the server's plain form goes through `values.build_column` or `binary.binary_column`, so both twins agree on every
value by construction.

No parser reads past its field: each gets a pointer and a length that were checked against the message.

One module for the compiler, in the order of the files that it includes: what comes later uses what came before.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Resize
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
    void hr_make_locale() nogil
    double hr_strtod(const char *s, char **end) nogil
    float hr_strtof(const char *s, char **end) nogil
    uint16_t hr_be16(const uint8_t *p) nogil
    uint32_t hr_be32(const uint8_t *p) nogil
    uint64_t hr_be64(const uint8_t *p) nogil

hr_make_locale()

__all__ = [
    "COLD",
    "FULL",
    "NEED",
    "SPOOLED",
    "NativeDecoder",
    "NativeIntake",
    "NativeRows",
    "copy_columns",
]

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


include "../native/memory.pxi"
include "../native/batch.pxi"
include "../native/plain.pxi"
include "native/plain.pxi"
include "native/columns.pxi"
include "native/text.pxi"
include "native/binary.pxi"
include "native/rows.pxi"
include "native/transactions.pxi"
include "native/copy.pxi"
include "native/intake.pxi"

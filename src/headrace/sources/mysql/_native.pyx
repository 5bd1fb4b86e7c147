# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False
"""The log's and the selects' hot path in C: bytes in, Arrow buffers out.

`headrace.sources.mysql.images` with `values`, and `texts`, are its twins in Python; both have the same values, or the
same error. Nothing is read beyond the bytes that were given.

One module for the compiler, in the order of the files that it includes: what comes later uses what came before.
"""

from cpython.buffer cimport PyBUF_READ, PyBuffer_FillInfo
from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_FromMemory
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memcpy, memset
import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from headrace.sources.mysql.reading import broken

# What a column is made of; `built` has the same numbers.
cdef enum:
    OP_BYTES = 0
    OP_INT = 1
    OP_UNSIGNED = 2
    OP_UNSIGNED_LONG = 3
    OP_DECIMAL = 4
    OP_YEAR = 5
    OP_COPIED = 6
    OP_DATE = 7
    OP_DATETIME = 8
    OP_TIMESTAMP = 9

# How a cell lies in a row of a select; `wire` has the same numbers.
cdef enum:
    FORM_COUNTED = 0
    FORM_SIGNED = 1
    FORM_UNSIGNED = 2
    FORM_FLOAT = 3
    FORM_MOMENT = 4

cdef enum:
    EVENT_HEADER = 19
    ARTIFICIAL = 0x20
    PACKET_HEADER = 4
    MOST_OF_A_PACKET = 0xFFFFFF
    QUERY = 2
    XID = 16
    TABLE_MAP = 19
    SOURCE_GTID = 33
    GTID = 162
    ALONE_OR_DISTRIBUTED = 0xC1

include "../native/memory.pxi"
include "../native/buffers.pxi"
include "../native/plain.pxi"
include "native/columns.pxi"
include "native/logged.pxi"
include "native/rendered.pxi"
include "native/images.pxi"
include "native/runs.pxi"
include "native/results.pxi"

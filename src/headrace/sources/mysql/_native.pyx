# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
# cython: binding=False
"""The walk through row images in C; `headrace.sources.mysql.images.walk` is its twin in Python.

Both note the same places, or raise the same error. Nothing is read beyond the images that were given.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy

from headrace.sources.mysql.reading import broken

cdef struct Side:
    # Columns of a layout: their width, or the bytes of their length as a negative number.
    const int32_t* widths
    Py_ssize_t columns
    Py_ssize_t mask_bytes
    # What is noted.
    int64_t* places
    Py_ssize_t noted
    Py_ssize_t room
    uint8_t* masks
    Py_ssize_t masked
    Py_ssize_t masks_room
    Py_ssize_t count


cdef int _grow(Side* side, Py_ssize_t places) except -1 nogil:
    cdef void* more
    cdef Py_ssize_t room
    if side.noted + places > side.room:
        room = 2 * side.room + places
        more = realloc(side.places, room * sizeof(int64_t))
        if more == NULL:
            with gil:
                raise MemoryError
        side.places, side.room = <int64_t*> more, room
    if side.masked + side.mask_bytes > side.masks_room:
        room = 2 * side.masks_room + side.mask_bytes
        more = realloc(side.masks, room)
        if more == NULL:
            with gil:
                raise MemoryError
        side.masks, side.masks_room = <uint8_t*> more, room
    return 0


cdef Py_ssize_t _image(
    const uint8_t* data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t base, Side* side
) except -2 nogil:
    """Walk through one image; return the place behind it, -1 when it ends inside its mask.

    A place beyond ``end`` says that a value goes there; nothing was read then.
    """
    cdef Py_ssize_t column, size, n
    cdef int32_t width
    cdef const uint8_t* mask = data + at
    if at + side.mask_bytes > end:
        return -1
    _grow(side, side.columns + 1)
    memcpy(side.masks + side.masked, mask, side.mask_bytes)
    side.masked += side.mask_bytes
    at += side.mask_bytes
    side.places[side.noted] = base + at
    side.noted += 1
    for column in range(side.columns):
        width = side.widths[column]
        if mask[column >> 3] >> (column & 7) & 1:
            if width < 0:
                side.places[side.noted] = base + at
                side.noted += 1
        elif width >= 0:
            at += width
        else:
            width = -width
            if at + width > end:
                return end + 1
            size = 0
            for n in range(width):
                size |= <Py_ssize_t> data[at + n] << 8 * n
            at += width + size
            if at > end:
                return end + 1
            side.places[side.noted] = base + at
            side.noted += 1
    side.count += 1
    return at


cdef int _open(Side* side, layout) except -1:
    cdef bytes widths = layout.widths
    side.widths = <const int32_t*> PyBytes_AS_STRING(widths)
    side.columns = PyBytes_GET_SIZE(widths) // sizeof(int32_t)
    side.mask_bytes = layout.mask_bytes
    side.places, side.masks = NULL, NULL
    side.noted = side.room = side.masked = side.masks_room = side.count = 0
    return 0


cdef object _leave(Side* side, layout):
    if side.count:
        layout.bounds.frombytes((<char*> side.places)[: side.noted * sizeof(int64_t)])
        layout.nulls += (<char*> side.masks)[: side.masked]
        layout.count += side.count


def walk(bytes data, Py_ssize_t at, Py_ssize_t end, Py_ssize_t base, first, second):
    """Walk through images; see the twin."""
    cdef Side[2] sides
    cdef bint two = first is not second
    cdef Py_ssize_t count = 0
    cdef const uint8_t* bytes_ = <const uint8_t*> PyBytes_AS_STRING(data)
    if at < 0 or end > PyBytes_GET_SIZE(data):
        raise broken("images lie outside their event")
    if not first.mask_bytes and not second.mask_bytes and at < end:
        raise broken("images without columns have bytes")
    _open(&sides[0], first)
    _open(&sides[1], second)
    try:
        with nogil:
            while at >= 0 and at < end:
                at = _image(bytes_, at, end, base, &sides[count & 1 if two else 0])
                count += 1
        if at < 0:
            raise broken("an image ends inside its mask of nulls")
        if at != end:
            raise broken("an image goes beyond its event")
        if two and count & 1:
            raise broken("an update has no second image")
        _leave(&sides[0], first)
        if two:
            _leave(&sides[1], second)
    finally:
        for n in range(2):
            free(sides[n].places)
            free(sides[n].masks)
    return count

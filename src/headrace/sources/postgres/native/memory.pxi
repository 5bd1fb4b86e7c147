# Memory that grows without the interpreter, and leaves it as an Arrow buffer.


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

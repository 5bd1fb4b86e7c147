# Vectors of `memory.pxi` as Arrow buffers, one by one.


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
    _leave(v)
    return pa.py_buffer(memory)

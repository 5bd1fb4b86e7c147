# Binary COPY: what a chunk read returns, and the messages in which it comes.


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


def append_copy_data(
    const uint8_t[::1] data, Py_ssize_t start, Py_ssize_t end, bytearray piece, Py_ssize_t limit
):
    """Add the rows of whole messages to a piece; see `copy_stream.append_copy_data`."""
    cdef Py_ssize_t at = start, held = len(piece), added = 0, size
    cdef const uint8_t *p
    cdef uint8_t *to
    if end > data.shape[0] or end <= start:
        return start
    p = &data[0]
    with nogil:
        while held + added < limit and end - at >= 5 and p[at] == c'd':
            size = <int64_t> hr_be32(p + at + 1)
            if size < 4 or end - at - 1 < size:
                break
            added += size - 4
            at += 1 + size
    if not added:
        return at
    PyByteArray_Resize(piece, held + added)
    to = <uint8_t *> PyByteArray_AS_STRING(piece) + held
    end = at
    with nogil:
        at = start
        while at < end:
            size = <int64_t> hr_be32(p + at + 1)
            memcpy(to, p + at + 5, size - 4)
            to += size - 4
            at += 1 + size
    return end

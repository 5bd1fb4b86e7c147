# Binary COPY: what a chunk read returns.


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

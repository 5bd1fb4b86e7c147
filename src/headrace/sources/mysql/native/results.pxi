# The rows of a select.

# What `result_rows` stopped at.
MORE = 0
END = 1
LARGE = 2
REFUSED = 3
ENOUGH = 4


cdef Py_ssize_t _counted(const uint8_t *p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t *size) noexcept nogil:
    """Read the length of a cell; return where it begins, -1 when it goes beyond its row."""
    cdef Py_ssize_t bytes_
    if at >= end:
        return -1
    size[0] = p[at]
    at += 1
    if size[0] < 0xFB:
        return at if size[0] <= end - at else -1
    if size[0] == 0xFC:
        bytes_ = 2
    elif size[0] == 0xFD:
        bytes_ = 3
    elif size[0] == 0xFE:
        bytes_ = 8
    else:
        return -1
    if bytes_ > end - at:
        return -1
    size[0] = <Py_ssize_t> _little(p + at, bytes_)
    at += bytes_
    return at if 0 <= size[0] <= end - at else -1


cdef Py_ssize_t _moment(Column *c, const uint8_t *p, Py_ssize_t at, Py_ssize_t end, Py_ssize_t *size) noexcept nogil:
    """Read the length of a time likewise; there are but some that times have."""
    if at >= end:
        return -1
    size[0] = p[at]
    at += 1
    if size[0] and size[0] != 4 and (c.op == OP_DATE or (size[0] != 7 and size[0] != 11)):
        return -1
    return at if size[0] <= end - at else -1


cdef bint _row(Set *columns, const uint8_t *p, Py_ssize_t at, Py_ssize_t end) except -1 nogil:
    """Add a row; return 0 when it is none of these columns."""
    cdef Py_ssize_t place, size, row = columns.count
    cdef const uint8_t *nulls = p + at + 1
    cdef Column *c
    # Two bits of the mask are none of a column's.
    size = 1 + (columns.width + 9) // 8
    if size > end - at or p[at]:
        return False
    at += size
    for place in range(columns.width):
        c = &columns.columns[place]
        if nulls[(place + 2) >> 3] >> ((place + 2) & 7) & 1:
            _add_null(c, row)
            continue
        if c.plain:
            size = c.plain
            if size > end - at:
                return False
            _put_plain(c, p + at)
            _valid(c, row)
        elif c.form == FORM_COUNTED:
            at = _counted(p, at, end, &size)
            if at < 0:
                return False
            if c.op == OP_DECIMAL:
                _add_decimal(c, row, p + at, size)
            else:
                _put_bytes(c, p + at, size, end - at)
                _valid(c, row)
        elif c.form == FORM_MOMENT:
            at = _moment(c, p, at, end, &size)
            if at < 0:
                return False
            _add_moment(c, row, p + at, size)
        else:
            size = c.width
            if size > end - at:
                return False
            if c.form == FORM_FLOAT:
                _add_float(c, row, p + at)
            else:
                _add_whole(c, row, p + at)
        at += size
    columns.count += 1
    return at == end


def result_row(bytes payload, Columns columns not None):
    """Add the row of a packet that was put together."""
    cdef const uint8_t *p = <const uint8_t*> PyBytes_AS_STRING(payload)
    if not _row(&columns.set, p, 0, PyBytes_GET_SIZE(payload)):
        raise broken("a row of a select does not have its columns")


def result_rows(
    bytearray buffer, Py_ssize_t at, Py_ssize_t end, Columns columns not None, Py_ssize_t most
):
    """Add the rows of whole packets.

    Args:
        buffer: holds packets.
        at: where one begins.
        end: behind the last byte.
        columns: of the select.
        most: bytes of values after which no row is added.

    Returns:
        the place of the first packet that was left, and why: no whole packet is there, it is the last one of the
        select, it is one of several that hold a row, the server refuses, or there is enough.
    """
    cdef const uint8_t *p = <const uint8_t*> PyByteArray_AS_STRING(buffer)
    cdef Py_ssize_t size, held = _held(&columns.set)
    cdef int why = 0
    cdef bint good = True
    if at < 0 or end > PyByteArray_GET_SIZE(buffer):
        raise ValueError("packets lie outside their buffer")
    with nogil:
        while end - at >= PACKET_HEADER + 1:
            size = <Py_ssize_t> _little(p + at, 3)
            if size == MOST_OF_A_PACKET:
                why = 2
                break
            if size > end - at - PACKET_HEADER:
                break
            if size < 9 and p[at + PACKET_HEADER] == 0xFE:
                why = 1
                break
            if size and p[at + PACKET_HEADER] == 0xFF:
                why = 3
                break
            if held >= most:
                why = 4
                break
            good = _row(&columns.set, p, at + PACKET_HEADER, at + PACKET_HEADER + size)
            if not good:
                break
            held += size
            at += PACKET_HEADER + size
    if not good:
        raise broken("a row of a select does not have its columns")
    return at, why

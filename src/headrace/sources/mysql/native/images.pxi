# The walk through row images, and through events that are alike.


cdef Py_ssize_t _image(Set *columns, const uint8_t *data, Py_ssize_t at, Py_ssize_t end) except -2 nogil:
    """Add an image; return the place behind it, -1 when it ends inside its mask, beyond ``end`` when a value does."""
    cdef const uint8_t *mask = data + at
    cdef Column *c
    cdef Py_ssize_t place, size
    cdef int width
    if columns.mask_bytes > end - at:
        return -1
    at += columns.mask_bytes
    for place in range(columns.width):
        c = &columns.columns[place]
        if mask[place >> 3] >> (place & 7) & 1:
            _add_null(c, columns.count)
            continue
        width = c.width
        if width >= 0:
            size = width
        else:
            if -width > end - at:
                return end + 1
            size = <Py_ssize_t> _little(data + at, -width)
            at -= width
        if size > end - at:
            return end + 1
        _add_logged(c, columns.count, data + at, size)
        at += size
    columns.count += 1
    return at


cdef Py_ssize_t _walk(
    Set *first, Set *second, const uint8_t *data, Py_ssize_t at, Py_ssize_t end
) except -1:
    """Add the images of an event, those of two sets of columns in turn; return how many there are."""
    cdef Py_ssize_t count = 0
    cdef bint two = first != second
    if not first.mask_bytes and not second.mask_bytes and at < end:
        raise broken("images without columns have bytes")
    with nogil:
        while 0 <= at < end:
            at = _image(second if two and count & 1 else first, data, at, end)
            count += 1
    if at < 0:
        raise broken("an image ends inside its mask of nulls")
    if at != end:
        raise broken("an image goes beyond its event")
    if two and count & 1:
        raise broken("an update has no second image")
    return count


def walk(bytes data, Py_ssize_t at, Py_ssize_t end, Columns first not None, Columns second not None):
    """Add the images of an event; see the twin."""
    if at < 0 or end > PyBytes_GET_SIZE(data):
        raise broken("images lie outside their event")
    return _walk(&first.set, &second.set, <const uint8_t*> PyBytes_AS_STRING(data), at, end)


def walk_alike(
    bytearray buffer,
    Py_ssize_t at,
    Py_ssize_t end,
    bytes model,
    bint checksum,
    bint pairs,
    Columns first not None,
    Columns second not None,
    Py_ssize_t most,
):
    """Add the images of whole packets whose events go on where another one ended.

    Args:
        buffer: holds packets.
        at: where one begins.
        end: behind the last byte.
        model: the event before them up to its first image; those whose table, columns or kind differ are left.
        checksum: whether events end with one.
        pairs: whether images come in twos.
        most: images after which to stop.

    Returns:
        the place of the first packet that was left, the images, their bytes, and the place behind the last event in its
        file (32 bits), 0 when there was none.
    """
    cdef const uint8_t *data = <const uint8_t*> PyByteArray_AS_STRING(buffer)
    cdef const uint8_t *like = <const uint8_t*> PyBytes_AS_STRING(model)
    cdef const uint8_t *event
    cdef Py_ssize_t head = PyBytes_GET_SIZE(model), tail = 4 if checksum else 0
    cdef Py_ssize_t images = 0, taken = 0, size, count
    cdef uint32_t place = 0
    if end > PyByteArray_GET_SIZE(buffer) or head < EVENT_HEADER + 8:
        raise ValueError("packets lie outside their buffer")
    while images < most and end - at >= PACKET_HEADER + 1 + head + tail:
        # Without the byte that says that the packet is an event.
        size = <Py_ssize_t> _little(data + at, 3) - 1
        event = data + at + PACKET_HEADER + 1
        if size + 1 >= MOST_OF_A_PACKET or size < head + tail or size > end - at - PACKET_HEADER - 1:
            break
        if data[at + PACKET_HEADER] or event[4] != like[4] or <Py_ssize_t> _little(event + 9, 4) != size:
            break
        # An event that the server made up lies nowhere; what differs else are times, places, and who wrote it.
        if event[17] & ARTIFICIAL or not _little(event + 13, 4):
            break
        if memcmp(event + EVENT_HEADER, like + EVENT_HEADER, 6):
            break
        # Between them are two bytes of flags, which change with the last event of a statement.
        if memcmp(event + EVENT_HEADER + 8, like + EVENT_HEADER + 8, head - EVENT_HEADER - 8):
            break
        if checksum and <uint32_t> crc32(
            PyMemoryView_FromMemory(<char*> event, size - 4, PyBUF_READ)
        ) != <uint32_t> _little(event + size - 4, 4):
            break
        count = _walk(&first.set, &second.set, event, head, size - tail)
        if pairs and count & 1:
            raise broken("an update has no second image")
        images += count
        taken += size - tail - head
        place = <uint32_t> _little(event + 13, 4)
        at += PACKET_HEADER + 1 + size
    return at, images, taken, place

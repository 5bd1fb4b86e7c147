# The walk through row images, and through events that are alike.


cdef Py_ssize_t _image(Set *columns, const uint8_t *data, Py_ssize_t at, Py_ssize_t end) except -2 nogil:
    """Add an image; return the place behind it, -1 when it ends inside its mask, beyond ``end`` when a value does."""
    cdef const uint8_t *mask = data + at
    cdef Column *c
    cdef Py_ssize_t place, size, row = columns.count
    cdef int width
    if columns.mask_bytes > end - at:
        return -1
    at += columns.mask_bytes
    for place in range(columns.width):
        c = &columns.columns[place]
        if mask[place >> 3] >> (place & 7) & 1:
            _add_null(c, row)
            continue
        if c.plain:
            size = c.plain
            if size > end - at:
                return end + 1
            _put_plain(c, data + at)
            _valid(c, row)
            at += size
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
        if c.op == OP_BYTES:
            _put_bytes(c, data + at, size, end - at)
            _valid(c, row)
        else:
            _add_logged(c, row, data + at, size)
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


cdef Py_ssize_t _whole_event(const uint8_t *data, Py_ssize_t at, Py_ssize_t end, bint checksum) except -2:
    """Return the bytes of the event in the packet at a place; -1 when it is not whole, damaged, or lies in no file."""
    cdef const uint8_t *event = data + at + PACKET_HEADER + 1
    cdef Py_ssize_t size
    if end - at < PACKET_HEADER + 1 + EVENT_HEADER + 4:
        return -1
    # Without the byte that says that the packet is an event.
    size = <Py_ssize_t> _little(data + at, 3) - 1
    if size + 1 >= MOST_OF_A_PACKET or size < EVENT_HEADER + 4 or size > end - at - PACKET_HEADER - 1:
        return -1
    if data[at + PACKET_HEADER] or <Py_ssize_t> _little(event + 9, 4) != size:
        return -1
    # An event that the server made up lies nowhere.
    if event[17] & ARTIFICIAL or not _little(event + 13, 4):
        return -1
    if checksum and <uint32_t> crc32(
        PyMemoryView_FromMemory(<char*> event, size - 4, PyBUF_READ)
    ) != <uint32_t> _little(event + size - 4, 4):
        return -1
    return size


cdef bint _is_like(const uint8_t *event, Py_ssize_t size, const uint8_t *like, Py_ssize_t head) noexcept nogil:
    """Return whether an event with rows has the table, columns and kind of another one, which ends behind its masks."""
    if size < head or event[4] != like[4] or memcmp(event + EVENT_HEADER, like + EVENT_HEADER, 6):
        return False
    # Between them are two bytes of flags, which change with the last event of a statement.
    return not memcmp(event + EVENT_HEADER + 8, like + EVENT_HEADER + 8, head - EVENT_HEADER - 8)


cdef Py_ssize_t _walk_like(
    Set *first, Set *second, const uint8_t *event, Py_ssize_t head, Py_ssize_t end, bint pairs
) except -1:
    """Add the images of an event that is like another one."""
    cdef Py_ssize_t count = _walk(first, second, event, head, end)
    if pairs and count & 1:
        raise broken("an update has no second image")
    return count


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
    cdef Py_ssize_t images = 0, taken = 0, size
    cdef uint32_t place = 0
    if at < 0 or end > PyByteArray_GET_SIZE(buffer) or head < EVENT_HEADER + 8:
        raise ValueError("packets lie outside their buffer")
    while images < most:
        size = _whole_event(data, at, end, checksum)
        event = data + at + PACKET_HEADER + 1
        if size < 0 or not _is_like(event, size - tail, like, head):
            break
        images += _walk_like(&first.set, &second.set, event, head, size - tail, pairs)
        taken += size - tail - head
        place = <uint32_t> _little(event + 13, 4)
        at += PACKET_HEADER + 1 + size
    return at, images, taken, place


cdef bint _begins(const uint8_t *event, Py_ssize_t size, int type_) noexcept nogil:
    """Return whether an event, its checksum left out, begins a transaction that has a commit at its end."""
    if event[4] != type_:
        return False
    if type_ == GTID:
        # Neither a statement alone nor a part of a distributed transaction.
        return size >= EVENT_HEADER + 13 and not event[EVENT_HEADER + 12] & ALONE_OR_DISTRIBUTED
    return type_ == SOURCE_GTID and size >= EVENT_HEADER + 25


cdef bint _is_begin(const uint8_t *event, Py_ssize_t size) noexcept nogil:
    """Return whether an event is the statement BEGIN."""
    cdef Py_ssize_t at = EVENT_HEADER + 13
    if event[4] != QUERY or size < at:
        return False
    # Behind what its session was like, and its database's name.
    at += <Py_ssize_t> _little(event + EVENT_HEADER + 11, 2) + event[EVENT_HEADER + 8] + 1
    return size - at == 5 and not memcmp(event + at, b"BEGIN", 5)


def walk_transactions(
    bytearray buffer,
    Py_ssize_t at,
    Py_ssize_t end,
    int begin,
    bytes described,
    bytes model,
    bint checksum,
    bint pairs,
    Columns first not None,
    Columns second not None,
    Py_ssize_t most,
):
    """Add the images of whole transactions that are like one before them: they begin, describe their table, have rows, end.

    Args:
        buffer: holds packets.
        at: where one begins.
        end: behind the last byte.
        begin: type of the event with which they begin.
        described: the table's description behind the event's header; of another one they are left.
        model: an event with rows up to its first image, likewise.
        checksum: whether events end with one.
        pairs: whether images come in twos.
        most: images after which to stop.

    Returns:
        the place of the first packet that was left, and of each transaction its first event, the place behind it in its
        file (32 bits), its images and their bytes.
    """
    cdef const uint8_t *data = <const uint8_t*> PyByteArray_AS_STRING(buffer)
    cdef const uint8_t *like = <const uint8_t*> PyBytes_AS_STRING(model)
    cdef const uint8_t *table = <const uint8_t*> PyBytes_AS_STRING(described)
    cdef const uint8_t *event
    cdef Py_ssize_t head = PyBytes_GET_SIZE(model), length = PyBytes_GET_SIZE(described)
    cdef Py_ssize_t tail = 4 if checksum else 0
    cdef Py_ssize_t total = 0, size, here, rows, images, taken
    cdef bytes first_event
    if at < 0 or end > PyByteArray_GET_SIZE(buffer) or head < EVENT_HEADER + 8:
        raise ValueError("packets lie outside their buffer")
    found = []
    while total < most:
        here = at
        size = _whole_event(data, here, end, checksum)
        event = data + here + PACKET_HEADER + 1
        if size < 0 or not _begins(event, size - tail, begin):
            break
        first_event = PyBytes_FromStringAndSize(<char*> event, size)
        here += PACKET_HEADER + 1 + size
        if begin == SOURCE_GTID:
            size = _whole_event(data, here, end, checksum)
            if size < 0 or not _is_begin(data + here + PACKET_HEADER + 1, size - tail):
                break
            here += PACKET_HEADER + 1 + size
        size = _whole_event(data, here, end, checksum)
        event = data + here + PACKET_HEADER + 1
        if size - tail != EVENT_HEADER + length or event[4] != TABLE_MAP or memcmp(event + EVENT_HEADER, table, length):
            break
        here += PACKET_HEADER + 1 + size
        rows = here
        while True:
            size = _whole_event(data, here, end, checksum)
            event = data + here + PACKET_HEADER + 1
            if size < 0 or not _is_like(event, size - tail, like, head):
                break
            here += PACKET_HEADER + 1 + size
        if here == rows or size - tail != EVENT_HEADER + 8 or event[4] != XID:
            break
        images = taken = 0
        at, here = here + PACKET_HEADER + 1 + size, rows
        while data + here + PACKET_HEADER + 1 != event:
            size = <Py_ssize_t> _little(data + here, 3) - 1
            images += _walk_like(
                &first.set, &second.set, data + here + PACKET_HEADER + 1, head, size - tail, pairs
            )
            taken += size - tail - head
            here += PACKET_HEADER + 1 + size
        found.append((first_event, <uint32_t> _little(event + 13, 4), images, taken))
        total += images
    return at, found

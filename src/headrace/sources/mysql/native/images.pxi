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


cdef enum:
    NO_COLUMNS = 1
    INSIDE_MASK = 2
    BEYOND_EVENT = 3
    WITHOUT_SECOND = 4

_WRONG = {
    NO_COLUMNS: "images without columns have bytes",
    INSIDE_MASK: "an image ends inside its mask of nulls",
    BEYOND_EVENT: "an image goes beyond its event",
    WITHOUT_SECOND: "an update has no second image",
}


cdef Py_ssize_t _images(
    Set *first, Set *second, const uint8_t *data, Py_ssize_t at, Py_ssize_t end, int *wrong
) except -1 nogil:
    """Add the images of an event, those of two sets of columns in turn; return how many there are, or what is wrong."""
    cdef Py_ssize_t count = 0
    cdef bint two = first != second
    if not first.mask_bytes and not second.mask_bytes and at < end:
        wrong[0] = NO_COLUMNS
        return 0
    while 0 <= at < end:
        at = _image(second if two and count & 1 else first, data, at, end)
        count += 1
    if at < 0:
        wrong[0] = INSIDE_MASK
    elif at != end:
        wrong[0] = BEYOND_EVENT
    elif two and count & 1:
        wrong[0] = WITHOUT_SECOND
    return count


def walk(bytes data, Py_ssize_t at, Py_ssize_t end, Columns first not None, Columns second not None):
    """Add the images of an event; see the twin."""
    cdef const uint8_t *bytes_ = <const uint8_t*> PyBytes_AS_STRING(data)
    cdef Py_ssize_t count
    cdef int wrong = 0
    if at < 0 or end > PyBytes_GET_SIZE(data):
        raise broken("images lie outside their event")
    with nogil:
        count = _images(&first.set, &second.set, bytes_, at, end, &wrong)
    if wrong:
        raise broken(_WRONG[wrong])
    return count


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


cdef struct Place:
    Py_ssize_t at      # of the first image
    Py_ssize_t end     # behind the last one
    Py_ssize_t images  # how many there are, once they were walked through


cdef class Events:
    """Where the images of events lie that are like another one, in a buffer that stays as it is while they are used."""

    cdef Vec places

    def __dealloc__(self):
        free(self.places.p)

    cdef Py_ssize_t length(self) noexcept:
        return self.places.n // <Py_ssize_t> sizeof(Place)

    cdef Place *place(self, Py_ssize_t number) noexcept nogil:
        return <Place*> self.places.p + number

    cdef int add(self, Py_ssize_t at, Py_ssize_t end) except -1:
        cdef Place place
        place.at, place.end, place.images = at, end, 0
        return _put(&self.places, &place, sizeof(Place))

    def __len__(self):
        return self.length()

    @property
    def nbytes(self):
        """Bytes of all images."""
        cdef Py_ssize_t number, total = 0
        for number in range(self.length()):
            total += self.place(number).end - self.place(number).at
        return total

    def images(self, Py_ssize_t first, Py_ssize_t stop):
        """Return how many images some of the events have, after `walk_events`."""
        cdef Py_ssize_t number, total = 0
        if first < 0 or stop > self.length():
            raise IndexError(stop)
        for number in range(first, stop):
            total += self.place(number).images
        return total


def walk_events(
    bytearray buffer,
    Events events not None,
    Py_ssize_t first,
    Py_ssize_t stop,
    bint pairs,
    Columns one not None,
    Columns other not None,
):
    """Add the images of some of the events; the interpreter is free meanwhile, so others may be walked through beside.

    Args:
        buffer: in which they lie.
        events: of `events_alike` or `transactions_alike`.
        first: number of the first one.
        stop: behind the last one.
        pairs: whether images come in twos.
        one: gets the images, in turn with ``other`` if that is another.
        other: likewise.
    """
    cdef const uint8_t *data = <const uint8_t*> PyByteArray_AS_STRING(buffer)
    cdef Py_ssize_t number
    cdef Place *place
    cdef int wrong = 0
    if first < 0 or stop > events.length():
        raise IndexError(stop)
    with nogil:
        for number in range(first, stop):
            place = events.place(number)
            place.images = _images(&one.set, &other.set, data, place.at, place.end, &wrong)
            if not wrong and pairs and place.images & 1:
                wrong = WITHOUT_SECOND
            if wrong:
                break
    if wrong:
        raise broken(_WRONG[wrong])


def events_alike(
    bytearray buffer, Py_ssize_t at, Py_ssize_t end, bytes model, bint checksum, Py_ssize_t most
):
    """Find whole packets whose events go on where another one ended.

    Args:
        buffer: holds packets.
        at: where one begins.
        end: behind the last byte.
        model: the event before them up to its first image; those whose table, columns or kind differ are left.
        checksum: whether events end with one.
        most: bytes of images after which to stop.

    Returns:
        the place of the first packet that was left, the events, and the place behind the last one in its file (32 bits),
        0 when there was none.
    """
    cdef const uint8_t *data = <const uint8_t*> PyByteArray_AS_STRING(buffer)
    cdef const uint8_t *like = <const uint8_t*> PyBytes_AS_STRING(model)
    cdef const uint8_t *event
    cdef Py_ssize_t head = PyBytes_GET_SIZE(model), tail = 4 if checksum else 0
    cdef Py_ssize_t taken = 0, size
    cdef uint32_t place = 0
    cdef Events events = Events()
    if at < 0 or end > PyByteArray_GET_SIZE(buffer) or head < EVENT_HEADER + 8:
        raise ValueError("packets lie outside their buffer")
    while taken < most:
        size = _whole_event(data, at, end, checksum)
        event = data + at + PACKET_HEADER + 1
        if size < 0 or not _is_like(event, size - tail, like, head):
            break
        at += PACKET_HEADER + 1
        events.add(at + head, at + size - tail)
        taken += size - tail - head
        place = <uint32_t> _little(event + 13, 4)
        at += size
    return at, events, place


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


def transactions_alike(
    bytearray buffer,
    Py_ssize_t at,
    Py_ssize_t end,
    int begin,
    bytes described,
    bytes model,
    bint checksum,
    Py_ssize_t most,
):
    """Find whole transactions that are like one before them: they begin, describe their table, have rows, end.

    Args:
        buffer: holds packets.
        at: where one begins.
        end: behind the last byte.
        begin: type of the event with which they begin.
        described: the table's description behind the event's header; of another one they are left.
        model: an event with rows up to its first image, likewise.
        checksum: whether events end with one.
        most: bytes of images after which to stop.

    Returns:
        the place of the first packet that was left; of each transaction its first event, the place behind it in its file
        (32 bits), how many events with rows it has, and the bytes of their images; and those events of them all.
    """
    cdef const uint8_t *data = <const uint8_t*> PyByteArray_AS_STRING(buffer)
    cdef const uint8_t *like = <const uint8_t*> PyBytes_AS_STRING(model)
    cdef const uint8_t *table = <const uint8_t*> PyBytes_AS_STRING(described)
    cdef const uint8_t *event
    cdef Py_ssize_t head = PyBytes_GET_SIZE(model), length = PyBytes_GET_SIZE(described)
    cdef Py_ssize_t tail = 4 if checksum else 0
    cdef Py_ssize_t total = 0, size, here, taken, whole
    cdef bytes first_event
    cdef Events events = Events()
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
        whole, taken = events.places.n, 0
        while True:
            size = _whole_event(data, here, end, checksum)
            event = data + here + PACKET_HEADER + 1
            if size < 0 or not _is_like(event, size - tail, like, head):
                break
            here += PACKET_HEADER + 1
            events.add(here + head, here + size - tail)
            taken += size - tail - head
            here += size
        if events.places.n == whole or size - tail != EVENT_HEADER + 8 or event[4] != XID:
            # Its end has not come yet, or it is of another kind.
            events.places.n = whole
            break
        at = here + PACKET_HEADER + 1 + size
        count = (events.places.n - whole) // <Py_ssize_t> sizeof(Place)
        found.append((first_event, <uint32_t> _little(event + 13, 4), count, taken))
        total += taken
    return at, found, events

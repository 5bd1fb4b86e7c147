# Transactions: walks over frames, and puts each row into its table, each commit into the index.


cdef struct Entry:
    int64_t scn
    int64_t commit_us
    int64_t xid
    int32_t changes
    uint8_t origin
    uint8_t last_piece
    uint16_t reserved


cdef struct Known:
    uint32_t oid
    int verdict    # `UNASKED`, `_COLD`, `T_SKIP`, or `_GO_ON` for a table with rows
    Rows *rows

cdef enum:
    UNASKED = -1
    KNOWN = 64     # a power of two


cdef class NativeDecoder:
    """Walks frames; see `headrace.sources.postgres.decoder.PythonDecoder`, whose attributes it has."""

    cdef public int64_t scn, commit_us, xid, ord, changes, pieces
    cdef public bint data, cold_commit, spooling, prefixed
    cdef public int64_t covered, position, last_scn, epoch_xid
    cdef public int64_t rows, held_bytes, max_rows, max_bytes
    cdef public int64_t wal_end, written, sent_us
    cdef public bint reply_wanted
    cdef readonly int stop
    cdef readonly Py_ssize_t cold_at
    cdef readonly object cold_frame, cold
    cdef readonly uint32_t cold_xid
    cdef dict _tables
    cdef object _held
    cdef Known[KNOWN] _known
    cdef Vec _index
    cdef Vec _spool
    cdef Vec _aborted

    def __init__(self, epoch_xid, max_rows, max_bytes):
        self.epoch_xid = epoch_xid
        self.max_rows = max_rows
        self.max_bytes = max_bytes
        self._tables = {}
        self._forget()

    def __dealloc__(self):
        free(self._index.p)
        free(self._spool.p)
        free(self._aborted.p)

    def rows_of(self, schema, schema_id, forms=()):
        """Return an empty collector of rows."""
        return NativeRows(schema, schema_id, forms)

    def set_table(self, oid, rows, cold=False):
        """Say what becomes of a relation's rows: collected, left out (None), or handed over as they are."""
        # First: what is known may be the last to name rows that are let go here.
        self._forget()
        self._tables[oid] = False if cold else rows

    cdef void _forget(self) noexcept:
        cdef int i
        for i in range(KNOWN):
            self._known[i].verdict = UNASKED

    def set_aborted(self, xids):
        """Say which subtransactions are left out of the replay."""
        cdef uint32_t one
        self._aborted.n = 0
        for xid in sorted(xids):
            one = xid
            _put(&self._aborted, &one, 4)

    def take_index(self):
        """Return the index entries so far and start anew."""
        cdef Py_ssize_t size = self._index.n
        found = np.frombuffer((<const char *> self._index.p)[:size], TRANSACTION_DTYPE)
        self._index.n = 0
        return found

    @property
    def entries(self):
        """Index entries so far."""
        return self._index.n // sizeof(Entry)

    def take_spool(self):
        """Return the frames of streamed transactions so far and start anew."""
        cdef Py_ssize_t size = self._spool.n
        found = (<const char *> self._spool.p)[:size]
        self._spool.n = 0
        return found

    def entry(self, last):
        """Close the open transaction's entry in this block."""
        self._entry(last)

    cdef int _entry(self, bint last) except -1 nogil:
        cdef Entry e
        e.scn = self.scn
        e.commit_us = self.commit_us
        e.xid = self.xid
        e.changes = <int32_t> self.changes
        e.origin = 0
        e.last_piece = last
        e.reserved = 0
        _put(&self._index, &e, sizeof(Entry))
        self.changes = 0
        self.pieces += 1
        return 0

    cdef int64_t _widened(self, uint32_t xid) noexcept nogil:
        cdef int64_t wide = (self.epoch_xid & ~<int64_t> 0xFFFFFFFF) | xid
        if wide > self.epoch_xid + (<int64_t> 1 << 31):
            wide -= <int64_t> 1 << 32
        elif wide < self.epoch_xid - (<int64_t> 1 << 31):
            wide += <int64_t> 1 << 32
        if wide > self.epoch_xid:
            self.epoch_xid = wide
        return wide

    def widen(self, xid):
        """Return the 64-bit id of a 32-bit one: the nearest to the newest that is known."""
        return self._widened(xid)

    cdef bint _is_aborted(self, uint32_t xid) noexcept nogil:
        cdef Py_ssize_t low = 0, high = self._aborted.n // 4, middle
        cdef uint32_t *ids = <uint32_t *> self._aborted.p
        while low < high:
            middle = (low + high) // 2
            if ids[middle] < xid:
                low = middle + 1
            else:
                high = middle
        return low < self._aborted.n // 4 and ids[low] == xid

    def walk(self, const uint8_t[::1] buffer, Py_ssize_t at, Py_ssize_t end):
        """Take in whole frames from ``at`` on; return where the next one begins. ``stop`` says why it ended."""
        cdef Py_ssize_t size, first
        if end > buffer.shape[0] or at > end:
            raise ValueError("outside the buffer")
        self.cold = self.cold_frame = None
        if at == end:
            self.stop = _NEED
            return at
        with nogil:
            at = self._walk(&buffer[0], at, end)
        if self.stop == _COLD:
            first = self.cold_at
            size = <Py_ssize_t> hr_be32(&buffer[first + 1]) + 1
            self.cold_frame = bytes(buffer[first : first + 1])
            self.cold_xid = 0
            if buffer[first] == c'd' and size > 30 and buffer[first + 5] == c'w':
                self.cold_frame = b"w"
                self.sent_us = <int64_t> hr_be64(&buffer[first + 22]) + US_TO_2000
                # All messages of a streamed transaction say of which part they are, but its origin does not.
                if self.prefixed and size >= 35 and buffer[first + 30] != c'O':
                    self.cold_xid = hr_be32(&buffer[first + 31])
                    self.cold = bytes(buffer[first + 30 : first + 31]) + bytes(
                        buffer[first + 35 : first + size]
                    )
                else:
                    self.cold = bytes(buffer[first + 30 : first + size])
            else:
                self.cold = bytes(buffer[first + 5 : first + size])
        return at

    cdef Py_ssize_t _walk(self, const uint8_t *p, Py_ssize_t at, Py_ssize_t end) except -1 nogil:
        cdef int64_t size
        cdef int verdict
        while True:
            if self.rows >= self.max_rows or self.held_bytes >= self.max_bytes:
                self.stop = _FULL
                return at
            if self._spool.n >= SPOOL_BYTES:
                self.stop = _SPOOLED
                return at
            if end - at < 5:
                self.stop = _NEED
                return at
            size = <int64_t> hr_be32(p + at + 1) + 1
            if size < 5 or size > 0x7FFFFFFF:
                # Not a length: whoever reads on would read anything.
                with gil:
                    raise ProtocolError(
                        "The replication stream holds a frame of an impossible length.",
                        next_step="report it with the server's version; capture stops rather than guess.",
                    )
            if size > end - at:
                self.stop = _NEED
                return at
            verdict = _COLD
            if p[at] == c'd' and size > 5:
                verdict = self._frame(p + at, size)
            if verdict == _COLD:
                self.stop = _COLD
                self.cold_at = at
                return at + size
            at += size

    cdef int _frame(self, const uint8_t *p, Py_ssize_t size) except -1 nogil:
        """Take in one CopyData frame; `_COLD` when it is left to Python."""
        cdef int64_t first, last
        cdef uint8_t kind
        if p[5] == c'k':
            if size != 23:
                return _COLD
            first = <int64_t> hr_be64(p + 6)
            if first < 0:
                return _COLD
            if first > self.wal_end:
                self.wal_end = first
            if first > self.written:
                self.written = first
            if p[22]:
                self.reply_wanted = True
            return _GO_ON
        if p[5] != c'w' or size < 31:
            return _COLD
        first = <int64_t> hr_be64(p + 6)
        last = <int64_t> hr_be64(p + 14)
        if first > self.written:
            self.written = first
        if last > self.written:
            self.written = last
        kind = p[30]
        if self.spooling:
            if kind == c'E':
                return _COLD
            _put(&self._spool, p, size)
            return _GO_ON
        if kind == c'I' or kind == c'U' or kind == c'D':
            return self._row(p, size, kind)
        if self.prefixed:
            if size < 35 or kind == c'O':
                return _COLD
            # What describes a table counts even where its subtransaction does not.
            if kind != c'R' and kind != c'Y' and self._is_aborted(hr_be32(p + 31)):
                return _GO_ON
            return _COLD
        if kind == c'B':
            return self._begin(p + 30, size - 30)
        if kind == c'C':
            return self._commit(p + 30, size - 30)
        return _COLD

    cdef int _begin(self, const uint8_t *msg, Py_ssize_t size) except -1 nogil:
        cdef int64_t lsn, us
        if size != 21:
            return _COLD
        lsn = <int64_t> hr_be64(msg + 1)
        us = <int64_t> hr_be64(msg + 9)
        if self.scn or lsn <= self.last_scn or lsn <= 0:
            return _COLD
        if us >= (<int64_t> 1 << 62) or us <= -(<int64_t> 1 << 62):
            return _COLD
        self._open(lsn, us + US_TO_2000, self._widened(hr_be32(msg + 17)))
        return _GO_ON

    def open(self, scn, commit_us, xid):
        """Begin a transaction."""
        self._open(scn, commit_us, xid)

    def close(self):
        """End the open transaction."""
        self._close()

    cdef int _open(self, int64_t scn, int64_t commit_us, int64_t xid) except -1 nogil:
        self.scn = scn
        self.commit_us = commit_us
        self.xid = xid
        self.ord = self.changes = self.pieces = 0
        self.data = self.cold_commit = False
        return 0

    cdef int _commit(self, const uint8_t *msg, Py_ssize_t size) except -1 nogil:
        if size != 26 or not self.scn or self.cold_commit:
            return _COLD
        if <int64_t> hr_be64(msg + 2) != self.scn:
            return _COLD
        self._close()
        return _GO_ON

    cdef int _close(self) except -1 nogil:
        self.last_scn = self.scn
        if self.scn + 1 > self.position:
            self.position = self.scn + 1
        self.covered = self.scn
        if self.changes or self.pieces:
            self._entry(True)
        self.scn = 0
        return 0

    def count(self, rows, size):
        """Count changes that were taken in elsewhere."""
        self.ord += rows
        self.changes += rows
        self.rows += rows
        self.held_bytes += size

    cdef int _row(self, const uint8_t *p, Py_ssize_t size, uint8_t kind) except -1 nogil:
        cdef Py_ssize_t at = 31
        cdef uint32_t oid
        cdef int added
        cdef Known *known
        if self.prefixed:
            if size < 35:
                return _COLD
            if self._is_aborted(hr_be32(p + 31)):
                return _GO_ON
            at = 35
        if size < at + 4:
            return _COLD
        oid = hr_be32(p + at)
        at += 4
        known = &self._known[oid & (KNOWN - 1)]
        if known.oid != oid or known.verdict == UNASKED:
            # Rarely: rows of one transaction alternate between tables, and the interpreter's lock is dear.
            with gil:
                self._look_up(oid, known)
        if known.verdict == _COLD:
            return _COLD
        if known.verdict == T_SKIP:
            return _GO_ON if _skip_message(p, at, size, kind) else _COLD
        if not self.scn or self.ord > MAX_ORD:
            return _COLD
        added = _add_message(known.rows, p, at, size, kind, self.scn, self.ord)
        if not added:
            return _COLD
        self.data = True
        self.ord += added
        self.changes += added
        self.rows += added
        # Without what the replay's messages have in front: pieces are cut alike.
        self.held_bytes += size - 5
        return _GO_ON

    cdef int _look_up(self, uint32_t oid, Known *known) except -1:
        cdef NativeRows rows
        found = self._tables.get(oid, False)
        known.oid = oid
        if found is False:
            known.verdict = _COLD
        elif found is None:
            known.verdict = T_SKIP
        else:
            # `_tables` keeps it alive until `set_table` forgets it.
            rows = found
            known.rows = &rows.rows
            known.verdict = _GO_ON
        return 0

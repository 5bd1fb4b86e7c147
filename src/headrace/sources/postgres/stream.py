"""The log as a replication stream: one blocking thread reads, decodes, and reports what is durable.

Of a large transaction that was streamed nothing can leave before its commit, and then all of it: the next piece is
decoded on a thread beside while the caller writes the last one.
"""

from __future__ import annotations

import contextlib
import struct
import time
from concurrent.futures import Future, ThreadPoolExecutor

from headrace.errors import HeadraceError, ProtocolError, SlotLost, SourceError, SourceUnavailable
from headrace.sources.base import LogItem
from headrace.sources.postgres import marks
from headrace.sources.postgres.assembler import Assembler, Versions
from headrace.sources.postgres.cadence import Cadence
from headrace.sources.postgres.connection import QueryFailed, Session, quote, quote_literal
from headrace.sources.postgres.decoder import make_decoder
from headrace.sources.postgres.lsn import parse_lsn
from headrace.sources.postgres.messages import POSTGRES_EPOCH_US
from headrace.sources.postgres.publication import PublicationWatch
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.side import SideSession
from headrace.sources.postgres.slot import RESYNC
from headrace.sources.postgres.spools import Spools
from headrace.sources.postgres.transport import Refused, Transport, error_fields, transport

__all__ = ["PostgresLogReader", "start_replication"]

_STATUS = struct.Struct(">cQQQqB")

# An idle log moves its covered SCN at most this often.
_QUIET_S = 0.5

# How often the publication is looked at, while the log leaves time for it.
_WATCH_S = 20.0

_NOT_READY = "55000"
_IN_USE = "55006"
_BUSY_PAUSE_S = 0.05


def start_replication(
    stream: Transport, settings: PostgresSettings, *, binary: bool = False
) -> None:
    """Put a replication connection into streaming.

    Args:
        stream: the connection.
        settings: of the source.
        binary: ask for values in binary.

    Raises:
        SlotLost: the slot, or the log it needs, is gone.
        SourceUnavailable: the slot is in use by another connection.
        SourceError: the server refused for another reason.
    """
    publication = quote_literal(quote(settings.publication_name)).strip()
    sql = (
        f"START_REPLICATION SLOT {quote(settings.slot_name)} LOGICAL 0/0 "
        f"(proto_version '2', streaming 'on', publication_names {publication}, messages 'true', "
        f"binary '{'true' if binary else 'false'}')"
    )
    deadline = time.monotonic() + settings.slot_busy_s
    while True:
        try:
            stream.start(sql)
            return
        except Refused as error:
            # The server takes a moment to notice that a reader before us is gone.
            if error.sqlstate != _IN_USE or time.monotonic() > deadline:
                raise stream_error(settings, error.sqlstate, error.text) from error
            time.sleep(_BUSY_PAUSE_S)


def stream_error(settings: PostgresSettings, sqlstate: str, text: str) -> HeadraceError:
    """Return what an error of the replication stream means for us."""
    slot = settings.slot_name
    # Object not in the needed state; undefined file: a log segment that was removed.
    if sqlstate in ("55000", "58P01"):
        return SlotLost(
            f"Slot {slot} or the log it needs is gone: {text}",
            next_step=f"{RESYNC}.",
        )
    if sqlstate == _IN_USE:
        return SourceUnavailable(
            f"Slot {slot} is in use by another connection.",
            next_step="stop the other reader; after a crash the server frees the slot by itself.",
        )
    if sqlstate == "42704":
        return _no_publication(settings, text)
    return SourceError(
        f"The stream from slot {slot} ended: {text} ({sqlstate}).",
        next_step="see the server's log.",
    )


def _no_publication(settings: PostgresSettings, text: str) -> SourceError:
    return SourceError(
        f"Publication {settings.publication_name} does not exist at the slot's position: {text}",
        next_step="create the publication first, then the slot, and dump every table again; a slot "
        "does not see publications made later.",
    )


class PostgresLogReader:
    """An open replication stream. Used from one thread.

    Args:
        session: a replication connection; becomes ours.
        side: connections for the catalog; becomes ours.
        settings: of the source.
        versions: explains relations.
        epoch_xid: some recent 64-bit transaction id, by which 32-bit ids are widened.
        feedback_s: longest silence towards the server.
        binary: ask for values in binary.

    Attributes:
        binary: whether values come in binary.

    Raises:
        SlotLost: the slot, or the log it needs, is gone.
        SourceUnavailable: the server cannot be reached, or another reader holds the slot.
    """

    def __init__(
        self,
        session: Session,
        side: SideSession,
        settings: PostgresSettings,
        versions: Versions,
        epoch_xid: int,
        feedback_s: float,
        *,
        binary: bool = False,
    ) -> None:
        self.binary = binary
        self._session = session
        self._side = side
        self._settings = settings
        self._stream = transport(session, self._notice, settings.statement_timeout_s)
        self._spools = Spools(settings.spool_folder, settings.spool_memory_bytes)
        self._decoder = make_decoder(epoch_xid, settings.block_rows, settings.block_bytes)
        self._assembler = Assembler(
            versions, settings.mark_prefix, self._decoder, self._spools, self._other_frame
        )
        self._beside = ThreadPoolExecutor(1, "headrace-replay")
        self._next_piece: Future[None] | None = None
        self._cadence = Cadence(settings.block_interval_s)
        self._feedback_s = feedback_s
        self._flushed = 0
        now = time.monotonic()
        self._next_feedback = now
        self._next_quiet = now
        self._next_heartbeat = now + settings.heartbeat_s
        self._heartbeats = True
        self._watch = PublicationWatch(settings)
        self._next_watch = now
        self._warned: HeadraceError | None = None
        try:
            start_replication(self._stream, settings, binary=binary)
        except BaseException:
            self._stream.close()
            raise

    def poll(self, timeout_s: float) -> LogItem | None:
        """Return what has arrived; see `headrace.sources.base.LogReader`."""
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                self._drain()
                now = time.monotonic()
                item = self._ready(now)
                if item is not None:
                    return item
                self._tick(now)
                if now >= deadline:
                    return self._take(now) if self._assembler.has_output else None
                self._stream.wait(min(deadline, self._next_wake()) - now)
        except Refused as error:
            raise self._ended(error) from error
        except QueryFailed as error:
            raise SourceError(
                f"The catalog cannot be read: {error.message}",
                next_step="run `headrace preflight FILE`, which lists what is missing.",
            ) from error

    def acknowledge(self, position: str) -> None:
        """Tell the server that everything up to ``position`` is durable here."""
        flushed = parse_lsn(position)
        if flushed > self._flushed:
            self._flushed = flushed
            self._send_feedback()

    def keep_alive(self) -> None:
        """Send a status update when one is due, so that the server does not take us for dead."""
        if time.monotonic() >= self._next_feedback:
            self._send_feedback()

    def close(self) -> None:
        """Release the connections; the slot stays."""
        with contextlib.suppress(Exception):
            self._join()
        self._beside.shutdown()
        self._spools.close()
        self._stream.close()
        self._session.close()
        self._side.close()

    # -- reading --------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Decode what is there, until a hand-over is due."""
        assembler, stream = self._assembler, self._stream
        self._join()
        while True:
            assembler.advance(stream.frames)
            if self._warned is not None:
                raise self._warned
            now = time.monotonic()
            if assembler.has_output:
                self._cadence.begun(now)
            if assembler.full or (not assembler.open and self._cadence.due(now)):
                return
            if now >= self._next_feedback:
                self._send_feedback()
            # Of a transaction that is streamed nothing can leave before its commit.
            if not stream.read(busy=self._cadence.busy or assembler.spooling):
                if stream.lull:
                    self._cadence.lull()
                return

    def _join(self) -> None:
        """Wait for what is decoded beside: that thread has the assembler from one `poll` to the next."""
        begun, self._next_piece = self._next_piece, None
        if begun is not None:
            begun.result()

    def _notice(self, sqlstate: str, text: str) -> None:
        """Take note of the one warning that means lost changes.

        From 18 on the server goes on without a publication that does not exist at this place of the log.
        """
        if sqlstate == _NOT_READY and self._warned is None:
            self._warned = _no_publication(self._settings, text)

    def _other_frame(self, kind: bytes, data: bytes) -> None:
        """Take in what is not a message of the log.

        Raises:
            Refused: an error of the server ends the stream.
            SourceUnavailable: the server ends it in good order.
            ProtocolError: it has no place here.
        """
        if kind == b"E":
            raise Refused(*error_fields(data))
        if kind == b"N":
            self._notice(*error_fields(data))
        elif kind in (b"c", b"C", b"Z"):
            raise self._session.lost("the server ended the stream")
        elif kind not in (b"S", b"A"):
            raise ProtocolError(
                f"The replication stream holds an unknown frame {kind!r} of {len(data)} bytes.",
                next_step="report it with the server's version; capture stops rather than guess.",
            )

    def _ready(self, now: float) -> LogItem | None:
        assembler, decoder = self._assembler, self._decoder
        due = assembler.has_output and not assembler.open and self._cadence.due(now)
        if assembler.full or due:
            self._next_heartbeat = now + self._settings.heartbeat_s
            return self._take(now)
        if now < self._next_quiet and not decoder.reply_wanted:
            return None
        item = assembler.quiet(decoder.wal_end)
        if item is not None:
            self._next_quiet = now + _QUIET_S
        return item

    def _take(self, now: float) -> LogItem:
        self._cadence.ended(now, self._decoder.rows)
        item = self._assembler.take(more=self._cadence.busy)
        if self._assembler.replaying:
            self._next_piece = self._beside.submit(self._assembler.advance, self._stream.frames)
        return item

    def _next_wake(self) -> float:
        wake = min(self._next_feedback, self._next_watch)
        if self._heartbeats:
            wake = min(wake, self._next_heartbeat)
        if self._assembler.open:
            return wake
        if self._assembler.has_output:
            return min(wake, self._cadence.due_at)
        if self._decoder.wal_end - 1 > self._assembler.covered:
            wake = min(wake, self._next_quiet)
        return wake

    # -- what we send ---------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        if now >= self._next_feedback or self._decoder.reply_wanted:
            self._send_feedback()
        if self._heartbeats and now >= self._next_heartbeat and not self._assembler.open:
            self._next_heartbeat = now + self._settings.heartbeat_s
            self._beat()
        if now >= self._next_watch:
            self._next_watch = now + _WATCH_S
            self._look()

    def _look(self) -> None:
        """Look at the publication; where somebody keeps a table locked, the next time."""
        try:
            self._watch.check(self._side.get())
        except SourceUnavailable:
            # A server that is gone is noticed by the stream itself.
            self._side.close()

    def _send_feedback(self) -> None:
        """Send a status update: received, durable, applied."""
        now_us = time.time_ns() // 1000 - POSTGRES_EPOCH_US
        written = max(self._decoder.written, self._flushed)
        self._stream.send(_STATUS.pack(b"r", written, self._flushed, self._flushed, now_us, 0))
        self._decoder.reply_wanted = False
        self._next_feedback = time.monotonic() + self._feedback_s

    def _beat(self) -> None:
        """Write a message of our own, so that an idle database's slot moves on; do without if refused."""
        try:
            marks.heartbeat(self._side.get(), self._settings)
        except QueryFailed:
            self._heartbeats = False
        except SourceUnavailable:
            self._side.close()

    def _ended(self, error: Refused) -> HeadraceError:
        """Return why the server ended the stream."""
        sqlstate = error.sqlstate
        if not sqlstate or sqlstate[:3] == "57P" or sqlstate[:2] == "08":
            return self._session.lost(error.text)
        return stream_error(self._settings, sqlstate, error.text)

"""The log as a replication stream: one blocking thread reads, decodes, and reports what is durable."""

from __future__ import annotations

import select
import struct
import time

import psycopg
from psycopg import pq

from headrace.errors import HeadraceError, ProtocolError, SlotLost, SourceError, SourceUnavailable
from headrace.sources.base import LogItem
from headrace.sources.postgres import marks
from headrace.sources.postgres.assembler import Assembler
from headrace.sources.postgres.connection import QueryFailed, Session, quote, quote_literal
from headrace.sources.postgres.lsn import parse_lsn
from headrace.sources.postgres.messages import POSTGRES_EPOCH_US
from headrace.sources.postgres.pgoutput import decode
from headrace.sources.postgres.publication import PublicationWatch
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.side import SideSession

__all__ = ["PostgresLogReader", "start_replication"]

_FRAME = struct.Struct(">QQq")
_KEEPALIVE = struct.Struct(">QqB")
_STATUS = struct.Struct(">cQQQqB")

# An idle log moves its covered SCN at most this often.
_QUIET_S = 0.5
# Under a load that never lets the socket run dry, whole transactions leave after this time.
_COLLECT_S = 0.1

# How often the publication is looked at, while the log leaves time for it.
_WATCH_S = 20.0

_NOT_READY = b"55000"
_IN_USE = "55006"
_BUSY_PAUSE_S = 0.05


def start_replication(session: Session, settings: PostgresSettings) -> None:
    """Put a replication connection into streaming.

    Raises:
        SlotLost: the slot, or the log it needs, is gone.
        SourceUnavailable: the slot is in use by another connection.
        SourceError: the server refused for another reason.
    """
    publication = quote_literal(quote(settings.publication_name)).strip()
    sql = (
        f"START_REPLICATION SLOT {quote(settings.slot_name)} LOGICAL 0/0 "
        f"(proto_version '1', publication_names {publication}, messages 'true')"
    )
    deadline = time.monotonic() + settings.slot_busy_s
    while True:
        try:
            result = session.result(sql)
            break
        except QueryFailed as error:
            # The server takes a moment to notice that a reader before us is gone.
            if error.sqlstate != _IN_USE or time.monotonic() > deadline:
                raise stream_error(settings, error.sqlstate, error.message) from error
            time.sleep(_BUSY_PAUSE_S)
    if result.status != pq.ExecStatus.COPY_BOTH:
        raise SourceError(
            f"The server did not start streaming from slot {settings.slot_name}.",
            next_step="check that the server is PostgreSQL 14 or newer and no pooler lies between.",
        )


def stream_error(settings: PostgresSettings, sqlstate: str, text: str) -> HeadraceError:
    """Return what an error of the replication stream means for us."""
    slot = settings.slot_name
    # Object not in the needed state; undefined file: a log segment that was removed.
    if sqlstate in ("55000", "58P01"):
        return SlotLost(
            f"Slot {slot} or the log it needs is gone: {text}",
            next_step="RESYNC NEEDED: remove the slot, start again, and dump every table.",
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
    """An open replication stream. Used from one thread."""

    def __init__(
        self,
        session: Session,
        side: SideSession,
        settings: PostgresSettings,
        assembler: Assembler,
        feedback_s: float,
    ) -> None:
        self._session = session
        self._side = side
        self._settings = settings
        self._assembler = assembler
        self._feedback_s = feedback_s
        self._written = 0
        self._flushed = 0
        self._wal_end = 0
        now = time.monotonic()
        self._next_feedback = now
        self._next_quiet = now
        self._next_heartbeat = now + settings.heartbeat_s
        self._quiet_now = False
        self._heartbeats = True
        self._watch = PublicationWatch(settings)
        self._next_watch = now
        self._warned: HeadraceError | None = None
        session.pgconn.notice_handler = self._notice
        self._poller = select.poll()
        self._poller.register(session.pgconn.socket, select.POLLIN)

    def poll(self, timeout_s: float) -> LogItem | None:
        """Return what has arrived; see `headrace.sources.base.LogReader`."""
        deadline = time.monotonic() + timeout_s
        try:
            while True:
                self._drain()
                item = self._ready()
                if item is not None:
                    return item
                now = time.monotonic()
                self._tick(now)
                if now >= deadline:
                    return self._assembler.take() if self._assembler.has_output else None
                self._wait(min(deadline, self._next_wake()) - now)
        except psycopg.Error as error:
            raise self._session.lost() from error
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
            try:
                self._send_feedback()
            except psycopg.Error as error:
                raise self._session.lost() from error

    def close(self) -> None:
        """Release the connections; the slot stays."""
        self._session.close()
        self._side.close()

    # -- reading --------------------------------------------------------------------------------

    def _drain(self) -> None:
        """Decode what libpq has or the socket holds, until a hand-over is due."""
        connection = self._session.pgconn
        assembler = self._assembler
        fresh = True
        hand_over = time.monotonic() + _COLLECT_S
        while not assembler.full:
            size, data = connection.get_copy_data(1)
            if size > 0:
                self._frame(data)
                fresh = True
            elif size == 0:
                if not fresh:
                    return
                connection.consume_input()
                fresh = False
                now = time.monotonic()
                if now >= self._next_feedback:
                    self._send_feedback()
                if now >= hand_over and assembler.has_output and not assembler.open:
                    return
            else:
                raise self._ended()

    def _notice(self, notice: pq.abc.PGresult) -> None:
        """Take note of the one warning that means lost changes.

        From 18 on the server goes on without a publication that does not exist at this place of the log.
        """
        state = notice.error_field(pq.DiagnosticField.SQLSTATE)
        if state == _NOT_READY and self._warned is None:
            text = notice.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
            self._warned = _no_publication(self._settings, text.decode("utf-8", "replace"))

    def _frame(self, data: memoryview) -> None:
        if self._warned is not None:
            raise self._warned
        kind = bytes(data[:1])
        try:
            if kind == b"w":
                start, end, sent = _FRAME.unpack_from(data, 1)
                self._written = max(self._written, start, end)
                message = decode(bytes(data[25:]))
                self._assembler.feed(message, len(data), sent + POSTGRES_EPOCH_US)
                return
            if kind == b"k":
                wal_end, _, wants_reply = _KEEPALIVE.unpack_from(data, 1)
                self._wal_end = max(self._wal_end, wal_end)
                self._written = max(self._written, wal_end)
                if wants_reply:
                    self._next_feedback = 0.0
                    self._quiet_now = True
                return
        except struct.error as error:
            raise _unknown_frame(kind, len(data)) from error
        raise _unknown_frame(kind, len(data))

    def _ready(self) -> LogItem | None:
        assembler = self._assembler
        if assembler.full or (assembler.has_output and not assembler.open):
            self._next_heartbeat = time.monotonic() + self._settings.heartbeat_s
            return assembler.take()
        now = time.monotonic()
        if now < self._next_quiet and not self._quiet_now:
            return None
        item = assembler.quiet(self._wal_end)
        if item is not None:
            self._next_quiet = now + _QUIET_S
            self._quiet_now = False
        return item

    def _wait(self, timeout_s: float) -> None:
        self._poller.poll(max(0.0, timeout_s) * 1000)

    def _next_wake(self) -> float:
        wake = min(self._next_feedback, self._next_watch)
        if self._heartbeats:
            wake = min(wake, self._next_heartbeat)
        if self._wal_end - 1 > self._assembler.covered and not self._assembler.open:
            wake = min(wake, self._next_quiet)
        return wake

    # -- what we send ---------------------------------------------------------------------------

    def _tick(self, now: float) -> None:
        if now >= self._next_feedback:
            self._send_feedback()
        if self._heartbeats and now >= self._next_heartbeat and not self._assembler.open:
            self._next_heartbeat = now + self._settings.heartbeat_s
            self._beat()
        if now >= self._next_watch:
            self._next_watch = now + _WATCH_S
            self._watch.check(self._side.get())

    def _send_feedback(self) -> None:
        """Send a status update: received, durable, applied."""
        now_us = time.time_ns() // 1000 - POSTGRES_EPOCH_US
        written = max(self._written, self._flushed)
        self._session.pgconn.put_copy_data(
            _STATUS.pack(b"r", written, self._flushed, self._flushed, now_us, 0)
        )
        self._session.flush(time.monotonic() + self._settings.statement_timeout_s)
        self._next_feedback = time.monotonic() + self._feedback_s

    def _beat(self) -> None:
        """Write a message of our own, so that an idle database's slot moves on; do without if refused."""
        try:
            marks.heartbeat(self._side.get(), self._settings)
        except QueryFailed:
            self._heartbeats = False
        except SourceUnavailable:
            self._side.close()

    def _ended(self) -> HeadraceError:
        """Return why the server ended the stream."""
        connection = self._session.pgconn
        result = connection.get_result()
        if result is None or result.status != pq.ExecStatus.FATAL_ERROR:
            return self._session.lost("the server ended the stream")
        state = result.error_field(pq.DiagnosticField.SQLSTATE) or b""
        text = result.error_field(pq.DiagnosticField.MESSAGE_PRIMARY) or b""
        sqlstate = state.decode()
        if not sqlstate or sqlstate[:3] == "57P" or sqlstate[:2] == "08":
            return self._session.lost(text.decode("utf-8", "replace"))
        return stream_error(self._settings, sqlstate, text.decode("utf-8", "replace"))


def _unknown_frame(kind: bytes, size: int) -> ProtocolError:
    return ProtocolError(
        f"The replication stream holds an unknown frame {kind!r} of {size} bytes.",
        next_step="report it with the server's version; capture stops rather than guess.",
    )

"""Asks a server for its binary log, and hands out events one by one.

One session of PyMySQL logs in and says how the log shall come; from then on its socket is read here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Literal

from headrace.errors import HeadraceError, SlotLost, SourceError, SourceUnavailable
from headrace.sources.mysql.connection import Session, connect
from headrace.sources.mysql.events import (
    Event,
    EventType,
    parse_event,
    parse_format,
    parse_rotate,
)
from headrace.sources.mysql.packets import PacketReader, is_end
from headrace.sources.mysql.position import RESYNC
from headrace.sources.mysql.reading import broken
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.source_events import unpacked
from headrace.sources.mysql.vendor import Start
from headrace.sources.mysql.vendors import vendor_of

__all__ = ["Dump", "dump_error", "stretch"]

_OK, _END, _ERR = 0x00, 0xFE, 0xFF

# Transactions that are alike are taken at once where they have come whole: a backlog with 10,000 rows in each costs a
# quarter less time than with a sixteenth of this.
_AHEAD = 4 << 20

# Checksums are proved; the server takes off none that are stored, whatever is asked for.
_CHECKSUM = "SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'"


class Dump:
    """An open binary log.

    Args:
        session: logged in; becomes ours.
        settings: of the source.
        server_id: under which we are a replica; no other replica may have it.
        start: ids behind which the log begins, as the server writes them, or a file and a position in it.
        follow: wait for what comes; else the log ends where it ends now.

    Raises:
        SlotLost: the server no longer has the log from there on, or never had.
        SourceError: it refuses for another reason.
    """

    def __init__(
        self,
        session: Session,
        settings: MysqlSettings,
        server_id: int,
        start: Start,
        *,
        follow: bool = True,
    ) -> None:
        self._session = session
        self._follow = follow
        self._checksum = False
        self._unpacked: Iterator[Event] | None = None
        self.ended = False
        beat_ns = int(settings.heartbeat_s * 1e9)
        session.run(
            _CHECKSUM,
            f"SET @master_heartbeat_period = {beat_ns}, @source_heartbeat_period = {beat_ns}",
            f"SET SESSION net_write_timeout = {settings.write_timeout_s}",
        )
        body = vendor_of(session).ask(session, start, server_id, follow=follow)
        socket = session.socket()
        socket.settimeout(settings.statement_timeout_s)
        try:
            socket.sendall(struct.pack("<I", len(body)) + body)
        except OSError as error:
            raise SourceUnavailable(
                "The connection was lost while the log was asked for.",
                next_step="nothing: the log is opened again.",
            ) from error
        self._packets = PacketReader(socket, _AHEAD)

    def next(self, timeout_s: float) -> Event | None:
        """Return the next event, None when none came in time or the log is at its end.

        Raises:
            SourceUnavailable: the connection is gone, or a log that is followed ended: the server is about to stop.
            SlotLost: the server no longer has the log.
            ProtocolError: what came is no event.
        """
        if self._unpacked is not None:
            inner = next(self._unpacked, None)
            if inner is not None:
                return inner
            self._unpacked = None
        payload = None if self.ended else self._packets.next(timeout_s)
        if payload is None:
            return None
        first = payload[0] if payload else _END
        if first == _ERR:
            raise _refused(payload)
        if is_end(first, len(payload)):
            if self._follow:
                raise _ended("it is stopping")
            self.ended = True
            return None
        if first != _OK:
            raise broken(f"a packet begins with {first}")
        event = parse_event(payload[1:], checksum=self._checksum)
        if event.type == EventType.FORMAT_DESCRIPTION:
            self._checksum = parse_format(event).checksum
        if event.type == EventType.PAYLOAD:
            self._unpacked = unpacked(event)
            return next(self._unpacked, None)
        return event

    def ready(self, timeout_s: float) -> bool:
        """Return whether `next` and `hand` have something, False when it has not come in time; raises as `next`."""
        return self._unpacked is not None or self.ended or self._packets.ready(timeout_s)

    def hand(self, take: Callable[[bytearray, int, int, bool], int]) -> bool:
        """Let somebody take packets with events from what has been read; not inside a compressed transaction.

        Args:
            take: as for `PacketReader.hand`; learns also whether events end with a checksum here.

        Returns:
            whether any was taken.
        """
        if self._unpacked is not None:
            return False
        return self._packets.hand(lambda buffer, at, end: take(buffer, at, end, self._checksum))

    def more(self) -> bool:
        """Read what has come meanwhile, where there is room for it; return whether anything had. Raises as `next`."""
        return not self.ended and self._packets.read_ahead()

    @property
    def ahead(self) -> bool:
        """Whether more of the log has been read than was handed out."""
        return self._packets.ahead

    def close(self) -> None:
        """Release the connection."""
        self._session.close()


def stretch(settings: MysqlSettings, start: Start) -> Iterator[tuple[str, Event]]:
    """Yield the log's events from a place on, up to where it ends now, each with the name of its file."""
    with connect(settings) as session:
        log = Dump(session, settings, settings.asking_id, start, follow=False)
        file = ""
        while (event := log.next(settings.statement_timeout_s)) is not None:
            if event.type == EventType.ROTATE:
                file = parse_rotate(event).file
            yield file, event


def _refused(payload: bytes) -> HeadraceError:
    code = int.from_bytes(payload[1:3], "little")
    text = payload[9:] if payload[3:4] == b"#" else payload[3:]
    return dump_error(code, text.decode("utf-8", "replace"))


def _ended(why: str) -> SourceUnavailable:
    return SourceUnavailable(
        f"The server ended the log ({why}).", next_step="nothing: the log is opened again."
    )


_Meaning = Literal["lost", "foreign", "taken", "other"]

# The server has one number for all of these; its words are what tells them apart.
_WORDS: tuple[tuple[str, _Meaning], ...] = (
    ("could not find first log file name", "lost"),
    ("has purged required", "lost"),
    ("purged binary logs", "lost"),
    ("purged required binary logs", "lost"),
    ("requested starting gtid", "lost"),
    ("could not find gtid state requested", "lost"),
    ("which is not in the master's binlog", "foreign"),
    ("binlog truncated in the middle of event", "foreign"),
    ("client requested master to start replication from", "foreign"),
    ("client requested source to start replication from", "foreign"),
    ("replica has more gtids than the source", "foreign"),
    ("same server_uuid/server_id", "taken"),
    ("same server_id", "taken"),
)


def dump_error(code: int, text: str) -> HeadraceError:
    """Return what an error of the server means for whoever reads its log."""
    if code in (1053, 1927, 1317):
        return _ended(str(code))
    lower = text.lower()
    meaning = next((meaning for words, meaning in _WORDS if words in lower), "other")
    if meaning == "lost":
        return SlotLost(
            f"The server no longer has the log from our position on: {text} ({code})",
            next_step=f"{RESYNC}; raise expire_logs_days or binlog_expire_logs_seconds.",
        )
    if meaning == "foreign":
        return SlotLost(
            f"The server's log does not hold our position: {text} ({code})",
            next_step=f"check that source.url is the same database, not reset or restored; else {RESYNC}.",
        )
    if meaning == "taken":
        return SourceUnavailable(
            f"Another reader has our server id: {text} ({code})",
            next_step="stop the other reader, or give one of them another name.",
        )
    return SourceError(
        f"The log cannot be read: {text} ({code})",
        next_step="run `headrace preflight FILE`, which lists what is missing.",
    )

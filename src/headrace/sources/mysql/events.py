"""Events of the binary log, as far as they are not rows: their header and what is in them.

An event begins with 19 bytes: time of the statement (seconds), type, server id, size, end position in its file, flags;
all little-endian. With checksums it ends with a CRC-32 of everything before. Pure functions from bytes to values.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from zlib_ng.zlib_ng import crc32

from headrace.sources.mysql.charsets import decode_statement
from headrace.sources.mysql.gtids import DomainGtid, Gtid
from headrace.sources.mysql.reading import Reading, broken

__all__ = [
    "HEADER",
    "Begin",
    "Event",
    "EventType",
    "Format",
    "Query",
    "Rotate",
    "RowsHeader",
    "inflate",
    "parse_event",
    "parse_format",
    "parse_gtid",
    "parse_gtid_list",
    "parse_heartbeat",
    "parse_query",
    "parse_rotate",
    "parse_rows_header",
    "stored_event",
]

HEADER = 19


class EventType(IntEnum):
    """What an event is; only those that are told apart here."""

    QUERY = 2
    STOP = 3
    ROTATE = 4
    FORMAT_DESCRIPTION = 15
    XID = 16
    TABLE_MAP = 19
    WRITE_ROWS_V1 = 23
    UPDATE_ROWS_V1 = 24
    DELETE_ROWS_V1 = 25
    INCIDENT = 26
    HEARTBEAT = 27
    ROWS_QUERY = 29
    WRITE_ROWS = 30
    UPDATE_ROWS = 31
    DELETE_ROWS = 32
    SOURCE_GTID = 33
    ANONYMOUS = 34
    PREVIOUS_GTIDS = 35
    CONTEXT = 36
    VIEW_CHANGE = 37
    XA_PREPARE = 38
    PARTIAL_UPDATE_ROWS = 39
    PAYLOAD = 40
    TAGGED_GTID = 42
    ANNOTATE = 160
    CHECKPOINT = 161
    GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165
    WRITE_ROWS_COMPRESSED = 166
    UPDATE_ROWS_COMPRESSED = 167
    DELETE_ROWS_COMPRESSED = 168


INSERTS = frozenset(
    {EventType.WRITE_ROWS_V1, EventType.WRITE_ROWS, EventType.WRITE_ROWS_COMPRESSED}
)
UPDATES = frozenset(
    {EventType.UPDATE_ROWS_V1, EventType.UPDATE_ROWS, EventType.UPDATE_ROWS_COMPRESSED}
    | {EventType.PARTIAL_UPDATE_ROWS}
)
DELETES = frozenset(
    {EventType.DELETE_ROWS_V1, EventType.DELETE_ROWS, EventType.DELETE_ROWS_COMPRESSED}
)
ROWS = INSERTS | UPDATES | DELETES
_WITH_EXTRA = frozenset(
    {EventType.WRITE_ROWS, EventType.UPDATE_ROWS, EventType.DELETE_ROWS}
    | {EventType.PARTIAL_UPDATE_ROWS}
)
_COMPRESSED = frozenset(
    {
        EventType.WRITE_ROWS_COMPRESSED,
        EventType.UPDATE_ROWS_COMPRESSED,
        EventType.DELETE_ROWS_COMPRESSED,
    }
)

# Bytes of an event at most, by the server's largest `max_allowed_packet`.
_MOST = 1 << 30

# The writer's mark that it made this event up for the reader: it lies in no file.
_ARTIFICIAL = 0x20
_MAY_IGNORE = 0x80


@dataclass(frozen=True, slots=True)
class Event:
    """One event with its header read and its checksum proved.

    Attributes:
        type: a number of `EventType`, or one that is not known here.
        time_s: when its statement began, seconds since 1970 UTC.
        end_pos: low 32 bits of the place behind it in its file, 0 of events that lie in none.
        flags: of the header.
        data: all bytes, header included.
        end: behind the last byte of the body; the checksum lies there.
    """

    type: int
    time_s: int
    end_pos: int
    flags: int
    data: bytes
    end: int

    @property
    def artificial(self) -> bool:
        """Whether the server made it up for the reader."""
        return bool(self.flags & _ARTIFICIAL) or self.end_pos == 0

    @property
    def ignorable(self) -> bool:
        """Whether its writer says that who does not know it may pass it over."""
        return bool(self.flags & _MAY_IGNORE)

    def body(self) -> Reading:
        """Return a cursor at the first byte behind the header."""
        return Reading(self.data, HEADER, self.end)


def parse_event(data: bytes, *, checksum: bool) -> Event:
    """Read the header and check length and checksum.

    Args:
        data: the whole event.
        checksum: whether events end with one here; a format description always says so itself.
    """
    if len(data) < HEADER:
        raise broken("an event is shorter than its header")
    type_ = data[4]
    if int.from_bytes(data[9:13], "little") != len(data):
        raise broken("an event is not as long as it says")
    end = len(data)
    if type_ == EventType.ROTATE and not checksum and end > HEADER + 12:
        # The one before the first format description: whether it has a checksum depends on what was asked for.
        checksum = crc32(memoryview(data)[: end - 4]) == int.from_bytes(data[end - 4 :], "little")
    if checksum or type_ == EventType.FORMAT_DESCRIPTION:
        end -= 4
        told = int.from_bytes(data[end:], "little")
        # A format description of a log without checksums has room for one, filled with zeros.
        known = checksum or data[end - 1] == 1
        if known and (end < HEADER or crc32(memoryview(data)[:end]) != told):
            raise broken("an event's checksum is wrong")
    return stored_event(data, end)


def stored_event(data: bytes, end: int) -> Event:
    """Read the header of an event that was checked before.

    Args:
        data: the whole event.
        end: behind the last byte of its body.
    """
    return Event(
        data[4],
        int.from_bytes(data[:4], "little"),
        int.from_bytes(data[13:17], "little"),
        int.from_bytes(data[17:19], "little"),
        data,
        end,
    )


@dataclass(frozen=True, slots=True)
class Format:
    """What a format description says of the events behind it.

    Attributes:
        version: of the server that wrote the file.
        checksum: whether events end with a CRC-32.
    """

    version: str
    checksum: bool


def parse_format(event: Event) -> Format:
    """Read a format description."""
    body = event.body()
    if body.number(2) != 4:
        raise broken("a log of a version other than 4")
    version = body.take(50).rstrip(b"\0").decode("ascii", "replace")
    body.take(4)
    if body.number(1) != HEADER:
        raise broken("event headers have another length than 19 bytes")
    algorithm = event.data[event.end - 1]
    if algorithm > 1:
        raise broken(f"a checksum of the unknown kind {algorithm}")
    return Format(version, algorithm == 1)


@dataclass(frozen=True, slots=True)
class Rotate:
    """The log goes on in another file.

    Attributes:
        file: its name.
        position: of the next event there.
    """

    file: str
    position: int


def parse_rotate(event: Event) -> Rotate:
    """Read a rotation; an artificial one names the file of what follows."""
    body = event.body()
    position = body.number(8)
    return Rotate(body.text(body.left), position)


def parse_heartbeat(event: Event) -> str:
    """Read a sign of life; its end is a place in the file that it names."""
    body = event.body()
    return body.text(body.left)


_NO_CHARSETS: Mapping[int, str] = {}
_STANDALONE, _GROUPED, _PREPARES, _COMPLETES = 1, 2, 64, 128
_BEGINS_ALTER, _UNDOES_ALTER = 2, 8
"""Of a second byte of flags."""


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins.

    Attributes:
        gtid: its id.
        commit_us: when it was committed on the server that logged it, microseconds since 1970 UTC.
        standalone: it is this and one more event, without a commit at its end; None where its first statement tells.
        prepares: it is a distributed one, which ends with being prepared; where its first statement tells, False.
        attempts: of the ``ALTER`` in it, it says only that it began, or that it came to nothing.
    """

    gtid: Gtid
    commit_us: int
    standalone: bool | None
    prepares: bool = False
    attempts: bool = False


def parse_gtid(event: Event) -> Begin:
    """Read MariaDB's beginning of a transaction."""
    body = event.body()
    number, domain, flags = body.number(8), body.number(4), body.number(1)
    server = int.from_bytes(event.data[5:9], "little")
    gtid = DomainGtid(domain, server, number)
    standalone, prepares = bool(flags & _STANDALONE), bool(flags & _PREPARES)
    attempts = bool(_more_flags(body, flags) & (_BEGINS_ALTER | _UNDOES_ALTER))
    return Begin(gtid, event.time_s * 1_000_000, standalone, prepares, attempts)


def _more_flags(body: Reading, flags: int) -> int:
    """Return the second byte of flags, 0 where there is none."""
    if flags & _GROUPED:
        # With which others it was committed.
        body.take(8)
    if flags & (_PREPARES | _COMPLETES):
        body.take(4)
        body.take(body.number(1) + body.number(1))
    return body.number(1) if body.left else 0


@dataclass(frozen=True, slots=True)
class Prepared:
    """A distributed transaction is prepared.

    Attributes:
        one_phase: it is committed at once.
        xid: its name as the server writes it in statements, such as ``X'6162',X'',1``.
    """

    one_phase: bool
    xid: str


def parse_prepared(event: Event) -> Prepared:
    """Read the end of a distributed transaction's changes."""
    body = event.body()
    one_phase, kind = body.number(1) != 0, body.number(4)
    sizes = body.number(4), body.number(4)
    names = [body.take(size).hex() for size in sizes]
    return Prepared(one_phase, f"X'{names[0]}',X'{names[1]}',{kind}")


def parse_gtid_list(event: Event) -> list[DomainGtid]:
    """Read the last ids of each domain and server before a file, oldest first in each domain."""
    body = event.body()
    count = body.number(4) & 0x0FFFFFFF
    found = []
    for _ in range(count):
        domain, server, number = body.number(4), body.number(4), body.number(8)
        found.append(DomainGtid(domain, server, number))
    return found


@dataclass(frozen=True, slots=True)
class Query:
    """A statement that is logged as text.

    Attributes:
        schema: the database that names without one are looked for in.
        sql: the statement; may hold values, so it is never shown.
        strict: whether the session refused values that do not fit, instead of making others of them.
        escapes: whether a backslash in a text of the statement changes what the sign behind it means.
        ansi: whether double quotes are around names.
    """

    schema: str
    sql: str
    strict: bool = True
    escapes: bool = True
    ansi: bool = False


def parse_query(event: Event, charsets: Mapping[int, str] = _NO_CHARSETS) -> Query:
    """Read a statement.

    Args:
        event: with it.
        charsets: character sets by the numbers of their collations; of one that is not there, text is taken for UTF-8.
    """
    body = event.body()
    body.take(8)
    schema_length = body.number(1)
    body.take(2)
    status = body.take(body.number(2))
    schema = body.text(schema_length)
    body.take(1)
    text = body.take(body.left)
    if event.type == EventType.QUERY_COMPRESSED:
        text = inflate(text)
    said = _session(status)
    told = said.get(_SQL_MODE)
    mode = _STRICT if told is None else int.from_bytes(told, "little")
    charset = charsets.get(int.from_bytes(said.get(_CHARSETS, b"")[:2], "little"), "")
    sql = decode_statement(text, charset)
    return Query(
        schema, sql, bool(mode & _STRICT), not mode & _NO_ESCAPES, bool(mode & _ANSI_QUOTES)
    )


_STRICT = 1 << 21 | 1 << 22
"""Of a session's ``sql_mode``: for tables that are transactional, and for all."""
_NO_ESCAPES = 1 << 20
_ANSI_QUOTES = 1 << 2
"""Likewise."""

_SQL_MODE, _CHARSETS, _CATALOG = 1, 4, 6
_SAID = {0: 4, _SQL_MODE: 8, 3: 4, _CHARSETS: 6}
"""Bytes of what a statement says of its session, as far as it is looked at, by what it is."""


def _session(status: bytes) -> dict[int, bytes]:
    """Return what a statement says of its session, by what it is: its ``sql_mode``, and its client's collation."""
    said: dict[int, bytes] = {}
    at = 0
    while at < len(status) and (status[at] in _SAID or status[at] == _CATALOG):
        kind, at = status[at], at + 1
        size = _SAID[kind] if kind in _SAID else 1 + int.from_bytes(status[at : at + 1])
        said[kind] = status[at : at + size]
        at += size
    return said


@dataclass(frozen=True, slots=True)
class RowsHeader:
    """What stands before the rows of an event.

    Attributes:
        table_id: of the table map that describes them.
        width: columns of the table.
        before: mask of the columns in the first image of each row.
        after: mask of those in the second, of updates; else as ``before``.
        data: where the rows lie.
        start: of the first row in ``data``.
        end: behind the last row.
    """

    table_id: int
    width: int
    before: bytes
    after: bytes
    data: bytes
    start: int
    end: int


def parse_rows_header(event: Event) -> RowsHeader:
    """Read the beginning of an event with rows; compressed rows are inflated."""
    body = event.body()
    table_id = body.number(6)
    body.take(2)
    if event.type in _WITH_EXTRA:
        body.take(body.number(2) - 2)
    width = body.length()
    before = body.bits(width)
    after = body.bits(width) if event.type in UPDATES else before
    if event.type in _COMPRESSED:
        rows = inflate(body.take(body.left))
        return RowsHeader(table_id, width, before, after, rows, 0, len(rows))
    return RowsHeader(table_id, width, before, after, event.data, body.at, event.end)


def inflate(data: bytes) -> bytes:
    """Return what MariaDB compressed: a byte with algorithm and width, the length, and zlib's stream."""
    if not data or data[0] >> 4 & 7:
        raise broken("compressed bytes of an unknown kind")
    width = data[0] & 7
    size = int.from_bytes(data[1 : 1 + width], "big")
    if size > _MOST:
        raise broken("compressed bytes say that they inflate to more than an event has")
    try:
        plain = zlib.decompress(data[1 + width :], bufsize=max(1, size))
    except zlib.error:
        raise broken("compressed bytes do not inflate") from None
    if len(plain) != size:
        raise broken("compressed bytes inflate to another length")
    return plain

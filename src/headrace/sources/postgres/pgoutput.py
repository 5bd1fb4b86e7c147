"""Decoder of pgoutput, protocol version 2: bytes in, messages out, no I/O.

Messages inside a streamed stretch carry the id of their transaction behind the kind; whoever walks over frames takes
it out first.

Every length is checked before it is used: whatever the bytes, the outcome is a message or a `ProtocolError`.

Source: PostgreSQL manual, "Logical Replication Message Formats".
"""

from __future__ import annotations

import struct

from headrace.errors import ProtocolError
from headrace.sources.postgres.messages import (
    POSTGRES_EPOCH_US,
    UNCHANGED,
    Begin,
    Binary,
    Cell,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Origin,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TypeName,
    Update,
)

__all__ = ["decode"]

_BEGIN = struct.Struct(">QqI")
_COMMIT = struct.Struct(">BQQq")
_STREAM_START = struct.Struct(">IB")
_STREAM_COMMIT = struct.Struct(">IBQQq")
_STREAM_ABORT = struct.Struct(">II")
_COLUMN_TAIL = struct.Struct(">Ii")
_OID = struct.Struct(">I")
_SHORT = struct.Struct(">h")
_LONG = struct.Struct(">i")
_WIDE = struct.Struct(">Q")
_MESSAGE_HEAD = struct.Struct(">BQ")

_MAX_COLUMNS = 1664  # the server's own limit for a target list


def decode(data: bytes) -> Message:
    """Return the message that ``data`` holds, all of it.

    Raises:
        ProtocolError: when the bytes are cut short, too long, of an unknown kind, or inconsistent.
    """
    if not data:
        raise ProtocolError("pgoutput: an empty message.", next_step=_NEXT_STEP)
    kind = data[:1]
    try:
        decoder = _DECODERS.get(kind)
        if decoder is None:
            raise _malformed(kind, "is of an unknown kind")
        message, end = decoder(data)
    except (struct.error, IndexError) as error:
        raise _malformed(kind, f"is cut short at {len(data)} bytes") from error
    except UnicodeDecodeError as error:
        raise _malformed(kind, "holds a name that is not UTF-8") from error
    if end != len(data):
        raise _malformed(kind, f"of {len(data)} bytes ends after {end}")
    return message


_NEXT_STEP = "report it with the server's version; capture stops rather than guess."


def _malformed(kind: bytes, what: str) -> ProtocolError:
    return ProtocolError(f"pgoutput: a message {kind!r} {what}.", next_step=_NEXT_STEP)


def _begin(data: bytes) -> tuple[Message, int]:
    lsn, us, xid = _BEGIN.unpack_from(data, 1)
    if not 0 < lsn < 1 << 63 or abs(us) >= 1 << 62:
        raise _malformed(b"B", "has a position or time out of range")
    return Begin(lsn, us + POSTGRES_EPOCH_US, xid), 21


def _commit(data: bytes) -> tuple[Message, int]:
    _, lsn, end_lsn, us = _COMMIT.unpack_from(data, 1)
    return Commit(lsn, end_lsn, us + POSTGRES_EPOCH_US), 26


def _origin(data: bytes) -> tuple[Message, int]:
    (lsn,) = _WIDE.unpack_from(data, 1)
    name, end = _string(data, 9)
    return Origin(lsn, name), end


def _relation(data: bytes) -> tuple[Message, int]:
    (oid,) = _OID.unpack_from(data, 1)
    schema, at = _string(data, 5)
    name, at = _string(data, at)
    identity = chr(data[at])
    if identity not in "dnfi":
        raise _malformed(b"R", "has an unknown replica identity")
    count = _count(data, at + 1)
    at += 3
    columns = []
    for _ in range(count):
        flags = data[at]
        column, at = _string(data, at + 1)
        type_oid, modifier = _COLUMN_TAIL.unpack_from(data, at)
        at += 8
        columns.append(RelationColumn(column, bool(flags & 1), type_oid, modifier))
    # An empty namespace is how the protocol writes pg_catalog.
    return Relation(oid, schema or "pg_catalog", name, identity, tuple(columns)), at


def _type(data: bytes) -> tuple[Message, int]:
    (oid,) = _OID.unpack_from(data, 1)
    schema, at = _string(data, 5)
    name, at = _string(data, at)
    return TypeName(oid, schema or "pg_catalog", name), at


def _insert(data: bytes) -> tuple[Message, int]:
    (oid,) = _OID.unpack_from(data, 1)
    if data[5] != 0x4E:
        raise _malformed(b"I", "has no new row")
    new, end = _cells(data, 6)
    return Insert(oid, new), end


def _update(data: bytes) -> tuple[Message, int]:
    (oid,) = _OID.unpack_from(data, 1)
    part, at = data[5], 6
    old_kind, old = "", None
    if part in (0x4B, 0x4F):
        old_kind = chr(part)
        old, at = _cells(data, at)
        part, at = data[at], at + 1
    if part != 0x4E:
        raise _malformed(b"U", "has no new row")
    new, end = _cells(data, at)
    return Update(oid, old_kind, old, new), end


def _delete(data: bytes) -> tuple[Message, int]:
    (oid,) = _OID.unpack_from(data, 1)
    if data[5] not in (0x4B, 0x4F):
        raise _malformed(b"D", "has no old row")
    old, end = _cells(data, 6)
    return Delete(oid, chr(data[5]), old), end


def _truncate(data: bytes) -> tuple[Message, int]:
    (count,) = _OID.unpack_from(data, 1)
    end = 6 + 4 * count
    if end > len(data):
        raise _malformed(b"T", f"is cut short at {len(data)} bytes")
    return Truncate(struct.unpack_from(f">{count}I", data, 6)), end


def _message(data: bytes) -> tuple[Message, int]:
    flags, lsn = _MESSAGE_HEAD.unpack_from(data, 1)
    prefix, at = _string(data, 10)
    (length,) = _LONG.unpack_from(data, at)
    at += 4
    if not 0 < lsn < 1 << 63:
        raise _malformed(b"M", "has a position out of range")
    if length < 0 or at + length > len(data):
        raise _malformed(b"M", "has a content longer than itself")
    return LogicalMessage(bool(flags & 1), lsn, prefix, data[at : at + length]), at + length


def _stream_start(data: bytes) -> tuple[Message, int]:
    xid, first = _STREAM_START.unpack_from(data, 1)
    if first > 1:
        raise _malformed(b"S", "is neither a first stretch nor a later one")
    return StreamStart(xid, bool(first)), 6


def _stream_stop(_data: bytes) -> tuple[Message, int]:
    return StreamStop(), 1


def _stream_commit(data: bytes) -> tuple[Message, int]:
    xid, _, lsn, end_lsn, us = _STREAM_COMMIT.unpack_from(data, 1)
    if not 0 < lsn < 1 << 63 or abs(us) >= 1 << 62:
        raise _malformed(b"c", "has a position or time out of range")
    return StreamCommit(xid, lsn, end_lsn, us + POSTGRES_EPOCH_US), 30


def _stream_abort(data: bytes) -> tuple[Message, int]:
    xid, subxid = _STREAM_ABORT.unpack_from(data, 1)
    return StreamAbort(xid, subxid), 9


_DECODERS = {
    b"B": _begin,
    b"C": _commit,
    b"O": _origin,
    b"R": _relation,
    b"Y": _type,
    b"I": _insert,
    b"U": _update,
    b"D": _delete,
    b"T": _truncate,
    b"M": _message,
    b"S": _stream_start,
    b"E": _stream_stop,
    b"c": _stream_commit,
    b"A": _stream_abort,
}


def _string(data: bytes, at: int) -> tuple[str, int]:
    """Return a zero-terminated name and the place behind it."""
    end = data.find(b"\0", at)
    if end < 0:
        raise IndexError(at)
    return data[at:end].decode(), end + 1


def _count(data: bytes, at: int) -> int:
    (count,) = _SHORT.unpack_from(data, at)
    if not 0 <= count <= _MAX_COLUMNS:
        raise _malformed(data[:1], f"claims {count} columns")
    return int(count)


def _cells(data: bytes, at: int) -> tuple[list[Cell], int]:
    """Return the cells of one row and the place behind it."""
    cells: list[Cell] = []
    size = len(data)
    unpack = _LONG.unpack_from
    count = _count(data, at)
    at += 2
    for _ in range(count):
        kind = data[at]
        if kind in (0x74, 0x62):  # t: text, b: binary
            length = unpack(data, at + 1)[0]
            start = at + 5
            at = start + length
            if length < 0 or at > size:
                raise IndexError(at)
            cells.append(data[start:at] if kind == 0x74 else Binary(data[start:at]))
        elif kind == 0x6E:  # n: null
            cells.append(None)
            at += 1
        elif kind == 0x75:  # u: unchanged
            cells.append(UNCHANGED)
            at += 1
        else:
            raise _malformed(data[:1], f"holds a cell of the unknown kind {kind:#x}")
    return cells, at

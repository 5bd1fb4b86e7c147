"""Writes pgoutput messages, for tests of the decoder and the assembler."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from headrace.sources.postgres.messages import POSTGRES_EPOCH_US, UNCHANGED, Binary, Cell

Columns = Sequence[tuple[str, bool, int, int]]


def frame(message: bytes, sent_us: int = 1234) -> bytes:
    """Return a message as the server sends it: a CopyData frame with positions and time in front."""
    head = struct.pack(">QQq", 0, 0, sent_us - POSTGRES_EPOCH_US)
    return b"d" + struct.pack(">I", len(message) + 29) + b"w" + head + message


def in_stream(message: bytes, xid: int) -> bytes:
    """Return a message as it looks inside a streamed stretch."""
    return message[:1] + struct.pack(">I", xid) + message[1:]


def stream_start(xid: int, *, first: bool) -> bytes:
    return b"S" + struct.pack(">IB", xid, first)


def stream_stop() -> bytes:
    return b"E"


def stream_commit(xid: int, lsn: int, end_lsn: int, us: int) -> bytes:
    return b"c" + struct.pack(">IBQQq", xid, 0, lsn, end_lsn, us - POSTGRES_EPOCH_US)


def stream_abort(xid: int, subxid: int) -> bytes:
    return b"A" + struct.pack(">II", xid, subxid)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def cells(row: Sequence[Cell]) -> bytes:
    data = struct.pack(">h", len(row))
    for cell in row:
        if cell is None:
            data += b"n"
        elif cell is UNCHANGED:
            data += b"u"
        else:
            assert isinstance(cell, bytes)
            data += b"b" if isinstance(cell, Binary) else b"t"
            data += struct.pack(">i", len(cell)) + cell
    return data


def begin(lsn: int, us: int, xid: int) -> bytes:
    return b"B" + struct.pack(">QqI", lsn, us - POSTGRES_EPOCH_US, xid)


def commit(lsn: int, end_lsn: int, us: int) -> bytes:
    return b"C" + struct.pack(">BQQq", 0, lsn, end_lsn, us - POSTGRES_EPOCH_US)


def relation(oid: int, schema: str, name: str, identity: str, columns: Columns) -> bytes:
    data = b"R" + struct.pack(">I", oid) + text(schema) + text(name) + identity.encode()
    data += struct.pack(">h", len(columns))
    for column, key, type_oid, modifier in columns:
        data += bytes([key]) + text(column) + struct.pack(">Ii", type_oid, modifier)
    return data


def insert(oid: int, new: Sequence[Cell]) -> bytes:
    return b"I" + struct.pack(">I", oid) + b"N" + cells(new)


def update(oid: int, new: Sequence[Cell], kind: str = "", old: Sequence[Cell] = ()) -> bytes:
    before = kind.encode() + cells(old) if kind else b""
    return b"U" + struct.pack(">I", oid) + before + b"N" + cells(new)


def delete(oid: int, kind: str, old: Sequence[Cell]) -> bytes:
    return b"D" + struct.pack(">I", oid) + kind.encode() + cells(old)


def truncate(oids: Sequence[int], options: int = 0) -> bytes:
    return b"T" + struct.pack(f">IB{len(oids)}I", len(oids), options, *oids)


def message(lsn: int, prefix: str, content: bytes, *, transactional: bool = False) -> bytes:
    head = b"M" + struct.pack(">BQ", transactional, lsn) + text(prefix)
    return head + struct.pack(">i", len(content)) + content


def origin(lsn: int, name: str) -> bytes:
    return b"O" + struct.pack(">Q", lsn) + text(name)


def type_name(oid: int, schema: str, name: str) -> bytes:
    return b"Y" + struct.pack(">I", oid) + text(schema) + text(name)

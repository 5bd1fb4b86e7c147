"""Frames to rows and transactions: the hot path of the stream, in Python; `_native` is its twin in C.

A decoder walks over the frames of a replication stream, collects rows of the tables it was told of, and keeps count
of the open transaction. Whatever is rare, and whatever looks broken, it hands over: `Assembler` says what it means.

Both twins take the same bytes to the same rows or to the same error; `tests/sources/postgres/test_twins.py`.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from headrace.errors import ConfigError, ProtocolError
from headrace.model.block import ORIGIN_LOG, Body, transaction_index
from headrace.model.schema import TableSchema
from headrace.sources.postgres.messages import (
    POSTGRES_EPOCH_US,
    Begin,
    Commit,
    Delete,
    Insert,
    Update,
)
from headrace.sources.postgres.pgoutput import decode
from headrace.sources.postgres.rows import ChangeRows
from headrace.sources.postgres.types import Form

try:
    from headrace.sources.postgres._native import NativeDecoder
except ImportError:
    _COMPILED = False  # there was no compiler when this was installed
else:
    _COMPILED = True

__all__ = [
    "COLD",
    "ENGINES",
    "FULL",
    "NEED",
    "SPOOLED",
    "Decoder",
    "PythonDecoder",
    "Rows",
    "engine",
    "make_decoder",
]

NEED = 0
"""More bytes are needed."""
FULL = 1
"""The bounds are reached."""
COLD = 2
"""A frame is for the caller: ``cold_frame`` is ``w`` for a message of the log, its bytes in ``cold``, else its kind."""
SPOOLED = 3
"""Enough of a streamed transaction is held: `Decoder.take_spool`."""

ENGINES: tuple[str, ...] = ("native", "python") if _COMPILED else ("python",)
"""Which decoders this installation has, best first."""

MAX_ORD = (1 << 31) - 3
"""Changes that one transaction may have."""

_SIZE = struct.Struct(">I")
_HEAD = struct.Struct(">QQq")
_SPOOL_BYTES = 1 << 20


class Rows(Protocol):
    """Collects rows of one table version."""

    schema: TableSchema
    schema_id: int

    def __len__(self) -> int: ...

    @property
    def first(self) -> tuple[int, int]:
        """Place ``(scn, ord)`` of the first row."""
        ...

    def body(self) -> Body:
        """Return everything added so far as one body and start anew."""
        ...


class Decoder(Protocol):
    """What `Assembler` needs of a decoder.

    Attributes:
        scn: of the open transaction, 0 when none is; with ``commit_us``, ``xid``, ``ord`` (next), ``changes`` (in this
            block), ``pieces`` (in earlier ones) and ``data`` (whether it changed one of our tables).
        cold_commit: hand the commit of the open transaction over.
        spooling: keep whole frames instead of reading them, up to the end of a streamed stretch.
        prefixed: messages carry a transaction id, as those of streamed transactions do.
        covered: SCN up to which everything was seen; ``position``: where the server may go on; ``last_scn``.
        epoch_xid: newest 64-bit transaction id that is known.
        rows: rows in this block; ``held_bytes``: the same in bytes of frames.
        wal_end: end of the log as keepalives tell it; ``written``: the furthest position seen.
        reply_wanted: the server asked for a status update.
        stop: why the last walk ended; then ``cold_frame``, ``cold``, ``cold_at``, ``cold_xid`` and ``sent_us``.
    """

    scn: int
    commit_us: int
    xid: int
    ord: int
    changes: int
    pieces: int
    data: bool
    cold_commit: bool
    spooling: bool
    prefixed: bool
    covered: int
    position: int
    last_scn: int
    epoch_xid: int
    rows: int
    held_bytes: int
    max_rows: int
    max_bytes: int
    wal_end: int
    written: int
    sent_us: int
    reply_wanted: bool
    stop: int
    cold_at: int
    cold_frame: bytes | None
    cold: bytes | None
    cold_xid: int

    @property
    def entries(self) -> int:
        """Index entries so far."""
        ...

    def rows_of(self, schema: TableSchema, schema_id: int, forms: Sequence[Form] = ()) -> Rows:
        """Return an empty collector of rows.

        Args:
            schema: the table's shape.
            schema_id: its id.
            forms: how the binary form of each column is read; none is known when empty.
        """
        ...

    def set_table(self, oid: int, rows: Any, cold: bool = False) -> None:
        """Say what becomes of a relation's rows: collected, left out (None), or handed over as they are."""
        ...

    def set_aborted(self, xids: Iterable[int]) -> None:
        """Say which subtransactions are left out while ``prefixed``."""
        ...

    def walk(self, buffer: bytearray | memoryview, at: int, end: int) -> int:
        """Take in whole frames from ``at`` on; return where the next one begins.

        Raises:
            ProtocolError: the bytes are no frames.
            UndecodableValue: a value has no exact place in its column's type.
        """
        ...

    def open(self, scn: int, commit_us: int, xid: int) -> object:
        """Begin a transaction."""
        ...

    def close(self) -> object:
        """End the open transaction."""
        ...

    def entry(self, last: bool) -> None:
        """Close the open transaction's entry in this block."""
        ...

    def count(self, rows: int, size: int) -> None:
        """Count changes that were taken in elsewhere."""
        ...

    def widen(self, xid: int) -> int:
        """Return the 64-bit id of a 32-bit one: the nearest to the newest that is known."""
        ...

    def take_index(self) -> npt.NDArray[np.void]:
        """Return the index entries so far and start anew."""
        ...

    def take_spool(self) -> bytes:
        """Return the frames of streamed transactions so far and start anew."""
        ...


def engine() -> str:
    """Return ``native`` or ``python``: what ``HEADRACE_DECODER`` says, else the best that is there.

    Raises:
        ConfigError: the one asked for is not there.
    """
    wanted = os.environ.get("HEADRACE_DECODER", "") or ENGINES[0]
    if wanted not in ENGINES:
        raise ConfigError(
            f"There is no decoder {wanted!r} in this installation, which has {' and '.join(ENGINES)}.",
            next_step="install a C compiler and install headrace again, or unset HEADRACE_DECODER.",
        )
    return wanted


def make_decoder(epoch_xid: int, max_rows: int, max_bytes: int) -> Decoder:
    """Return a decoder of the `engine`.

    Args:
        epoch_xid: some recent 64-bit transaction id.
        max_rows: rows at which a block is full.
        max_bytes: the same in bytes of frames.
    """
    kind: Callable[[int, int, int], Decoder]
    kind = PythonDecoder if engine() == "python" else NativeDecoder
    return kind(epoch_xid, max_rows, max_bytes)


class PythonDecoder:
    """The decoder without C; attributes as in `Decoder`."""

    def __init__(self, epoch_xid: int, max_rows: int, max_bytes: int) -> None:
        self.epoch_xid, self.max_rows, self.max_bytes = epoch_xid, max_rows, max_bytes
        self.scn = self.commit_us = self.xid = self.ord = self.changes = self.pieces = 0
        self.data = self.cold_commit = self.spooling = self.prefixed = False
        self.covered = self.position = self.last_scn = self.rows = self.held_bytes = 0
        self.wal_end = self.written = self.sent_us = 0
        self.reply_wanted = False
        self.stop, self.cold_at, self.cold_xid = NEED, 0, 0
        self.cold_frame: bytes | None = None
        self.cold: bytes | None = None
        self._tables: dict[int, ChangeRows | bool | None] = {}
        self._index: list[tuple[int, int, int, int, int, int]] = []
        self._spool = bytearray()
        self._aborted: list[int] = []

    @property
    def entries(self) -> int:
        """See `Decoder`."""
        return len(self._index)

    def rows_of(
        self, schema: TableSchema, schema_id: int, forms: Sequence[Form] = ()
    ) -> ChangeRows:
        """See `Decoder`."""
        return ChangeRows(schema, schema_id, forms)

    def set_table(self, oid: int, rows: ChangeRows | None, cold: bool = False) -> None:
        """See `Decoder`."""
        self._tables[oid] = False if cold else rows

    def set_aborted(self, xids: Iterable[int]) -> None:
        """See `Decoder`."""
        self._aborted = sorted(xids)

    def take_index(self) -> npt.NDArray[np.void]:
        """See `Decoder`."""
        index, self._index = transaction_index(self._index), []
        return index

    def take_spool(self) -> bytes:
        """See `Decoder`."""
        spool = bytes(self._spool)
        self._spool.clear()
        return spool

    def entry(self, last: bool) -> None:
        """See `Decoder`."""
        self._index.append(
            (self.scn, self.commit_us, self.xid, self.changes, ORIGIN_LOG, int(last))
        )
        self.changes = 0
        self.pieces += 1

    def widen(self, xid: int) -> int:
        """See `Decoder`."""
        wide = (self.epoch_xid & ~0xFFFFFFFF) | xid
        if wide > self.epoch_xid + (1 << 31):
            wide -= 1 << 32
        elif wide < self.epoch_xid - (1 << 31):
            wide += 1 << 32
        self.epoch_xid = max(self.epoch_xid, wide)
        return wide

    def open(self, scn: int, commit_us: int, xid: int) -> None:
        """See `Decoder`."""
        self.scn, self.commit_us, self.xid = scn, commit_us, xid
        self.ord = self.changes = self.pieces = 0
        self.data = self.cold_commit = False

    def close(self) -> None:
        """See `Decoder`."""
        self.last_scn = self.covered = self.scn
        # Enough for the server to leave this transaction out next time, and no more: what the slot has
        # confirmed can then be compared with what the change log covers (`Source.acknowledged_scn`).
        self.position = max(self.position, self.scn + 1)
        if self.changes or self.pieces:
            self.entry(True)
        self.scn = 0

    def count(self, rows: int, size: int) -> None:
        """See `Decoder`."""
        self.ord += rows
        self.changes += rows
        self.rows += rows
        self.held_bytes += size

    def walk(self, buffer: bytearray | memoryview, at: int, end: int) -> int:
        """See `Decoder`."""
        self.cold = self.cold_frame = None
        while True:
            if self.rows >= self.max_rows or self.held_bytes >= self.max_bytes:
                self.stop = FULL
                return at
            if len(self._spool) >= _SPOOL_BYTES:
                self.stop = SPOOLED
                return at
            if end - at < 5:
                self.stop = NEED
                return at
            size: int = _SIZE.unpack_from(buffer, at + 1)[0] + 1
            if size < 5 or size > 0x7FFFFFFF:
                raise ProtocolError(
                    "The replication stream holds a frame of an impossible length.",
                    next_step="report it with the server's version; capture stops rather than guess.",
                )
            if size > end - at:
                self.stop = NEED
                return at
            frame = bytes(buffer[at : at + size])
            if frame[:1] != b"d" or size == 5 or not self._taken(frame):
                self._hand_over(frame, at)
                return at + size
            at += size

    def _hand_over(self, frame: bytes, at: int) -> None:
        self.stop, self.cold_at, self.cold_xid = COLD, at, 0
        self.cold_frame, self.cold = frame[:1], frame[5:]
        if frame[:1] == b"d" and len(frame) > 30 and frame[5:6] == b"w":
            self.cold_frame = b"w"
            self.sent_us = _HEAD.unpack_from(frame, 6)[2] + POSTGRES_EPOCH_US
            self.cold = frame[30:]
            if self._has_xid(frame):
                self.cold_xid = _SIZE.unpack_from(frame, 31)[0]
                self.cold = frame[30:31] + frame[35:]

    def _taken(self, frame: bytes) -> bool:
        """Take in one CopyData frame; return False when it is for the caller."""
        if frame[5:6] == b"k":
            return self._keep_alive(frame)
        if frame[5:6] != b"w" or len(frame) < 31:
            return False
        start, end, _ = _HEAD.unpack_from(frame, 6)
        self.written = max(self.written, start, end)
        kind = frame[30:31]
        if self.spooling:
            if kind == b"E":
                return False
            self._spool += frame
            return True
        message = frame[30:]
        if self.prefixed:
            if not self._has_xid(frame):
                return False
            # What describes a table counts even where its subtransaction does not.
            if kind not in b"RY" and self._is_aborted(_SIZE.unpack_from(frame, 31)[0]):
                return True
            message = frame[30:31] + frame[35:]
        if kind in b"IUD":
            return self._row(message, len(frame) - 5)
        if kind == b"B" and not self.prefixed:
            return self._begin(message)
        if kind == b"C" and not self.prefixed:
            return self._commit(message)
        return False

    def _has_xid(self, frame: bytes) -> bool:
        """Whether the message says which (sub)transaction it is of: all of a streamed one do, but its origin."""
        return self.prefixed and len(frame) >= 35 and frame[30:31] != b"O"

    def _keep_alive(self, frame: bytes) -> bool:
        if len(frame) != 23:
            return False
        (wal_end,) = struct.unpack_from(">q", frame, 6)
        if wal_end < 0:
            return False
        self.wal_end = max(self.wal_end, wal_end)
        self.written = max(self.written, wal_end)
        self.reply_wanted = self.reply_wanted or bool(frame[22])
        return True

    def _is_aborted(self, xid: int) -> bool:
        place = bisect_left(self._aborted, xid)
        return place < len(self._aborted) and self._aborted[place] == xid

    def _begin(self, data: bytes) -> bool:
        message = decode(data)
        assert isinstance(message, Begin)
        if self.scn or message.commit_lsn <= self.last_scn:
            return False
        self.open(message.commit_lsn, message.commit_us, self.widen(message.xid))
        return True

    def _commit(self, data: bytes) -> bool:
        message = decode(data)
        assert isinstance(message, Commit)
        if not self.scn or self.cold_commit or message.commit_lsn != self.scn:
            return False
        self.close()
        return True

    def _row(self, data: bytes, size: int) -> bool:
        message = decode(data)
        assert isinstance(message, Insert | Update | Delete)
        rows = self._tables.get(message.oid, False)
        if rows is None:
            return True
        if not isinstance(rows, ChangeRows) or not self.scn or self.ord > MAX_ORD:
            return False
        self.data = True
        self.count(rows.message(self.scn, self.ord, message), size)
        return True

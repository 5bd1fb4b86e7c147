"""A block: the columnar unit that is captured, stored, sent and read.

A block covers a contiguous range of transactions of one source. It holds a transaction index (one entry
per transaction or piece of one), one record batch per table version, and system events (truncate, schema,
dump completion) at their own ``(scn, ord)``. `headrace.wire.block` gives it bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.schema import TableId

__all__ = [
    "ORIGIN_KEYS",
    "ORIGIN_LOG",
    "ORIGIN_SELECT",
    "SYSTEM_SCHEMA",
    "SYSTEM_SCHEMA_ID",
    "TRANSACTION_DTYPE",
    "Block",
    "Body",
    "SystemEvent",
    "SystemKind",
    "system_batch",
    "system_events",
    "transaction_index",
]

ORIGIN_LOG = 0
"""The transaction comes from the source's log."""
ORIGIN_SELECT = 1
"""The transaction is a window of chunk rows."""
ORIGIN_KEYS = 2
"""The transaction is a window of rows that were read by their keys: what is held of one may be what no log told of."""

TRANSACTION_DTYPE = np.dtype(
    [
        ("scn", "<i8"),
        ("commit_us", "<i8"),
        ("xid", "<i8"),
        ("changes", "<i4"),
        ("origin", "u1"),
        ("last_piece", "u1"),
        ("reserved", "<u2"),
    ]
)
"""One entry of the transaction index, 32 bytes, little-endian.

``scn``: number of the transaction. ``commit_us``: commit time at the source, microseconds since 1970 UTC.
``xid``: the source's own transaction id (64 bits, 0 when unknown or a chunk window). ``changes``: rows and
system events of this entry in this block. ``origin``: `ORIGIN_LOG`, `ORIGIN_SELECT` or `ORIGIN_KEYS`. ``last_piece``:
1 when the transaction ends in this block.
"""


class SystemKind(Enum):
    """What a system event says; the value is what is stored."""

    TRUNCATE = "truncate"
    """Every row of ``table`` ceased to be; with ``payload["anew"]`` because it is dumped from here on as if it
    had never been captured."""
    SCHEMA = "schema"
    """From here on ``table`` has the schema id in ``payload["schema_id"]``."""
    DUMP_COMPLETE = "dump_complete"
    """The dump ``payload["request_id"]`` of ``table`` and its re-read list lie before this position, from
    ``payload["first_scn"]`` on: a copy that lost what came up to there lacks rows of it, and one that lost anything
    lacks some where that is 0, which no whole dump has."""
    GAP = "gap"
    """Changes of ``table`` before this position may be missing: it is incomplete until its next dump completion."""
    DROP_TABLE = "drop_table"
    """``table`` was dropped, here or a little before. As the next four: ``payload["identity"]`` is the source's own."""
    RENAME_TABLE = "rename_table"
    """``table`` is ``payload["to"]`` (``schema.name``) now, which is dumped as a table of its own if it is captured."""
    CREATE_SCHEMA = "create_schema"
    """The namespace ``table.schema`` came; ``table.name`` is empty."""
    DROP_SCHEMA = "drop_schema"
    """The namespace ``table.schema`` was dropped; ``table.name`` is empty."""
    RENAME_SCHEMA = "rename_schema"
    """The namespace ``table.schema`` is ``payload["to"]`` now; ``table.name`` is empty."""


@dataclass(frozen=True, slots=True)
class SystemEvent:
    """One event of the system stream, ordered with rows by ``(scn, ord)``."""

    scn: int
    ord: int
    kind: SystemKind
    table: TableId
    payload: dict[str, Any] = field(default_factory=dict)


SYSTEM_SCHEMA_ID = 0
"""Schema id of the body that carries system events; table schemas never have it."""

SYSTEM_SCHEMA = pa.schema(
    [
        pa.field("_scn", pa.int64(), nullable=False),
        pa.field("_ord", pa.int32(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("schema", pa.string(), nullable=False),
        pa.field("table", pa.string(), nullable=False),
        pa.field("payload", pa.string(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class Body:
    """Change rows of one table version, in ``(scn, ord)`` order."""

    schema_id: int
    table: TableId
    batch: pa.RecordBatch


@dataclass(frozen=True, slots=True)
class Block:
    """Transactions of one source, as columns.

    Attributes:
        index: `TRANSACTION_DTYPE` entries with rising ``scn``; empty in a block that only moves coverage.
        bodies: at most one per table version.
        system: system events in ``(scn, ord)`` order.
        covered_scn: every transaction of the source up to and including this SCN is in the log once this
            block is. At least the last ``scn`` of a complete index; below it while a transaction is open.
    """

    index: npt.NDArray[np.void]
    bodies: tuple[Body, ...]
    system: tuple[SystemEvent, ...]
    covered_scn: int

    @property
    def first_scn(self) -> int:
        """SCN of the first transaction, or the covered SCN of an empty block."""
        return int(self.index["scn"][0]) if len(self.index) else self.covered_scn

    @property
    def last_scn(self) -> int:
        """SCN of the last transaction, or the covered SCN of an empty block."""
        return int(self.index["scn"][-1]) if len(self.index) else self.covered_scn

    @property
    def ends_complete(self) -> bool:
        """Whether no transaction is left open at the end of the block."""
        return not len(self.index) or bool(self.index["last_piece"][-1])

    @property
    def rows(self) -> int:
        """Change rows in all bodies."""
        return sum(body.batch.num_rows for body in self.bodies)

    @property
    def nbytes(self) -> int:
        """Bytes of the Arrow buffers that all bodies keep alive: those of a part are those of the whole."""
        return sum(body.batch.get_total_buffer_size() for body in self.bodies)

    def after(self, scn: int) -> Block:
        """Return the part with transactions above ``scn``; the block itself when that is all of it.

        Rows are views, nothing is copied.
        """
        if not len(self.index) or self.first_scn > scn:
            return self
        bodies = []
        for body in self.bodies:
            left_out = int(body.batch.column("_scn").to_numpy().searchsorted(scn, side="right"))
            if left_out < body.batch.num_rows:
                bodies.append(Body(body.schema_id, body.table, body.batch.slice(left_out)))
        return Block(
            self.index[self.index["scn"] > scn],
            tuple(bodies),
            tuple(event for event in self.system if event.scn > scn),
            self.covered_scn,
        )

    def upto(self, scn: int) -> Block:
        """Return the part with transactions up to ``scn``, which then covers no more than that.

        The block itself when that is all of it; rows are views, nothing is copied.
        """
        if self.covered_scn <= scn and (not len(self.index) or self.last_scn <= scn):
            return self
        bodies = []
        for body in self.bodies:
            keep = int(body.batch.column("_scn").to_numpy().searchsorted(scn, side="right"))
            if keep:
                bodies.append(Body(body.schema_id, body.table, body.batch.slice(0, keep)))
        return Block(
            self.index[self.index["scn"] <= scn],
            tuple(bodies),
            tuple(event for event in self.system if event.scn <= scn),
            min(self.covered_scn, scn),
        )


def transaction_index(
    entries: Iterable[tuple[int, int, int, int, int, int]],
) -> npt.NDArray[np.void]:
    """Return an index from ``(scn, commit_us, xid, changes, origin, last_piece)`` tuples."""
    return np.array([(*entry, 0) for entry in entries], dtype=TRANSACTION_DTYPE)


def system_batch(events: Iterable[SystemEvent]) -> pa.RecordBatch:
    """Return system events as one record batch of `SYSTEM_SCHEMA`."""
    rows = list(events)
    return pa.record_batch(
        [
            pa.array([e.scn for e in rows], pa.int64()),
            pa.array([e.ord for e in rows], pa.int32()),
            pa.array([e.kind.value for e in rows], pa.string()),
            pa.array([e.table.schema for e in rows], pa.string()),
            pa.array([e.table.name for e in rows], pa.string()),
            pa.array([json.dumps(e.payload, sort_keys=True) for e in rows], pa.string()),
        ],
        schema=SYSTEM_SCHEMA,
    )


def system_events(batch: pa.RecordBatch) -> tuple[SystemEvent, ...]:
    """Return the events of a batch that `system_batch` made."""
    return tuple(
        SystemEvent(
            row["_scn"],
            row["_ord"],
            SystemKind(row["kind"]),
            TableId(row["schema"], row["table"]),
            json.loads(row["payload"]),
        )
        for row in batch.to_pylist()
    )

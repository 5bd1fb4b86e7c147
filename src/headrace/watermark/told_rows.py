"""Single rows for the tap: changes of a block, and the chunk rows that yielded or were patched.

What is kept until it is told are key and meta columns only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.model.block import Block, SystemKind
from headrace.model.change import (
    DELETE,
    META,
    PATCH,
    UPDATE_NEW,
    UPDATE_OLD,
    missing_matrix,
)
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableSchema
from headrace.observe.tap.events import (
    ChunkCollision,
    ChunkPatched,
    Event,
    Key,
    Op,
)
from headrace.watermark.reconciler import DROPPED, KEPT, Reconciled

__all__ = ["Fates", "RenderKeys", "RowChange", "RowChanges", "truncates_of"]

RenderKeys = Callable[[TableSchema, pa.RecordBatch], list[Key]]

_OPS: dict[str, Op] = {
    PATCH: "UPDATE",
    UPDATE_NEW: "UPDATE",
    UPDATE_OLD: "UPDATE",
    DELETE: "DELETE",
}
"""What is not named here, inserted and read rows, is an INSERT."""


@dataclass(frozen=True, slots=True)
class RowChange:
    """One change of one row; the two images of an update are one."""

    scn: int
    order: int
    op: Op
    table: str
    key: Key
    from_key: Key | None
    xid: str | None


class RowChanges:
    """The changes of a block, of which only keys are kept.

    Args:
        block: as it came from the source, or went into the change log.
        schema_of: looks table versions up.
        render_keys: renders keys as the source does.
    """

    def __init__(
        self, block: Block, schema_of: Callable[[int], TableSchema], render_keys: RenderKeys
    ) -> None:
        self._index = block.index
        self._render_keys = render_keys
        self._parts: list[tuple[TableSchema, pa.RecordBatch]] = []
        old_images = 0
        for body in block.bodies:
            schema = schema_of(body.schema_id)
            old_images += pc.sum(pc.equal(body.batch.column("_op"), UPDATE_OLD)).as_py() or 0
            self._parts.append((schema, _narrow(schema, body.batch)))
        self.count = block.rows - old_images

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return sum(rows.nbytes for _, rows in self._parts)

    def __iter__(self) -> Iterator[RowChange]:
        """Yield the changes in the order of the log."""
        xids = {int(e["scn"]): str(e["xid"]) if e["xid"] else None for e in self._index}
        found: list[RowChange] = []
        for schema, rows in self._parts:
            keys = self._render_keys(schema, rows) if schema.key else [()] * rows.num_rows
            table, old = str(schema.table), None
            columns = (rows.column(name).to_pylist() for name in ("_scn", "_ord", "_op"))
            for scn, order, code, key in zip(*columns, keys, strict=True):
                if code == UPDATE_OLD:
                    old = key
                    continue
                moved = old if code == UPDATE_NEW and old != key else None
                op = _OPS.get(code, "INSERT")
                found.append(RowChange(scn, order, op, table, key, moved, xids[scn]))
        found.sort(key=lambda change: (change.scn, change.order))
        return iter(found)


@dataclass(frozen=True, slots=True)
class _Cause:
    """The last event that decided over a key, and the columns that all of them sent."""

    place: tuple[int, int]
    op: Op
    sent: npt.NDArray[np.bool_]


class Fates:
    """The rows of a chunk that did not leave as they were read, and why.

    Args:
        number: of the window.
        schema: the chunk's table version.
        rows: the chunk as it was read.
        result: what became of it.
        transactions: SCNs and ids of what is remembered.
        render_keys: renders keys as the source does.
    """

    def __init__(
        self,
        number: int,
        schema: TableSchema,
        rows: pa.RecordBatch,
        result: Reconciled,
        transactions: tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]],
        render_keys: RenderKeys,
    ) -> None:
        chosen = result.fate != KEPT
        self._number = number
        self._schema = schema
        self._keys = rows.select(list(schema.key)).filter(pa.array(chosen))
        self._fate = result.fate[chosen]
        self._met = [_narrow(schema, batch) for batch in result.met] if chosen.any() else []
        self._truncates = result.truncates
        self._transactions = transactions
        self._render_keys = render_keys
        self.count = len(self._fate)

    @property
    def nbytes(self) -> int:
        """Bytes that are kept."""
        return sum(batch.nbytes for batch in (self._keys, *self._met))

    def __iter__(self) -> Iterator[Event]:
        """Yield one event for each such row, in the chunk's order."""
        encoded = encode_rows(self._keys.columns).to_pylist()
        causes = self._causes(frozenset(encoded))
        xids = dict(zip(*(column.tolist() for column in self._transactions), strict=True))
        keys = self._render_keys(self._schema, self._keys)
        for key, code, fate in zip(keys, encoded, self._fate, strict=True):
            cause = causes[code]
            lsn, xid = str(cause.place[0]), xids.get(cause.place[0])
            tx_id = str(xid) if xid else None
            if fate == DROPPED:
                yield ChunkCollision(
                    chunk_id=self._number,
                    excluded_pk=key,
                    cause_lsn=lsn,
                    cause_op=cause.op,
                    cause_tx_id=tx_id,
                )
            else:
                sent = [n for n, was in zip(self._schema.names, cause.sent, strict=True) if was]
                yield ChunkPatched(
                    chunk_id=self._number, pk=key, columns=sent, cause_lsn=lsn, cause_tx_id=tx_id
                )

    def _causes(self, wanted: frozenset[bytes]) -> dict[bytes, _Cause]:
        none = np.zeros(len(self._schema.columns), bool)
        causes: dict[bytes, _Cause] = {}
        if self._truncates:
            causes = dict.fromkeys(wanted, _Cause(max(self._truncates), "DELETE", none))
        for batch in self._met:
            keys = encode_rows([batch.column(name) for name in self._schema.key]).to_pylist()
            sent = ~missing_matrix(batch.column("_missing"), len(none))
            columns = (batch.column(name).to_pylist() for name in ("_scn", "_ord", "_op"))
            for row, (key, scn, order, code) in enumerate(zip(keys, *columns, strict=True)):
                if key not in wanted:
                    continue
                before = causes.get(key)
                if before is None or before.place < (scn, order):
                    earlier = before.sent if before else none
                    op = _OPS.get(code, "INSERT")
                    causes[key] = _Cause((scn, order), op, earlier | sent[row])
        return causes


def _narrow(schema: TableSchema, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return meta and key columns."""
    names: Sequence[str] = [*META, *schema.key]
    return rows.select(names)


def truncates_of(block: Block) -> Iterator[tuple[int, str]]:
    """Yield SCN and table of each truncate in a block."""
    for event in block.system:
        if event.kind is SystemKind.TRUNCATE:
            yield event.scn, str(event.table)

"""Which blocks of the change log a batch and each of its tasks read; decided without decoding a row.

In: the block references of a range. Out: ends of batches, and slices that begin and end between transactions.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Generic

from headrace.model.block import SystemKind
from headrace.model.schema import TableId, TableSchema
from headrace.spark.log import Log, R, Ref, Registry

__all__ = [
    "Filling",
    "Limits",
    "Slice",
    "batch_end",
    "cut",
    "newest_version",
    "rows_of",
    "versions_of",
]


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one batch may hold; one transaction may hold more, and is then a batch of its own."""

    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Slice(Generic[R]):
    """A stretch of the log for one task.

    Attributes:
        number: place among the slices of a batch.
        after_scn: exclusive begin.
        upto_scn: inclusive end.
        refs: blocks that hold every row in between, in order; may hold more at both ends.
    """

    number: int
    after_scn: int
    upto_scn: int
    refs: tuple[R, ...]

    @property
    def rows(self) -> int:
        """Change rows of all tables in the blocks."""
        return sum(ref.rows for ref in self.refs)

    @property
    def bytes(self) -> int:
        """Bytes of the blocks."""
        return sum(ref.bytes for ref in self.refs)


@dataclass(slots=True)
class Filling:
    """A batch that fills as the log grows; what it was found to hold is not looked at again.

    Attributes:
        after_scn: exclusive begin.
        seen_scn: up to here it was looked at; a block ends there, and no transaction is open.
        rows: change rows up to there.
        bytes: likewise.
    """

    after_scn: int
    seen_scn: int = field(init=False)
    rows: int = field(init=False, default=0)
    bytes: int = field(init=False, default=0)

    def __post_init__(self) -> None:
        self.seen_scn = self.after_scn

    def end(self, log: Log[R], upto_scn: int, limits: Limits) -> int:
        """Return where the batch ends: at most ``upto_scn``, between two transactions.

        The batch stays within the limits unless its first transactions, up to the end of a block, do not.

        Args:
            log: that grows.
            upto_scn: not below that of a call before.
            limits: those of the calls before.
        """
        rows, size = self.rows, self.bytes
        for ref in log.refs(self.seen_scn, upto_scn):
            rows, size = rows + ref.rows, size + ref.bytes
            if self.seen_scn > self.after_scn and (rows > limits.rows or size > limits.bytes):
                return self.seen_scn
            # A block that passes the end, or leaves a transaction open there, comes once more with what follows.
            if ref.ends_complete and ref.last_scn <= upto_scn:
                self.seen_scn, self.rows, self.bytes = ref.last_scn, rows, size
        return upto_scn


def batch_end(log: Log[R], after_scn: int, upto_scn: int, limits: Limits) -> int:
    """Return where a batch that begins after ``after_scn`` ends, as `Filling.end` does."""
    return Filling(after_scn).end(log, upto_scn, limits)


def cut(refs: Sequence[R], after_scn: int, upto_scn: int, count: int) -> list[Slice[R]]:
    """Return at most ``count`` slices of about equal size that cover a range; one when it holds no block.

    A cut stands only where a block ends complete: no transaction is in two slices.
    """
    total = sum(ref.bytes for ref in refs)
    slices: list[Slice[R]] = []
    held: list[R] = []
    begin = after_scn
    done = 0
    for ref in refs:
        held.append(ref)
        done += ref.bytes
        enough = done * count >= total * (len(slices) + 1)
        if enough and ref.ends_complete and len(slices) < count - 1 and ref.last_scn < upto_scn:
            slices.append(Slice(len(slices), begin, ref.last_scn, tuple(held)))
            begin, held = ref.last_scn, []
    if held or not slices:
        slices.append(Slice(len(slices), begin, upto_scn, tuple(held)))
    return slices


def versions_of(refs: Sequence[Ref], registry: Registry, table: TableId) -> list[int]:
    """Return the versions of a table that the blocks hold rows of, in order of first appearance."""
    found: dict[int, None] = {}
    for ref in refs:
        for schema_id, _ in ref.tables:
            if schema_id not in found and schema_id and registry.get(schema_id).table == table:
                found[schema_id] = None
    return list(found)


def rows_of(refs: Sequence[Ref], schema_ids: Collection[int]) -> int:
    """Return how many rows of the given versions the blocks hold."""
    return sum(rows for ref in refs for schema_id, rows in ref.tables if schema_id in schema_ids)


def newest_version(
    log: Log[R],
    registry: Registry,
    table: TableId,
    refs: Sequence[R],
    after_scn: int,
    upto_scn: int,
) -> TableSchema | None:
    """Return the version that a table has at the end of a range, None when the range says nothing of it."""
    for ref in reversed(refs):
        held = {i for i, _ in ref.tables if i and registry.get(i).table == table}
        if not held and not ref.has_system:
            continue
        places: list[tuple[int, int, int]] = []
        for whole in log.read([ref], held):
            block = whole.after(after_scn).upto(upto_scn)
            places += [
                (event.scn, event.ord, int(event.payload["schema_id"]))
                for event in block.system
                if event.kind is SystemKind.SCHEMA and event.table == table
            ]
            places += [
                (body.batch["_scn"][-1].as_py(), body.batch["_ord"][-1].as_py(), body.schema_id)
                for body in block.bodies
                if body.batch.num_rows
            ]
        if places:
            return registry.get(max(places)[2])
    return None

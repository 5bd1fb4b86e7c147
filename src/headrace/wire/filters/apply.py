"""A filter at work: from a block to the block that is left of it.

Pure, and the same for whoever asks: a relay that applies a filter and a consumer that applies it to the whole stream
end with the same rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.model.block import ORIGIN_KEYS, Block, Body, SystemEvent
from headrace.model.change import DELETE, PATCH, READ
from headrace.model.schema import TableSchema
from headrace.wire.filters.conditions import Condition, bind_condition
from headrace.wire.filters.faults import bad_filter
from headrace.wire.filters.images import filled, has_op, rewritten, rows_of, selected
from headrace.wire.filters.language import parse_condition
from headrace.wire.filters.partition import Partition, bind_partition
from headrace.wire.filters.tables import is_let_through

__all__ = ["BoundFilter", "left_index"]


class BoundFilter:
    """A filter for the tables of one source; made by `Filter.bound`.

    A table version is resolved when it is met first: a log holds versions that nobody can know beforehand.
    """

    def __init__(
        self,
        tables: Sequence[str] | None,
        columns: Mapping[str, Sequence[str]],
        partition: Partition | None,
        where: Mapping[str, str],
        schemas: Callable[[int], TableSchema],
    ) -> None:
        self._tables, self._columns = tables, columns
        self._partition, self._where = partition, where
        self._schemas = schemas
        self._versions: dict[int, _Version] = {}
        self._through: dict[int, bool] = {}

    @property
    def tables_only(self) -> bool:
        """Whether whole tables are wanted or not, and nothing has to be decoded to tell which."""
        return not self._columns and self._partition is None and not self._where

    def lets_through(self, schema_id: int) -> bool:
        """Return whether the filter wants anything of a table version."""
        if schema_id not in self._through:
            table = self._schemas(schema_id).table
            self._through[schema_id] = is_let_through(str(table), self._tables)
        return self._through[schema_id]

    def events(self, block: Block) -> tuple[SystemEvent, ...]:
        """Return the system events of a block that are let through."""
        return tuple(
            event for event in block.system if is_let_through(str(event.table), self._tables)
        )

    def schema(self, schema_id: int) -> TableSchema:
        """Return the version that the rows under a schema id have behind the filter: of its columns those wanted.

        Raises:
            BadFilter: the filter does not fit the version; names table and column.
        """
        return self._version(schema_id).narrowed

    def apply(self, block: Block) -> Block:
        """Return what is left of a block; the block itself when that is all of it.

        An entry of the index stays while a row or an event of it stays, and for each piece of a transaction that
        spans blocks. What the block covers does not change.

        Raises:
            BadFilter: the filter does not fit a table version in the block; names table and column.
        """
        looked_for = block.index["scn"][block.index["origin"] == ORIGIN_KEYS]
        bodies = [
            left for body in block.bodies if (left := self._body(body, looked_for)) is not None
        ]
        events = self.events(block)
        if len(events) == len(block.system) and _same(bodies, block.bodies):
            return block
        index = left_index(block, bodies, events, block.bodies)
        return Block(index, tuple(bodies), events, block.covered_scn)

    def _body(self, body: Body, looked_for: npt.NDArray[np.int64]) -> Body | None:
        if not is_let_through(str(body.table), self._tables):
            return None
        if self.tables_only:
            return body
        batch = self._version(body.schema_id).apply(body.batch, looked_for)
        if batch is body.batch:
            return body
        return Body(body.schema_id, body.table, batch) if batch.num_rows else None

    def _version(self, schema_id: int) -> _Version:
        if schema_id not in self._versions:
            schema = self._schemas(schema_id)
            name = str(schema.table)
            self._versions[schema_id] = _Version(
                schema, self._columns.get(name), self._partition, self._where.get(name)
            )
        return self._versions[schema_id]


class _Version:
    """A filter for one table version."""

    def __init__(
        self,
        schema: TableSchema,
        columns: Sequence[str] | None,
        partition: Partition | None,
        where: str | None,
    ) -> None:
        self._schema = schema
        self._places = _places(schema, columns)
        self._partition = None if partition is None else bind_partition(partition, schema)
        self._condition = None if where is None else _condition(where, schema)
        self.narrowed = schema
        if len(self._places) < len(schema.columns):
            left = tuple(schema.columns[place] for place in self._places)
            self.narrowed = TableSchema(schema.table, left, schema.key, schema.key_check)

    def apply(self, batch: pa.RecordBatch, looked_for: npt.NDArray[np.int64]) -> pa.RecordBatch:
        """Return the rows that are left of a batch; the batch itself when that is all of it.

        Args:
            batch: change rows.
            looked_for: SCNs of the windows whose rows were read by their keys.
        """
        schema = self._schema
        if self._partition is None and self._condition is None and self.narrowed is schema:
            return batch
        rows = filled(rows_of(batch, schema), schema)
        keep = np.ones(batch.num_rows, bool)
        gone = np.zeros(batch.num_rows, bool)
        if self._partition is not None:
            keep = self._partition(rows)
        if self._condition is not None:
            may_hold = self._condition.may_hold(rows)
            if not self._condition.columns <= set(schema.key):
                leaves = has_op(rows, PATCH)
                if len(looked_for):
                    # Whoever asked may hold of them what they were before a gap, and nothing else tells that they left.
                    found = np.isin(batch.column("_scn").to_numpy(), looked_for)
                    leaves |= found & has_op(rows, READ)
                    may_hold = may_hold | (found & has_op(rows, DELETE))
                gone = keep & ~may_hold & leaves
            keep = keep & may_hold
        rows, keep = rewritten(rows, keep, gone, schema)
        return selected(rows, keep, self._places, schema)


def _places(schema: TableSchema, columns: Sequence[str] | None) -> list[int]:
    """Return the places of the columns that are wanted, ascending; the key's always are."""
    names = schema.names
    for name in columns or ():
        if name not in names:
            raise bad_filter(f"columns of {schema.table}", f"there is no column {name}")
    wanted = set(names if columns is None else columns) | set(schema.key)
    return [place for place, name in enumerate(names) if name in wanted]


def _condition(text: str, schema: TableSchema) -> Condition:
    part = f"where of {schema.table}"
    return bind_condition(parse_condition(text, part), schema, part)


def _same(left: Sequence[Body], bodies: Sequence[Body]) -> bool:
    return len(left) == len(bodies) and all(
        one is other for one, other in zip(left, bodies, strict=True)
    )


def left_index(
    block: Block,
    bodies: Sequence[Body],
    events: Sequence[SystemEvent],
    before: Iterable[Body],
) -> npt.NDArray[np.void]:
    """Return the entries of a block's index that stay, with what is left in each.

    Args:
        block: with its index, and all of its system events.
        bodies: what is left of the rows.
        events: what is left of the system events.
        before: the rows that there were; looked at only as far as they have to be.
    """
    if not len(block.index):
        return block.index
    index = block.index.copy()
    scns = [body.batch.column("_scn").to_numpy() for body in bodies]
    scns.append(np.array([event.scn for event in events], np.int64))
    entries = np.searchsorted(index["scn"], np.concatenate(scns))
    index["changes"] = np.bincount(entries, minlength=len(index))
    stays = (index["changes"] > 0) | (index["last_piece"] == 0)
    stays[0] = stays[0] or _goes_on(block, before)
    left: npt.NDArray[np.void] = index[stays]
    return left


def _goes_on(block: Block, bodies: Iterable[Body]) -> bool:
    """Return whether the first transaction may have begun in an earlier block: what it holds here is not its first."""
    scn = block.first_scn
    if any(event.scn == scn and not event.ord for event in block.system):
        return False
    for body in bodies:
        if not body.batch.num_rows or body.batch.column("_scn")[0].as_py() != scn:
            continue
        if not body.batch.column("_ord")[0].as_py():
            return False
    return True

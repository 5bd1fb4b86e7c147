"""Random histories of three tables as a target sees them, cut into folded batches or transaction by transaction."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.fold import fold
from headrace.model.schema import TableId, TableSchema
from headrace.sources.scripted.database import MISSING, ScriptedDatabase, Transaction
from headrace.testing.histories import TABLES, RandomHistory
from headrace.testing.notation import Row, change_batch

__all__ = ["Piece", "TargetHistory"]

_STEPS = 220

At = Callable[[int], list[Row]]
"""Returns the change rows of one table in one transaction, given its SCN."""


@dataclass(frozen=True, slots=True)
class Piece:
    """The changes of one table in one batch.

    Attributes:
        schema: of the table.
        folded: of its changes.
    """

    schema: TableSchema
    folded: pa.Table


class TargetHistory:
    """Tables that begin empty and change at random.

    Args:
        seed: decides everything.
        prefix: put before the names of the tables, so that many histories go into one batch.

    Attributes:
        schemas: of the tables.
        ends: ascending SCNs at which batches end.
        coverage: what happened, by name.
    """

    def __init__(self, seed: int, prefix: str) -> None:
        self._random = random.Random(seed)
        self._database = ScriptedDatabase(TABLES)
        self.coverage: Counter[str] = Counter()
        history = RandomHistory(self._database, self._random, self.coverage)
        for _ in range(_STEPS):
            history.step()
        history.settle()
        self._own = {schema.table: _renamed(schema, prefix) for schema in TABLES}
        self.schemas = tuple(self._own.values())
        scns = [transaction.scn for transaction in self._database.log]
        count = min(len(scns) - 1, self._random.choice([1, 3, 8]))
        self.ends = [*sorted(self._random.sample(scns[:-1], count)), scns[-1]]

    def transactions(self) -> Iterator[tuple[dict[TableId, At], list[tuple[TableId, int]]]]:
        """Yield the change rows of each table and the truncates of each transaction, in order."""
        for transaction in self._database.log:
            tables = dict.fromkeys(c.table for c in transaction.changes if c.op != "T")
            truncates = [
                (self._own[change.table].table, order)
                for order, change in enumerate(transaction.changes)
                if change.op == "T"
            ]
            yield {self._own[t].table: _rows_at(transaction, t) for t in tables}, truncates

    def pieces(self, after_scn: int, upto_scn: int) -> list[Piece]:
        """Return what changes between two SCNs; a table that does not is left out."""
        chosen = [t for t in self._database.log if after_scn < t.scn <= upto_scn]
        return [piece for table in self._own if (piece := self._piece(table, chosen)) is not None]

    def truth(self) -> dict[TableSchema, Counter[tuple[Any, ...]]]:
        """Return the rows of each table at the end."""
        state = self._database.state_at(self.ends[-1])
        return {own: state[table] for table, own in self._own.items()}

    def touches(self, schema: TableSchema) -> bool:
        """Return whether anything ever happens to a table."""
        changes = (change for t in self._database.log for change in t.changes)
        return any(self._own[change.table] == schema for change in changes)

    def _piece(self, table: TableId, chosen: list[Transaction]) -> Piece | None:
        rows = [row for t in chosen for row in _rows_at(t, table)(t.scn)]
        truncates = [
            (t.scn, order)
            for t in chosen
            for order, change in enumerate(t.changes)
            if change.table == table and change.op == "T"
        ]
        if not rows and not truncates:
            return None
        own = self._own[table]
        return Piece(own, fold(own, [change_batch(own, rows)] if rows else [], truncates))


def _renamed(schema: TableSchema, prefix: str) -> TableSchema:
    name = TableId("public", prefix + schema.table.name)
    return TableSchema(name, schema.columns, schema.key, schema.key_check)


def _rows_at(transaction: Transaction, table: TableId) -> At:
    def at(scn: int) -> list[Row]:
        return [
            (scn, order, c.op, tuple("?" if cell is MISSING else cell for cell in c.cells))
            for order, c in enumerate(transaction.changes)
            if c.table == table and c.op != "T"
        ]

    return at

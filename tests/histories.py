"""Random histories of three tables as a target sees them: folded batches, cut at random ends of transactions."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.fold import fold
from headrace.model.schema import TableId, TableSchema
from headrace.sources.scripted.database import MISSING, Change, ScriptedDatabase, Transaction
from headrace.testing.histories import TABLES, RandomHistory
from headrace.testing.notation import change_batch

__all__ = ["TargetHistory", "renamed"]

_STEPS = 220


def renamed(schema: TableSchema, name: str) -> TableSchema:
    """Return the same table under another name, so that many histories go into one batch."""
    return TableSchema(
        TableId("public", name), schema.columns, schema.key, schema.key_check, schema.numbers
    )


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
        name: put before the names of the tables.

    Attributes:
        ends: ascending SCNs at which batches end.
    """

    def __init__(self, seed: int, name: str = "") -> None:
        self._random = random.Random(seed)
        self._database = ScriptedDatabase(TABLES)
        self.coverage: Counter[str] = Counter()
        history = RandomHistory(self._database, self._random, self.coverage)
        for _ in range(_STEPS):
            history.step()
        history.settle()
        self._names = {schema.table: renamed(schema, name + schema.table.name) for schema in TABLES}
        scns = [transaction.scn for transaction in self._database.log]
        count = min(len(scns) - 1, self._random.choice([1, 3, 8]))
        self.ends = [*sorted(self._random.sample(scns[:-1], count)), scns[-1]]

    def pieces(self, after_scn: int, upto_scn: int) -> list[Piece]:
        """Return what changes between two SCNs; a table that does not is left out."""
        chosen = [t for t in self._database.log if after_scn < t.scn <= upto_scn]
        found = (self._piece(schema, chosen) for schema in TABLES)
        return [piece for piece in found if piece is not None]

    def truth(self, upto_scn: int) -> dict[TableSchema, Counter[tuple[Any, ...]]]:
        """Return the rows of each table at an SCN."""
        state = self._database.state_at(upto_scn)
        return {schema: state[table] for table, schema in self._names.items()}

    def _piece(self, schema: TableSchema, chosen: list[Transaction]) -> Piece | None:
        rows, truncates = [], []
        for transaction in chosen:
            for order, change in enumerate(transaction.changes):
                if change.table != schema.table:
                    continue
                if change.op == "T":
                    truncates.append((transaction.scn, order))
                else:
                    rows.append((transaction.scn, order, change.op, _cells(change)))
        if not rows and not truncates:
            return None
        own = self._names[schema.table]
        return Piece(own, fold(own, [change_batch(own, rows)] if rows else [], truncates))


def _cells(change: Change) -> tuple[Any, ...]:
    return tuple("?" if cell is MISSING else cell for cell in change.cells)

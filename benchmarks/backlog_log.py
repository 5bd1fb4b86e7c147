"""A change log that waits for apply: some tables, copied, and then changed for a long time while nobody applied.

Every transaction changes every table: 70 % of its changes are updates, 20 % inserts, 10 % deletes, over all keys or
over the newest.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.apply_table import SCHEMA, Ids, Keys, changes_of, orders
from headrace.changelog.config import ChangeLogSettings
from headrace.changelog.writer import ChangeLogWriter
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.change import INSERT
from headrace.model.schema import TableId
from headrace.registry.file import FileRegistry

__all__ = ["PER_TRANSACTION", "Backlog"]

PER_TRANSACTION = 5_000
"""Changes of one table in one transaction, which is a block of its own."""


class _Table:
    """One table while its changes are drawn."""

    def __init__(self, number: int, rows: int, registry: FileRegistry) -> None:
        self.name = TableId(SCHEMA.table.schema, f"orders_{number}")
        self.schema_id = registry.put(replace(SCHEMA, table=self.name))
        self.keys = Keys(rows)


class Backlog:
    """Writes the log.

    Args:
        folder: of the change log.
        tables: how many.
        rows: of each, when the backlog begins.
        changes: of the backlog, all tables together.
        seed: of the draws.
        newest: how many of the newest keys changes may touch, None for all.

    Attributes:
        begin: SCN at which every table is copied.
        end: SCN of the last transaction.
        changes: how many there really are.
        rows: of each table at the end, by its name.
    """

    def __init__(
        self,
        folder: Path,
        tables: int,
        rows: int,
        changes: int,
        seed: int,
        newest: int | None = None,
    ) -> None:
        registry = FileRegistry(folder / "schemas")
        generator = np.random.default_rng(seed)
        self._tables = [_Table(number, rows, registry) for number in range(tables)]
        self._writer = ChangeLogWriter.open(folder, ChangeLogSettings(budget_bytes=2**36))
        self._scn = 0
        for table in self._tables:
            ids = table.keys.live
            inserts = pa.repeat(INSERT, len(ids))
            self._append([self._body(table, ids, inserts, generator)])
        told = {"request_id": "1"}
        events = [
            SystemEvent(self._scn + 1, place, SystemKind.DUMP_COMPLETE, t.name, told)
            for place, t in enumerate(self._tables)
        ]
        self._append([], tuple(events))
        self.begin = self._scn
        self.changes = 0
        while self.changes < changes:
            self._append(
                [
                    self._body(t, *t.keys.draw(PER_TRANSACTION, generator, newest), generator)
                    for t in self._tables
                ]
            )
            self.changes += PER_TRANSACTION * tables
        self._writer.sync()
        self.end = self._scn
        self.rows = {t.name.name: len(t.keys.live) for t in self._tables}
        self._writer.close()

    def _body(self, table: _Table, ids: Ids, ops: pa.Array, generator: np.random.Generator) -> Body:
        (batch,) = changes_of(orders(ids, generator), ops, self._scn + 1).to_batches()
        return Body(table.schema_id, table.name, batch)

    def _append(self, bodies: list[Body], events: tuple[SystemEvent, ...] = ()) -> None:
        self._scn += 1
        changes = sum(body.batch.num_rows for body in bodies) + len(events)
        index = transaction_index([(self._scn, 1, self._scn, changes, ORIGIN_LOG, 1)])
        self._writer.append(Block(index, tuple(bodies), events, self._scn))

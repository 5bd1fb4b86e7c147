"""The table and the batches of the apply benchmark: the same rows for every contender.

A table of ``rows`` orders lies in twenty files, clustered by key. A batch changes 70 % of its rows, inserts 20 % and
deletes 10 %; its keys are spread over the whole table (``uniform``) or over its newest twentieth (``newest``).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.changelog.config import ChangeLogSettings
from headrace.changelog.writer import ChangeLogWriter
from headrace.lake.commit import put_commit
from headrace.lake.data_writer import write_rows
from headrace.lake.evolution import create_actions
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.change import DELETE, INSERT, PATCH, change_schema, table_arrow_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.registry.file import FileRegistry

__all__ = [
    "SCHEMA",
    "Batches",
    "Ids",
    "Keys",
    "Orders",
    "changes_of",
    "copy_table",
    "make_table",
    "orders",
]

SCHEMA = TableSchema(
    TableId("bench", "orders"),
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("customer", pa.int64(), "bigint"),
        Column("amount", pa.decimal128(12, 2), "numeric(12,2)"),
        Column("status", pa.string(), "text"),
        Column("placed", pa.timestamp("us", tz="UTC"), "timestamptz"),
        Column("note", pa.string(), "text"),
    ),
    ("id",),
    KeyCheck.IMMEDIATE,
)
_FILES = 20
_BLOCK_ROWS = 65_536
_STATES = pa.array(["new", "paid", "packed", "sent", "returned"])

Ids = npt.NDArray[np.int64]


def orders(ids: Ids, generator: np.random.Generator) -> pa.Table:
    """Return rows with the given keys."""
    count = len(ids)
    cents = pa.array(generator.integers(100, 5_000_000, count))
    columns = [
        pa.array(ids),
        pa.array(generator.integers(0, 1_000_000, count)),
        pa.array(np.asarray(cents) // 100).cast(pa.decimal128(19, 0)).cast(pa.decimal128(12, 2)),
        _STATES.take(pa.array(generator.integers(0, len(_STATES), count))),
        pa.array(1_700_000_000_000_000 + ids * 1_000).cast(pa.timestamp("us", tz="UTC")),
        pa.array(generator.integers(0, 2**40, count)).cast(pa.string()),
    ]
    return pa.table(columns, schema=table_arrow_schema(SCHEMA))


def changes_of(rows: pa.Table, ops: pa.Array, scn: int) -> pa.Table:
    """Return change rows of one transaction."""
    count = rows.num_rows
    meta = [
        pa.array(np.full(count, scn)),
        pa.array(np.arange(count, dtype=np.int32)),
        ops,
        pa.nulls(count, pa.binary()),
    ]
    return pa.table([*meta, *rows.columns], schema=change_schema(SCHEMA)).combine_chunks()


class Keys:
    """The keys of a table while changes to it are drawn.

    Attributes:
        live: keys of the rows that are there.
    """

    def __init__(self, rows: int) -> None:
        self.live = np.arange(rows)
        self._next = rows

    def draw(
        self, changes: int, generator: np.random.Generator, newest: int | None = None
    ) -> tuple[Ids, pa.Array]:
        """Return keys and operations: 70 % updates, 20 % inserts, 10 % deletes.

        Args:
            changes: how many.
            generator: of the draws.
            newest: how many of the newest keys may be touched; None is all.
        """
        pool = self.live if newest is None else self.live[-newest:]
        touched = generator.choice(pool, changes * 8 // 10, replace=False)
        updated, deleted = touched[: changes * 7 // 10], touched[changes * 7 // 10 :]
        inserted = np.arange(self._next, self._next + changes // 5)
        self._next += len(inserted)
        # The keys rise, so that those which go are found without sorting all of a large table's.
        left = np.delete(self.live, np.searchsorted(self.live, deleted))
        self.live = np.concatenate([left, inserted])
        ids = np.concatenate([updated, inserted, deleted])
        ops = np.repeat([PATCH, INSERT, DELETE], [len(updated), len(inserted), len(deleted)])
        order = generator.permutation(len(ids))
        return ids[order], pa.array(ops[order])


def make_table(folder: Path, rows: int, seed: int, *, vectors: bool) -> None:
    """Write the table that every contender begins with."""
    generator = np.random.default_rng(seed)
    put_commit(folder, 0, create_actions(SCHEMA, vectors=vectors))
    part = rows // _FILES
    adds = []
    for number in range(_FILES):
        ids = np.arange(number * part, (number + 1) * part)
        adds += write_rows(folder, orders(ids, generator), SCHEMA.key)
    put_commit(folder, 1, [{"add": add} for add in adds])


def copy_table(source: Path, folder: Path, *, vectors: bool) -> None:
    """Give a contender a table of its own: data files, which never change, are shared by hard links."""
    put_commit(folder, 0, create_actions(SCHEMA, vectors=vectors))
    for path in source.glob("*.parquet"):
        os.link(path, folder / path.name)
    shutil.copy(source / "_delta_log" / f"{1:020d}.json", folder / "_delta_log")


@dataclass(frozen=True, slots=True)
class Orders:
    """One batch, in both forms.

    Attributes:
        begin: SCN before it.
        end: SCN of its transaction.
        file: the same changes as Parquet: ``op``, ``seq`` and the table's columns.
        changes: how many.
    """

    begin: int
    end: int
    file: Path
    changes: int


class Batches:
    """Draws batches, and writes each to a change log and to a file.

    Args:
        folder: for both.
        rows: keys of the table are 0 to ``rows``.
        seed: of the draws.
    """

    def __init__(self, folder: Path, rows: int, seed: int) -> None:
        self.changelog = folder / "changelog"
        self._files = folder / "batches"
        self._files.mkdir(parents=True)
        self._generator = np.random.default_rng(seed)
        self._keys = Keys(rows)
        self._schema_id = FileRegistry(self.changelog / "schemas").put(SCHEMA)
        self._writer = ChangeLogWriter.open(self.changelog, ChangeLogSettings(budget_bytes=2**34))
        self._scn = 1
        self._append(
            (), (SystemEvent(1, 0, SystemKind.DUMP_COMPLETE, SCHEMA.table, self._told()),), 1
        )

    def draw(self, spread: str, changes: int) -> Orders:
        """Return the next batch."""
        newest = -(-len(self._keys.live) // 20) if spread != "uniform" else None
        ids, ops = self._keys.draw(changes, self._generator, newest)
        return self._keep(orders(ids, self._generator), ops)

    def close(self) -> None:
        """Let go of the change log."""
        self._writer.close()

    def _keep(self, rows: pa.Table, ops: pa.Array) -> Orders:
        begin, self._scn = self._scn, self._scn + 1
        bodies = tuple(self._bodies(rows, ops))
        self._append(bodies, (), rows.num_rows)
        sequence = pa.array(np.arange(rows.num_rows))
        file = self._files / f"{self._scn}.parquet"
        pq.write_table(rows.add_column(0, "op", ops).add_column(1, "seq", sequence), file)
        return Orders(begin, self._scn, file, rows.num_rows)

    def _bodies(self, rows: pa.Table, ops: pa.Array) -> Iterator[Body]:
        for batch in changes_of(rows, ops, self._scn).to_batches(max_chunksize=_BLOCK_ROWS):
            yield Body(self._schema_id, SCHEMA.table, batch)

    def _append(
        self, bodies: tuple[Body, ...], events: tuple[SystemEvent, ...], changes: int
    ) -> None:
        index = transaction_index([(self._scn, 1, self._scn, changes, ORIGIN_LOG, 1)])
        self._writer.append(Block(index, bodies, events, self._scn))
        self._writer.sync()

    def _told(self) -> dict[str, object]:
        return {"schema_id": self._schema_id, "request_id": "1"}

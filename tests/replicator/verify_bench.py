"""A source, a change log and a target that a test moves step by step, for verify."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa

from headrace.changelog import ChangeLogSettings, ChangeLogWriter
from headrace.lake import FrontierStore, Manifest, TableEntry, table_path
from headrace.lake.frontier import TableMode
from headrace.model.block import (
    ORIGIN_LOG,
    ORIGIN_SELECT,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.change import change_schema, pack_missing, table_arrow_schema
from headrace.model.schema import TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.replicator.replicas import DeltaReplicas
from headrace.replicator.verify import VerifyReport, verify
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.catalog import TypeCache
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.sources.postgres.lsn import parse_lsn
from headrace.sources.postgres.settings import PostgresSettings
from tests.lake.handmade import HandmadeTable

PIPELINE = "bench"
MISSING = object()
"""A cell that the source did not send."""

Change = tuple[str, str, Sequence[Any]]
"""Table name, operation code, cells."""


class Bench:
    """Tables of one database (schema public), with a log and a target written by hand."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        self.changelog, self.lake = folder / "changelog", folder / "lake"
        self.connection = psycopg.connect(url, autocommit=True)
        self.registry = FileRegistry(self.changelog / "schemas")
        self.log = ChangeLogWriter.open(
            self.changelog,
            ChangeLogSettings(segment_bytes=1 << 20, retain_bytes=0),
            sync=lambda descriptor: None,
        )
        self.frontiers = FrontierStore(self.lake, PIPELINE)
        self.reader = PostgresChunkReader(PostgresSettings(url=url), TypeCache())
        self.targets: dict[str, HandmadeTable] = {}

    def close(self) -> None:
        self.reader.close()
        self.log.close()
        self.connection.close()

    def execute(self, *statements: str) -> None:
        for statement in statements:
            self.connection.execute(statement.encode())

    def log_end(self) -> int:
        row = self.connection.execute(b"SELECT pg_current_wal_insert_lsn()::text").fetchone()
        assert row
        return parse_lsn(row[0])

    def schema(self, table: str) -> TableSchema:
        return self.reader.describe(TableId("public", table))

    # -- source and log -------------------------------------------------------------------------

    def transaction(self, sql: str, *changes: Change) -> int:
        """Commit a transaction at the source and in the log; return its SCN."""
        with self.connection.transaction():
            self.execute(*filter(None, sql.split(";")))
            row = self.connection.execute(b"SELECT pg_current_xact_id()::text").fetchone()
        assert row
        return self.logged(int(row[0]), *changes)

    def logged(self, xid: int, *changes: Change, origin: int = ORIGIN_LOG) -> int:
        """Write a transaction to the log only; a change with operation ``T`` is a truncate."""
        scn = max(self.log_end(), self.log.appended.covered_scn + 1)
        bodies, system = [], []
        for table in dict.fromkeys(change[0] for change in changes):
            schema = self.schema(table)
            rows = [
                (order, change[1], change[2])
                for order, change in enumerate(changes)
                if change[0] == table and change[1] != "T"
            ]
            batch = change_rows(schema, scn, rows)
            bodies.append(Body(self.registry.put(schema), schema.table, batch))
        for order, change in enumerate(changes):
            if change[1] == "T":
                table_id = TableId("public", change[0])
                system.append(SystemEvent(scn, order, SystemKind.TRUNCATE, table_id))
        index = transaction_index([(scn, scn, xid, len(changes), origin, 1)])
        self.log.append(
            Block(index, tuple(b for b in bodies if b.batch.num_rows), tuple(system), scn)
        )
        self.log.sync()
        return scn

    def cover(self) -> int:
        """Say that the log is complete up to now and some way beyond: nothing else will be logged."""
        scn = max(self.log_end(), self.log.appended.covered_scn) + (64 << 20)
        self.log.append(Block(transaction_index([]), (), (), scn))
        self.log.sync()
        return scn

    # -- target ---------------------------------------------------------------------------------

    def rows(self, table: str) -> pa.Table:
        """Return the source's present rows through our own decoders."""
        dump = self.reader.read_table(TableId("public", table))
        batches = list(dump.batches)
        return pa.Table.from_batches(batches, schema=table_arrow_schema(dump.schema))

    def write(self, table: str, rows: pa.Table) -> int:
        """Make ``rows`` the target's whole content; return the version."""
        if table not in self.targets:
            target = HandmadeTable(table_path(self.lake, TableId("public", table)))
            self.targets[table] = target
            return target.create(rows)
        return self.targets[table].replace(rows)

    def copy(self, *tables: str) -> None:
        """Make the target's tables what the source holds now."""
        for table in tables:
            self.write(table, self.rows(table))

    def publish(self, scn: int, state: TableMode = "live", applied: int | None = None) -> None:
        """Write a frontier manifest of the target as it is."""
        complete = None if state == "copying" else 1
        tables = {
            f"public.{name}": TableEntry(target.version, applied or scn, complete, state)
            for name, target in self.targets.items()
        }
        self.frontiers.write(Manifest(scn, scn, tables, scn))

    def settle(self, *tables: str) -> int:
        """Copy tables and publish the frontier of this moment; return its SCN."""
        self.copy(*tables)
        scn = self.logged(0)
        self.publish(scn)
        return scn

    def verify(
        self,
        *tables: str,
        timeout_s: float = 20.0,
        progress: Any = None,
        fed: Callable[[], bool] = lambda: True,
    ) -> VerifyReport:
        names = [f"public.{name}" for name in tables or self.targets]
        return verify(
            PostgresSource(self.url, name=PIPELINE),
            names,
            self.changelog,
            DeltaReplicas(self.lake, PIPELINE),
            timeout_s,
            progress,
            fed=fed,
        )


def column_of(cells: list[Any], type_: pa.DataType) -> pa.Array:
    """Return cells as a column; decimals may be written as text."""
    return (
        pa.array(cells, pa.string()).cast(type_)
        if pa.types.is_decimal(type_)
        else pa.array(cells, type_)
    )


def change_rows(
    schema: TableSchema, scn: int, rows: Sequence[tuple[int, str, Sequence[Any]]]
) -> pa.RecordBatch:
    """Return change rows of one transaction."""
    width = len(schema.columns)
    masks = [
        pack_missing((i for i, cell in enumerate(cells) if cell is MISSING), width)
        for _, _, cells in rows
    ]
    columns = [
        column_of([None if c[i] is MISSING else c[i] for _, _, c in rows], column.type)
        for i, column in enumerate(schema.columns)
    ]
    return pa.record_batch(
        [
            pa.array([scn] * len(rows), pa.int64()),
            pa.array([row[0] for row in rows], pa.int32()),
            pa.array([row[1] for row in rows], pa.string()),
            pa.array(masks, pa.binary()),
            *columns,
        ],
        schema=change_schema(schema),
    )


__all__ = ["MISSING", "ORIGIN_SELECT", "Bench"]

"""A table whose source changes its shape, and appliers that come and go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore, TableEntry
from headrace.lake.modes import Mode
from headrace.lake.policies import Dropped, Incompatible, Policies
from headrace.lake.settings import TableSettings
from headrace.model.block import SystemKind
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.model.succession import column_number
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.targets.merge import MergeTarget
from tests.spark.folded import run_to
from tests.spark.log import Log

T = TableId("public", "t")
NEW = Policies(incompatible=Incompatible.NEW_COLUMN)
KEEP = Policies(dropped_column=Dropped.KEEP)
RECOPY = Policies(incompatible=Incompatible.RECOPY)
DROP = Policies(dropped_table=Dropped.DROP)
CRASHES = (
    "apply.before_commit",
    "apply.files_written",
    "apply.after_commit",
    "apply.before_manifest",
    "apply.after_manifest",
)


OFTEN = ((NEW, "apply.after_commit"), (RECOPY, "apply.files_written"), (RECOPY, CRASHES[3]))
"""Crashes that the normal run has; the long one has all."""


class Crash(BaseException):
    """The process ends here."""


class Bench:
    """A change log, a lake, and appliers that come and go; dumps are asked for by numbers."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.log = Log(folder / "changelog")
        self.lake = folder / "lake"
        self.asked: list[str] = []
        self.merges = False
        self.crashes: tuple[str, ...] = CRASHES
        self.options = ApplyOptions("test", self.log.folder, self.lake)

    def policies(self, policies: Policies, mode: Mode = Mode.MIRROR) -> None:
        settings = ((str(T), TableSettings(mode, policies=policies)),)
        self.options = replace(self.options, settings=settings)

    def ask(self, table: TableId, before: str) -> str:
        assert table == T
        if not before:
            self.asked.append(f"asked {len(self.asked) + 1}")
        return before or self.asked[-1]

    def run(self, *ends: int) -> Applier:
        """Start a fresh applier, as after a restart, and apply up to each end that is ahead."""
        kind = MergeTarget if self.merges else DeltaTarget
        target = kind(self.spark, self.lake, "test")
        return run_to(self.options, target, *ends, ask=self.ask)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that readers of the table see, in order of their keys."""
        rows: list[dict[str, Any]] = (
            DeltaTable(self.lake / "public" / "t").snapshot().to_table().to_pylist()
        )
        return sorted(rows, key=lambda row: row["k"])

    def in_spark(self) -> list[dict[str, Any]]:
        frame = self.spark.read.format("delta").load(str(self.lake / "public" / "t"))
        return sorted(frame.toArrow().to_pylist(), key=lambda row: row["k"])

    def entry(self) -> TableEntry:
        newest = FrontierStore(self.lake, "test").latest()
        assert newest is not None
        return newest.tables[str(T)]

    def state(self) -> str:
        return self.entry().state

    def dumped(self, schema: TableSchema, rows: str, request: str) -> int:
        """Append a dump of a table and its end."""
        self.log.write(schema, rows)
        return self.log.tell(
            SystemKind.DUMP_COMPLETE,
            schema.table,
            schema_id=self.log.registry.put(schema),
            request_id=request,
        )


def shape(**columns: pa.DataType) -> TableSchema:
    """Return a version of ``public.t`` with a key ``k`` and further columns."""
    further = tuple(Column(name, type_, str(type_)) for name, type_ in columns.items())
    key = Column("k", pa.int32(), "integer", nullable=False)
    return TableSchema(T, (key, *further), ("k",), KeyCheck.IMMEDIATE)


NUMBERS = {"k": column_number(7, 1), "a": column_number(7, 2), "b": column_number(7, 3)}
OLD = shape(a=pa.string(), b=pa.string())
RETYPED = shape(a=pa.string(), b=pa.binary())
NARROW = shape(a=pa.string())


def announce(bench: Bench, schema: TableSchema) -> int:
    return bench.log.announce(schema, {name: NUMBERS[name] for name in schema.names})


def begun(bench: Bench) -> None:
    announce(bench, OLD)
    bench.run(bench.dumped(OLD, "+R(1,a1,b1) +R(2,a2,b2) +R(3,a3,b3)", "first"))
    assert bench.state() == "live"


def crash() -> None:
    raise Crash

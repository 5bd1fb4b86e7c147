"""Columns that the source no longer has stay with their rows, wherever batches are cut."""

from __future__ import annotations

import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.errors import IncompatibleSchemaChange
from headrace.fold import combine, fold, promote
from headrace.lake.commit import put_commit, transaction
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import create_actions, evolve_actions
from headrace.lake.keyed import commit_keyed
from headrace.lake.planned import ChangeKind, planned_changes
from headrace.lake.policies import Dropped, Incompatible, Policies
from headrace.lake.remembered import kept_columns
from headrace.model.change import change_schema, pack_missing
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from tests.requirements import req

KEEPING = Policies(Incompatible.NEW_COLUMN, Dropped.KEEP)
TYPES = {"text": pa.string(), "int": pa.int64(), "flag": pa.bool_()}
NAMES = {"text": "string", "int": "int64", "flag": "bool"}

Row = dict[str, Any]
Change = tuple[str, Row, list[str]]
"""Operation, cells by column, columns that were sent."""


@dataclass
class Source:
    """A table whose columns come, go and change their types, and what a target that keeps all of them shows."""

    rng: random.Random
    columns: dict[str, str] = field(default_factory=lambda: {"k": "int", "a": "text", "b": "int"})
    numbers: dict[str, int] = field(default_factory=lambda: {"k": 1, "a": 2, "b": 3})
    rows: dict[int, Row] = field(default_factory=dict)
    shown: dict[int, Row] = field(default_factory=dict)
    kept: set[str] = field(default_factory=set)
    types: dict[str, str] = field(default_factory=lambda: {"k": "int", "a": "text", "b": "int"})
    came: int = 3

    def schema(self) -> TableSchema:
        made = tuple(Column(n, TYPES[t], t, nullable=n != "k") for n, t in self.columns.items())
        table = TableId("public", "t")
        return TableSchema(table, made, ("k",), KeyCheck.IMMEDIATE, dict(self.numbers))

    def value(self, kind: str) -> Any:
        number = self.rng.randrange(1000)
        return {"text": f"v{number}", "int": number, "flag": number % 2 == 0}[kind]

    def row(self, key: int) -> Row:
        cells = {n: self.value(t) for n, t in self.columns.items()}
        return {**cells, "k": key}

    def all_names(self) -> list[str]:
        return [*self.columns, *sorted(self.kept)]

    # -- changes of rows --------------------------------------------------------------------------

    def change(self) -> list[Change]:
        """Let one thing happen, and return what the log says of it."""
        key = self.rng.randrange(12)
        if key not in self.rows:
            self.rows[key] = self.row(key)
            self.shown[key] = dict.fromkeys(self.kept) | self.rows[key]
            # Some come without a word in the log, and are seen by a read alone.
            op = "+R" if self.rng.random() < 0.3 else "+I"
            return [(op, self.rows[key], list(self.columns))]
        roll = self.rng.random()
        if roll < 0.2:
            del self.rows[key], self.shown[key]
            return [("-D", {"k": key}, ["k"])]
        if roll < 0.45:
            return self.read([key])
        sent = [n for n in self.columns if n == "k" or self.rng.random() < 0.6]
        later = self.rng.randrange(12)
        moves = roll < 0.65 and later not in self.rows
        new = {n: self.value(self.columns[n]) for n in sent} | {"k": later if moves else key}
        row, shown = self.rows.pop(key) | new, self.shown.pop(key) | new
        self.rows[row["k"]], self.shown[row["k"]] = row, shown
        if not moves:
            return [("=U", row, sent)]
        return [("-U", {"k": key}, ["k"]), ("+U", row, sent)]

    def read(self, keys: Sequence[int]) -> list[Change]:
        for key in keys:
            self.shown[key] |= self.rows[key]
        return [("+R", self.rows[key], list(self.columns)) for key in keys]

    # -- changes of columns -----------------------------------------------------------------------

    def reshape(self) -> None:
        """Add, drop or retype a column."""
        name = self.rng.choice("abcd")
        kind = self.rng.choice([t for t in TYPES if t != self.columns.get(name)])
        if name not in self.columns:
            if name in self.kept:
                self.put_aside(name)
            self.come(name, kind)
        elif self.rng.random() < 0.5 and len(self.columns) > 2:
            del self.columns[name], self.numbers[name]
            self.kept.add(name)
            self.rows = {k: without(row, name) for k, row in self.rows.items()}
        else:
            self.put_aside(name)
            number = self.numbers[name]
            self.come(name, kind)
            # It is the same column to the source.
            self.numbers[name] = number

    def put_aside(self, name: str) -> None:
        kind = self.columns.get(name) or self.types[name]
        later = stem = f"{name}_was_{NAMES[kind]}"
        number = 1
        while later in self.kept or later in self.columns:
            number += 1
            later = f"{stem}_{number}"
        for row in self.shown.values():
            row[later] = row.pop(name)
        self.kept = self.kept - {name} | {later}
        self.types[later] = kind

    def come(self, name: str, kind: str) -> None:
        self.came += 1
        self.columns[name], self.numbers[name] = kind, self.came
        self.types[name] = kind
        for key, row in self.rows.items():
            row[name] = self.value(kind)
            self.shown[key][name] = None


def without(row: Row, name: str) -> Row:
    return {n: cell for n, cell in row.items() if n != name}


def batch_of(schema: TableSchema, scn: int, changes: Sequence[Change]) -> pa.RecordBatch:
    form, names = change_schema(schema), schema.names
    rows = []
    for place, (op, cells, sent) in enumerate(changes):
        absent = [i for i, name in enumerate(names) if name not in sent]
        mask = pack_missing(absent, len(names)) if absent else None
        own = [cells.get(n) if n in sent else None for n in names]
        rows.append([scn, place, op, mask, *own])
    columns = [
        pa.array(list(cells), f.type)
        for cells, f in zip(zip(*rows, strict=True), form, strict=True)
    ]
    return pa.record_batch(columns, schema=form)


class Target:
    def __init__(self, folder: Path, source: Source) -> None:
        self.folder = folder
        self.table = DeltaTable(folder)
        self.scn = 0
        put_commit(folder, 0, create_actions(source.schema(), vectors=True))

    def reshape(self, schema: TableSchema) -> None:
        held = self.table.snapshot()
        put_commit(self.folder, held.version + 1, evolve_actions(held, schema, KEEPING))

    def apply(self, schema: TableSchema, transactions: list[list[Change]], slices: int) -> None:
        """Commit transactions as one batch."""
        held = self.table.snapshot()
        whole = schema.keeping(kept_columns(held))
        folded = folded_of(whole, schema, transactions, self.scn + 1, slices)
        self.scn += len(transactions)
        actions = commit_keyed(held, whole, folded, complete=True)
        put_commit(self.folder, held.version + 1, [transaction("t", self.scn), *actions])

    def rows(self) -> list[Row]:
        rows: list[Row] = self.table.snapshot().to_table().to_pylist()
        return rows

    @property
    def kept(self) -> list[str]:
        return [column.name for column in kept_columns(self.table.snapshot())]


def folded_of(
    whole: TableSchema, schema: TableSchema, transactions: list[list[Change]], scn: int, slices: int
) -> pa.Table:
    """Fold transactions as one batch, in slices that are combined.

    Args:
        whole: the version with the columns that are kept.
        schema: the source's.
        transactions: what the log says.
        scn: of the first.
        slices: most of them.
    """
    batches = [
        promote(batch_of(schema, number, changes), schema, whole)
        for number, changes in enumerate(transactions, scn)
    ]
    folded = fold(whole, [])
    size = max(1, -(-len(batches) // slices))
    for begin in range(0, len(batches), size):
        folded = combine(whole, folded, fold(whole, batches[begin : begin + size]))
    return folded


class Keeping(Protocol):
    """A target table that keeps every column."""

    def apply(self, schema: TableSchema, transactions: list[list[Change]], slices: int) -> None: ...
    def reshape(self, schema: TableSchema) -> None: ...
    def rows(self) -> list[Row]: ...
    @property
    def kept(self) -> Collection[str]: ...


def live_on(source: Source, target: Keeping, rounds: int) -> None:
    """Let rows and columns of a source change, with random cuts, and hold the target against what it shows."""
    rng = source.rng
    for _ in range(rounds):
        life = [source.change() for _ in range(rng.randrange(2, 14))]
        while life:
            cut = rng.randrange(1, len(life) + 1)
            target.apply(source.schema(), life[:cut], rng.randrange(1, 4))
            life = life[cut:]
        assert by_key(target.rows()) == by_key(list(source.shown.values()))
        source.reshape()
        target.reshape(source.schema())
        assert set(target.kept) == source.kept
        # As a source does that wrote its rows anew.
        keys = rng.sample(sorted(source.rows), len(source.rows) // 2)
        if keys:
            target.apply(source.schema(), [source.read(keys)], 1)
    assert by_key(target.rows()) == by_key(list(source.shown.values()))


def by_key(rows: list[Row]) -> list[Row]:
    return sorted((dict(sorted(row.items())) for row in rows), key=lambda row: row["k"])


def live_through(folder: Path, seed: int) -> tuple[Source, Target]:
    source = Source(random.Random(seed))
    target = Target(folder, source)
    live_on(source, target, 5)
    return source, target


@req("C30")
@pytest.mark.parametrize("seed", range(8))
def test_random_lives_keep_every_column_with_its_rows(tmp_path: Path, seed: int) -> None:
    live_through(tmp_path / "t", seed)


@pytest.mark.long
def test_many_random_lives_keep_every_column_with_its_rows(tmp_path: Path) -> None:
    for seed in range(8, 400):
        live_through(tmp_path / f"t{seed}", seed)


@pytest.mark.spark
def test_spark_reads_kept_columns(spark: SparkSession, tmp_path: Path) -> None:
    for seed in (1,):
        source, target = live_through(tmp_path / f"t{seed}", seed)
        found = spark.read.format("delta").load(str(target.folder)).toArrow().to_pylist()
        assert source.kept
        assert by_key(found) == by_key(list(source.shown.values()))


def made(tmp_path: Path, *columns: Column, check: KeyCheck = KeyCheck.IMMEDIATE) -> TableSchema:
    key = () if check is KeyCheck.NONE else ("k",)
    schema = TableSchema(TableId("public", "t"), columns, key, check)
    put_commit(tmp_path, 0, create_actions(schema, vectors=True))
    return schema


K = Column("k", pa.int64(), "bigint", nullable=False)
A = Column("a", pa.decimal128(10, 2), "numeric(10,2)")


def test_the_plan_names_the_policy_and_the_columns_later_name(tmp_path: Path) -> None:
    schema = made(tmp_path, K, A, Column("b", pa.string(), "text"))
    later = replace(schema, columns=(K, Column("a", pa.string(), "text")))
    held = DeltaTable(tmp_path).snapshot()
    aside, keep, add = planned_changes(held, later, KEEPING)
    assert (aside.kind, aside.column, aside.later) == (
        ChangeKind.ASIDE,
        "a",
        "a_was_decimal_10_2",
    )
    assert "incompatible: new_column" in aside.detail
    assert (keep.kind, keep.column, keep.later) == (ChangeKind.KEEP, "b", "b")
    assert "dropped_column: keep" in keep.detail
    assert (add.kind, add.column) == (ChangeKind.ADD, "a")


@pytest.mark.parametrize("check", [KeyCheck.DEFERRED, KeyCheck.NONE])
def test_a_column_is_not_kept_where_rows_need_whole_images(tmp_path: Path, check: KeyCheck) -> None:
    schema = made(tmp_path, K, A, check=check)
    held = DeltaTable(tmp_path).snapshot()
    for columns in ((K,), (K, replace(A, type=pa.string()))):
        with pytest.raises(IncompatibleSchemaChange, match=r"public\.t\.a can be kept only where"):
            evolve_actions(held, replace(schema, columns=columns), KEEPING)


def test_a_key_of_another_type_is_not_put_aside(tmp_path: Path) -> None:
    schema = made(tmp_path, K, A)
    later = replace(schema, columns=(replace(K, type=pa.string()), A))
    with pytest.raises(IncompatibleSchemaChange, match=r"public\.t\.k is of the key"):
        evolve_actions(DeltaTable(tmp_path).snapshot(), later, KEEPING)

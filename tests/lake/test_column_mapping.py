"""Columns that are dropped and renamed: no file is touched, and no value is lost or shown under another's name."""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from headrace.errors import IncompatibleSchemaChange, UnsupportedTableFeature
from headrace.fold import fold
from headrace.lake.commit import put_commit
from headrace.lake.evolution import evolve_actions
from headrace.lake.planned import ChangeKind, ColumnChange, planned_changes
from headrace.lake.remembered import numbers_of
from headrace.model.change import change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from tests.lake.local_table import LocalTable
from tests.requirements import req


@dataclass
class Source:
    """A table of texts whose columns come, go and change their names; a column is its number."""

    folder: Path
    names: dict[int, str] = field(default_factory=lambda: {1: "k", 2: "a", 3: "b"})
    rows: dict[str, dict[int, str | None]] = field(default_factory=dict)
    last: int = 3
    scn: int = 0
    foreseen: list[ColumnChange] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.target = LocalTable(self.folder, self.schema())

    def schema(self) -> TableSchema:
        made = tuple(Column(name, pa.string(), "text") for name in self.names.values())
        table, key = TableId("public", "t"), (self.names[1],)
        return TableSchema(table, made, key, KeyCheck.IMMEDIATE, self.numbers())

    def numbers(self) -> dict[str, int]:
        return {name: number for number, name in self.names.items()}

    def write(self, *rows: tuple[str | None, ...]) -> None:
        """Write whole rows, the key first."""
        schema = self.schema()
        form = change_schema(schema)
        cells = [[1, place, "+R", None, *row] for place, row in enumerate(rows)]
        columns = [
            pa.array(list(c), f.type) for c, f in zip(zip(*cells, strict=True), form, strict=True)
        ]
        self.scn += 1
        folded = fold(schema, [pa.record_batch(columns, schema=form)])
        self.target.schema = schema
        self.target.apply(folded, self.scn)
        for row in rows:
            self.rows[str(row[0])] = dict(zip(self.names, row, strict=True))

    def add(self, name: str) -> None:
        self.last += 1
        self.names[self.last] = name
        self.evolve()

    def drop(self, name: str) -> None:
        self.names = {n: held for n, held in self.names.items() if held != name}
        self.evolve()

    def rename(self, **names: str) -> None:
        """Rename columns, all at once."""
        self.names = {number: names.get(held, held) for number, held in self.names.items()}
        self.evolve()

    def evolve(self, numbers: dict[str, int] | None = None) -> None:
        snapshot = self.target.table.snapshot()
        known = self.numbers() if numbers is None else numbers
        schema = replace(self.schema(), numbers=known)
        self.foreseen = planned_changes(snapshot, schema)
        put_commit(self.folder, snapshot.version + 1, evolve_actions(snapshot, schema))

    def content(self) -> list[dict[str, str | None]]:
        """Return what the source holds, as rows by name."""
        return sorted(
            ({name: row.get(n) for n, name in self.names.items()} for row in self.rows.values()),
            key=repr,
        )

    def copied(self, version: int | None = None) -> list[dict[str, str | None]]:
        """Return what the target holds, its columns in the source's order where it has the same."""
        rows = self.target.table.snapshot(version).to_table().to_pylist()
        names = list(self.names.values())
        return sorted(
            (
                {n: row[n] for n in sorted(row, key=names.index)} if version is None else row
                for row in rows
            ),
            key=repr,
        )

    def agrees(self) -> None:
        assert self.copied() == self.content()


def in_spark(spark: SparkSession, source: Source) -> list[dict[str, str | None]]:
    rows = spark.read.format("delta").load(str(source.folder)).collect()
    names = list(source.names.values())
    return sorted(
        ({name: row[name] for name in sorted(row.asDict(), key=names.index)} for row in rows),
        key=repr,
    )


@req("C30")
def test_a_renamed_column_keeps_its_values_and_no_file_is_written(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.write(("1", "x", "y"), ("2", "z", None))
    before = source.target.table.snapshot()
    source.rename(a="label")
    source.agrees()
    after = source.target.table.snapshot()
    assert [file.path for file in after.files] == [file.path for file in before.files]
    assert before.schema.names == ["k", "a", "b"]
    # A version from before still has the old name.
    assert {tuple(row) for row in source.copied(before.version)} == {("k", "a", "b")}


@req("C30")
def test_a_dropped_column_that_comes_back_is_another_one(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.write(("1", "x", "y"))
    source.drop("a")
    source.agrees()
    source.add("a")
    source.agrees()
    assert source.copied() == [{"k": "1", "b": "y", "a": None}]
    source.write(("2", "n", "new"))
    source.agrees()
    names = pq.read_schema(source.target.table.snapshot().files[-1].path).names
    assert "a" not in names
    assert numbers_of(source.target.table.snapshot()) == {"k": 1, "b": 3, "a": 4}


@req("C30")
def test_two_columns_that_swap_their_names_keep_their_own_values(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.write(("1", "x", "y"))
    source.rename(a="b", b="a")
    source.agrees()
    assert source.copied() == [{"k": "1", "b": "x", "a": "y"}]
    source.write(("1", "p", "q"), ("2", "r", "s"))
    source.agrees()


@req("C30")
def test_a_renamed_key_is_still_found(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.write(*((str(n), "x", "y") for n in range(30)))
    source.rename(k="id")
    source.write(("7", "changed", "y"))
    source.agrees()
    assert len(source.copied()) == 30


@req("C30")
def test_a_key_that_swaps_its_name_with_another_number_is_looked_for_in_its_own_bounds(
    tmp_path: Path,
) -> None:
    def shape(key: str, other: str) -> TableSchema:
        columns = (Column(key, pa.int64(), "bigint"), Column(other, pa.int64(), "bigint"))
        numbers = {key: 1, other: 2}
        return TableSchema(TableId("public", "t"), columns, (key,), KeyCheck.IMMEDIATE, numbers)

    def rows(schema: TableSchema, *cells: tuple[int, int]) -> pa.Table:
        form = change_schema(schema)
        whole = [[1, place, "+R", None, *row] for place, row in enumerate(cells)]
        arrays = [
            pa.array(list(c), f.type) for c, f in zip(zip(*whole, strict=True), form, strict=True)
        ]
        return fold(schema, [pa.record_batch(arrays, schema=form)])

    old, new = shape("k", "n"), shape("n", "k")
    table = LocalTable(tmp_path, old)
    table.apply(rows(old, *((key, 1_000 + key) for key in range(9))), 1)
    snapshot = table.table.snapshot()
    put_commit(tmp_path, snapshot.version + 1, evolve_actions(snapshot, new))
    table.schema = new
    table.apply(rows(new, (7, -1)), 2)
    expected = [(key, -1 if key == 7 else 1_000 + key) for key in range(9)]
    assert table.content() == Counter(expected)


@req("C30")
def test_without_numbers_a_drop_is_followed_and_a_rename_refused(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.write(("1", "x", "y"))
    source.names = {1: "k", 3: "b"}
    source.evolve({})
    source.agrees()
    source.names = {1: "k", 3: "other"}
    with pytest.raises(
        IncompatibleSchemaChange, match=r"public\.t\.b was dropped or renamed"
    ) as caught:
        source.evolve({})
    assert "dump start" in caught.value.next_step
    assert [(c.kind, c.column) for c in source.foreseen] == [(ChangeKind.REFUSED, "b")]
    source.evolve()
    source.agrees()


def test_mapping_is_switched_on_only_when_it_is_needed(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.add("c")
    features = source.target.table.snapshot().protocol["readerFeatures"]
    assert "columnMapping" not in features
    source.drop("c")
    snapshot = source.target.table.snapshot()
    assert "columnMapping" in snapshot.protocol["readerFeatures"]
    assert "columnMapping" in snapshot.protocol["writerFeatures"]
    assert snapshot.properties["delta.columnMapping.mode"] == "name"


@pytest.mark.unreadable
def test_a_table_mapped_by_id_is_refused_by_name(tmp_path: Path) -> None:
    source = Source(tmp_path)
    source.rename(a="label")
    snapshot = source.target.table.snapshot()
    metadata = json.loads(json.dumps(snapshot.metadata))
    metadata["configuration"]["delta.columnMapping.mode"] = "id"
    put_commit(tmp_path, snapshot.version + 1, [{"metaData": metadata}])
    with pytest.raises(UnsupportedTableFeature, match="columnMapping by id"):
        source.target.table.snapshot()


def wander(source: Source, chance: random.Random, steps: int) -> Counter[str]:
    """Change rows and columns at random; return how often what."""
    done: Counter[str] = Counter()
    spare = ["a", "b", "c", "d", "e"]
    for _ in range(steps):
        own = [name for number, name in source.names.items() if number != 1]
        free = [name for name in spare if name not in own]
        what = chance.choice(["write", "write", "add", "drop", "rename", "swap"])
        if what == "write":
            keys = chance.sample(range(12), 3)
            source.write(
                *(
                    (str(k), *(chance.choice([None, f"{n}{chance.random():.3f}"]) for n in own))
                    for k in keys
                )
            )
        elif what == "add" and free:
            source.add(chance.choice(free))
        elif what == "drop" and own:
            source.drop(chance.choice(own))
        elif what == "rename" and own and free:
            source.rename(**{chance.choice(own): chance.choice(free)})
        elif what == "swap" and len(own) > 1:
            one, other = chance.sample(own, 2)
            source.rename(**{one: other, other: one})
        else:
            continue
        done[what] += 1
        if what != "write":
            kinds = Counter(change.kind.value for change in source.foreseen)
            assert kinds == Counter(
                {"rename" if what == "swap" else what: 2 if what == "swap" else 1}
            )
        source.agrees()
    return done


@req("C30")
def test_any_run_of_changes_ends_as_the_source_does(tmp_path: Path) -> None:
    done: Counter[str] = Counter()
    for seed in range(20):
        done += wander(Source(tmp_path / str(seed)), random.Random(seed), 30)
    assert min(done[what] for what in ("write", "add", "drop", "rename", "swap")) > 10


@req("C30")
@pytest.mark.spark
def test_spark_reads_and_changes_what_was_renamed(spark: SparkSession, tmp_path: Path) -> None:
    for seed in (3, 4):
        source = Source(tmp_path / str(seed))
        wander(source, random.Random(seed), 25)
        source.names.setdefault(1, "k")
        if "a" not in source.names.values():
            source.add("a")
        source.write(*((str(n), *("w" for _ in list(source.names)[1:])) for n in range(4)))
        source.agrees()
        assert in_spark(spark, source) == source.content()
        table = f"delta.`{source.folder}`"
        spark.sql(f"UPDATE {table} SET a = 'spark' WHERE k IN ('1', '2')")
        spark.sql(f"OPTIMIZE {table}")
        (number,) = [n for n, name in source.names.items() if name == "a"]
        for key in ("1", "2"):
            source.rows[key][number] = "spark"
        source.agrees()
        assert in_spark(spark, source) == source.content()
        # And we go on from what Spark left.
        source.rename(a="z")
        source.write(("1", *("again" for _ in list(source.names)[1:])))
        source.agrees()
        assert in_spark(spark, source) == source.content()

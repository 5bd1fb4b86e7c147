"""Partition columns: which there may be, and what becomes of them when the source changes its own."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import ConfigError, IncompatibleSchemaChange
from headrace.fold import fold
from headrace.lake.aside import aside_path, begin_copy, take_place
from headrace.lake.commit import put_commit
from headrace.lake.copies import Copy
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import create_actions, evolve_actions
from headrace.lake.keyed import commit_keyed
from headrace.lake.mapping import in_files
from headrace.lake.partitioning import UNPARTITIONED, Partitioning
from headrace.lake.planned import ChangeKind, ColumnChange, planned_changes
from headrace.lake.policies import Dropped, Incompatible, Policies
from headrace.lake.remembered import kept_columns
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.testing.notation import change_batch, table_of
from tests.lake.local_table import LocalTable
from tests.lake.parts import check_files, typed
from tests.places import local
from tests.requirements import req


def shape(key: tuple[str, ...] = ("k",), **columns: pa.DataType) -> TableSchema:
    """Return a version of a table whose columns have the numbers of their letters."""
    made = tuple(Column(name, type_, str(type_)) for name, type_ in columns.items())
    numbers = {name: ord(name[0]) for name in columns}
    return TableSchema(TableId("public", "t"), made, key, KeyCheck.IMMEDIATE, numbers)


def write(table: LocalTable, scn: int, *rows: tuple[Any, ...], op: str = "+R") -> None:
    changes = change_batch(table.schema, [(scn, n, op, row) for n, row in enumerate(rows)])
    table.apply(fold(table.schema, [changes]), scn)


def evolve(table: LocalTable, schema: TableSchema, policies: Policies | None = None) -> None:
    held = table.table.snapshot()
    actions = evolve_actions(held, schema, policies or Policies())
    put_commit(table.folder, held.version + 1, actions)
    table.schema = schema


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (("nobody",), "names nobody, which is no column of the target table"),
        (("c1", "real"), "names real, whose type float64 tells no partitions apart"),
        (("raw",), "names raw, whose type binary tells no partitions apart"),
        (("k", "c1", "day"), "names every column, which leaves none for the files"),
    ],
)
def test_columns_that_make_no_partitions_are_refused_by_name(
    columns: tuple[str, ...], said: str
) -> None:
    others = {"real": pa.float64(), "raw": pa.binary()}
    schema = shape(k=pa.int64(), c1=pa.string(), day=pa.date32())
    if name := next((name for name in columns if name in others), None):
        schema = shape(k=pa.int64(), c1=pa.string(), **{name: others[name]})
    with pytest.raises(ConfigError, match=rf"partition_by of public\.t {said}") as caught:
        create_actions(schema, vectors=True, partitioning=Partitioning(columns, columns))
    assert caught.value.next_step.startswith("correct partition_by")


def test_a_table_that_is_partitioned_in_another_way_is_refused_by_name() -> None:
    table, held = TableId("public", "t"), Partitioning(("region", "day"), ("area", "day"))
    held.refuse_other(table, ("region", "day"))
    held.refuse_other(table, ("area", "day"))
    for asked in ((), ("day",), ("day", "area"), ("region", "day", "k")):
        with pytest.raises(
            ConfigError, match=r"public\.t is partitioned by area, day, and the file asks"
        ) as caught:
            held.refuse_other(table, asked)
        assert "headrace dump start FILE --table public.t" in caught.value.next_step
    with pytest.raises(ConfigError, match=r"is not partitioned, and .* partitioned by day"):
        UNPARTITIONED.refuse_other(table, ("day",))


@req("C30")
def test_a_partition_column_that_is_renamed_goes_on_under_its_new_name(tmp_path: Path) -> None:
    table = LocalTable(
        tmp_path, shape(k=pa.int64(), p=pa.string(), v=pa.string()), partition_by=("p",)
    )
    write(table, 1, (1, "a", "x"), (2, "b", "x"), (3, None, "x"))
    files = {file.path for file in table.table.snapshot().files}
    evolve(table, shape(k=pa.int64(), place=pa.string(), v=pa.string()))
    held = table.table.snapshot()
    assert {file.path for file in held.files} == files
    assert Partitioning.of(held.properties, held.partition_columns) == Partitioning(
        ("p",), ("place",)
    )
    assert held.to_table(["place"])["place"].to_pylist().count("a") == 1
    write(table, 2, (1, "b", "y"), (4, "a", "y"))
    assert table.content() == Counter(
        {(1, "b", "y"): 1, (2, "b", "x"): 1, (3, None, "x"): 1, (4, "a", "y"): 1}
    )
    held = table.table.snapshot()
    assert in_files(held.schema.field("place")) == "p"
    assert {file.path.parent.name for file in held.files} <= {
        "p=a",
        "p=b",
        "p=__HIVE_DEFAULT_PARTITION__",
    }
    assert check_files(tmp_path, ["place"]) == 3


@req("C30")
@pytest.mark.parametrize(
    ("old", "new", "values"),
    [
        (pa.int16(), pa.int64(), (5, -6)),
        (pa.int32(), pa.decimal128(12, 2), (5, -6)),
        (pa.decimal128(6, 2), pa.decimal128(12, 4), (Decimal("1.25"), Decimal("-0.50"))),
    ],
    ids=str,
)
@pytest.mark.parametrize("key", [("k",), ("k", "p")], ids=str)
def test_a_partition_column_that_is_widened_is_still_found(
    tmp_path: Path,
    key: tuple[str, ...],
    old: pa.DataType,
    new: pa.DataType,
    values: tuple[Any, Any],
) -> None:
    """What was written as ``1.25`` is the partition of what is now ``1.2500``."""
    table = LocalTable(
        tmp_path, shape(key, k=pa.int64(), p=old, v=pa.string()), partition_by=("p",)
    )
    first, second = values
    write(table, 1, (1, first, "x"), (2, second, "x"), (3, None, "x"))
    evolve(table, shape(key, k=pa.int64(), p=new, v=pa.string()))
    write(table, 2, (1, first, "y"))
    write(table, 3, (2, second, "z"), op="-D")
    assert table.content() == Counter({(1, first, "y"): 1, (3, None, "x"): 1})


NEW = Policies(incompatible=Incompatible.NEW_COLUMN)
KEEP = Policies(dropped_column=Dropped.KEEP)
DROPPED = "dropped at the source, and the table is partitioned by it"
TO_FLOAT = "from int32 to float64, and the table is partitioned by it"


@req("C30")
@pytest.mark.parametrize(
    ("later", "policies", "detail"),
    [
        (None, Policies(), DROPPED),
        (None, Policies(incompatible=Incompatible.RECOPY), DROPPED),
        (pa.string(), Policies(), "from int32 to string"),
        (pa.string(), NEW, "from int32 to string .* and the table is partitioned by it"),
        (pa.float64(), Policies(), TO_FLOAT),
        (pa.float64(), NEW, TO_FLOAT),
        (pa.float64(), Policies(incompatible=Incompatible.RECOPY), TO_FLOAT),
    ],
)
def test_what_a_partition_column_cannot_become_is_refused_by_name(
    tmp_path: Path, later: pa.DataType | None, policies: Policies, detail: str
) -> None:
    table = LocalTable(
        tmp_path, shape(k=pa.int64(), p=pa.int32(), v=pa.string()), partition_by=("p",)
    )
    write(table, 1, (1, 5, "x"))
    held = table.table.snapshot()
    left = shape(k=pa.int64(), v=pa.string())
    if later is not None:
        left = shape(k=pa.int64(), p=later, v=pa.string())
    with pytest.raises(IncompatibleSchemaChange, match=rf"public\.t\.p .*: {detail}") as caught:
        evolve_actions(held, left, policies)
    assert caught.value.next_step.startswith("set partition_by to columns that the table has")
    (told,) = [c for c in planned_changes(held, left, policies) if c.column == "p"][:1]
    assert told.kind is ChangeKind.REFUSED


def test_a_new_copy_is_what_an_incompatible_partition_column_may_ask_for(tmp_path: Path) -> None:
    table = LocalTable(
        tmp_path, shape(k=pa.int64(), p=pa.int32(), v=pa.string()), partition_by=("p",)
    )
    later = shape(k=pa.int64(), p=pa.string(), v=pa.string())
    again = Policies(incompatible=Incompatible.RECOPY)
    detail = "from int32 to string: the table is copied again (incompatible: recopy)"
    assert planned_changes(table.table.snapshot(), later, again) == [
        ColumnChange(ChangeKind.RECOPY, "p", detail)
    ]


def test_a_partition_column_that_is_kept_stays_with_its_rows(tmp_path: Path) -> None:
    table = LocalTable(
        tmp_path, shape(k=pa.int64(), p=pa.int32(), v=pa.string()), partition_by=("p",)
    )
    write(table, 1, (1, 5, "x"), (2, 6, "x"))
    evolve(table, shape(k=pa.int64(), v=pa.string()), KEEP)
    table.schema = table.schema.keeping(kept_columns(table.table.snapshot()))
    write(table, 2, (3, "new"))
    write(table, 3, (2, "changed"), op="=U")
    rows = {row["k"]: (row["p"], row["v"]) for row in table.table.snapshot().to_table().to_pylist()}
    assert rows == {1: (5, "x"), 2: (6, "changed"), 3: (None, "new")}
    assert check_files(tmp_path, ["p"]) == 3
    # Nor does it give up its name, which another column of the source would take.
    back = replace(
        shape(k=pa.int64(), v=pa.string(), p=pa.int32()), numbers={"k": 107, "v": 118, "p": 9}
    )
    with pytest.raises(IncompatibleSchemaChange, match="the table is partitioned by it"):
        evolve_actions(table.table.snapshot(), back, KEEP)


@req("C12", "C43")
def test_a_new_copy_takes_the_place_with_the_folders_of_its_partitions(tmp_path: Path) -> None:
    old = typed(table_of(3), "c1", pa.int32())
    new = table_of(3)
    table = LocalTable(tmp_path / "public" / "t", old, partition_by=("c1",))
    changes = change_batch(old, [(1, n, "+I", (n, n % 3, "x")) for n in range(9)])
    table.apply(fold(old, [changes]), 1)
    aside = aside_path(tmp_path, "p", old.table)
    parts = Partitioning(("c1",), ("c1",))
    begin_copy(aside, new, "t", Copy("asked", 30), vectors=True, partitioning=parts)
    held = DeltaTable(aside).snapshot()
    texts = ["a b/%", None, "ü"]
    rows = [(1, n, "+R", (n, texts[n % 3], "y")) for n in range(9)]
    actions = commit_keyed(held, new, fold(new, [change_batch(new, rows)]), complete=False)
    put_commit(aside, 1, [{"txn": {"appId": "t", "version": 40}}, *actions])
    take_place(table.table.snapshot(), DeltaTable(aside).snapshot(), "t")
    assert table.content() == Counter((n, texts[n % 3], "y") for n in range(9))
    assert check_files(local(table.folder), ["c1"]) == 3
    entry = (local(table.folder) / "_delta_log" / f"{2:020d}.json").read_text().splitlines()
    (metadata,) = (m for line in entry if (m := json.loads(line).get("metaData")))
    assert metadata["partitionColumns"] == ["c1"]

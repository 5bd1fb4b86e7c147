"""Column settings through the applier: what the target has is what the expressions make of the source's rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.errors import (
    ConfigError,
    IncompatibleSchemaChange,
    MadeOtherwise,
    MissingBase,
    UnfitSettings,
    UnsentColumn,
)
from headrace.lake.delta_log import DeltaTable
from headrace.lake.modes import Mode
from headrace.lake.settings import TableSettings
from headrace.model.schema import KeyCheck, TableSchema
from headrace.spark.shaping import shaping_of
from headrace.testing.lives import random_life
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import lent
from tests.spark.test_modes import Bench

pytestmark = pytest.mark.spark

PEOPLE = TableSettings(
    drop=("c3",),
    rename=(("k", "id"), ("c1", "name")),
    mask=(("c2", "sha2(c2, 256)"),),
    compute=(("loud", "upper(c1)"), ("twice", "k * 2"), ("one", "1")),
)


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


def given(bench: Bench, settings: TableSettings, name: str = "t") -> None:
    old = bench.options.settings
    bench.options = replace(bench.options, settings=((f"public.{name}", settings), *old))


def cells(bench: Bench, schema: TableSchema, *names: str) -> list[tuple[Any, ...]]:
    held = DeltaTable(bench.folder(schema)).snapshot().to_table(list(names))
    return sorted(tuple(row.values()) for row in held.to_pylist())


def test_columns_are_dropped_renamed_masked_and_computed(bench: Bench) -> None:
    schema = table_of(4)
    given(bench, PEOPLE)
    bench.log.write(schema, "+I(1,ann,x,secret) +I(2,.,y,secret) +I(3,bob,z,secret)")
    bench.run(bench.log.complete(schema))
    held = DeltaTable(bench.folder(schema)).snapshot().to_table()
    assert held.schema.names == ["id", "name", "c2", "loud", "twice", "one"]
    # What the log leaves out is taken from the row, also under a new key, and what it makes too; in slices.
    bench.options = replace(bench.options, slice_rows=1)
    bench.run(bench.log.write(schema, "=U(1,eve,?,?) | -U(3) +U(4,?,w,?) | -D(2)"))
    assert cells(bench, schema, "id", "name", "loud", "twice", "one") == [
        (1, "eve", "EVE", 2, 1),
        (4, "bob", "BOB", 8, 1),
    ]
    digests = dict(cells(bench, schema, "id", "c2"))
    rows = bench.spark.sql("SELECT sha2('x', 256) AS x, sha2('w', 256) AS w").collect()[0]
    assert digests == {1: rows.x, 4: rows.w}


def settings_of(mode: Mode) -> TableSettings:
    return TableSettings(
        mode,
        rename=(("c1", "first"),),
        compute=(("odd", "k % 2 = 1"),),
        where="k < 5",
    )


@req("C-11")
def test_a_condition_on_the_key_leaves_the_rows_of_those_keys_in_every_mode(bench: Bench) -> None:
    """Random lives whose rows move in and out of the condition, whatever the cut and the check of keys."""
    rng = random.Random(11)
    lives = {}
    for mode in Mode:
        for check in (KeyCheck.IMMEDIATE, KeyCheck.DEFERRED):
            # Without columns left out: rows that come in by a patch are another test's matter.
            schema = table_of(2, check=check, name=f"f_{mode.value}_{check.value}")
            given(bench, settings_of(mode), schema.table.name)
            life = random_life(schema, rng, 10, whole=True)
            lives[schema] = life
            for transaction in life:
                bench.log.write(schema, transaction.notation)
            bench.log.complete(schema)
    middle = bench.log.scn // 20 * 10
    bench.run(middle, bench.log.scn)
    for schema, life in lives.items():
        wanted = [(k, c, k % 2 == 1) for k, c in life[-1].state.values() if k < 5]
        snapshot = DeltaTable(bench.folder(schema)).snapshot().to_table().to_pylist()
        name = schema.table.name
        if "append" in name:
            sent = [(op, cells[0]) for one in life for _, _, op, cells in one.rows]
            wanted_told = Counter((op, key) for op, key in sent if int(str(key)) < 5)
            told = Counter((row["_op"], row["k"]) for row in snapshot if row["_op"] != "T")
            assert told == wanted_told, name
            continue
        live = [
            (row["k"], row["first"], row["odd"])
            for row in snapshot
            if not row.get("_deleted") and row.get("_current", True)
        ]
        assert sorted(live) == sorted(wanted), name


def test_rows_leave_and_enter_a_condition(bench: Bench) -> None:
    schema = table_of(3)
    given(bench, TableSettings(where="c1 = 'open'"))
    bench.log.write(schema, "+I(1,open,a) +I(2,shut,b) +I(3,open,c) +I(4,.,d)")
    bench.run(bench.log.complete(schema))
    assert cells(bench, schema, "k") == [(1,), (3,)]
    bench.run(bench.log.write(schema, "=U(1,shut,?) | =U(2,open,e) | =U(3,open,?)"))
    assert cells(bench, schema, "k", "c2") == [(2, "e"), (3, "c")]
    # A row that comes in has to come whole.
    (error,) = bench.run(bench.log.write(schema, "=U(4,open,?)")).failing
    assert isinstance(error, MissingBase)
    bench.run(bench.log.write(schema, "+R(4,open,d)"))
    assert cells(bench, schema, "k", "c2") == [(2, "e"), (3, "c"), (4, "d")]


@pytest.mark.parametrize(
    ("settings", "setting", "columns"),
    [
        (TableSettings(compute=(("both", "concat(c1, c2)"),)), "compute of both", ["c2"]),
        (TableSettings(mask=(("c2", "concat(k, c2)"),)), "mask of c2", ["c2"]),
        (TableSettings(where="c2 <> 'x'"), "where", ["c2"]),
        (TableSettings(Mode.HISTORY, where="c2 <> 'x'"), "where", ["c2"]),
    ],
    ids=["compute", "mask", "where", "where of a history"],
)
def test_what_needs_a_column_that_was_left_out_says_so(
    bench: Bench, settings: TableSettings, setting: str, columns: list[str]
) -> None:
    schema = table_of(3)
    given(bench, settings)
    bench.log.write(schema, "+I(1,a,b)")
    bench.run(bench.log.complete(schema))
    (error,) = bench.run(bench.log.write(schema, "=U(1,x,?)")).failing
    assert isinstance(error, UnsentColumn)
    assert (error.table, error.setting, error.columns) == ("public.t", setting, columns)
    assert "REPLICA IDENTITY FULL" in error.next_step
    # What the next step brings.
    assert not bench.run(bench.log.write(schema, "=U(1,y,?) | +R(1,z,b)")).failing
    rows = cells(bench, schema, "c1", *(["_current"] if settings.mode is Mode.HISTORY else []))
    assert rows == ([("a", False), ("z", True)] if settings.mode is Mode.HISTORY else [("z",)])


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"drop": ("k",)}, "drop of public.t names k, which is part of the key"),
        ({"mask": (("k", "1"),)}, "mask of public.t names k, which is part of the key"),
        ({"drop": ("c9",)}, "drop of public.t names c9, which is no column"),
        ({"drop": ("c1",), "rename": (("c1", "d"),)}, "rename of public.t names c1, which is left"),
        ({"rename": (("c1", "C2"),)}, "rename or compute of public.t give c2 twice"),
        ({"compute": (("c1", "1"),)}, "rename or compute of public.t give c1 twice"),
        ({"compute": (("n", "upper(c9)"),)}, "compute of n of public.t .*UNRESOLVED_COLUMN"),
        ({"compute": (("n", "upper(c1"),)}, "compute of n of public.t .*PARSE_SYNTAX_ERROR"),
        ({"compute": (("n", "sum(k)"),)}, "compute of n of public.t .*UNSUPPORTED_EXPR"),
        ({"compute": (("n", "k + rand()"),)}, "compute of n .*NON_DETERMINISTIC"),
        (
            {"compute": (("n", "Now()"),)},
            "compute of n of public.t says now, which is not the same",
        ),
        ({"compute": (("n", "(select 1)"),)}, "compute of n of public.t says select"),
        (
            {"compute": (("n", "array(k)"),)},
            "compute of n of public.t gives the type array<bigint>",
        ),
        ({"where": "k + 1"}, "where of public.t is no condition"),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(
    spark: SparkSession, settings: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        shaping_of(spark, table_of(3), TableSettings(**settings))


def test_an_expression_knows_the_columns_that_it_reads(spark: SparkSession) -> None:
    schema = table_of(12)
    settings = TableSettings(
        compute=(
            ("a", "concat('c2 now()', C1, `c11`)"),
            ("b", "'c1'"),
            ("d", "transform(array(k), c1 -> c1)[0]"),
        )
    )
    shaping = shaping_of(spark, schema, settings)
    assert [output.made.inputs for output in shaping.outputs[-3:]] == [(1, 11), (), (0,)]


def test_settings_that_the_table_was_not_made_with_are_refused(bench: Bench) -> None:
    schema = table_of(3)
    given(bench, TableSettings(drop=("c1",)))
    bench.log.write(schema, "+I(1,a,b)")
    bench.run(bench.log.complete(schema))
    bench.options = replace(bench.options, settings=(("*", TableSettings(drop=("c2",))),))
    (error,) = bench.run(bench.log.scn).failing
    assert isinstance(error, MadeOtherwise)
    assert "was made as mirror:" in error.message


@req("C-17")
def test_names_that_delta_has_not_are_refused_until_a_setting_maps_them(bench: Bench) -> None:
    """headrace changes no name by itself, so that two never meet by its doing: a person maps them."""
    k, one, two = table_of(3).columns
    odd = replace(table_of(3), columns=(k, replace(one, name="unit price"), two))
    bench.log.write(odd, "+I(1,a,b)")
    end = bench.log.complete(odd)
    (error,) = bench.run(end).failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert "public.t.unit price has a character in its name" in error.message
    assert 'tables: {"public.t": {rename: {"unit price": …}}}' in error.next_step
    given(bench, TableSettings(rename=(("unit price", "C2"),)))
    (unfit,) = bench.run(end).failing
    assert isinstance(unfit, UnfitSettings)
    assert "rename or compute of public.t give c2 twice" in unfit.message
    given(bench, TableSettings(rename=(("unit price", "price"),)))
    assert not bench.run(end).failing
    assert cells(bench, odd, "k", "price", "c2") == [(1, "a", "b")]


@req("C-17")
def test_names_that_differ_by_case_alone_are_refused(bench: Bench) -> None:
    k, one, two = table_of(3).columns
    twins = replace(table_of(3), columns=(k, replace(one, name="Note"), replace(two, name="note")))
    bench.log.write(twins, "+I(1,a,b)")
    (error,) = bench.run(bench.log.complete(twins)).failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert "public.t.note differs from Note by case alone" in error.message
    assert "source.columns" in error.next_step


@req("C-17")
@pytest.mark.parametrize("name", ["a/b", "..", "."])
def test_a_table_whose_name_is_no_folder_of_its_own_is_refused(bench: Bench, name: str) -> None:
    """Two tables would meet in one folder: b of the schema a/c, and c/b of the schema a."""
    schema = table_of(2, name=name)
    bench.log.write(schema, "+I(1,a)")
    (error,) = bench.run(bench.log.complete(schema)).failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert f"public.{name}" in error.message
    assert "source.exclude" in error.next_step


@req("C11", "C19")
def test_a_column_that_settings_name_and_the_source_renames_stops_its_table_alone(
    bench: Bench,
) -> None:
    """A mask that names no column any more must not let the column pass, nor hold up anybody else."""
    before, other = table_of(3), table_of(2, name="other")
    columns = (*before.columns[:2], replace(before.columns[2], name="mail"))
    after = replace(before, columns=columns)
    masked = TableSettings(mask=(("c2", "sha2(c2, 256)"),))
    given(bench, masked)
    for schema in (before, other):
        bench.log.announce(schema, {name: at for at, name in enumerate(schema.names, 1)})
    bench.log.write(before, "+I(1,a,b)")
    bench.log.write(other, "+I(1,a)")
    bench.log.complete(other)
    bench.run(bench.log.complete(before))
    bench.log.announce(after, {name: at for at, name in enumerate(after.names, 1)})
    bench.log.write(after, "+I(2,c,secret)")
    end = bench.log.write(other, "+I(2,b)")

    applier = bench.run(end)
    (error,) = applier.failing
    assert isinstance(error, UnfitSettings)
    assert error.message == "tables: mask of public.t names c2, which is no column of the table."
    states = {name: table.state for name, table in applier.status.tables.items()}
    assert states == {"public.t": "failing", "public.other": "live"}
    assert cells(bench, other, "k", "c1") == [(1, "a"), (2, "b")]
    assert len(cells(bench, before, "k")) == 1
    # The same at each start, until the settings name the column as the source does.
    assert [type(error) for error in bench.run(end).failing] == [UnfitSettings]

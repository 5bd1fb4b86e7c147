"""Column settings and policies through the applier into warehouses, over restarts and crashes."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from headrace.errors import MissingBase, UnsentColumn
from headrace.lake.modes import Mode
from headrace.lake.policies import Policies
from headrace.lake.settings import TableSettings
from headrace.model.block import SystemKind
from headrace.model.schema import KeyCheck, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.testing.lives import random_life
from headrace.testing.notation import table_of
from tests.lake.sql.warehouses import content
from tests.requirements import req
from tests.spark.policies import DROP, KEEP, NARROW, NEW, NUMBERS, OLD, RETYPED, Crash, T, crash
from tests.spark.subjects import PIPELINE
from tests.spark.test_modes_in_warehouses import CRASHES, InWarehouse, bench
from tests.spark.test_shaped import PEOPLE, settings_of

__all__ = ["bench"]

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


def given(bench: InWarehouse, settings: TableSettings, name: str = "t") -> None:
    old = bench.options.settings
    bench.options = replace(bench.options, settings=((f"public.{name}", settings), *old))


def rows(bench: InWarehouse, schema: TableSchema) -> list[dict[str, Any]]:
    held: list[dict[str, Any]] = content(bench.subject.warehouse, schema, PIPELINE).to_pylist()
    return held


def cells(bench: InWarehouse, schema: TableSchema, *names: str) -> list[tuple[Any, ...]]:
    return sorted(tuple(row[name] for name in names) for row in rows(bench, schema))


def test_columns_are_dropped_renamed_masked_and_computed(bench: InWarehouse) -> None:
    schema = table_of(4)
    given(bench, PEOPLE)
    bench.log.write(schema, "+I(1,ann,x,secret) +I(2,.,y,secret) +I(3,bob,z,secret)")
    bench.run(bench.log.complete(schema))
    assert list(rows(bench, schema)[0]) == ["id", "name", "c2", "loud", "twice", "one"]
    # What the log leaves out is taken from the row, also under a new key, and what it makes too.
    assert not bench.run(
        bench.log.write(schema, "=U(1,eve,?,?) | -U(3) +U(4,?,w,?) | -D(2)")
    ).failing
    assert cells(bench, schema, "id", "name", "loud", "twice", "one") == [
        (1, "eve", "EVE", 2, 1),
        (4, "bob", "BOB", 8, 1),
    ]
    digests = bench.spark.sql("SELECT sha2('x', 256) AS x, sha2('w', 256) AS w").collect()[0]
    assert cells(bench, schema, "id", "c2") == [(1, digests.x), (4, digests.w)]


@req("C-11")
def test_a_condition_on_the_key_leaves_the_rows_of_those_keys_in_every_mode(
    bench: InWarehouse,
) -> None:
    rng = random.Random(11)
    lives = {}
    for mode in Mode:
        schema = table_of(2, check=KeyCheck.IMMEDIATE, name=f"f_{mode.value}")
        given(bench, settings_of(mode), schema.table.name)
        lives[schema] = random_life(schema, rng, 8, whole=True)
        for transaction in lives[schema]:
            bench.log.write(schema, transaction.notation)
        bench.log.complete(schema)
    middle = bench.log.scn // 20 * 10
    bench.run(middle, bench.log.scn)
    for schema, life in lives.items():
        held = rows(bench, schema)
        if "append" in schema.table.name:
            sent = [(op, cells[0]) for one in life for _, _, op, cells in one.rows]
            wanted = Counter((op, key) for op, key in sent if int(str(key)) < 5)
            assert Counter((r["_op"], r["k"]) for r in held if r["_op"] != "T") == wanted
            continue
        live = [
            (row["k"], row["first"], row["odd"])
            for row in held
            if not row.get("_deleted") and row.get("_current", True)
        ]
        state = life[-1].state.values()
        assert sorted(live) == sorted((k, c, k % 2 == 1) for k, c in state if k < 5), schema.table


def test_what_needs_a_column_that_was_left_out_says_so(bench: InWarehouse) -> None:
    schema = table_of(3)
    given(bench, TableSettings(where="c2 = 'b'"))
    bench.log.write(schema, "+I(1,a,b) +I(2,a,c)")
    bench.run(bench.log.complete(schema))
    (error,) = bench.run(bench.log.write(schema, "=U(1,x,?)")).failing
    assert isinstance(error, UnsentColumn)
    (error,) = bench.run(bench.log.write(schema, "+R(1,x,b) | =U(2,?,b)")).failing
    assert isinstance(error, MissingBase)
    assert not bench.run(bench.log.write(schema, "+R(2,y,b)")).failing
    assert cells(bench, schema, "k", "c1") == [(1, "x"), (2, "y")]


def announce(bench: InWarehouse, schema: TableSchema) -> int:
    return bench.log.announce(schema, {name: NUMBERS[name] for name in schema.names})


def begun(bench: InWarehouse, policies: Policies) -> None:
    given(bench, TableSettings(policies=policies))
    announce(bench, OLD)
    bench.log.write(OLD, "+R(1,a1,b1) +R(2,a2,b2) +R(3,a3,b3)")
    bench.run(bench.log.complete(OLD))


@req("C12", "C30", "C43", "C45")
def test_a_column_of_another_type_is_put_aside_and_the_new_one_filled(bench: InWarehouse) -> None:
    begun(bench, NEW)
    announce(bench, RETYPED)
    ends = [bench.log.write(RETYPED, "=U(1,A1,?) | +I(4,a4,40)")]
    ends.append(bench.log.write(RETYPED, "+R(1,A1,10) +R(2,a2,20) +R(3,a3,30) | -D(3)"))
    for place in CRASHES[bench.subject.kind]:
        arm(place, crash)
        with pytest.raises(Crash):
            bench.run(*ends)
        disarm()
    assert not bench.run(*ends).failing
    # A restart knows the kept column, too.
    assert not bench.run(bench.log.write(RETYPED, "-U(1) +U(9,?,?) | +R(4,y,41)")).failing
    assert cells(bench, RETYPED, "k", "a", "b_was_string", "b") == [
        (2, "a2", "b2", b"20"),
        (4, "y", None, b"41"),
        (9, "A1", "b1", b"10"),
    ]


@req("C30")
def test_a_dropped_column_stays_with_its_rows(bench: InWarehouse) -> None:
    begun(bench, KEEP)
    announce(bench, NARROW)
    applier = bench.run(bench.log.write(NARROW, "=U(1,A1) | +I(4,a4) | -D(2) | +I(2,a5)"))
    assert not applier.failing
    found = {row["k"]: (row["a"], row["b"]) for row in rows(bench, NARROW)}
    assert found == {1: ("A1", "b1"), 2: ("a5", None), 3: ("a3", "b3"), 4: ("a4", None)}


@req("C30", "C-11")
def test_a_dropped_table_goes_with_its_position(bench: InWarehouse) -> None:
    begun(bench, DROP)
    bench.run(bench.log.tell(SystemKind.DROP_TABLE, T, identity="7"))
    assert bench.subject.target.state(T) is None
    with bench.subject.warehouse.opened(read_only=True) as session:
        found = session.rows(
            "SELECT count(*) FROM information_schema.tables WHERE table_name = 't'"
        )
    assert found == [(0,)]

"""Tables that are copied again: readers see the old rows or the new ones, whatever the cut and the crash."""

from __future__ import annotations

import contextlib
import random
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.lake.aside import aside_path
from headrace.model.block import SystemKind
from headrace.model.schema import TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.testing.lives import Transaction, random_life
from headrace.testing.notation import table_of
from tests.places import local
from tests.requirements import req
from tests.spark.policies import (
    NARROW,
    RECOPY,
    RETYPED,
    Bench,
    Crash,
    T,
    announce,
    begun,
    crash,
    shape,
)

pytestmark = pytest.mark.spark


@req("C30")
def test_a_table_that_is_copied_again_shows_old_rows_until_the_new_ones_are_whole(
    policed: Bench,
) -> None:
    policed.policies(RECOPY)
    begun(policed)
    before = policed.rows()
    announce(policed, RETYPED)
    policed.run(policed.log.write(RETYPED, "=U(1,A1,?) | +I(4,a4,40)"))
    assert (policed.rows(), policed.state(), policed.asked) == (before, "copying", ["asked 1"])
    # The end of a dump that began before the copy did.
    policed.run(policed.dumped(RETYPED, "+R(3,a3,30)", "first"))
    assert (policed.rows(), policed.state()) == (before, "copying")
    policed.run(policed.log.write(RETYPED, "+R(1,A1,10) +R(2,a2,20) +R(3,a3,30)"))
    assert (policed.rows(), policed.state()) == (before, "copying")
    end = policed.dumped(RETYPED, "+R(4,a4,40) | -D(2)", "asked 1")
    policed.run(end)
    assert (
        policed.rows()
        == policed.in_spark()
        == [
            {"k": 1, "a": "A1", "b": b"10"},
            {"k": 3, "a": "a3", "b": b"30"},
            {"k": 4, "a": "a4", "b": b"40"},
        ]
    )
    assert (policed.state(), policed.entry().applied_scn) == ("live", end)
    assert not local(aside_path(policed.lake, "test", T)).exists()
    # Versions from before are what they were; the table goes on as any other.
    policed.run(policed.log.write(RETYPED, "=U(1,?,11)"))
    assert policed.rows()[0] == {"k": 1, "a": "A1", "b": b"11"}


def test_a_table_that_is_copied_again_is_not_maintained_meanwhile(policed: Bench) -> None:
    policed.policies(RECOPY)
    policed.options = replace(policed.options, maintenance=None)
    begun(policed)
    offered: list[set[Any]] = []
    for write in (lambda: None, lambda: announce(policed, RETYPED)):
        write()
        applier = policed.run(policed.log.write(RETYPED, "=U(1,A1,?)") if offered else 0)

        class Asked:
            is_due = True

            def between_batches(self, tables: dict[Any, int]) -> dict[Any, Any]:
                offered.append(set(tables))
                return {}

        applier._maintenance = Asked()  # type: ignore[assignment]
        applier.maintain()
    assert offered == [{T}, set()]


def test_a_mapped_table_is_copied_again_and_spark_reads_it(policed: Bench) -> None:
    policed.policies(RECOPY)
    begun(policed)
    announce(policed, NARROW)
    policed.run(policed.log.write(NARROW, "=U(1,A1)"))
    binary = shape(a=pa.binary())
    announce(policed, binary)
    policed.run(policed.log.write(binary, "+R(1,A1) +R(2,a2)"))
    policed.run(policed.dumped(binary, "+R(3,a3) | =U(1,x)", "asked 1"))
    wanted = [{"k": 1, "a": b"x"}, {"k": 2, "a": b"a2"}, {"k": 3, "a": b"a3"}]
    assert policed.rows() == policed.in_spark() == wanted
    # Columns can go on coming and going.
    wide = shape(a=pa.binary(), b=pa.string())
    announce(policed, wide)
    policed.run(policed.log.write(wide, "=U(3,?,new)"))
    assert policed.rows() == policed.in_spark()
    assert policed.rows()[2] == {"k": 3, "a": b"a3", "b": "new"}


def test_a_type_that_changes_again_begins_the_copy_again(policed: Bench) -> None:
    policed.policies(RECOPY)
    begun(policed)
    announce(policed, RETYPED)
    policed.run(policed.log.write(RETYPED, "+R(1,a1,10)"))
    flag = shape(a=pa.binary(), b=pa.binary())
    announce(policed, flag)
    late = policed.dumped(flag, "+I(5,a5,50)", "asked 1")
    policed.run(late)
    assert (policed.state(), policed.asked) == ("copying", ["asked 1", "asked 2"])
    policed.run(policed.dumped(flag, "+R(1,a1,10)", "asked 2"))
    assert [(row["k"], row["a"]) for row in policed.rows()] == [(1, b"a1"), (5, b"a5")]


def lived(policed: Bench, schema: TableSchema, life: list[Transaction]) -> list[int]:
    """Append a life, and return the SCNs of its transactions."""
    return [policed.log.write(schema, transaction.notation) for transaction in life]


def shown(policed: Bench) -> set[tuple[Any, ...]]:
    """Return the rows that readers see, all cells as text."""
    return {
        tuple(cell.decode() if isinstance(cell, bytes) else cell for cell in row.values())
        for row in policed.rows()
    }


def copied_through(policed: Bench, rng: random.Random) -> None:
    """Let a table live, change a type, and live on while it is copied again, with random cuts and crashes."""
    policed.policies(RECOPY)
    old = table_of(3)
    new = replace(old, columns=(*old.columns[:2], replace(old.columns[2], type=pa.binary())))
    first, second = random_life(old, rng, 6), random_life(new, rng, 10)
    policed.log.announce(old)
    lived(policed, old, first)
    policed.run(policed.log.complete(old))
    before = set(first[-1].state.values())
    assert shown(policed) == before
    policed.log.announce(new)
    whole = rng.randrange(1, len(second))
    ends = lived(policed, new, second[:whole])
    done = policed.log.tell(
        SystemKind.DUMP_COMPLETE,
        T,
        schema_id=policed.log.registry.put(new),
        request_id="asked 1",
    )
    later = lived(policed, new, second[whole:])
    for name in rng.sample(policed.crashes, 3):
        ends = sorted(rng.sample(ends, rng.randrange(len(ends) + 1)))
        arm(name, crash)
        with contextlib.suppress(Crash):
            policed.run(*(ends or [done - 10]))
        disarm()
        assert shown(policed) == before
        assert policed.state() in ("live", "copying")
    arm(rng.choice(policed.crashes), crash)
    with contextlib.suppress(Crash):
        policed.run(*rng.choice([[done], [later[-1]], later]))
    disarm()
    # The old rows or the new ones, and nothing between.
    among = {frozenset(one.state.values()) for one in second[whole - 1 :]}
    assert shown(policed) == before or frozenset(shown(policed)) in among
    policed.run(later[-1])
    assert shown(policed) == set(second[-1].state.values())
    assert (policed.state(), policed.asked[:1]) == ("live", ["asked 1"])


@req("C12", "C43")
@pytest.mark.parametrize("seed", range(1))
def test_random_lives_are_copied_again_whatever_the_cut_and_the_crash(
    policed: Bench, seed: int
) -> None:
    copied_through(policed, random.Random(seed))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(1, 60))
def test_many_random_lives_are_copied_again(policed: Bench, seed: int) -> None:
    copied_through(policed, random.Random(seed))

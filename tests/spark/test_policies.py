"""What target tables do when their sources change, by policy, through the applier: any cut, any crash."""

from __future__ import annotations

import contextlib
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.errors import ConfigError, IncompatibleSchemaChange
from headrace.lake.aside import aside_path
from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore, TableEntry
from headrace.lake.modes import Mode
from headrace.lake.policies import Dropped, Incompatible, Policies
from headrace.lake.settings import TableSettings
from headrace.model.block import SystemKind
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.model.succession import column_number
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.targets.merge import MergeTarget
from headrace.testing.lives import Transaction, random_life
from headrace.testing.notation import table_of
from tests.requirements import req
from tests.spark.log import Log

pytestmark = pytest.mark.spark

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
        applier = Applier(self.options, kind(self.spark, self.lake, "test"), ask=self.ask)
        try:
            start = applier.begin()
            begin = start.from_scn
            for end in ends:
                end = max(end, start.first_end)
                if end > begin:
                    applier.process(begin, end)
                    begin = end
        finally:
            applier.close()
        return applier

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


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    made = Bench(spark, tmp_path)
    yield made
    disarm()
    made.log.writer.close()


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


@req("C30", "C45")
@pytest.mark.parametrize("together", [True, False])
def test_a_column_of_another_type_is_put_aside_and_the_new_one_filled(
    bench: Bench, together: bool
) -> None:
    bench.policies(NEW)
    begun(bench)
    last = bench.log.write(OLD, "=U(1,A1,?)")
    announce(bench, RETYPED)
    middle = bench.log.write(RETYPED, "=U(2,A2,?) | +I(4,a4,40)")
    end = bench.dumped(RETYPED, "+R(1,A1,10) +R(2,A2,20) | -D(3)", "again")
    bench.run(end) if together else bench.run(last, middle, end)
    assert (
        bench.rows()
        == bench.in_spark()
        == [
            {"k": 1, "a": "A1", "b_was_string": "b1", "b": b"10"},
            {"k": 2, "a": "A2", "b_was_string": "b2", "b": b"20"},
            {"k": 4, "a": "a4", "b_was_string": None, "b": b"40"},
        ]
    )
    assert bench.state() == "live"
    # A restart knows the kept column, too.
    bench.run(bench.log.write(RETYPED, "-U(1) +U(9,?,?) | =U(2,x,?) | +R(4,y,41)"))
    assert bench.rows() == [
        {"k": 2, "a": "x", "b_was_string": "b2", "b": b"20"},
        {"k": 4, "a": "y", "b_was_string": None, "b": b"41"},
        {"k": 9, "a": "A1", "b_was_string": "b1", "b": b"10"},
    ]


@req("C30")
def test_a_type_that_changes_amid_a_transaction_keeps_the_table_going(bench: Bench) -> None:
    bench.policies(NEW)
    begun(bench)
    announce(bench, RETYPED)
    bench.run(bench.log.write(RETYPED, "+R(1,a1,10) +R(2,a2,20) +R(3,a3,30)"))
    assert [row["b"] for row in bench.rows()] == [b"10", b"20", b"30"]


@req("C30")
def test_a_dropped_column_stays_with_its_rows(bench: Bench) -> None:
    bench.policies(KEEP)
    begun(bench)
    announce(bench, NARROW)
    bench.run(bench.log.write(NARROW, "=U(1,A1) | +I(4,a4) | -D(2) | +I(2,a5)"))
    assert (
        bench.rows()
        == bench.in_spark()
        == [
            {"k": 1, "a": "A1", "b": "b1"},
            {"k": 2, "a": "a5", "b": None},
            {"k": 3, "a": "a3", "b": "b3"},
            {"k": 4, "a": "a4", "b": None},
        ]
    )


@pytest.mark.parametrize(
    "mode",
    [
        Mode.HISTORY,
        *(pytest.param(m, marks=pytest.mark.long) for m in (Mode.APPEND, Mode.SOFT_DELETE)),
    ],
)
def test_rows_of_other_modes_have_the_columns_of_their_time(bench: Bench, mode: Mode) -> None:
    bench.policies(NEW, mode)
    begun(bench)
    announce(bench, RETYPED)
    assert not bench.run(bench.log.write(RETYPED, "=U(1,A1,11)")).failing
    found = Counter((row["k"], row["b_was_string"], row["b"]) for row in bench.rows())
    assert found[1, None, b"11"] == 1
    assert found[3, "b3", None] == 1
    # What was before is kept as it was, where the mode keeps it.
    assert found[1, "b1", None] == (0 if mode is Mode.SOFT_DELETE else 1)


def test_without_a_policy_the_table_stops_and_keeps_its_rows(bench: Bench) -> None:
    begun(bench)
    before = bench.rows()
    announce(bench, RETYPED)
    (error,) = bench.run(bench.log.write(RETYPED, "+R(1,a1,10)")).failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert (bench.rows(), bench.state(), bench.asked) == (before, "failing", [])


@req("C30", "C45")
def test_a_table_that_is_copied_again_shows_old_rows_until_the_new_ones_are_whole(
    bench: Bench,
) -> None:
    bench.policies(RECOPY)
    begun(bench)
    before = bench.rows()
    announce(bench, RETYPED)
    bench.run(bench.log.write(RETYPED, "=U(1,A1,?) | +I(4,a4,40)"))
    assert (bench.rows(), bench.state(), bench.asked) == (before, "copying", ["asked 1"])
    # The end of a dump that began before the copy did.
    bench.run(bench.dumped(RETYPED, "+R(3,a3,30)", "first"))
    assert (bench.rows(), bench.state()) == (before, "copying")
    bench.run(bench.log.write(RETYPED, "+R(1,A1,10) +R(2,a2,20) +R(3,a3,30)"))
    assert (bench.rows(), bench.state()) == (before, "copying")
    end = bench.dumped(RETYPED, "+R(4,a4,40) | -D(2)", "asked 1")
    bench.run(end)
    assert (
        bench.rows()
        == bench.in_spark()
        == [
            {"k": 1, "a": "A1", "b": b"10"},
            {"k": 3, "a": "a3", "b": b"30"},
            {"k": 4, "a": "a4", "b": b"40"},
        ]
    )
    assert (bench.state(), bench.entry().applied_scn) == ("live", end)
    assert not aside_path(bench.lake, "test", T).exists()
    # Versions from before are what they were; the table goes on as any other.
    bench.run(bench.log.write(RETYPED, "=U(1,?,11)"))
    assert bench.rows()[0] == {"k": 1, "a": "A1", "b": b"11"}


def test_a_type_that_changes_again_begins_the_copy_again(bench: Bench) -> None:
    bench.policies(RECOPY)
    begun(bench)
    announce(bench, RETYPED)
    bench.run(bench.log.write(RETYPED, "+R(1,a1,10)"))
    flag = shape(a=pa.binary(), b=pa.binary())
    announce(bench, flag)
    late = bench.dumped(flag, "+I(5,a5,50)", "asked 1")
    bench.run(late)
    assert (bench.state(), bench.asked) == ("copying", ["asked 1", "asked 2"])
    bench.run(bench.dumped(flag, "+R(1,a1,10)", "asked 2"))
    assert [(row["k"], row["a"]) for row in bench.rows()] == [(1, b"a1"), (5, b"a5")]


def crash() -> None:
    raise Crash


@req("C12", "C43")
@pytest.mark.parametrize(
    ("policies", "name"),
    [
        pytest.param(policies, name, marks=() if (policies, name) in OFTEN else pytest.mark.long)
        for policies in (NEW, RECOPY)
        for name in CRASHES
    ],
)
def test_a_crash_at_any_step_changes_nothing(bench: Bench, policies: Policies, name: str) -> None:
    rng = random.Random(name)
    bench.policies(policies)
    begun(bench)
    announce(bench, RETYPED)
    ends = [bench.log.write(RETYPED, "=U(1,A1,?) | +I(4,a4,40)")]
    ends.append(bench.log.write(RETYPED, "+R(1,A1,10) +R(2,a2,20)"))
    ends.append(bench.dumped(RETYPED, "+R(3,a3,30) +R(4,a4,40) | -D(2)", "asked 1"))
    ends.append(bench.log.write(RETYPED, "=U(3,A3,?)"))
    while True:
        passes = rng.randrange(1, 4)

        def after_some() -> None:
            nonlocal passes
            passes -= 1
            if not passes:
                crash()

        arm(name, after_some)
        try:
            bench.run(*ends)
        except Crash:
            ends = ends[rng.randrange(2) :] or ends
        else:
            break
        finally:
            disarm()
        if rng.random() < 0.3:
            break
    applier = bench.run(ends[-1])
    assert not applier.failing
    kept = {1: "b1", 3: "b3", 4: None}
    found = [(row["k"], row["a"], row["b"]) for row in bench.rows()]
    assert found == [(1, "A1", b"10"), (3, "A3", b"30"), (4, "a4", b"40")]
    if policies is NEW:
        assert {row["k"]: row["b_was_string"] for row in bench.rows()} == kept
    assert bench.state() == "live"


def lived(bench: Bench, schema: TableSchema, life: list[Transaction]) -> list[int]:
    """Append a life, and return the SCNs of its transactions."""
    return [bench.log.write(schema, transaction.notation) for transaction in life]


def shown(bench: Bench) -> set[tuple[Any, ...]]:
    """Return the rows that readers see, all cells as text."""
    return {
        tuple(cell.decode() if isinstance(cell, bytes) else cell for cell in row.values())
        for row in bench.rows()
    }


def copied_through(bench: Bench, rng: random.Random) -> None:
    """Let a table live, change a type, and live on while it is copied again, with random cuts and crashes."""
    bench.policies(RECOPY)
    old = table_of(3)
    new = replace(old, columns=(*old.columns[:2], replace(old.columns[2], type=pa.binary())))
    first, second = random_life(old, rng, 6), random_life(new, rng, 10)
    bench.log.announce(old)
    lived(bench, old, first)
    bench.run(bench.log.complete(old))
    before = set(first[-1].state.values())
    assert shown(bench) == before
    bench.log.announce(new)
    whole = rng.randrange(1, len(second))
    ends = lived(bench, new, second[:whole])
    done = bench.log.tell(
        SystemKind.DUMP_COMPLETE,
        T,
        schema_id=bench.log.registry.put(new),
        request_id="asked 1",
    )
    later = lived(bench, new, second[whole:])
    for name in rng.sample(CRASHES, 3):
        ends = sorted(rng.sample(ends, rng.randrange(len(ends) + 1)))
        arm(name, crash)
        with contextlib.suppress(Crash):
            bench.run(*(ends or [done - 10]))
        disarm()
        assert shown(bench) == before
        assert bench.state() in ("live", "copying")
    arm(rng.choice(CRASHES), crash)
    with contextlib.suppress(Crash):
        bench.run(*rng.choice([[done], [later[-1]], later]))
    disarm()
    # The old rows or the new ones, and nothing between.
    among = {frozenset(one.state.values()) for one in second[whole - 1 :]}
    assert shown(bench) == before or frozenset(shown(bench)) in among
    bench.run(later[-1])
    assert shown(bench) == set(second[-1].state.values())
    assert (bench.state(), bench.asked[:1]) == ("live", ["asked 1"])


@req("C12", "C43", "C45")
@pytest.mark.parametrize("seed", range(1))
def test_random_lives_are_copied_again_whatever_the_cut_and_the_crash(
    bench: Bench, seed: int
) -> None:
    copied_through(bench, random.Random(seed))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(1, 60))
def test_many_random_lives_are_copied_again(bench: Bench, seed: int) -> None:
    copied_through(bench, random.Random(seed))


@pytest.mark.parametrize(
    ("policies", "said"), [(KEEP, "columns that the source no longer has"), (RECOPY, "a new copy")]
)
def test_a_target_that_cannot_go_on_with_a_table_says_so(
    bench: Bench, policies: Policies, said: str
) -> None:
    bench.policies(policies)
    begun(bench)
    later = NARROW if policies is KEEP else RETYPED
    announce(bench, later)
    bench.run(bench.log.write(later, "+I(8,a)" if policies is KEEP else "+I(8,a,b)"))
    before = bench.rows()
    bench.policies(Policies())
    bench.merges = True
    with pytest.raises(ConfigError, match=f"public.t has {said}.* which the target merge cannot"):
        bench.run(bench.log.write(later, "-D(1)"))
    assert bench.rows() == before


@req("C30", "C-11")
def test_a_dropped_table_goes_by_policy_and_comes_back_by_itself(bench: Bench) -> None:
    bench.policies(DROP)
    begun(bench)
    other = table_of(2, name="other")
    bench.run(bench.log.write(other, "+I(1,a)"))
    gone = bench.log.tell(SystemKind.DROP_TABLE, T, identity="7")
    applier = bench.run(gone)
    assert not (bench.lake / "public" / "t").exists()
    assert (bench.entry().state, bench.entry().version) == ("left", -1)
    assert "dropped at the source" in bench.entry().reason
    said = applier.status.tables[str(T)].error
    assert said is not None
    assert said["next_step"].startswith("there is no target table")
    # A restart knows it, and holds nothing back for it.
    assert bench.run(bench.log.write(other, "+I(2,b)")).status.frontier_scn == bench.log.scn
    bench.log.tell(SystemKind.TRUNCATE, T, anew=True)
    announce(bench, OLD)
    bench.run(bench.dumped(OLD, "+R(8,a8,b8)", "second"))
    assert (bench.rows(), bench.state()) == ([{"k": 8, "a": "a8", "b": "b8"}], "live")


@pytest.mark.parametrize("name", ["apply.before_manifest", "apply.after_manifest"])
def test_a_crash_around_the_end_of_a_table_is_made_good(bench: Bench, name: str) -> None:
    bench.policies(DROP)
    begun(bench)
    gone = bench.log.tell(SystemKind.DROP_TABLE, T, identity="7")
    arm(name, crash)
    with pytest.raises(Crash):
        bench.run(gone)
    disarm()
    assert (bench.lake / "public" / "t").exists()
    bench.run(gone)
    assert bench.run(bench.log.write(table_of(2, name="other"), "+I(1,a)")).failing == []
    assert not (bench.lake / "public" / "t").exists()
    assert bench.state() == "left"


@req("C30")
@pytest.mark.parametrize("kind", ["kept", "renamed", "in one batch made anew"])
def test_a_table_stays_when_it_is_not_surely_gone(bench: Bench, kind: str) -> None:
    bench.policies(Policies() if kind == "kept" else DROP)
    begun(bench)
    before = bench.rows()
    if kind == "renamed":
        bench.log.tell(SystemKind.RENAME_TABLE, T, identity="7", to="public.u")
    else:
        bench.log.tell(SystemKind.DROP_TABLE, T, identity="7")
    if kind == "in one batch made anew":
        bench.log.tell(SystemKind.TRUNCATE, T, anew=True)
        bench.run(bench.log.scn)
        assert (bench.rows(), bench.state()) == ([], "copying")
        return
    bench.run(bench.log.scn)
    assert (bench.rows(), bench.state()) == (before, "left")

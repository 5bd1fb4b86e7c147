"""Batches of a change log through the applier: any cut, any replay, any crash gives the source's table."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.changelog.jobs import jobs
from headrace.errors import ChangeLogLost, IncompatibleSchemaChange, MissingBase, ProtocolError
from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import Applier, ApplyOptions
from headrace.spark.targets.base import Target
from headrace.spark.targets.delta import DeltaTarget
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.places import local
from tests.requirements import req
from tests.spark.folded import run_to
from tests.spark.log import Log, lent, model

pytestmark = pytest.mark.spark

Rows = Counter[tuple[object, ...]]


class Crash(BaseException):
    """The process ends here."""


class Bench:
    """A change log, a lake, and appliers that come and go."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.log = Log(folder / "changelog")
        self.lake = folder / "lake"
        self.options = ApplyOptions("test", self.log.folder, self.lake)
        self.target: Target = DeltaTarget(spark, self.lake, "test")
        self.frontier = FrontierStore(self.lake, "test")

    def run(self, *ends: int) -> Applier:
        """Start a fresh applier, as after a restart, and apply up to each end in turn."""
        return run_to(self.options, self.target, *ends)

    def rows(self, schema: TableSchema, version: int | None = None) -> Rows:
        folder = self.lake / schema.table.schema / schema.table.name
        return Counter(
            tuple(row.values())
            for row in DeltaTable(folder).snapshot(version).to_table().to_pylist()
        )

    def commits(self, schema: TableSchema) -> int:
        state = self.target.state(schema.table)
        return state.version if state else -1


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


# The design's own examples: every statement is one transaction.
KEYED = (
    "+I(0,alice) | -U(0,alice) +U(1,alice) | -U(1,alice) +U(2,alice) | -D(2) | "
    "+I(0,Alice) +I(1,blob) | -U(1,blob) +U(1,Bob)"
)
KEYLESS = (
    "+I(0,alice) +I(0,alice) +I(0,Bob) | -U(0,alice) +U(0,Alyce) -U(0,alice) +U(0,Alyce) | "
    "-U(0,Alyce) +U(0,Alice) -U(0,Alyce) +U(0,Alice) | -D(0,Alice) -D(0,Alice)"
)


def legal_states(schema: TableSchema, history: str) -> list[Rows]:
    """Return the empty table and what each transaction of a history leaves."""
    parts = history.split("|")
    states = (model(schema, *parts[: count + 1]) for count in range(len(parts)))
    return [Counter(), *states]


def apply_at_every_cut(bench: Bench, tables: list[TableSchema], history: str) -> None:
    """Give each table its history and cut the batches after another transaction of each."""
    cuts = []
    for place, schema in enumerate(tables):
        begin = bench.log.scn
        bench.log.write(schema, history)
        cuts.append(begin + 10 * (place + 1))
    for schema in tables:
        bench.log.complete(schema)
    bench.run(*cuts, bench.log.scn)
    for schema in tables:
        states = legal_states(schema, history)
        assert bench.rows(schema) == states[-1]
        assert bench.commits(schema) == 2
        for version in range(3):
            assert bench.rows(schema, version) in states


@req("C42", "C43", "C48", "C55", "C57", "F4")
def test_the_keyed_example_ends_in_alice_and_bob_whatever_the_cut(bench: Bench) -> None:
    tables = [table_of(2, name=f"t{cut}") for cut in range(1, 6)]
    apply_at_every_cut(bench, tables, KEYED)
    assert bench.rows(tables[0]) == Counter({(0, "Alice"): 1, (1, "Bob"): 1})
    # Everything once more, from the very beginning: nothing is written.
    shutil.rmtree(local(bench.frontier.folder))
    bench.run(bench.log.scn)
    assert {bench.commits(schema) for schema in tables} == {2}


@req("C46", "C48", "C50", "F4", "T15")
def test_the_keyless_example_ends_in_bob_whatever_the_cut(bench: Bench) -> None:
    tables = [table_of(2, check=KeyCheck.NONE, name=f"t{cut}") for cut in range(1, 4)]
    apply_at_every_cut(bench, tables, KEYLESS)
    assert bench.rows(tables[0]) == Counter({(0, "Bob"): 1})


@req("C51", "C57")
def test_a_transaction_of_many_blocks_comes_into_each_of_its_tables_at_once(bench: Bench) -> None:
    """Also where it is larger than a commit should be, and its blocks are folded in tasks of their own."""
    keyed, bag = table_of(2, name="keyed"), table_of(2, check=KeyCheck.NONE, name="bag")
    for schema in (keyed, bag):
        bench.log.write(schema, "+I(0,first)")
    scn = bench.log.following
    for piece in range(4):
        rows = [(scn, 4 * piece + n, "+I", (4 * piece + n + 1, "x")) for n in range(4)]
        bodies = tuple(
            Body(bench.log.registry.put(schema), schema.table, change_batch(schema, rows[at::2]))
            for at, schema in enumerate((keyed, bag))
        )
        last = piece == 3
        index = transaction_index([(scn, 1, 1, 4, ORIGIN_LOG, int(last))])
        bench.log.writer.append(Block(index, bodies, (), scn if last else bench.log.scn))
    bench.log.scn = scn
    bench.log.writer.sync()
    bench.log.write(bag, "+I(99,last)")
    bench.options = replace(bench.options, max_rows=1, slice_rows=1)
    bench.run(bench.log.scn)
    for schema, ends in ((keyed, [0, 1, 9]), (bag, [0, 1, 9, 10])):
        versions = range(bench.commits(schema) + 1)
        assert [bench.rows(schema, version).total() for version in versions] == ends


@pytest.mark.parametrize(
    "place", ["apply.before_commit", "apply.files_written", "apply.after_commit"]
)
@req("C12", "C13", "C43", "C44", "F4")
def test_a_crash_around_the_commit_changes_nothing(bench: Bench, place: str) -> None:
    keyed, bag = table_of(3, name="keyed"), table_of(2, check=KeyCheck.NONE, name="bag")
    keyed_parts = ["+I(1,a,b) +I(2,c,d)", "=U(1,x,?) | -U(2) +U(3,y,?)"]
    bag_parts = ["+I(1,a) +I(1,a)", "-D(1,a) +I(2,b)"]
    bench.log.write(keyed, keyed_parts[0])
    bench.log.write(bag, bag_parts[0])
    bench.log.complete(keyed)
    bench.run(bench.log.complete(bag))
    frontier = bench.frontier.latest()
    middle = bench.log.write(keyed, keyed_parts[1])
    bench.log.write(bag, bag_parts[1])

    def crash() -> None:
        raise Crash

    arm(place, crash)
    with pytest.raises(Crash):
        bench.run(bench.log.scn)
    disarm()
    assert bench.frontier.latest() == frontier
    applier = bench.run()
    # Cut elsewhere than before the crash; what was committed above is left alone.
    assert applier.begin().from_scn < middle
    # More has come, and nobody but the ledger knows how far the batch went that died.
    bag_parts.append("+I(1,a) +I(3,c)")
    bench.log.write(bag, bag_parts[-1])
    bench.run(middle, bench.log.scn)
    assert bench.rows(keyed) == model(keyed, *keyed_parts)
    assert bench.rows(bag) == model(bag, *bag_parts)


@req("C55")
def test_no_frontier_is_published_below_what_any_table_shows(bench: Bench) -> None:
    """Rule L3: a cut below the highest applied position has no version of that table."""
    ahead, behind = table_of(2, name="ahead"), table_of(2, name="behind")
    bench.log.write(ahead, "+I(1,a)")
    bench.log.write(behind, "+I(1,a)")
    first = bench.log.complete(behind)
    bench.run(first)
    cut = bench.log.write(behind, "+I(2,b)")
    end = bench.log.write(ahead, "+I(2,b)")

    def crash_on_second() -> None:
        if bench.target.state(ahead.table).applied_scn == end:  # type: ignore[union-attr]
            raise Crash

    bench.options = replace(bench.options, parallel_tables=1)
    arm("apply.after_commit", crash_on_second)
    with pytest.raises(Crash):
        bench.run(end)
    disarm()
    applier = Applier(bench.options, bench.target)
    start = applier.begin()
    assert start.first_end == end
    applier.process(start.from_scn, cut)
    assert bench.frontier.scns() == (first,)
    applier.process(cut, end)
    assert bench.frontier.scns() == (first, end)
    applier.close()


@req("C06", "C30")
def test_columns_are_added_and_widened(bench: Bench) -> None:
    import pyarrow as pa

    from headrace.model.schema import Column

    old = table_of(2)
    old = replace(old, columns=(Column("k", pa.int32(), "int4"), old.columns[1]))
    new = replace(
        old,
        columns=(
            Column("k", pa.int64(), "int8"),
            old.columns[1],
            Column("extra", pa.decimal128(10, 2), "numeric(10,2)"),
        ),
    )
    bench.log.announce(old)
    bench.log.write(old, "+I(1,a) +I(2,b)")
    first = bench.log.complete(old)
    bench.log.write(old, "=U(1,x)")
    bench.log.announce(new)
    bench.log.write(new, "+I(3000000000,c,.)")
    bench.run(first, bench.log.scn)
    assert bench.rows(new) == Counter(
        {(1, "x", None): 1, (2, "b", None): 1, (3_000_000_000, "c", None): 1}
    )
    bench.log.announce(old)
    applier = bench.run(bench.log.scn)
    (error,) = applier.failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert "public.t." in error.message


def _renamed(schema: TableSchema, **names: str) -> TableSchema:
    columns = tuple(replace(c, name=names.get(c.name, c.name)) for c in schema.columns)
    return replace(schema, columns=columns)


@req("C45")
@pytest.mark.parametrize("cuts", ["each", "once"])
def test_columns_are_renamed_and_dropped_with_their_values(bench: Bench, cuts: str) -> None:
    """However the batches are cut: what a later change leaves out is taken from the column that it was."""
    old = table_of(3)
    swapped = _renamed(old, c1="c2", c2="c1")
    fewer = replace(swapped, columns=swapped.columns[:2])
    ends = [bench.log.announce(old, {"k": 1, "c1": 2, "c2": 3})]
    bench.log.write(old, "+I(1,a,b) | +I(2,c,d) | +I(3,e,f)")
    ends += [bench.log.complete(old), bench.log.announce(swapped, {"k": 1, "c2": 2, "c1": 3})]
    # The first column after the key was c1 and is c2.
    ends.append(bench.log.write(swapped, "=U(1,new,?) | =U(2,?,new) | +I(4,g,h)"))
    bench.run(*(ends if cuts == "each" else ends[-1:]))
    assert bench.rows(swapped) == Counter(
        {(1, "new", "b"): 1, (2, "c", "new"): 1, (3, "e", "f"): 1, (4, "g", "h"): 1}
    )
    bench.log.announce(fewer, {"k": 1, "c2": 2})
    bench.run(bench.log.write(fewer, "=U(1,?) | -D(2) | +I(5,i)"))
    assert bench.rows(fewer) == Counter({(1, "new"): 1, (3, "e"): 1, (4, "g"): 1, (5, "i"): 1})


@req("C45")
def test_rows_from_before_a_rename_are_applied_before_it(bench: Bench) -> None:
    """Nothing in the batch says which column of theirs is which; only the target remembers."""
    old = table_of(3)
    swapped = _renamed(old, c1="c2", c2="c1")
    bench.log.announce(old, {"k": 1, "c1": 2, "c2": 3})
    bench.run(bench.log.complete(old))
    bench.log.write(old, "+I(1,a,b)")
    bench.log.announce(swapped, {"k": 1, "c2": 2, "c1": 3})
    bench.run(bench.log.write(swapped, "+I(2,c,d) | =U(1,?,new)"))
    assert bench.rows(swapped) == Counter({(1, "a", "new"): 1, (2, "c", "d"): 1})


@req("C30", "C45")
@pytest.mark.parametrize("cuts", ["each", "once"])
def test_rows_from_before_a_column_came_back_as_it_was_are_applied_before_it(
    bench: Bench, cuts: str
) -> None:
    """It is another column, in the same version: what rows had in the one that went, they do not have in it."""
    schema = table_of(3)
    first, second, third = ({"k": 1, "c1": 2, "c2": number} for number in (3, 4, 5))
    bench.log.announce(schema, first)
    bench.log.write(schema, "+I(1,a,gone) +I(2,b,gone)")
    bench.run(bench.log.complete(schema))
    ends = [bench.log.write(schema, "=U(1,x,gone) | +I(3,c,gone)")]
    for was, now in ((first, second), (second, third)):
        before = {"schema_id": schema.schema_id, "numbers": was}
        ends.append(bench.log.announce(schema, now, was=before))
        ends.append(bench.log.write(schema, "=U(2,y,new)"))
    bench.run(*(ends if cuts == "each" else ends[-1:]))
    assert bench.rows(schema) == Counter({(1, "x", None): 1, (2, "y", "new"): 1, (3, "c", None): 1})


def _amid(bench: Bench, old: TableSchema, new: TableSchema, **told: object) -> int:
    """Write one transaction with a row in the old shape, the change, and a row in the new one."""
    rows = parse_history("+I(8,x,y) +I(9,p,q)", bench.log.following).rows
    ids = [bench.log.registry.put(schema) for schema in (old, new)]
    bodies = [
        Body(schema_id, schema.table, change_batch(schema, [row]))
        for schema_id, schema, row in zip(ids, (old, new), rows, strict=True)
    ]
    payload = {"schema_id": ids[1], **told}
    event = SystemEvent(bench.log.following, 1, SystemKind.SCHEMA, new.table, payload)
    return bench.log.batch(*bodies, events=(event,))


@req("C45")
def test_a_column_that_is_renamed_amid_a_transaction_keeps_the_values_of_both_halves(
    bench: Bench,
) -> None:
    old = table_of(3)
    new = _renamed(old, c1="label")
    numbers = {"k": 1, "c1": 2, "c2": 3}
    bench.log.announce(old, numbers)
    bench.log.write(old, "+I(1,a,b)")
    bench.run(bench.log.complete(old))
    now = {"k": 1, "label": 2, "c2": 3}
    was = {"schema_id": old.schema_id, "numbers": numbers}
    bench.run(_amid(bench, old, new, numbers=now, was=was))
    assert bench.rows(new) == Counter({(1, "a", "b"): 1, (8, "x", "y"): 1, (9, "p", "q"): 1})


@req("C30")
def test_a_column_that_may_have_been_renamed_amid_a_transaction_is_asked_about(
    bench: Bench,
) -> None:
    old = table_of(3)
    new = _renamed(old, c1="label")
    bench.log.announce(old, {"k": 1, "c1": 2, "c2": 3})
    bench.log.write(old, "+I(1,a,b)")
    bench.run(bench.log.complete(old))
    applier = bench.run(_amid(bench, old, new, numbers={"k": 1, "label": 2, "c2": 3}))
    (error,) = applier.failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert "amid a transaction" in error.message
    assert bench.rows(old) == Counter({(1, "a", "b"): 1})


@req("C06")
def test_columns_ahead_of_the_rows_are_left_there(bench: Bench) -> None:
    """A crash came between the change of the columns and the rows behind it; then the batch is cut before it."""
    old, new = table_of(2), table_of(3)
    bench.log.announce(old)
    bench.log.write(old, "+I(1,a)")
    first = bench.log.complete(old)
    bench.run(first)
    middle = bench.log.write(old, "+I(2,b)")
    bench.log.announce(new)
    end = bench.log.write(new, "+I(3,c,d)")
    bench.target.evolve(new)
    bench.run(middle, end)
    assert bench.rows(new) == Counter({(1, "a", None): 1, (2, "b", None): 1, (3, "c", "d"): 1})


def test_a_failing_table_is_left_behind_and_comes_back(bench: Bench) -> None:
    good, bad = table_of(3, name="good"), table_of(3, name="bad")
    for schema in (good, bad):
        bench.log.write(schema, "+I(1,a,b)")
        bench.log.complete(schema)
    first = bench.log.scn
    bench.log.write(bad, "=U(2,x,?)")
    second = bench.log.write(good, "=U(1,y,?)")
    applier = bench.run(first, second)
    (error,) = applier.failing
    assert isinstance(error, MissingBase)
    manifest = bench.frontier.latest()
    assert manifest is not None
    assert manifest.scn == second
    assert {name: entry.state for name, entry in manifest.tables.items()} == {
        "public.good": "live",
        "public.bad": "failing",
    }
    assert manifest.tables["public.bad"].applied_scn == first
    # The log keeps what the table lacks, and a re-read of the key heals it.
    assert jobs(bench.log.folder) == {"test": first}
    third = bench.log.write(bad, "+R(2,x,z)")
    bench.run(third)
    assert bench.rows(bad) == Counter({(1, "a", "b"): 1, (2, "x", "z"): 1})
    assert jobs(bench.log.folder) == {"test": third}


def test_tables_ahead_of_the_log_are_an_error_that_people_see(bench: Bench) -> None:
    schema = table_of(2)
    bench.log.write(schema, "+I(1,a)")
    bench.run(bench.log.complete(schema))
    bench.log.writer.close()
    other = Log(bench.log.folder.with_name("other"))
    other.write(schema, "+I(1,a)")
    bench.options = replace(bench.options, changelog=other.folder)
    with pytest.raises(ChangeLogLost, match="RESYNC"):
        bench.run()
    other.writer.close()


def test_folded_slices_are_combined_in_order(bench: Bench) -> None:
    schema = table_of(3)
    parts = ["+I(1,a,b)", "=U(1,x,?) | T | +I(2,c,d)", "=U(2,y,?) | -U(2) +U(3,?,?) | +I(2,e,f)"]
    for part in parts:
        bench.log.write(schema, part)
    bench.options = replace(bench.options, slice_rows=1, max_slices=8)
    bench.run(bench.log.complete(schema))
    assert bench.rows(schema) == model(schema, *parts)
    assert bench.commits(schema) == 1


@req("C30")
def test_a_table_that_is_dropped_leaves_the_frontier_and_comes_back_with_its_next_life(
    bench: Bench,
) -> None:
    gone, stays = table_of(2, name="gone"), table_of(2, name="stays")
    for schema in (gone, stays):
        bench.log.write(schema, "+I(0,a) | +I(1,b)")
        bench.log.complete(schema)
    first = bench.log.scn
    # Namespaces and tables that nobody has are of no concern.
    bench.log.tell(SystemKind.CREATE_SCHEMA, TableId("s1", ""), identity="7")
    bench.log.tell(SystemKind.RENAME_SCHEMA, TableId("s1", ""), identity="7", to="s2")
    bench.log.tell(SystemKind.DROP_SCHEMA, TableId("s2", ""), identity="7")
    bench.log.tell(SystemKind.DROP_TABLE, TableId("public", "never"), identity="8")
    late = {"identity": "8", "superseded": True}
    bench.log.tell(SystemKind.DROP_TABLE, stays.table, **late)
    dropped = bench.log.tell(SystemKind.DROP_TABLE, gone.table, identity="9")
    applier = bench.run(first, dropped)
    state = applier.status.tables[str(gone.table)]
    assert state.state == "left"
    assert state.error
    assert "was dropped" in state.error["message"]
    manifest = bench.frontier.latest()
    assert manifest
    assert {name: entry.state for name, entry in manifest.tables.items()} == {
        str(gone.table): "left",
        str(stays.table): "live",
    }
    # It holds nothing back, and says so after a restart too.
    end = bench.log.write(stays, "+I(2,c)")
    applier = bench.run(end)
    assert jobs(bench.log.folder)["test"] == end
    assert applier.status.tables[str(gone.table)].error == state.error
    assert bench.rows(gone) == model(gone, "+I(0,a) | +I(1,b)")
    bench.log.tell(SystemKind.TRUNCATE, gone.table, anew=True)
    end = bench.log.write(gone, "+I(5,z)")
    assert bench.run(end).status.tables[str(gone.table)].state == "copying"
    end = bench.log.complete(gone)
    assert bench.run(end).status.tables[str(gone.table)].state == "live"
    assert bench.rows(gone) == model(gone, "+I(5,z)")


@req("C30")
def test_a_renamed_table_leaves_the_frontier_and_says_its_new_name(bench: Bench) -> None:
    old, new = table_of(2, name="old"), table_of(2, name="new")
    bench.log.write(old, "+I(0,a)")
    bench.log.complete(old)
    bench.log.tell(SystemKind.RENAME_TABLE, old.table, identity="9", to=str(new.table))
    bench.log.write(new, "+I(0,a)")
    status = bench.run(bench.log.complete(new)).status.tables
    assert (status[str(old.table)].state, status[str(new.table)].state) == ("left", "live")
    error = status[str(old.table)].error
    assert error
    assert str(new.table) in error["message"]


@req("C-16")
def test_an_event_that_comes_late_is_refused_and_revives_no_row(bench: Bench) -> None:
    """The form in which an unordered source is answered: there is none, and the log takes nothing out of order.

    The gap is told in docs/architecture.md.
    """
    schema = table_of(2)
    bench.log.write(schema, "+I(1,a) +I(2,b)")
    late = bench.log.scn + 5
    bench.log.complete(schema)
    bench.log.write(schema, "-D(1) | =U(2,newest)")
    bench.run(bench.log.scn)
    for end in (late, bench.log.scn):
        bench.log.scn = end - 10
        with pytest.raises(ProtocolError, match="cannot follow"):
            bench.log.write(schema, "=U(1,late) | =U(2,late)")
        bench.log.scn = bench.log.writer.tail.complete_scn
    bench.run(bench.log.write(schema, "+I(3,c)"))
    assert bench.rows(schema) == Counter({(2, "newest"): 1, (3, "c"): 1})

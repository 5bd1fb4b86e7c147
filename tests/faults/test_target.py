"""The folder of the target tables: not ours to write, changed by others, or of a kind that we do not know."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import (
    HeadraceError,
    IncompatibleSchemaChange,
    TargetUnwritable,
    UnsupportedTableFeature,
)
from headrace.model.schema import Column, TableSchema
from headrace.observe.failpoints import arm, disarm
from headrace.spark.apply import Applier
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.targets.merge import MergeTarget
from headrace.testing.notation import table_of
from tests.faults import disks
from tests.faults.faulty import named
from tests.requirements import req
from tests.spark.conftest import spark
from tests.spark.log import lent
from tests.spark.test_apply import Bench

__all__ = ["spark"]

pytestmark = pytest.mark.spark

TABLE = table_of(3)


@pytest.fixture
def bench(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    yield from lent(Bench(spark, tmp_path))


def failing(applier: Applier) -> HeadraceError:
    """Return what stands in the way of the one table that was left behind."""
    (error,) = applier.failing
    return error


@req("C62", "C60")
def test_a_file_in_the_place_of_the_table_is_a_named_error_and_nothing_is_lost(
    bench: Bench,
) -> None:
    good = table_of(3, name="good")
    for schema in (TABLE, good):
        bench.log.write(schema, "+I(1,a,b)")
        bench.log.complete(schema)
    place = bench.lake / "public" / "t"
    place.parent.mkdir(parents=True)
    place.write_text("in the way")
    named(failing(bench.run(bench.log.scn)), TargetUnwritable, "public.t")
    assert sum(bench.rows(good).values()) == 1
    place.unlink()
    bench.run(bench.log.write(TABLE, "+I(2,c,d)"))
    assert sorted(bench.rows(TABLE)) == [(1, "a", "b"), (2, "c", "d")]


@pytest.fixture
def small_lake(spark: SparkSession, tmp_path: Path) -> Iterator[Bench]:
    """A bench whose target tables lie on a file system of their own."""
    with disks.small_disk(tmp_path / "lake", 4 << 20):
        yield from lent(Bench(spark, tmp_path))


def waiting(bench: Bench) -> int:
    """Make one row live, write the batch that puts another in its place, and return where it ends."""
    bench.log.write(TABLE, "+I(1,a,b)")
    bench.run(bench.log.complete(TABLE))
    return bench.log.write(TABLE, "-D(1,a,b) | +I(2,c,d)")


def refused(bench: Bench, end: int, why: str, caplog: pytest.LogCaptureFixture) -> None:
    """The job ends for its frontier, which lies there too, and says of the table what is wrong; nothing moves on."""
    before = bench.frontier.latest()
    with pytest.raises(TargetUnwritable) as caught:
        bench.run(end)
    named(caught.value, TargetUnwritable, "frontier", why)
    assert f"The target table of public.t cannot be written: {why}" in caplog.text
    assert sorted(bench.rows(TABLE)) == [(1, "a", "b")]
    assert bench.frontier.latest() == before


@req("C62", "C60")
def test_a_disk_that_is_full_in_the_middle_of_a_batch_costs_nothing(
    small_lake: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench, end = small_lake, waiting(small_lake)
    with ExitStack() as filled:

        def fill() -> None:
            disarm()
            filled.enter_context(disks.full(bench.lake))

        arm("apply.before_commit", fill)
        refused(bench, end, "No space left", caplog)
    bench.run(end)
    assert sorted(bench.rows(TABLE)) == [(2, "c", "d")]


@req("C62", "C60")
def test_a_target_that_may_only_be_read_is_named_and_nothing_is_lost(
    small_lake: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench, end = small_lake, waiting(small_lake)
    disks.mounted(bench.lake, "ro")
    try:
        refused(bench, end, "Read-only file system", caplog)
    finally:
        disks.mounted(bench.lake, "rw")
    bench.run(end)
    assert sorted(bench.rows(TABLE)) == [(2, "c", "d")]


@req("C60")
def test_a_feature_we_lack_is_refused_by_name_and_the_table_comes_back(
    bench: Bench, spark: SparkSession
) -> None:
    bench.log.write(TABLE, "+I(1,a,b)")
    bench.run(bench.log.complete(TABLE))
    place = bench.lake / "public" / "t"
    kept = place.with_name("kept")
    shutil.copytree(place, kept)
    table = f"delta.`{place}`"
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")
    end = bench.log.write(TABLE, "+I(2,c,d)")
    with pytest.raises(UnsupportedTableFeature) as caught:
        raise failing(bench.run(end))
    named(caught.value, UnsupportedTableFeature, "changeDataFeed")
    shutil.rmtree(place)
    kept.rename(place)
    bench.run(bench.log.scn)
    assert sorted(bench.rows(TABLE)) == [(1, "a", "b"), (2, "c", "d")]


def test_a_table_that_is_removed_while_running_is_copying_until_it_was_copied(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.log.write(TABLE, "+I(1,a,b) +I(2,c,d)")
    first = bench.log.complete(TABLE)
    applier = Applier(bench.options, bench.target)
    applier.process(applier.begin().from_scn, first)
    shutil.rmtree(bench.lake / "public" / "t")
    after = bench.log.write(TABLE, "+I(3,e,f)")
    applier.process(first, after)
    states = [(bench.frontier.latest(), "headrace dump start FILE --table public.t" in caplog.text)]
    bench.log.write(TABLE, "+R(1,a,b) +R(2,c,d) +R(3,e,f)")
    end = bench.log.complete(TABLE)
    applier.process(after, end)
    applier.close()
    states.append((bench.frontier.latest(), True))
    assert [(m.tables["public.t"].state, told) for m, told in states if m] == [
        ("copying", True),
        ("live", True),
    ]
    assert sorted(bench.rows(TABLE)) == [(1, "a", "b"), (2, "c", "d"), (3, "e", "f")]


@req("C62")
@pytest.mark.parametrize("place", ["apply.before_commit", "apply.files_written"])
def test_a_foreign_commit_in_the_middle_of_a_batch_costs_none_of_our_rows(
    bench: Bench, spark: SparkSession, place: str
) -> None:
    bench.log.write(TABLE, "+I(1,a,b)")
    bench.run(bench.log.complete(TABLE))
    folder = bench.lake / "public" / "t"

    def intrude() -> None:
        disarm()
        spark.sql(f"INSERT INTO delta.`{folder}` VALUES (99, 'foreign', 'row')")

    arm(place, intrude)
    end = bench.log.write(TABLE, "-D(1,a,b) | +I(2,c,d)")
    applier = bench.run(end)
    assert not applier.failing
    assert sorted(bench.rows(TABLE)) == [(2, "c", "d"), (99, "foreign", "row")]


FOREIGN = {
    "RESTORE TABLE {table} TO VERSION AS OF {before}": "RESTORE, version",
    "DELETE FROM {table} WHERE k = 1": "DELETE, version",
    "UPDATE {table} SET c1 = 'x' WHERE k = 1": "UPDATE, version",
    "INSERT INTO {table} VALUES (99, 'foreign', 'row')": "",
    "OPTIMIZE {table}": "",
}
"""What others do to a table, and how it is told; rows that were there stay as they were behind the last two."""


@pytest.mark.parametrize(("statement", "told"), FOREIGN.items())
@pytest.mark.parametrize("kind", [DeltaTarget, pytest.param(MergeTarget, marks=pytest.mark.long)])
def test_who_changes_rows_that_were_there_while_a_job_runs_is_told_of(
    bench: Bench,
    spark: SparkSession,
    caplog: pytest.LogCaptureFixture,
    kind: type[DeltaTarget | MergeTarget],
    statement: str,
    told: str,
) -> None:
    bench.target = kind(spark, bench.lake, "test")
    bench.log.write(TABLE, "+I(1,a,b)")
    begin = bench.log.complete(TABLE)
    applier = Applier(bench.options, bench.target)
    applier.process(applier.begin().from_scn, begin)
    before = bench.commits(TABLE)
    end = bench.log.write(TABLE, "=U(1,c,?) | +I(2,c,d)")
    applier.process(begin, end)
    assert applier.status.tables["public.t"].error is None, "what we did ourselves"

    table = f"delta.`{bench.lake / 'public' / 't'}`"
    spark.sql(statement.format(table=table, before=before))
    applier.process(end, bench.log.write(TABLE, "+I(3,e,f)"))
    applier.close()
    said = applier.status.tables["public.t"]
    assert said.state == "live"
    if told:
        assert said.error is not None
        assert said.error["name"] == "TargetChanged"
        assert f"public.t ({told}" in said.error["message"]
        assert f"public.t ({told}" in caplog.text
        assert "headrace dump start FILE --table public.t" in said.error["next_step"]
    else:
        assert said.error is None


@req("C30")
@pytest.mark.parametrize("change", ["renamed", "retyped"])
def test_a_change_that_the_target_cannot_follow_names_table_and_column(
    bench: Bench, change: str
) -> None:
    bench.log.write(TABLE, "+I(1,a,b)")
    bench.run(bench.log.complete(TABLE))
    *kept, last = TABLE.columns
    if change == "retyped":
        kept.append(Column(last.name, table_of(2).columns[0].type, "int4"))
    else:
        # No event says by number which column it was.
        kept.append(Column("other", last.type, last.source_type))
    changed = TableSchema(TABLE.table, tuple(kept), TABLE.key, TABLE.key_check)
    # The announcement alone is enough: nothing may be written in the columns that are there.
    bench.log.announce(changed)
    end = bench.log.write(changed, "+I(2,c,d)") if change == "renamed" else bench.log.scn
    before = bench.commits(TABLE)
    named(failing(bench.run(end)), IncompatibleSchemaChange, f"public.t.{last.name}")
    assert bench.commits(TABLE) == before

"""Tables of warehouses that are copied again: readers see old rows or new ones, at any cut and crash."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import TableSchema
from headrace.observe.failpoints import disarm
from headrace.spark.apply import Applier
from headrace.testing.notation import table_of
from tests.lake.sql.warehouses import content
from tests.requirements import req
from tests.spark.folded import run_to
from tests.spark.policies import OLD, RECOPY, RETYPED, Bench, Crash, T, announce, begun
from tests.spark.subjects import IN_SQL, PIPELINE, Subject, made
from tests.spark.test_copied_again import copied_through
from tests.spark.test_modes_in_warehouses import CRASHES

pytestmark = [pytest.mark.spark, pytest.mark.postgres]


class InWarehouse(Bench):
    """A change log, a warehouse, and appliers that come and go."""

    def __init__(self, spark: SparkSession, folder: Path, subject: Subject) -> None:
        super().__init__(spark, folder)
        self.subject = subject
        self.crashes = (*CRASHES[subject.kind], "apply.before_manifest", "apply.after_manifest")

    def run(self, *ends: int) -> Applier:
        return run_to(self.options, self.subject.make(), *ends, ask=self.ask)

    def rows(self) -> list[dict[str, Any]]:
        """Return the rows that readers of the table see, in order of their keys."""
        tables = WarehouseTables(self.subject.warehouse, PIPELINE)
        with self.subject.warehouse.opened(read_only=True) as session:
            entry = tables.entries(session)[T]
            batches = list(tables.rows(session, T, entry))
        found = [row for batch in batches for row in batch.to_pylist()]
        return sorted(found, key=lambda row: row["k"])


@pytest.fixture(params=IN_SQL)
def policed(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[InWarehouse]:
    given = InWarehouse(spark, tmp_path, made(request.param, request, spark, tmp_path))
    yield given
    disarm()
    given.log.writer.close()


@req("C30")
def test_old_rows_are_shown_until_the_new_ones_are_whole_and_other_tables_go_on(
    policed: InWarehouse,
) -> None:
    policed.policies(RECOPY)
    begun(policed)
    other = table_of(2, name="other")
    before = policed.rows()
    announce(policed, RETYPED)
    policed.log.write(RETYPED, "=U(1,A1,?) | +I(4,a4,40)")
    applier = policed.run(policed.log.write(other, "+I(1,a)"))
    assert (policed.rows(), policed.state(), policed.asked) == (before, "copying", ["asked 1"])
    assert not applier.failing
    assert rows_of(policed, other) == [{"k": 1, "c1": "a"}]
    policed.log.write(other, "-D(1)")
    # The end of a dump that began before the copy did.
    policed.run(policed.dumped(RETYPED, "+R(1,A1,10) +R(2,a2,20) +R(3,a3,30)", "first"))
    assert (policed.rows(), policed.state()) == (before, "copying")
    assert rows_of(policed, other) == []
    end = policed.dumped(RETYPED, "+R(4,a4,40) | -D(2)", "asked 1")
    policed.run(end)
    assert policed.rows() == [
        {"k": 1, "a": "A1", "b": b"10"},
        {"k": 3, "a": "a3", "b": b"30"},
        {"k": 4, "a": "a4", "b": b"40"},
    ]
    assert (policed.state(), policed.entry().applied_scn) == ("live", end)
    policed.run(policed.log.write(RETYPED, "=U(1,?,11)"))
    assert policed.rows()[0] == {"k": 1, "a": "A1", "b": b"11"}


@req("C12", "C43")
@pytest.mark.parametrize("asked", [True, False])
def test_a_crash_around_the_begin_of_a_copy_begins_it_again(
    policed: InWarehouse, monkeypatch: pytest.MonkeyPatch, asked: bool
) -> None:
    policed.policies(RECOPY)
    begun(policed)
    before = policed.rows()
    announce(policed, RETYPED)
    end = policed.log.write(RETYPED, "=U(1,A1,?)")
    begin = WarehouseTables.begin_copy

    def die(*given: Any) -> Any:
        if not asked:
            begin(*given)
        raise Crash

    monkeypatch.setattr(WarehouseTables, "begin_copy", die)
    with contextlib.suppress(Crash):
        policed.run(end)
    monkeypatch.undo()
    # The dump that nobody waits for any more.
    policed.run(policed.dumped(RETYPED, "+R(2,a2,20)", "none"))
    assert (policed.rows(), policed.state()) == (before, "copying")
    assert policed.asked == (["asked 1", "asked 2"] if asked else ["asked 1"])
    policed.run(policed.dumped(RETYPED, "+R(1,A1,10) +R(3,a3,30)", policed.asked[-1]))
    assert [row["b"] for row in policed.rows()] == [b"10", b"20", b"30"]
    assert policed.state() == "live"


def test_without_the_policy_the_table_stops_and_keeps_its_rows(policed: InWarehouse) -> None:
    begun(policed)
    before = policed.rows()
    announce(policed, RETYPED)
    (error,) = policed.run(policed.log.write(RETYPED, "+R(1,a1,10)")).failing
    assert type(error).__name__ == "IncompatibleSchemaChange"
    assert (policed.rows(), policed.state(), policed.asked) == (before, "failing", [])
    assert content(policed.subject.warehouse, OLD).num_rows == 3


@req("C12", "C43")
def test_random_lives_are_copied_again_whatever_the_cut_and_the_crash(
    policed: InWarehouse,
) -> None:
    copied_through(policed, random.Random(1))


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("seed", range(2, 30))
def test_many_random_lives_are_copied_again(policed: InWarehouse, seed: int) -> None:
    copied_through(policed, random.Random(seed))


def rows_of(bench: InWarehouse, schema: TableSchema) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = content(bench.subject.warehouse, schema).to_pylist()
    return rows

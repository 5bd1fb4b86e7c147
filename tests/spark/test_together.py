"""Works that share a Spark job share nothing else."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import MissingBase
from headrace.fold import fold
from headrace.model.schema import TableId
from headrace.spark.targets.base import TableBatch
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.together import Work, _spread, run_together
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.requirements import req
from tests.spark.folded import GivenFolded


class Stubborn(Exception):
    """Holds what cannot travel to another process."""

    def __init__(self) -> None:
        super().__init__("rows of somebody")
        self.held = lambda: None


def last_job(spark: SparkSession) -> int:
    return max(spark.sparkContext.statusTracker().getJobIdsForGroup(None), default=-1)


def returns(value: object) -> Callable[[], object]:
    return lambda: value


def raises(error: Exception) -> Callable[[], object]:
    def do() -> object:
        raise error

    return do


def dies() -> object:
    os._exit(7)


def does_not_travel() -> object:
    raise Stubborn


@pytest.mark.spark
def test_each_work_has_its_own_outcome_in_its_own_place(spark: SparkSession) -> None:
    works = [
        Work(5, returns("a")),
        Work(9, raises(MissingBase("public.t", "(k)", ["c"]))),
        Work(1, does_not_travel),
        Work(7, returns({"b": 2})),
    ]
    first, missing, stubborn, last = run_together(spark, works, 2)
    assert (first, last) == ("a", {"b": 2})
    assert isinstance(missing, MissingBase)
    # What it says may hold values of rows, and stays where they are.
    assert str(stubborn) == "Stubborn in a task"


@pytest.mark.spark
def test_a_work_that_takes_its_worker_along_takes_no_other(
    spark: SparkSession, tmp_path: Path
) -> None:
    done = tmp_path / "done"
    works = [Work(1, returns("a")), Work(2, dies), Work(3, lambda: done.write_text("b"))]
    first, dead, last = run_together(spark, works, 1)
    assert (first, last, done.read_text()) == ("a", 1, "b")
    assert isinstance(dead, Exception)


@pytest.mark.spark
def test_what_failed_before_shares_nothing(spark: SparkSession, tmp_path: Path) -> None:
    count = tmp_path / "count"

    def counted() -> object:
        with count.open("a") as file:
            file.write("x")
        return True

    works = [Work(1, counted), Work(1, counted), Work(1, dies, alone=True)]
    *good, dead = run_together(spark, works, 2)
    assert good == [True, True]
    assert isinstance(dead, Exception)
    # Nobody had to be tried twice because of the third.
    assert count.read_text() == "xx"


def test_tasks_get_about_the_same_share() -> None:
    works = [Work(rows, dies) for rows in (10, 900_000, 20, 500_000, 30, 400_000)]
    assert _spread(works, range(6), 2) == [[1, 4, 0], [3, 5, 2]]
    # Small ones weigh something too.
    small = [Work(0, dies) for _ in range(6)]
    assert _spread(small, range(6), 4) == [[0, 4], [1, 5], [2], [3]]
    assert _spread(small, [3], 4) == [[3]]


@pytest.mark.spark
@req("P18")
def test_tables_of_a_batch_are_written_by_one_job_and_conflict_one_by_one(
    spark: SparkSession, tmp_path: Path
) -> None:
    target = DeltaTarget(spark, tmp_path, "test")
    schemas = [table_of(2, name=f"t{number}") for number in range(5)]

    def batches(history: str, scn: int) -> list[TableBatch]:
        parsed = parse_history(history, scn)
        return [
            TableBatch(
                schema,
                GivenFolded(spark, fold(schema, [change_batch(schema, parsed.rows)])),
                scn,
                complete=True,
            )
            for schema in schemas
        ]

    for schema in schemas:
        target.evolve(schema)
    before = last_job(spark)
    states = target.apply(batches("+I(1,a)", 10))
    assert [getattr(state, "applied_scn", None) for state in states] == [10] * 5
    assert last_job(spark) == before + 1

    # One patches a row that is not there; the others are none the wiser.
    mixed = batches("+U(1,b)", 20)
    mixed[2] = batches("=U(7,?)", 20)[2]
    outcomes = target.apply(mixed)
    assert [isinstance(outcome, MissingBase) for outcome in outcomes] == [
        False,
        False,
        True,
        False,
        False,
    ]
    left = target.state(TableId("public", "t2"))
    assert left is not None
    assert left.applied_scn == 10

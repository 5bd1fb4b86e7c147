"""Tables of every mode through the applier into warehouses: any cut, any crash and any replay, against the models."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import IncompatibleSchemaChange, MadeOtherwise, MissingBase
from headrace.lake.modes import Mode
from headrace.lake.settings import TableSettings
from headrace.model.schema import KeyCheck, TableSchema
from headrace.observe.failpoints import disarm
from headrace.spark.apply import Applier
from headrace.spark.targets.base import TargetState
from headrace.testing.notation import table_of
from tests.lake.sql.warehouses import content, plain
from tests.requirements import req
from tests.spark.folded import run_to
from tests.spark.subjects import IN_SQL, PIPELINE, Subject, made
from tests.spark.test_modes import Bench, Rows, live_through, named

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

CRASHES = {
    "duckdb": ["apply.before_commit", "apply.after_commit"],
    "postgres": ["apply.staged", "apply.merged", "apply.after_commit"],
}
CRASHES["mariadb"] = CRASHES["postgres"]


class InWarehouse(Bench):
    """A change log, a warehouse whose tables have modes, and appliers that come and go."""

    def __init__(self, spark: SparkSession, folder: Path, subject: Subject) -> None:
        super().__init__(spark, folder)
        self.subject = subject

    def run(self, *ends: int) -> Applier:
        return run_to(self.options, self.subject.make(), *ends)

    def rows(self, schema: TableSchema) -> Rows:
        return plain(content(self.subject.warehouse, schema, PIPELINE))

    def state(self, schema: TableSchema) -> TargetState:
        state = self.subject.target.state(schema.table)
        assert state is not None
        return state


@pytest.fixture(params=IN_SQL)
def bench(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path
) -> Iterator[InWarehouse]:
    given = InWarehouse(spark, tmp_path, made(request.param, request, spark, tmp_path))
    yield given
    disarm()
    given.log.writer.close()


def all_tables() -> list[TableSchema]:
    checks = (KeyCheck.IMMEDIATE, KeyCheck.DEFERRED)
    return [
        table_of(3, check=check, name=f"{mode.value}_{check.value}")
        for mode in Mode
        for check in checks
    ]


@req("C-11", "C12", "C13", "C43", "C44", "C58")
def test_every_mode_keeps_what_the_model_keeps_whatever_the_cut_and_the_crash(
    bench: InWarehouse,
) -> None:
    live_through(bench, random.Random(7), 4, CRASHES[bench.subject.kind])
    # Everything once more from the very beginning: nothing is written.
    states = [bench.state(schema) for schema in all_tables()]
    shutil.rmtree(bench.lake / "_headrace")
    bench.run(bench.log.scn)
    assert [bench.state(schema) for schema in all_tables()] == states


@pytest.mark.long
@pytest.mark.timeout(7_200)
@pytest.mark.parametrize("seed", range(10))
def test_many_lives(bench: InWarehouse, seed: int) -> None:
    rng = random.Random(seed)
    crashes = rng.choices(CRASHES[bench.subject.kind], k=rng.randrange(4))
    live_through(bench, rng, rng.choice((8, 16, 30)), crashes)


def test_a_table_that_was_made_in_another_mode_is_left_alone(bench: InWarehouse) -> None:
    schema = table_of(2)
    bench.options = replace(bench.options, settings=(("*.t", TableSettings(Mode.HISTORY)),))
    bench.log.write(schema, "+I(1,a)")
    bench.run(bench.log.complete(schema))
    before = bench.rows(schema)
    for asked in (Mode.SOFT_DELETE, Mode.MIRROR):
        bench.options = replace(bench.options, settings=(("*.t", TableSettings(asked)),))
        (error,) = bench.run(bench.log.write(schema, "-D(1)")).failing
        assert isinstance(error, MadeOtherwise)
        assert f"made as history, and the file asks for {asked.value}" in error.message
    assert bench.rows(schema) == before


def test_one_table_that_cannot_go_on_leaves_the_others_going(bench: InWarehouse) -> None:
    bag, held = named(Mode.HISTORY, check=KeyCheck.NONE), named(Mode.SOFT_DELETE, 3)
    other = named(Mode.MIRROR)
    bench.log.write(bag, "+I(1,a)")
    bench.log.write(held, "+I(1,a,b)")
    bench.log.complete(held)
    bench.log.write(other, "+I(1,a)")
    (error,) = bench.run(bench.log.complete(other)).failing
    assert isinstance(error, IncompatibleSchemaChange)
    assert "public.history has no key" in error.message
    bench.log.write(other, "-D(1) +I(2,b)")
    errors = bench.run(bench.log.write(held, "=U(2,x,?)")).failing
    (error,) = [error for error in errors if isinstance(error, MissingBase)]
    assert (error.table, error.columns) == ("public.soft_delete", ["c2"])
    assert bench.rows(other) == Counter({(2, "b"): 1})
    # It heals when the row is read again.
    errors = bench.run(bench.log.write(held, "+R(2,y,z)")).failing
    assert not any(isinstance(error, MissingBase) for error in errors)
    assert {row[:4] for row in bench.rows(held)} == {(1, "a", "b", False), (2, "y", "z", False)}

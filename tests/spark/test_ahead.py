"""No target takes a batch that lies at or below its own position, whoever hands it over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from pyspark.sql import SparkSession

from headrace.errors import TargetConflict
from headrace.fold import fold
from headrace.lake.modes import Mode, shaped
from headrace.model.schema import TableSchema
from headrace.spark.targets.base import TableBatch, Target
from headrace.spark.targets.parquet import ParquetTarget
from headrace.testing.lives import Transaction
from headrace.testing.notation import change_batch, parse_history, table_of
from tests.lake.kept_table import logged
from tests.requirements import req
from tests.spark.folded import GivenFolded
from tests.spark.subjects import IN_SQL, OWN, Subject

pytestmark = [pytest.mark.spark, pytest.mark.postgres]

SCHEMA = table_of(2)


def refuse_what_is_not_ahead(
    target: Target,
    columns: TableSchema,
    mode: Mode,
    rows: pa.Table,
    held: Callable[[], object],
) -> None:
    """Apply rows up to SCN 10, and find that nothing up to there is taken once more."""
    target.evolve(columns)
    given = GivenFolded(target.session(SCHEMA.table), rows)
    for scn in (10, 10, 9):
        before = target.state(SCHEMA.table)
        content = held() if before and before.applied_scn else None
        (outcome,) = target.apply([TableBatch(SCHEMA, given, scn, complete=True, mode=mode)])
        if content is None:
            assert not isinstance(outcome, Exception)
            continue
        assert isinstance(outcome, TargetConflict)
        assert f"is at SCN 10 before a commit of SCN {scn}" in outcome.message
        assert (target.state(SCHEMA.table), held()) == (before, content)


@req("C43")
@pytest.mark.parametrize("subject", [*OWN, *IN_SQL], indirect=True)
def test_a_table_takes_nothing_that_it_has(subject: Subject) -> None:
    rows = fold(SCHEMA, [change_batch(SCHEMA, parse_history("+I(1,a) +I(2,b)").rows)])
    held = lambda: subject.content(SCHEMA)  # noqa: E731 - asked before and after
    refuse_what_is_not_ahead(subject.target, SCHEMA, Mode.MIRROR, rows, held)


@req("C43")
def test_files_of_changes_take_nothing_that_they_have(spark: SparkSession, tmp_path: Path) -> None:
    change = Transaction(10)
    change.add("+I", (1, "a"))
    folder = tmp_path / SCHEMA.table.schema / SCHEMA.table.name

    def held() -> int:
        return int(ds.dataset(folder, format="parquet").count_rows())

    refuse_what_is_not_ahead(
        ParquetTarget(spark, tmp_path, "test"),
        shaped(SCHEMA, Mode.APPEND),
        Mode.APPEND,
        logged(SCHEMA, [change]),
        held,
    )

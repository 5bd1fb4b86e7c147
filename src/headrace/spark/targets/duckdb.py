"""Tables of a DuckDB file: one task stages the rows of all tables and merges them in one transaction.

In: the batches of tables, in a task. Out: rows and ledger, which become durable together. The file is open
for as long as that takes, and no other process can read it meanwhile.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.errors import ConfigError, HeadraceError
from headrace.lake.batch import form_of
from headrace.lake.capabilities import DUCKDB
from headrace.lake.modes import Mode
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.session import Session, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import TableSchema
from headrace.observe.failpoints import failpoint
from headrace.spark.session import is_remote
from headrace.spark.targets.base import TableBatch, TargetState
from headrace.spark.targets.tasks import in_its_own_job, whole
from headrace.spark.targets.warehouse import WarehouseTarget, said
from headrace.spark.together import Work, run_together

__all__ = ["DuckdbTarget", "check_master"]

_STAGE = "headrace_stage"


@dataclass(frozen=True, slots=True)
class _Part:
    """One table's batch as a task needs it."""

    schema: TableSchema
    read: Callable[[], Iterator[pa.RecordBatch]]
    scn: int
    complete: bool
    mode: Mode


class DuckdbTarget(WarehouseTarget):
    """Tables of one file.

    Args:
        spark: a session of the application; its tasks run on this machine.
        warehouse: the file.
        pipeline: name under which positions are committed.

    Raises:
        ConfigError: Spark's tasks run elsewhere.
    """

    capabilities = DUCKDB

    def __init__(self, spark: SparkSession, warehouse: DuckdbWarehouse, pipeline: str) -> None:
        check_master("sc://" if is_remote(spark) else spark.conf.get("spark.master") or "")
        super().__init__(spark, warehouse, pipeline)

    def apply(self, batches: Sequence[TableBatch]) -> list[TargetState | HeadraceError]:
        """Commit all tables' changes and the positions they reach, in one transaction where they allow it.

        A table that failed before, and one whose changes are too many for a shared task, has a transaction of its own.
        """
        with self._one_at_a_time:
            outcomes = self._carried_out(batches)
        failpoint("apply.after_commit")
        return [said(outcome, batch) for outcome, batch in zip(outcomes, batches, strict=True)]

    def _carried_out(self, batches: Sequence[TableBatch]) -> list[Any]:
        outcomes: dict[int, Any] = {}
        crowd: dict[int, _Part] = {}
        for place, batch in enumerate(batches):
            inside = batch.folded.inside()
            if inside is None:
                outcomes[place] = in_its_own_job(batch, _one(self._tables, batch))
            elif batch.alone:
                outcomes[place] = self._run([_part(batch, inside)])[0]
            else:
                crowd[place] = _part(batch, inside)
        if crowd:
            outcomes |= zip(crowd, self._run(list(crowd.values())), strict=True)
        return [outcomes[place] for place in range(len(batches))]

    def _run(self, parts: list[_Part]) -> list[Any]:
        """Return what came of each part, after trying each alone when all together take their task along."""
        tables = self._tables
        rows = len(parts)
        (outcome,) = run_together(self._spark, [Work(rows, lambda: _together(tables, parts))], 1)
        if isinstance(outcome, list):
            return outcome
        if len(parts) == 1:
            return [outcome]
        return [self._run([part])[0] for part in parts]


def check_master(master: str) -> None:
    """Refuse a Spark whose tasks do not see the file.

    Raises:
        ConfigError: they run elsewhere.
    """
    if not master.startswith("local") or master.startswith("local-cluster"):
        raise ConfigError(
            f"spark.master: {master} runs tasks in processes that cannot share one DuckDB file.",
            next_step="set spark.master to local[N], or choose another target.",
        )


def _part(batch: TableBatch, inside: Callable[[], Iterator[pa.RecordBatch]]) -> _Part:
    return _Part(batch.schema, inside, batch.scn, batch.complete, batch.mode)


def _one(tables: WarehouseTables, batch: TableBatch) -> Callable[[pa.Table], Entry]:
    """Return the function that brings one table forward, given the whole of its batch."""
    schema, scn, complete, mode = batch.schema, batch.scn, batch.complete, batch.mode

    def do(rows: pa.Table) -> Entry:
        part = _Part(schema, lambda: iter(rows.to_batches()), scn, complete, mode)
        with (
            told(tables.warehouse, schema.table),
            tables.warehouse.opened() as session,
            session.transaction(),
        ):
            return _merged(tables, session, part)

    return do


def _together(tables: WarehouseTables, parts: Sequence[_Part]) -> list[Entry | Exception]:
    """Bring all tables forward in one transaction, or each in its own when one of them cannot."""
    with told(tables.warehouse), tables.warehouse.opened() as session:
        try:
            with session.transaction():
                return [_merged(tables, session, part) for part in parts]
        except Exception:  # noqa: BLE001 - whose it is shows when each goes alone
            return [_alone(tables, session, part) for part in parts]


def _alone(tables: WarehouseTables, session: Session, part: _Part) -> Entry | Exception:
    try:
        with told(tables.warehouse, part.schema.table), session.transaction():
            return _merged(tables, session, part)
    except Exception as error:  # noqa: BLE001 - the table's outcome, no other's
        return error


def _merged(tables: WarehouseTables, session: Session, part: _Part) -> Entry:
    """Stage and merge one table inside a transaction."""
    schema, mode = part.schema, part.mode
    rows = whole(form_of(schema, mode), part.read())
    staged = tables.stage(session, schema, rows, _STAGE, mode)
    return tables.apply(session, schema, staged, part.scn, mode, complete=part.complete)

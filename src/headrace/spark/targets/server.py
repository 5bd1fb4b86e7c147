"""Tables of a database server: tasks copy rows into staging tables, the driver merges them by statements.

In: the batches of tables, in tasks. Out: rows and ledger, which become durable together, of all tables at
once. Rows never come to the driver.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from headrace.lake.capabilities import Capabilities
from headrace.lake.sql.ledger import SCHEMA, Entry
from headrace.lake.sql.session import ServerSession, ServerWarehouse, Session, told
from headrace.lake.sql.staged import Staged
from headrace.lake.sql.tables import WarehouseTables
from headrace.observe.failpoints import failpoint
from headrace.spark.targets.base import TableBatch, TargetState
from headrace.spark.targets.tasks import in_tasks
from headrace.spark.targets.warehouse import WarehouseTarget, said

__all__ = ["ServerTarget"]

_LOG = logging.getLogger(__name__)

Planned = tuple[TableBatch, Staged]


class ServerTarget(WarehouseTarget):
    """Tables of one database or server.

    Args:
        spark: a session of the application.
        warehouse: where they are, which executors reach by the same URL.
        pipeline: name under which positions are committed.
        parallel: tasks that tables share, and connections at the same time.
    """

    capabilities: Capabilities

    def __init__(
        self, spark: SparkSession, warehouse: ServerWarehouse, pipeline: str, *, parallel: int = 2
    ) -> None:
        super().__init__(spark, warehouse, pipeline)
        self._server = warehouse
        self._parallel = parallel
        self._kept: ServerSession | None = None
        # Staging tables of one pipeline are told from those of others by their names.
        self._stages = f"stage{hashlib.sha256(pipeline.encode()).hexdigest()[:12]}x"

    def apply(self, batches: Sequence[TableBatch]) -> list[TargetState | HeadraceError]:
        """Commit all tables' changes and the positions they reach, in one transaction where they allow it."""
        works = [(batch, _loader(self._tables, batch, self._stages)) for batch in batches]
        staged = in_tasks(self._spark, works, self._parallel)
        failpoint("apply.staged")
        outcomes: dict[int, object] = dict(enumerate(staged))
        ready = {
            place: (batch, stage)
            for place, (batch, stage) in enumerate(zip(batches, staged, strict=True))
            if isinstance(stage, Staged)
        }
        crowd = {place: pair for place, pair in ready.items() if not pair[0].alone}
        with self._one_at_a_time:
            outcomes |= self._together(crowd)
            outcomes |= {p: self._alone(*ready[p]) for p in ready if p not in crowd}
            self._sweep()
        failpoint("apply.after_commit")
        return [said(outcomes[place], batch) for place, batch in enumerate(batches)]

    def _together(self, crowd: dict[int, Planned]) -> dict[int, object]:
        """Merge all tables in one transaction, or each in its own when one of them cannot."""
        try:
            with told(self._warehouse), self._connected() as session, session.transaction():
                merged = {
                    # Always in one order: two writers wait for each other and do not lock each other out.
                    place: self._merged(session, *crowd[place])
                    for place in sorted(crowd, key=lambda place: crowd[place][0].schema.table)
                }
                failpoint("apply.merged")
                return dict(merged)
        except HeadraceError as error:
            if len(crowd) == 1:
                return dict.fromkeys(crowd, error)
            return {place: self._alone(*planned) for place, planned in crowd.items()}

    def _alone(self, batch: TableBatch, staged: Staged) -> object:
        try:
            with (
                told(self._warehouse, batch.schema.table),
                self._connected() as session,
                session.transaction(),
            ):
                return self._merged(session, batch, staged)
        except HeadraceError as error:
            return error

    def _merged(self, session: Session, batch: TableBatch, staged: Staged) -> Entry:
        with told(self._warehouse, batch.schema.table):
            return self._tables.apply(
                session, batch.schema, staged, batch.scn, batch.mode, complete=batch.complete
            )

    @contextmanager
    def _connected(self) -> Iterator[Session]:
        """Give the one connection of the driver, made anew when the server has ended it."""
        if self._kept is not None and not self._kept.is_alive():
            self._kept.close()
            self._kept = None
        if self._kept is None:
            self._kept = self._server.connect()
        yield self._kept

    def _sweep(self) -> None:
        """Drop staging tables that were not merged, of this batch and of earlier lives."""
        like = f"table_schema = '{SCHEMA}' AND table_name LIKE '{self._stages}%'"
        try:
            with told(self._warehouse), self._connected() as session:
                for (name,) in session.rows(
                    f"SELECT table_name FROM information_schema.tables WHERE {like}"
                ):
                    session.run(f"DROP TABLE {SCHEMA}.{name}")
        except HeadraceError as error:
            _LOG.warning("staging tables are left for the next batch: %s", error)


def _loader(
    tables: WarehouseTables, batch: TableBatch, prefix: str
) -> Callable[[pa.Table], Staged]:
    """Return the function that stages a table's batch in a session of its own."""
    schema, mode = batch.schema, batch.mode

    def load(rows: pa.Table) -> Staged:
        # Spark may carry a task out twice; the staging table that nobody merges is swept.
        name = f"{SCHEMA}.{prefix}{uuid.uuid4().hex}"
        with told(tables.warehouse, schema.table), tables.warehouse.opened() as session:
            return tables.stage(session, schema, rows, name, mode)

    return load

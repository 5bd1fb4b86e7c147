"""Delta tables by Spark's own statements: MERGE, append and overwrite.

In: the folded form of each table's changes, as a DataFrame. Out: one commit per table that carries rows and applied
SCN (Delta's ``txn`` action). Rows never come to the driver: it sees one row of counts and the
statement. Plain, slow and right: the second implementation beside any faster one, and its oracle.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from pyspark.sql import SparkSession

from headrace.errors import ConfigError, HeadraceError, TargetConflict
from headrace.lake.capabilities import MERGE
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import Rewritten
from headrace.model.schema import KeyCheck, TableId
from headrace.observe.failpoints import failpoint
from headrace.spark.session import is_remote
from headrace.spark.targets.base import Copies, TableBatch, TargetState
from headrace.spark.targets.keyed import KeyedBatch
from headrace.spark.targets.multiset import MultisetBatch
from headrace.spark.targets.tables import DeltaTables, translated
from headrace.store import Location

__all__ = ["MergeTarget"]

_SESSION = {
    # The folded form is kept in memory by us, and reads the same however often: its source is the change
    # log, which never changes. Delta need not copy it once more.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.merge.failSourceCachedAfterMaterialization": "false",
}


class MergeTarget:
    """Delta tables under one folder, written by plain statements.

    Args:
        spark: any session of the application.
        lake: folder of all tables.
        pipeline: name under which positions are committed.
        parallel: tables worked on at the same time.

    Raises:
        ConfigError: the session is a client's.
    """

    capabilities = MERGE
    copies: Copies | None = None

    def __init__(
        self, spark: SparkSession, lake: Location, pipeline: str, *, parallel: int = 2
    ) -> None:
        if is_remote(spark):
            raise ConfigError(
                "target.merge: a client of Spark Connect has no sessions of one application, and each table needs one.",
                next_step="set target.merge to false, or spark.master to a master.",
            )
        self._spark = spark
        self._parallel = parallel
        # Spark would write vectors too, and a MERGE is the same with and without.
        self._tables = DeltaTables(lake, pipeline, vectors=False)
        self.state = self._tables.state
        self.evolve = self._tables.evolve
        self.tidy = self._tables.tidy
        self.drop = self._tables.drop
        self._sessions: dict[TableId, SparkSession] = {}
        self._lock = threading.Lock()

    def session(self, table: TableId) -> SparkSession:
        """Return the session that belongs to a table.

        Each table has its own: Delta's transaction identifier is a setting of the session.
        """
        with self._lock:
            if table not in self._sessions:
                session = self._spark.newSession()
                for name, value in _SESSION.items():
                    session.conf.set(name, value)
                self._sessions[table] = session
            return self._sessions[table]

    def apply(self, batches: Sequence[TableBatch]) -> list[TargetState | HeadraceError]:
        """Commit each table's changes and the position they reach in one version of it."""
        with ThreadPoolExecutor(self._parallel) as pool:
            outcomes = pool.map(self._apply, batches)
            return [
                translated(outcome, batch.schema)
                for outcome, batch in zip(outcomes, batches, strict=True)
            ]

    def maintain(
        self, _keys: Mapping[TableId, tuple[str, ...]], _sizes: Sizes, _most: int
    ) -> dict[TableId, Rewritten | HeadraceError | None]:
        """Do nothing: Delta's own OPTIMIZE is for tables that Spark writes."""
        return {}

    def _apply(self, batch: TableBatch) -> TargetState | Exception:
        try:
            return self._commit(batch)
        except Exception as error:  # noqa: BLE001 - the table's outcome, no other's
            return error

    def _commit(self, batch: TableBatch) -> TargetState:
        schema, scn = batch.schema, batch.scn
        session = self.session(schema.table)
        before = self._tables.existing(schema.table)
        session.conf.set(
            "spark.databricks.delta.write.txnAppId",
            self._tables.application(schema.table, before),
        )
        session.conf.set("spark.databricks.delta.write.txnVersion", str(scn))
        kind = MultisetBatch if schema.key_check is KeyCheck.NONE else KeyedBatch
        folder = self._tables.folder(schema.table)
        empty = not before.files
        rows = batch.folded.frame().persist()
        try:
            kind(session, schema, folder, rows, empty=empty, complete=batch.complete).commit()
        finally:
            rows.unpersist()
            session.conf.unset("spark.databricks.delta.write.txnVersion")
            session.conf.unset("spark.databricks.delta.write.txnAppId")
        failpoint("apply.after_commit")
        snapshot = self._tables.existing(schema.table)
        state = self._tables.state_of(snapshot, schema.table)
        if state.applied_scn != scn:
            # Delta skips a write whose identifier it has seen, without a word.
            raise TargetConflict(
                f"The target table of {schema.table} is at SCN {state.applied_scn} after a commit of SCN {scn}.",
                next_step="let one headrace process write the table; the batch is tried again.",
            )
        return state

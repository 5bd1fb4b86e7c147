"""Delta tables by Spark's own statements: MERGE, append and overwrite.

In: the folded form of one table's changes, as a DataFrame. Out: one commit per call that carries rows and applied
SCN (Delta's ``txn`` action). Rows never come to the driver: it sees one row of counts and the
statement. Plain, slow and right: the second implementation beside any faster one, and its oracle.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

import threading
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import TargetConflict, TargetUnwritable
from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import app_id, applied_scn, table_path
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.spark.columns import quoted
from headrace.spark.failures import translate
from headrace.spark.targets.base import Capabilities, TargetState
from headrace.spark.targets.evolution import (
    SCHEMA_PROPERTY,
    WIDENING,
    create_statement,
    evolve_statements,
)
from headrace.spark.targets.keyed import KeyedBatch
from headrace.spark.targets.multiset import MultisetBatch

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
    """

    capabilities = Capabilities(
        name="merge",
        format="delta",
        atomic_ledger=True,
        keyless=True,
        truncate=True,
        add_column=True,
        widening=WIDENING,
    )

    def __init__(self, spark: SparkSession, lake: Path, pipeline: str) -> None:
        self._spark = spark
        self._lake = lake.absolute()
        self._pipeline = pipeline
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

    def state(self, table: TableId) -> TargetState | None:
        """Return what the table's own log says, None when there is no table."""
        snapshot = DeltaTable(table_path(self._lake, table)).latest()
        if snapshot is None:
            return None
        return TargetState(
            version=snapshot.version,
            applied_scn=applied_scn(snapshot, self._pipeline, table),
            schema_id=int(snapshot.properties.get(SCHEMA_PROPERTY, "0")),
        )

    def evolve(self, schema: TableSchema) -> TargetState:
        """Create the table, or bring its columns to ``schema``; nothing when they are there."""
        state = self.state(schema.table)
        if state is not None and state.schema_id == schema.schema_id:
            return state
        folder = table_path(self._lake, schema.table)
        if folder.exists() and not folder.is_dir():
            # Spark would create the table beside it, and nobody would find it.
            raise TargetUnwritable(
                f"The target table of {schema.table} cannot be written: {folder.name} is a file.",
                next_step="move the file away; the batch is tried again.",
            )
        path = self._path(schema.table)
        session = self.session(schema.table)
        try:
            if state is None:
                session.sql(create_statement(path, schema))
            else:
                held = DeltaTable(folder).snapshot().schema
                for statement in evolve_statements(path, held, schema):
                    session.sql(statement)
        except Exception as error:
            raise translate(error, schema.table, schema) from error
        return self._expect(schema)

    def apply(
        self, schema: TableSchema, folded: DataFrame, scn: int, *, complete: bool
    ) -> TargetState:
        """Commit folded changes and the position they reach in one version of the table."""
        session = self.session(schema.table)
        session.conf.set(
            "spark.databricks.delta.write.txnAppId", app_id(self._pipeline, schema.table)
        )
        session.conf.set("spark.databricks.delta.write.txnVersion", str(scn))
        kind = MultisetBatch if schema.key_check is KeyCheck.NONE else KeyedBatch
        folder = table_path(self._lake, schema.table)
        empty = not DeltaTable(folder).snapshot().files
        folded = folded.persist()
        try:
            kind(session, schema, folder, folded, empty=empty, complete=complete).commit()
        except Exception as error:
            raise translate(error, schema.table, schema) from error
        finally:
            folded.unpersist()
            session.conf.unset("spark.databricks.delta.write.txnVersion")
            session.conf.unset("spark.databricks.delta.write.txnAppId")
        state = self._expect(schema)
        if state.applied_scn != scn:
            # Delta skips a write whose identifier it has seen, without a word.
            raise TargetConflict(
                f"The target table of {schema.table} is at SCN {state.applied_scn} after a commit of SCN {scn}.",
                next_step="let one headrace process write the table; the batch is tried again.",
            )
        return state

    def _path(self, table: TableId) -> str:
        return f"delta.{quoted(str(table_path(self._lake, table)))}"

    def _expect(self, schema: TableSchema) -> TargetState:
        state = self.state(schema.table)
        if state is None:
            raise TargetConflict(
                f"The target table of {schema.table} vanished during a commit.",
                next_step="let headrace be the only writer of the table; the batch is tried again.",
            )
        return state

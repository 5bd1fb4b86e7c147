"""What the targets in SQL share: what the ledger says, and how columns change; rows are each target's own business."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import AbstractContextManager

from pyspark.sql import SparkSession

from headrace.errors import HeadraceError
from headrace.lake.copies import Copy
from headrace.lake.pieces import Sizes
from headrace.lake.policies import DEFAULTS, Policies
from headrace.lake.rewrite import Rewritten
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.session import Session, Warehouse, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import TableId, TableSchema
from headrace.spark.failures import translate
from headrace.spark.targets.base import Copies, TableBatch, TargetState

__all__ = ["WarehouseTarget", "said", "state_of"]


def state_of(entry: Entry) -> TargetState:
    """Return what an entry of the ledger says."""
    schema = entry.schema
    return TargetState(
        entry.version,
        entry.applied_scn,
        schema.schema_id,
        schema.shape.text if schema.shape else "",
        tuple(column for column in schema.columns if column.name in schema.kept),
        entry.copy,
    )


def said(outcome: object, batch: TableBatch) -> TargetState | HeadraceError:
    """Return what came of a table's batch, an error as one of ours with the original chained."""
    if isinstance(outcome, Entry):
        return state_of(outcome)
    assert isinstance(outcome, Exception)
    return translate(outcome, batch.schema.table, batch.schema)


class WarehouseTarget:
    """Tables of a warehouse.

    Args:
        spark: a session of the application, used for all tables.
        warehouse: where they are.
        pipeline: name under which positions are committed.
    """

    def __init__(self, spark: SparkSession, warehouse: Warehouse, pipeline: str) -> None:
        self._spark = spark
        self._warehouse = warehouse
        self._tables = WarehouseTables(warehouse, pipeline)
        self._one_at_a_time = threading.Lock()
        self.copies: Copies | None = self

    def session(self, _table: TableId) -> SparkSession:
        """Return the session: no table has settings of its own."""
        return self._spark

    def state(self, table: TableId) -> TargetState | None:
        """Return what the ledger says, None when it does not know the table."""
        with self._one_at_a_time, told(self._warehouse, table), self._connected() as session:
            entry = self._tables.entry(session, table)
        return None if entry is None else state_of(entry)

    def evolve(self, schema: TableSchema, policies: Policies = DEFAULTS) -> TargetState:
        """Create the table, or bring its columns to ``schema``; nothing when they are there."""
        with self._one_at_a_time, told(self._warehouse, schema.table), self._connected() as session:
            return state_of(self._tables.evolve(session, schema, policies))

    def begin_copy(self, schema: TableSchema, copy: Copy) -> TargetState:
        """Begin an empty copy beside the table; what is written goes there from now on."""
        with self._one_at_a_time, told(self._warehouse, schema.table), self._connected() as session:
            return state_of(self._tables.begin_copy(session, schema, copy))

    def ask_again(self, table: TableId, request: str) -> TargetState:
        """Let another dump fill the copy."""
        with self._one_at_a_time, told(self._warehouse, table), self._connected() as session:
            return state_of(self._tables.ask_again(session, table, request))

    def end_copy(self, table: TableId) -> TargetState:
        """Put the copy in the table's place, in one transaction.

        Raises:
            TargetConflict: the table is not as we left it, or something depends on a column that goes.
        """
        with self._one_at_a_time, told(self._warehouse, table), self._connected() as session:
            return state_of(self._tables.end_copy(session, table))

    def drop(self, table: TableId) -> None:
        """Remove a table and its row in the ledger, in one transaction."""
        with self._one_at_a_time, told(self._warehouse, table), self._connected() as session:
            self._tables.drop(session, table)

    def maintain(
        self, _keys: Mapping[TableId, tuple[str, ...]], _sizes: Sizes, _most: int
    ) -> dict[TableId, Rewritten | HeadraceError | None]:
        """Do nothing: a warehouse looks after its own files."""
        return {}

    def tidy(self, table: TableId, promised: int) -> None:
        """Do nothing: a warehouse keeps no older version."""

    def _connected(self) -> AbstractContextManager[Session]:
        """Return a session of the driver's."""
        return self._warehouse.opened()

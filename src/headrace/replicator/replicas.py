"""How the tables of a target are read beside the job that writes them: what they show, and as of which SCN.

Delta tables keep older versions, so any frontier can be read. A warehouse shows its present alone: there all is read
in one transaction, at the positions that its ledger has in that transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pyarrow as pa

from headrace.fold import renamed
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import later_names
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.ledger import shown_version, table_path
from headrace.lake.planned import ColumnChange, column_changes, planned_changes
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.session import Session, Warehouse, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema
from headrace.model.succession import successors

__all__ = ["DeltaReplicas", "Replicas", "Shown", "WarehouseReplicas"]


class Shown(Protocol):
    """The tables as they are while a block runs."""

    def at_or_below(self, scn: int) -> Manifest | None:
        """Return the newest frontier that can be read and is not above an SCN, None when there is none."""
        ...

    def version(self, table: TableId, entry: TableEntry) -> int:
        """Return which version of a table is read; negative when there is none."""
        ...

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        """Yield a table's rows, their columns under the names that ``schema`` has for them."""
        ...


class Replicas(Protocol):
    """The tables of one pipeline."""

    def latest(self) -> Manifest | None:
        """Return the newest frontier."""
        ...

    def opened(self) -> AbstractContextManager[Shown]:
        """Hold the tables as they are while a block runs."""
        ...

    def changes(self, schema: TableSchema) -> list[ColumnChange] | None:
        """Return what brings a table's columns to ``schema``, None when the target has no such table."""
        ...


class DeltaReplicas:
    """Delta tables under one folder.

    Args:
        lake: the folder.
        pipeline: name of the pipeline.
    """

    def __init__(self, lake: Path, pipeline: str) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._frontiers = FrontierStore(lake, pipeline)
        self.latest = self._frontiers.latest
        self.at_or_below = self._frontiers.at_or_below

    @contextmanager
    def opened(self) -> Iterator[Shown]:
        """Give the tables: their versions stay what they are."""
        yield self

    def version(self, table: TableId, entry: TableEntry) -> int:
        """Return the version that readers see."""
        return shown_version(self._lake, self._pipeline, table, entry.version)

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        """Yield a table's rows."""
        if version < 0:
            # A table that never had a row may have no files yet.
            return
        held = DeltaTable(table_path(self._lake, schema.table)).snapshot(version)
        names = later_names(held, schema)
        for batch in held.batches():
            yield batch if names is None else renamed(batch, names)

    def changes(self, schema: TableSchema) -> list[ColumnChange] | None:
        """Return what brings a table's columns to ``schema``."""
        held = DeltaTable(table_path(self._lake, schema.table)).latest()
        return None if held is None else planned_changes(held, schema)


class WarehouseReplicas:
    """Tables of a warehouse.

    Args:
        warehouse: where they are.
        manifests: folder of the pipeline's frontiers.
        pipeline: name of the pipeline.
    """

    def __init__(self, warehouse: Warehouse, manifests: Path, pipeline: str) -> None:
        self._tables = WarehouseTables(warehouse, pipeline)
        self.latest = FrontierStore(manifests, pipeline).latest

    @contextmanager
    def opened(self) -> Iterator[Shown]:
        """Give the tables as of one transaction."""
        # Before the transaction begins: what it says is a lower bound then.
        manifest = self.latest()
        with told(self._tables.warehouse), self._tables.warehouse.opened(read_only=True) as session:
            yield _Moment(self._tables, session, self._tables.entries(session), manifest)

    def changes(self, schema: TableSchema) -> list[ColumnChange] | None:
        """Return what brings a table's columns to ``schema``."""
        with told(self._tables.warehouse), self._tables.warehouse.opened(read_only=True) as session:
            held = self._tables.entry(session, schema.table)
        if held is None:
            return None
        return column_changes(table_arrow_schema(held.schema), held.numbers, schema)


@dataclass(frozen=True, slots=True)
class _Moment:
    """A warehouse in one transaction; its version of a table is the ledger's."""

    tables: WarehouseTables
    session: Session
    entries: dict[TableId, Entry]
    manifest: Manifest | None

    def at_or_below(self, scn: int) -> Manifest | None:
        if self.manifest is None or self.manifest.scn > scn:
            return None
        found = {}
        for name, entry in self.manifest.tables.items():
            held = self.entries.get(TableId.parse(name))
            applied = held.applied_scn if held else 0
            if applied > scn:
                # It is further than the frontier, and may show what nobody has seen yet.
                return None
            found[name] = replace(entry, applied_scn=max(applied, entry.applied_scn))
        return replace(self.manifest, tables=found)

    def version(self, table: TableId, _entry: TableEntry) -> int:
        held = self.entries.get(table)
        return held.version if held else -1

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        if version < 0:
            return
        held = self.entries[schema.table]
        names = successors(held.schema.names, schema.names, held.numbers, schema.numbers)
        with told(self.tables.warehouse, schema.table):
            for batch in self.tables.rows(self.session, schema.table, held):
                yield batch if names is None else renamed(batch, names)

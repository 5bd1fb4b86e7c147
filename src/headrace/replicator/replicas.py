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
from headrace.lake.change_files import head_of, told_changes
from headrace.lake.delta_log import DeltaTable
from headrace.lake.evolution import later_names
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.ledger import shown_version, table_path
from headrace.lake.modes import Mode, live_batches, mode_of, shaped
from headrace.lake.planned import ColumnChange, column_changes, planned_changes
from headrace.lake.remembered import kept_names
from headrace.lake.settings import SettingsByTable, settings_for
from headrace.lake.snapshot import Snapshot
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.session import Session, Warehouse, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema
from headrace.model.succession import successors
from headrace.replicator.verify_report import Uncompared

__all__ = ["DeltaReplicas", "ParquetReplicas", "Replicas", "Shown", "WarehouseReplicas"]


class Shown(Protocol):
    """The tables as they are while a block runs."""

    def at_or_below(self, scn: int) -> Manifest | None:
        """Return the newest frontier that can be read and is not above an SCN, None when there is none."""
        ...

    def version(self, table: TableId, entry: TableEntry) -> int:
        """Return which version of a table is read; negative when there is none."""
        ...

    def rows(self, schema: TableSchema, version: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a table that are the source's, under the names that ``schema`` has for their columns."""
        ...

    def uncompared(self, table: TableId, version: int) -> Uncompared | None:
        """Return why a table has no rows that would be the source's, None when it has."""
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

    def alike(self, schema: TableSchema) -> TableSchema:
        """Return a version of the source's table with only the columns whose values the target has too."""
        ...


class DeltaReplicas:
    """Delta tables under one folder.

    Args:
        lake: the folder.
        pipeline: name of the pipeline.
        given: what was asked for single tables.
    """

    def __init__(self, lake: Path, pipeline: str, given: SettingsByTable = ()) -> None:
        self._lake = lake
        self._pipeline = pipeline
        self._given = given
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
        """Yield a table's live rows."""
        held = self._held(schema.table, version)
        if held is None:
            return
        settings = settings_for(schema.table, self._given)
        mode, own = mode_of(held), settings.of_its_own(held) | kept_names(held)
        alike = [name for name in held.schema.names if name not in own]
        seen = settings.renamed(schema)
        names = later_names(replace(held, schema=held.schema_of(alike)), shaped(seen, mode))
        back = dict(zip(seen.names, schema.names, strict=True))
        names = {name: name for name in alike} if names is None else names
        for batch in live_batches(held, mode):
            yield renamed(batch, {name: back.get(later, later) for name, later in names.items()})

    def uncompared(self, table: TableId, version: int) -> Uncompared | None:
        """Return why a table is not compared."""
        held = self._held(table, version)
        if held is not None and mode_of(held) is Mode.APPEND:
            return "append"
        return "where" if settings_for(table, self._given).where is not None else None

    def _held(self, table: TableId, version: int) -> Snapshot | None:
        """Return a version of a table; one that never had a row may have no files yet."""
        return None if version < 0 else DeltaTable(table_path(self._lake, table)).snapshot(version)

    def changes(self, schema: TableSchema) -> list[ColumnChange] | None:
        """Return what brings a table's columns to ``schema``; those that the target makes for itself aside."""
        held = DeltaTable(table_path(self._lake, schema.table)).latest()
        if held is None:
            return None
        settings = settings_for(schema.table, self._given)
        own = settings.of_its_own(held)
        alike = [name for name in held.schema.names if name not in own]
        seen = shaped(settings.renamed(settings.alike(schema)), mode_of(held))
        return planned_changes(replace(held, schema=held.schema_of(alike)), seen, settings.policies)

    def alike(self, schema: TableSchema) -> TableSchema:
        """Return the columns that can be compared."""
        return settings_for(schema.table, self._given).alike(schema)


class ParquetReplicas:
    """Files of changes under one folder, which have no rows that would be the source's.

    Args:
        lake: the folder.
        pipeline: name of the pipeline.
        given: what was asked for single tables.
    """

    def __init__(self, lake: Path, pipeline: str, given: SettingsByTable = ()) -> None:
        self._lake = lake
        self._given = given
        self._frontiers = FrontierStore(lake, pipeline)
        self.latest = self._frontiers.latest
        self.at_or_below = self._frontiers.at_or_below

    @contextmanager
    def opened(self) -> Iterator[Shown]:
        """Give the tables: what is there stays."""
        yield self

    def version(self, _table: TableId, entry: TableEntry) -> int:
        """Return the number of the newest file."""
        return entry.version

    def rows(self, _schema: TableSchema, _version: int) -> Iterator[pa.RecordBatch]:
        """Yield nothing: no table of changes is compared."""
        yield from ()

    def uncompared(self, _table: TableId, _version: int) -> Uncompared | None:
        """Return why no table is compared."""
        return "append"

    def changes(self, schema: TableSchema) -> list[ColumnChange] | None:
        """Return how the columns of a table's next file differ; those that the target makes for itself aside."""
        head = head_of(table_path(self._lake, schema.table))
        if head is None:
            return None
        settings = settings_for(schema.table, self._given)
        made = {name for name, _ in (*settings.mask, *settings.compute)}
        own = replace(head, now=tuple(name for name in head.now if name not in made))
        return told_changes(own, shaped(settings.renamed(settings.alike(schema)), Mode.APPEND))

    def alike(self, schema: TableSchema) -> TableSchema:
        """Return the columns that could be compared."""
        return settings_for(schema.table, self._given).alike(schema)


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

    def alike(self, schema: TableSchema) -> TableSchema:
        """Return the columns that can be compared: all of them."""
        return schema


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

    def uncompared(self, _table: TableId, _version: int) -> Uncompared | None:
        return None

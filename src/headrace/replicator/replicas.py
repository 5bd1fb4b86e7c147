"""How the tables of a target are read beside the job that writes them: what they show, and as of which SCN.

Delta tables keep older versions, so any frontier can be read. A warehouse shows its present alone: there all is read
in one transaction, at the positions that its ledger has in that transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
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
from headrace.lake.planned import ColumnChange, planned_changes
from headrace.lake.remembered import kept_names
from headrace.lake.settings import SettingsByTable, TableSettings, settings_for
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import TableId, TableSchema
from headrace.replicator.verify_report import Uncompared
from headrace.store import Location

__all__ = ["DeltaReplicas", "ParquetReplicas", "Replicas", "Shown", "left_uncompared"]


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


def left_uncompared(settings: TableSettings) -> Uncompared | None:
    """Return why a table with these settings is not compared, whatever its target is."""
    if settings.ignored:
        return "ignore"
    return "where" if settings.where is not None else None


class DeltaReplicas:
    """Delta tables under one folder.

    Args:
        lake: the folder.
        pipeline: name of the pipeline.
        given: what was asked for single tables.
    """

    def __init__(self, lake: Location, pipeline: str, given: SettingsByTable = ()) -> None:
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
        mode, own = mode_of(held), settings.of_its_own(held.schema.names) | kept_names(held)
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
        return left_uncompared(settings_for(table, self._given))

    def _held(self, table: TableId, version: int) -> Snapshot | None:
        """Return a version of a table; one that never had a row may have no files yet."""
        return None if version < 0 else DeltaTable(table_path(self._lake, table)).snapshot(version)

    def changes(self, schema: TableSchema) -> list[ColumnChange] | None:
        """Return what brings a table's columns to ``schema``; those that the target makes for itself aside."""
        held = DeltaTable(table_path(self._lake, schema.table)).latest()
        if held is None:
            return None
        settings = settings_for(schema.table, self._given)
        own = settings.of_its_own(held.schema.names)
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

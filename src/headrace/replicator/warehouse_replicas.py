"""How the tables of a warehouse are read beside the job that writes them.

Apart from the others: what writes SQL in every dialect costs memory and time that a capture into a lake never needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import pyarrow as pa

from headrace.fold import renamed
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.modes import Mode, live_rows, mode_named, shaped
from headrace.lake.planned import ColumnChange, column_changes
from headrace.lake.settings import SettingsByTable, TableSettings, settings_for
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.session import Session, Warehouse, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.change import table_arrow_schema
from headrace.model.schema import Column, TableId, TableSchema
from headrace.model.succession import successors
from headrace.replicator.replicas import Shown, left_uncompared
from headrace.replicator.verify_report import Uncompared
from headrace.store import Location

__all__ = ["WarehouseReplicas"]


class WarehouseReplicas:
    """Tables of a warehouse.

    Args:
        warehouse: where they are.
        manifests: folder of the pipeline's frontiers.
        pipeline: name of the pipeline.
        given: what was asked for single tables.
    """

    def __init__(
        self, warehouse: Warehouse, manifests: Location, pipeline: str, given: SettingsByTable = ()
    ) -> None:
        self._tables = WarehouseTables(warehouse, pipeline)
        self._given = given
        self.latest = FrontierStore(manifests, pipeline).latest

    @contextmanager
    def opened(self) -> Iterator[Shown]:
        """Give the tables as of one transaction."""
        # Before the transaction begins: what it says is a lower bound then.
        manifest = self.latest()
        with told(self._tables.warehouse), self._tables.warehouse.opened(read_only=True) as session:
            entries = self._tables.entries(session)
            yield _Moment(self._tables, session, entries, manifest, self._given)

    def changes(self, schema: TableSchema) -> list[ColumnChange] | None:
        """Return what brings a table's columns to ``schema``; those that the target makes for itself aside."""
        with told(self._tables.warehouse), self._tables.warehouse.opened(read_only=True) as session:
            held = self._tables.entry(session, schema.table)
        if held is None:
            return None
        settings = settings_for(schema.table, self._given)
        seen = shaped(settings.renamed(settings.alike(schema)), _mode(held))
        alike = table_arrow_schema(replace(held.schema, columns=_alike(held, settings)))
        kept = held.schema.kept
        return column_changes(alike, held.numbers, seen, settings.policies, kept)

    def alike(self, schema: TableSchema) -> TableSchema:
        """Return the columns that can be compared."""
        return settings_for(schema.table, self._given).alike(schema)


def _mode(held: Entry) -> Mode:
    return mode_named(held.schema.shape.text if held.schema.shape else "")


def _alike(held: Entry, settings: TableSettings) -> tuple[Column, ...]:
    """Return the columns of a table that the target does not make for itself."""
    own = settings.of_its_own(held.schema.names)
    return tuple(column for column in held.schema.columns if column.name not in own)


@dataclass(frozen=True, slots=True)
class _Moment:
    """A warehouse in one transaction; its version of a table is the ledger's."""

    tables: WarehouseTables
    session: Session
    entries: dict[TableId, Entry]
    manifest: Manifest | None
    given: SettingsByTable

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
        settings, mode = settings_for(schema.table, self.given), _mode(held)
        seen = settings.renamed(schema)
        later = shaped(seen, mode)
        # Without those that the source no longer has: a person may have dropped one.
        columns = tuple(c for c in held.schema.columns if c.name not in held.schema.kept)
        held = replace(held, schema=replace(held.schema, columns=columns))
        alike = [column.name for column in _alike(held, settings)]
        names = successors(alike, later.names, held.numbers, later.numbers)
        names = {name: name for name in alike} if names is None else names
        back = dict(zip(seen.names, schema.names, strict=True))
        names = {name: back.get(now, now) for name, now in names.items()}
        with told(self.tables.warehouse, schema.table):
            for batch in self.tables.rows(self.session, schema.table, held):
                yield renamed(live_rows(batch, mode), names)

    def uncompared(self, table: TableId, _version: int) -> Uncompared | None:
        held = self.entries.get(table)
        if held is not None and _mode(held) is Mode.APPEND:
            return "append"
        return left_uncompared(settings_for(table, self.given))

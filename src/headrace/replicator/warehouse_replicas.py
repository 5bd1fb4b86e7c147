"""How the tables of a warehouse are read beside the job that writes them.

Apart from the others: what writes SQL in every dialect costs memory and time that a capture into a lake never needs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pyarrow as pa

from headrace.fold import renamed
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.planned import ColumnChange, column_changes
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.session import Session, Warehouse, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema
from headrace.model.succession import successors
from headrace.replicator.replicas import Shown
from headrace.replicator.verify_report import Uncompared

__all__ = ["WarehouseReplicas"]


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

"""Explains layouts: which tables are ours, their schemas, and what is new about them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from headrace.fold.form import refuse_taken
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.model.succession import column_number
from headrace.sources.base import SchemaStore
from headrace.sources.postgres.catalog import TypeCache, table_schema
from headrace.sources.postgres.catalog_look import Seen
from headrace.sources.postgres.messages import Cell
from headrace.sources.postgres.relations import needs_dump
from headrace.sources.postgres.rows import ChangeRows
from headrace.sources.postgres.side import SideSession
from headrace.sources.taken import NOT_LEFT_OUT
from headrace.sources.trigger.postgres.image import cells_of
from headrace.sources.trigger.postgres.layout import Layout, LayoutColumn, parse
from headrace.sources.trigger.postgres.settings import PostgresTriggerSettings

__all__ = ["LayoutVersions", "Version"]


@dataclass(frozen=True, slots=True)
class Version:
    """What rows behind a layout are.

    Attributes:
        table: its name.
        width: cells of a row image.
        schema: the table from here on; None when its rows are not ours to keep.
        places: which cells of an image are the schema's columns.
        announce: payload of the system event that says so, None when nothing is new.
        anew: payload of the truncate that begins the table's life, None when it only goes on.
    """

    table: TableId
    width: int
    schema: TableSchema | None = None
    places: tuple[int, ...] = ()
    announce: dict[str, Any] | None = None
    anew: dict[str, Any] | None = None

    def rows(self) -> TextRows:
        """Return where rows are collected that have the version's schema."""
        return TextRows(self)


class TextRows(ChangeRows):
    """Rows of one version from the texts of whole rows; see `headrace.sources.trigger.ports.ImageRows`."""

    def __init__(self, version: Version) -> None:
        assert version.schema is not None
        super().__init__(version.schema, version.schema.schema_id)
        self._version = version

    def add(self, scn: int, ord_: int, op: bytes, before: bytes | None, after: bytes | None) -> int:
        """Add the rows of one change."""
        if op == b"I":
            return self.insert(scn, ord_, self._cells(after))
        if op == b"D":
            return self.delete(scn, ord_, "O", self._cells(before))
        return self.update(scn, ord_, "O", self._cells(before), self._cells(after))

    def _cells(self, image: bytes | None) -> list[Cell]:
        cells = cells_of(image or b"", self._version.width)
        return [cells[place] for place in self._version.places]


class LayoutVersions:
    """Keeps what was last said of each table. Used from the stream's thread.

    Args:
        settings: which tables.
        side: asked for types that were not seen before.
        types: shared with the chunks.
        schemas: where versions are kept.
        seen: what looks at the catalog tell.
    """

    def __init__(
        self,
        settings: PostgresTriggerSettings,
        side: SideSession,
        types: TypeCache,
        schemas: SchemaStore,
        seen: Seen,
    ) -> None:
        self._settings = settings
        self._side = side
        self._types = types
        self._schemas = schemas
        self._seen = seen
        self._oids: dict[TableId, int] = {}
        self._last: dict[TableId, tuple[TableSchema, int]] = {}

    def resolve(self, relid: int, layout: bytes) -> Version:
        """Return what the rows of a table are from here on.

        Raises:
            IncompatibleSchemaChange: a column has a name that changes need for themselves.
        """
        return self._resolve(relid, parse(layout))

    def _resolve(self, oid: int, layout: Layout) -> Version:
        table, width = layout.table, len(layout.columns)
        if not self._settings.selects(table):
            return Version(table, width)
        anew = None
        if self._oids.setdefault(table, oid) != oid:
            # Another table has the name now: no row of the one before it is a row of this one.
            self._oids[table] = oid
            self._last.pop(table, None)
            if str(oid) not in self._seen.admitted:
                # Once it is admitted that has been said, and rows of its dump may lie before this place.
                anew = {"anew": True, "identity": str(oid)}
        kept = [(at, c) for at, c in enumerate(layout.columns) if not c.generated]
        schema = self._schema(oid, layout, [column for _, column in kept])
        refuse_taken(schema, NOT_LEFT_OUT)
        self._schemas.put(schema)
        filled = {column.name for _, column in kept if column.filled}
        announce = self._announce(schema, filled, layout.storage)
        return Version(table, width, schema, tuple(at for at, _ in kept), announce, anew)

    def _schema(self, oid: int, layout: Layout, columns: list[LayoutColumn]) -> TableSchema:
        pairs = [(c.type_oid, c.modifier) for c in columns]
        types = self._types.resolve(self._side.get(), pairs)
        texts = self._settings.database.text_of(layout.table)
        typed = [
            (c.name, types[pair].as_text() if c.name in texts else types[pair])
            for c, pair in zip(columns, pairs, strict=True)
        ]
        names = {c.number: c.name for c in columns}
        key = [names[number] for number in layout.key if number in names]
        check = KeyCheck.DEFERRED if key else KeyCheck.NONE
        numbers = {c.name: column_number(oid, c.number) for c in columns}
        return replace(table_schema(layout.table, typed, key, check), numbers=numbers)

    def _announce(
        self, schema: TableSchema, filled: set[str], storage: int
    ) -> dict[str, Any] | None:
        """Return the payload of a schema event, None when the table is as last described."""
        last, old_storage = self._last.get(schema.table, (None, 0))
        self._last[schema.table] = schema, storage
        if last == schema and last.numbers == schema.numbers:
            return None
        payload: dict[str, Any] = {
            "schema_id": schema.schema_id,
            "numbers": dict(schema.numbers),
        }
        if filled:
            payload["filled"] = sorted(filled)
        if last is not None:
            payload["was"] = {"schema_id": last.schema_id, "numbers": dict(last.numbers)}
            if needs_dump(last, schema, filled, rewritten=storage != old_storage):
                payload["needs_dump"] = True
        return payload

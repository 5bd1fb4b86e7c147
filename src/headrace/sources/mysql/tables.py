"""Table maps of a log to tables that are kept: versions are registered, and what is new is announced."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from typing import Any

from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import SchemaStore
from headrace.sources.mysql import history
from headrace.sources.mysql.catalog import TableFacts, facts_schema, own_numbers
from headrace.sources.mysql.charsets import Collations
from headrace.sources.mysql.engine import make_engine
from headrace.sources.mysql.events import Event
from headrace.sources.mysql.marks import MARKS_TABLE
from headrace.sources.mysql.ports import Described
from headrace.sources.mysql.position import GONE
from headrace.sources.mysql.rekeyed import is_rekeyed
from headrace.sources.mysql.rows import TableRows
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.table_map import parse_table_map, table_map_id
from headrace.sources.mysql.versions import Version, version_of

__all__ = ["LoggedTables"]


class LoggedTables:
    """The tables of one open log.

    Args:
        settings: of the source.
        collations: of the server.
        catalog: returns a table as the catalog has it now.
        schemas: where versions are registered.
        acting: returns whether the catalog has a foreign key of a table that changes rows by itself; None where the log
            has what such keys do.
        historic: returns whether the catalog has it that a table keeps its own history.
        present: the captured tables that the catalog has when the log is opened.
        folds: whether the server keeps names in small letters.
    """

    def __init__(
        self,
        settings: MysqlSettings,
        collations: Collations,
        catalog: Callable[[TableId], TableFacts | None],
        schemas: SchemaStore,
        acting: Callable[[TableId], bool] | None,
        historic: Callable[[TableId], bool],
        present: Collection[TableId],
        *,
        folds: bool,
    ) -> None:
        self.folds = folds
        self.charsets = collations.charsets
        self._settings = settings
        self._collations = collations
        self._catalog = catalog
        self._schemas = schemas
        self._acting = acting
        self._historic = historic
        self._present = present
        self._engine = make_engine()
        self._known: dict[bytes, tuple[Version, int]] = {}
        self._rows: dict[int, TableRows] = {}

    def captures(self, table: TableId) -> bool:
        """Return whether a table's rows are kept."""
        return self._settings.selects(table)

    def _fills(self, before: int, after: int) -> bool:
        """Return whether rows got values that no event carries: in a new column, or in one of another type.

        The log does not say what a new column's default was, nor how values were converted.
        """
        known = {column.name: column for column in self._schemas.get(before).columns}
        return any(
            column.name not in known or known[column.name].source_type != column.source_type
            for column in self._schemas.get(after).columns
        )

    def hides(self, table: TableId, *, surely: bool = False) -> bool:
        """Return whether rows change that are in no log; see `headrace.sources.mysql.ports.Tables`."""
        return self._acting is not None and (surely or self._acting(table))

    def within(self, schema: str) -> set[TableId]:
        """Return the tables of a database that were ever captured; see `headrace.sources.mysql.ports.Tables`."""
        # What was dumped and never changed is registered; what is still to be dumped is not.
        known = (*self._present, *(version.table for version in self._schemas.all()))
        return {table for table in known if table.schema == schema and self.captures(table)}

    def found(self, table: TableId, before: int = GONE) -> int:
        """Return a table's version from here on; see `headrace.sources.mysql.ports.Tables`."""
        if before != GONE:
            return self._schemas.put(replace(self._schemas.get(before), table=table))
        # What looks alike in the log may be of another type from here on, as the catalog knows.
        self._known = {r: v for r, v in self._known.items() if v[0].schema.table != table}
        facts = self._catalog(table)
        return GONE if facts is None else self._schemas.put(facts_schema(facts))

    def told(self, version: int, before: int = GONE) -> dict[str, Any]:
        """Return what a schema event says; see `headrace.sources.mysql.ports.Tables`."""
        payload: dict[str, Any] = self._one(version)
        if before != GONE:
            payload["was"] = self._one(before)
            if self._fills(before, version):
                payload["needs_dump"] = True
        return payload

    def rekeys(
        self, version: int, before: int, remade: Collection[str], unfit: Collection[str] = ()
    ) -> bool:
        """Return whether rows may have other keys; see `headrace.sources.mysql.ports.Tables`."""
        after = self._schemas.get(version)
        if before != GONE:
            return is_rekeyed(self._schemas.get(before), after, remade, unfit)
        ever = (one for one in self._schemas.all() if one.table == after.table)
        return any(is_rekeyed(one, after, remade, unfit) for one in ever)

    def _one(self, version: int) -> dict[str, Any]:
        return {"schema_id": version, "numbers": dict(own_numbers(self._schemas.get(version)))}

    def describe(self, event: Event, known: Mapping[str, int]) -> Described:
        """Return what rows behind a table map are; see `headrace.sources.mysql.ports.Tables`."""
        _, table, raw = table_map_id(event)
        ours = table == MARKS_TABLE
        if not ours and not self.captures(table):
            return Described()
        if raw not in self._known:
            map_ = parse_table_map(event, self._collations)
            if map_.is_sequence:
                return Described()
            if history.may_keep_history(map_) and self._historic(table):
                raise history.refusal(table)
            found = version_of(map_, self._catalog)
            self._known[raw] = (found, 0 if ours else self._schemas.put(found.schema))
        version, schema_id = self._known[raw]
        if ours:
            return Described(rows=self._new_rows(version, 0), marks=True)
        schema = version.schema
        rows = self._rows.get(schema_id)
        if rows is None:
            rows = self._rows[schema_id] = self._new_rows(version, schema_id)
        rows.read_as(list(version.types))
        last = known.get(str(schema.table), schema_id)
        rekeyed = last not in (schema_id, GONE) and self.rekeys(schema_id, last, ())
        announce = self._announce(schema, schema_id, known)
        return Described(schema, schema_id, rows, announce, rekeyed)

    def _new_rows(self, version: Version, schema_id: int) -> TableRows:
        return TableRows(
            version.schema, schema_id, list(version.types), self._settings.zero_dates, self._engine
        )

    def _announce(
        self, schema: TableSchema, schema_id: int, known: Mapping[str, int]
    ) -> dict[str, Any] | None:
        last = known.get(str(schema.table))
        if last == schema_id:
            return None
        payload = self.told(schema_id, last or GONE)
        if last == GONE:
            # Nobody knows what rows a table that came back brought along.
            payload["needs_dump"] = True
        return payload

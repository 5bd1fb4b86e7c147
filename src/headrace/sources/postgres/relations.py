"""Explains relation messages: which tables are ours, their schemas, and what is new about them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from headrace.errors import SourceUnavailable
from headrace.fold.form import refuse_taken
from headrace.model.block import SystemKind
from headrace.model.schema import KeyCheck, TableId, TableSchema
from headrace.model.succession import column_number
from headrace.sources.base import SchemaStore
from headrace.sources.naming import refuse_unnameable
from headrace.sources.postgres.assembler import Event, TableVersion
from headrace.sources.postgres.catalog import TableFacts, TypeCache, read_tables, table_schema
from headrace.sources.postgres.catalog_look import Seen
from headrace.sources.postgres.columns import kept_names, narrowed
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.ddl import Told, parse
from headrace.sources.postgres.leaves import Leaves
from headrace.sources.postgres.messages import Relation
from headrace.sources.postgres.publication import as_published
from headrace.sources.postgres.settings import MARKS_TABLE, PostgresSettings
from headrace.sources.postgres.side import SideSession
from headrace.sources.postgres.types import Form, ResolvedType
from headrace.sources.taken import LEFT_OUT

__all__ = ["CatalogVersions", "LogFormat", "needs_dump"]

# Who took a column away is older than every transaction that the slot has yet to tell. None of those knows the column:
# taking it away had to wait until all were gone who had written to the table.
_LOST_BEFORE = """
SELECT FROM pg_replication_slots s WHERE s.slot_name = $1 AND s.catalog_xmin IS NOT NULL
   AND NOT EXISTS (
       SELECT FROM pg_attribute a WHERE a.attrelid = $2::oid AND a.attnum > 0 AND a.attisdropped
          AND age(a.xmin) <= age(s.catalog_xmin))
"""


@dataclass(slots=True)
class LogFormat:
    """Whether the log comes in binary; kept for the life of a source.

    Attributes:
        binary: it does.
        refused: the log held a column of which only the text is known, so that it has to come as text.
    """

    binary: bool = False
    refused: bool = False


class CatalogVersions:
    """`Versions` by the catalog and the registry.

    The log's own description is the authority for columns and types, because it is of the time of the change; the
    catalog adds what the log does not say (type names, primary keys under REPLICA IDENTITY FULL).
    """

    def __init__(
        self,
        settings: PostgresSettings,
        side: SideSession,
        types: TypeCache,
        schemas: SchemaStore,
        seen: Seen | None = None,
        log_format: LogFormat | None = None,
    ) -> None:
        self._settings = settings
        self._filter = settings.filter
        self._side = side
        self._types = types
        self._schemas = schemas
        self._seen = seen or Seen()
        self._format = log_format or LogFormat()
        self._renamed: dict[str, TableId] = {}
        self._last: dict[TableId, TableSchema] = {}
        self._storage: dict[TableId, int] = {}
        self._oids: dict[TableId, int] = {}
        self._leaves = Leaves(settings, side)

    def misread(self, relation: Relation) -> frozenset[str]:
        """See `Versions`."""
        return self._leaves.misread(relation)

    def resolve(self, relation: Relation) -> TableVersion:
        """Return what the relation's rows are from here on.

        Raises:
            SourceUnavailable: the log has to be opened again, to come as text.
            IncompatibleSchemaChange: a column has a name that changes need for themselves, or the table that of
                another one.
        """
        table = TableId(relation.schema, relation.name)
        if table == MARKS_TABLE:
            return TableVersion(marks=self._settings.watermark == "table")
        astray = self._astray(str(relation.oid), table)
        if not self._filter.selects(table):
            return TableVersion(astray=astray)
        refuse_unnameable(table)
        anew = None
        if self._oids.setdefault(table, relation.oid) != relation.oid:
            # Another table has the name now: no row of the one before it is a row of this one.
            self._oids[table] = relation.oid
            self._last.pop(table, None)
            self._storage.pop(table, None)
            if str(relation.oid) not in self._seen.admitted:
                # Once it is admitted that has been said, and rows of its dump may lie before this place.
                anew = {"anew": True, "identity": str(relation.oid)}
        session = self._side.get()
        found = read_tables(session, only=table)
        facts = found[0] if found and found[0].oid == relation.oid else None
        schema = self._schema(session, relation, table, facts)
        kept = kept_names(relation, self._settings.columns_of(table), schema.key)
        wire = None
        if kept is not None:
            wire = _with_text(schema, kept)
            schema = self._schema(session, narrowed(relation, kept), table, facts)
        refuse_taken(schema, LEFT_OUT)
        forms = self._forms(table, relation, schema)
        numbers = self._numbers(session, relation, facts)
        if numbers:
            schema = replace(schema, numbers={name: numbers[name] for name in schema.names})
        announce = self._announce(schema, facts)
        return TableVersion(
            schema,
            self._schemas.put(schema),
            announce,
            anew=anew,
            wire=wire,
            forms=forms,
            astray=astray,
        )

    def _astray(self, identity: str, table: TableId) -> frozenset[str]:
        """Return the captured tables of which the copy is wrong unless a name in the log is theirs for good.

        That of a table is wrong whose changes come under another name, and that under whose name those of another come.
        Once such tables have their names back no look sees that anything was the matter.
        """
        seen, told = self._seen, self._renamed
        known = {names[identity] for names in (seen.tables, seen.found) if identity in names}
        found = set()
        if known and table not in known and told.get(identity) != table:
            found.add(identity)
        holder = seen.holders.get(table, identity)
        if holder != identity and told.get(holder, table) == table:
            found.add(holder)
        return frozenset(found)

    def _forms(self, table: TableId, relation: Relation, schema: TableSchema) -> tuple[Form, ...]:
        """Return how the binary form of each column of a table's messages is read; none in a log of text."""
        if not self._format.binary:
            return ()
        types = self._resolved(self._side.get(), relation, table)
        forms = tuple(
            type_.form if column.name in schema.names else Form.SKIPPED
            for column, type_ in zip(relation.columns, types, strict=True)
        )
        if Form.UNKNOWN in forms:
            self._format.refused = True
            raise SourceUnavailable(
                f"{table} has a column now of which only the text is known.",
                next_step="nothing to do: the log is opened again, and comes as text from then on.",
            )
        return forms

    def _resolved(self, session: Session, relation: Relation, table: TableId) -> list[ResolvedType]:
        """Return the types of a relation's columns, as the configuration wants them."""
        pairs = [(c.type_oid, c.type_modifier) for c in relation.columns]
        resolved = self._types.resolve(session, pairs)
        known = self._known_types(table) if any(t.gone for t in resolved.values()) else {}
        texts = self._settings.text_of(table)
        types = []
        for column, pair in zip(relation.columns, pairs, strict=True):
            type_ = resolved[pair]
            if type_.gone:
                type_ = known.get(column.name, type_)
            types.append(type_.as_text() if column.name in texts else type_)
        return types

    def _known_types(self, table: TableId) -> dict[str, ResolvedType]:
        """Return the types that columns of a table ever had, of those that never had another.

        A domain that was dropped says no more what it was made of. Where it was of another type than the column had
        before, the server wrote the values anew, so the table is read again anyway.
        """
        ever: dict[str, list[ResolvedType]] = {}
        for schema in self._schemas.all():
            if schema.table == table:
                for column in schema.columns:
                    type_ = ResolvedType(column.type, column.source_type)
                    ever.setdefault(column.name, []).append(type_)
        return {
            name: types[0]
            for name, types in ever.items()
            if all(type_.arrow == types[0].arrow for type_ in types)
        }

    def migrated(self, content: bytes) -> Iterator[Event]:
        """Yield the events of one message of the event trigger; none where the trigger is not used."""
        if self._settings.ddl != "trigger":
            return
        told = parse(content)
        if not told.table.name:
            yield from self._schema_migrated(told)
        elif told.dropped:
            if self._is_captured(told) or not self._seen.tables:
                yield SystemKind.DROP_TABLE, self._name(told), {"identity": told.identity}
        elif self._is_captured(told):
            yield from self._table_migrated(told)

    def _is_captured(self, told: Told) -> bool:
        """Return whether a message is about a captured table, under a name that it surely had when that was told."""
        seen = self._seen
        return told.identity in seen.tables or seen.found.get(told.identity) == told.table

    def _name(self, told: Told) -> TableId:
        """Return the name under which a table was last told of."""
        known = self._seen.tables.get(told.identity, told.table)
        return self._renamed.get(told.identity, known)

    def _table_migrated(self, told: Told) -> Iterator[Event]:
        before = self._name(told)
        if before != told.table:
            self._renamed[told.identity] = told.table
            payload = {"identity": told.identity, "to": str(told.table)}
            yield SystemKind.RENAME_TABLE, before, payload
        elif told.relation is not None and self._filter.selects(told.table):
            version = self.resolve(self._as_published(told.relation, told.table))
            if version.announce is not None:
                yield SystemKind.SCHEMA, told.table, version.announce

    def _as_published(self, relation: Relation, table: TableId) -> Relation:
        """Return the trigger's description with the columns that the publication lists, as the log's will be."""
        session = self._side.get()
        found = read_tables(session, only=table)
        if not found or found[0].oid != relation.oid:
            return relation
        hidden = {a.name for a in found[0].attributes}
        hidden -= {a.name for a in as_published(session, self._settings, found[0]).attributes}
        columns = tuple(column for column in relation.columns if column.name not in hidden)
        return replace(relation, columns=columns)

    def _schema_migrated(self, told: Told) -> Iterator[Event]:
        name = told.table.schema
        before = self._seen.schemas.get(told.identity)
        payload: dict[str, Any] = {"identity": told.identity}
        if told.dropped:
            if before is not None:
                yield SystemKind.DROP_SCHEMA, told.table, payload
        elif before is None:
            if self._filter.selects_schema(name):
                yield SystemKind.CREATE_SCHEMA, told.table, payload
        elif before != name:
            yield SystemKind.RENAME_SCHEMA, TableId(before, ""), payload | {"to": name}
            for identity, table in self._seen.tables.items():
                old = self._renamed.get(identity, table)
                if old.schema == before:
                    now = self._renamed[identity] = TableId(name, old.name)
                    yield SystemKind.RENAME_TABLE, old, {"identity": identity, "to": str(now)}

    def _schema(
        self, session: Session, relation: Relation, table: TableId, facts: TableFacts | None
    ) -> TableSchema:
        types = self._resolved(session, relation, table)
        columns = [(c.name, type_) for c, type_ in zip(relation.columns, types, strict=True)]
        key, check = self._identity(relation, table, facts)
        return table_schema(table, columns, key, check)

    def _identity(
        self, relation: Relation, table: TableId, facts: TableFacts | None
    ) -> tuple[tuple[str, ...], KeyCheck]:
        """Return the key and when it is checked."""
        if relation.identity in "di":
            key = tuple(c.name for c in relation.columns if c.identity)
            return key, KeyCheck.IMMEDIATE if key else KeyCheck.NONE
        if relation.identity == "f":
            return self._full_key(table, facts)
        return (), KeyCheck.NONE

    def _full_key(
        self, table: TableId, facts: TableFacts | None
    ) -> tuple[tuple[str, ...], KeyCheck]:
        """Return the primary key of a table with whole old rows, which the log does not name.

        The catalog may be ahead of the log; a table that is gone or has another identity now keeps
        the key it was known by.
        """
        if facts is not None and facts.identity.letter in "df":
            return facts.identity.key, facts.identity.check
        if (last := self._last.get(table)) is not None:
            return last.key, last.key_check
        return (), KeyCheck.NONE

    def _numbers(
        self, session: Session, relation: Relation, facts: TableFacts | None
    ) -> dict[str, int]:
        """Return the number of each column of a table, none where the catalog has moved on and leaves them open.

        The log does not tell them, only their order. A column of one name may be another one later, so either every
        column has to be there, in the same place and of the same type; or the table has never lost a column, so
        that any shape it ever had is its first columns, whatever they were called. Unless one of them was generated
        then, and not in the log. Or the shape is what is there under other names.
        """
        if facts is None:
            return {}
        known = as_published(session, self._settings, facts)
        there = known.published
        if [(a.name, a.type_oid) for a in there] == [
            (c.name, c.type_oid) for c in relation.columns
        ]:
            return known.numbers
        every = [a.number for a in there] == [*range(1, len(facts.attributes) + 1)]
        if every and not _lacks_some([c.name for c in relation.columns], [a.name for a in there]):
            return {c.name: column_number(facts.oid, n) for n, c in enumerate(relation.columns, 1)}
        if self._are_the_same(session, relation, facts, known):
            places = zip(relation.columns, there, strict=True)
            return {c.name: column_number(facts.oid, a.number) for c, a in places}
        return {}

    def _are_the_same(
        self, session: Session, relation: Relation, facts: TableFacts, known: TableFacts
    ) -> bool:
        """Whether a shape has the very columns that the catalog has, whatever they were called.

        It has as many, and lacks none that is gone by now: the same columns were there when the log last told of the
        table, or none was lost since. Unless the publication listed others meanwhile.
        """
        there = known.published
        hidden = {a.name for a in facts.attributes} - {a.name for a in there}
        if [c.type_oid for c in relation.columns] != [a.type_oid for a in there] or any(
            c.name in hidden for c in relation.columns
        ):
            return False
        last = self._last.get(TableId(relation.schema, relation.name))
        if last is not None and {*last.numbers.values()} == {*known.numbers.values()}:
            return True
        slot = self._settings.slot_name
        return bool(session.rows(_LOST_BEFORE, slot, str(facts.oid)))

    def _announce(self, schema: TableSchema, facts: TableFacts | None) -> dict[str, Any] | None:
        """Return the payload of a schema event, None when the table is as last described."""
        last = self._last.get(schema.table)
        storage = self._storage.get(schema.table)
        if last == schema and not schema.numbers:
            # Nobody says that a column is another one now.
            schema = last
        self._last[schema.table] = schema
        if facts is not None:
            self._storage[schema.table] = facts.storage
        if last == schema and last.numbers == schema.numbers:
            return None
        payload: dict[str, Any] = {"schema_id": schema.schema_id}
        if schema.numbers:
            payload["numbers"] = dict(schema.numbers)
        if last is not None and last.numbers:
            payload["was"] = {"schema_id": last.schema_id, "numbers": dict(last.numbers)}
        filled = {a.name for a in facts.published if a.filled} if facts is not None else set()
        if present := sorted(filled & set(schema.names)):
            payload["filled"] = present
        rewritten = facts is None or storage is None or facts.storage != storage
        if last is not None and needs_dump(last, schema, filled, rewritten=rewritten):
            payload["needs_dump"] = True
        return payload


def _lacks_some(names: Sequence[str], there: Sequence[str]) -> bool:
    """Whether a shape is no beginning of what is there, or is what is there without columns in between."""
    if len(names) >= len(there):
        return len(names) > len(there)
    left = iter(there)
    return list(names) != list(there[: len(names)]) and all(name in left for name in names)


def _with_text(schema: TableSchema, kept: Collection[str]) -> TableSchema:
    """Return the shape with text for the columns that are left out: no value of theirs stands in the way."""
    return replace(
        schema,
        columns=tuple(
            c if c.name in kept else replace(c, type=pa.string(), source_type="text")
            for c in schema.columns
        ),
    )


def needs_dump(
    last: TableSchema, schema: TableSchema, filled: set[str], *, rewritten: bool
) -> bool:
    """Return whether rows changed between two versions that no log event carries.

    A column that came with a default gave its value to every row; a change of a column's type that wrote the heap
    anew may have computed each value (``USING``). Neither is in the log.
    """
    there = {name for name, number in schema.numbers.items() if number in last.numbers.values()}
    if (filled - there) & set(schema.names) - set(last.names):
        return True
    before = {column.name: column for column in last.columns}
    retyped = [
        column
        for column in schema.columns
        if column.name in before
        and (before[column.name].source_type, before[column.name].type)
        != (column.source_type, column.type)
    ]
    if not retyped:
        return False
    return rewritten or any(before[column.name].type != column.type for column in retyped)

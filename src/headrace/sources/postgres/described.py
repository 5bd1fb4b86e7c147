"""What the catalog and its statistics say of tables that nobody captures yet.

Rows and pages are those that the last VACUUM or ANALYZE counted: asking the files themselves would take a lock on
each table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from headrace.model.schema import TableId
from headrace.sources.description import (
    ColumnDescription,
    Given,
    SourceDescription,
    TableDescription,
)
from headrace.sources.postgres.catalog import Attribute, TableFacts, TypeCache, read_tables
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.publication import all_as_published
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.types import Form, ResolvedType

__all__ = ["patterned", "read_description", "written_bytes"]

# Of a partitioned table, what its leaves say together; unknown as soon as one of them was never counted.
_STATISTICS = """
SELECT r.oid, CASE WHEN bool_and(c.reltuples >= 0) THEN sum(c.reltuples)::int8 END,
       CASE WHEN bool_and(c.reltuples >= 0)
            THEN sum(c.relpages::int8 + coalesce(o.relpages, 0)) * current_setting('block_size')::int8 END
  FROM unnest($1::oid[]) AS r(oid)
  JOIN LATERAL (SELECT r.oid AS leaf WHERE NOT EXISTS (
                    SELECT FROM pg_class p WHERE p.oid = r.oid AND p.relkind = 'p')
                UNION ALL
                SELECT t.relid::oid FROM pg_partition_tree(r.oid::regclass) t WHERE t.isleaf AND t.relid <> r.oid
                ) l ON true
  JOIN pg_class c ON c.oid = l.leaf LEFT JOIN pg_class o ON o.oid = c.reltoastrelid
 GROUP BY r.oid
"""

_NOT_NULL = """
SELECT attrelid, attnum FROM pg_attribute
 WHERE attrelid = ANY ($1::oid[]) AND attnum > 0 AND NOT attisdropped AND attnotnull
"""

_PRIMARY = """
SELECT i.indrelid, array_to_string((i.indkey::int2[])[0:i.indnkeyatts - 1], ' ')
  FROM pg_index i WHERE i.indrelid = ANY ($1::oid[]) AND i.indisprimary
"""

_TEXTUAL = frozenset({Form.PLAIN})
"""Forms of text columns whose type is a text by itself, and not another one that is rendered."""


def read_description(
    session: Session, settings: PostgresSettings, types: TypeCache, only: TableId | None = None
) -> SourceDescription:
    """Return the tables that the settings select, or one table, selected or not."""
    database = session.value("SELECT current_database()")
    tables = read_tables(session, None if only else settings.filter, only)
    oids = "{" + ",".join(str(facts.oid) for facts in tables) + "}"
    statistics = {oid: (rows, size) for oid, rows, size in session.rows(_STATISTICS, oids)}
    not_null = {(oid, number) for oid, number in session.rows(_NOT_NULL, oids)}
    primary = {oid: (key or "").split() for oid, key in session.rows(_PRIMARY, oids)}
    found = []
    for facts, published in zip(tables, all_as_published(session, settings, tables), strict=True):
        oid = str(facts.oid)
        names = {str(attribute.number): attribute.name for attribute in facts.attributes}
        rows, size = statistics.get(oid, (None, None))
        columns = _columns(session, types, facts, published)
        found.append(
            TableDescription(
                facts.table,
                tuple(
                    replace(column, nullable=(oid, str(attribute.number)) not in not_null)
                    for attribute, column in zip(facts.attributes, columns, strict=True)
                ),
                tuple(names[number] for number in primary.get(oid, ())),
                facts.identity.key,
                None if rows is None else int(rows),
                None if size is None else int(size),
            )
        )
    return SourceDescription(database, tuple(found))


def written_bytes(session: Session) -> int:
    """Return how many bytes of log the server has written since its beginning; a standby, what it has replayed."""
    now = (
        "CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() "
        "ELSE pg_current_wal_insert_lsn() END"
    )
    return int(session.value(f"SELECT pg_wal_lsn_diff({now}, '0/0')::int8"))


def _columns(
    session: Session, types: TypeCache, facts: TableFacts, published: TableFacts
) -> list[ColumnDescription]:
    captured = {a.name: a for a in published.attributes}
    attributes = [captured.get(a.name, a) for a in facts.attributes]
    resolved = types.resolve(session, ((a.type_oid, a.modifier) for a in attributes))
    return [_column(attribute, resolved, captured) for attribute in attributes]


def _column(
    attribute: Attribute,
    resolved: Mapping[tuple[int, int], ResolvedType],
    published: Mapping[str, Attribute],
) -> ColumnDescription:
    type_ = resolved[attribute.type_oid, attribute.modifier]
    own = _given(type_)
    shown = type_.as_text() if attribute.as_text else type_
    asked = attribute.as_text and own is Given.EXACT and shown.arrow != type_.arrow
    given = Given.AS_TEXT if asked else own
    return ColumnDescription(
        attribute.name,
        type_.name,
        True,
        shown.arrow,
        Given.ABSENT if attribute.generated else given,
        attribute.name in published,
        asked,
    )


def _given(type_: ResolvedType) -> Given:
    """Return how values of a type come out; a text whose binary form is no text stands for something else."""
    rendered = str(type_.arrow) == "string" and type_.form not in _TEXTUAL
    return Given.AS_TEXT if rendered else Given.EXACT


def patterned(settings: PostgresSettings, patterns: Sequence[str] | None) -> PostgresSettings:
    """Return the settings with other patterns, and nothing excluded then."""
    return settings if patterns is None else replace(settings, tables=tuple(patterns), exclude=())

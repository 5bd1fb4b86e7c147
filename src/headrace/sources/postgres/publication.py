"""What a publication publishes, as the catalog says."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace

from headrace.errors import SourceError
from headrace.model.schema import TableId
from headrace.sources.postgres.catalog import TableFacts, read_tables
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.settings import PostgresSettings

__all__ = [
    "PublicationFacts",
    "PublicationWatch",
    "PublishedTable",
    "as_published",
    "read_publication",
]

_ACTIONS = ("insert", "update", "delete", "truncate")

# From 15 on a publication may choose rows and columns, from 18 on also generated columns.
_CHOOSY_VERSION = 15
_GENERATED_VERSION = 18


@dataclass(frozen=True, slots=True)
class PublishedTable:
    """A table in a publication: whether rows are filtered, and its columns (None: all)."""

    filtered: bool
    columns: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class PublicationFacts:
    """One publication.

    Attributes:
        name: of the publication.
        owned: whether it belongs to a role that we are.
        lacking_actions: kinds of change that it does not publish.
        via_root: whether changes of partitions carry the name of the table above them.
        tables: what it publishes.
    """

    name: str
    owned: bool
    lacking_actions: tuple[str, ...]
    via_root: bool
    tables: dict[TableId, PublishedTable] = field(default_factory=dict)


def read_publication(session: Session, name: str) -> PublicationFacts | None:
    """Return a publication's facts, None when there is no such publication."""
    rows = session.rows(
        "SELECT pg_has_role(pubowner, 'USAGE'), pubinsert, pubupdate, pubdelete, pubtruncate, "
        "pubviaroot FROM pg_publication WHERE pubname = $1",
        name,
    )
    if not rows:
        return None
    owned, *flags, via_root = rows[0]
    lacking = tuple(a for a, flag in zip(_ACTIONS, flags, strict=True) if flag != "t")
    return PublicationFacts(name, owned == "t", lacking, via_root == "t", _tables(session, name))


def _tables(session: Session, name: str) -> dict[TableId, PublishedTable]:
    choosy = session.version >= _CHOOSY_VERSION
    extra = "rowfilter IS NOT NULL, array_to_json(attnames)" if choosy else "false, NULL"
    rows = session.rows(
        f"SELECT schemaname, tablename, {extra} FROM pg_publication_tables WHERE pubname = $1",
        name,
    )
    return {
        TableId(schema or "", table or ""): PublishedTable(filtered == "t", _names(columns))
        for schema, table, filtered, columns in rows
    }


def as_published(session: Session, settings: PostgresSettings, facts: TableFacts) -> TableFacts:
    """Return the facts with the columns that the log carries, in case an adopted publication chose some."""
    if settings.publication is None or session.version < _CHOOSY_VERSION:
        return facts
    rows = session.rows(
        "SELECT array_to_json(attnames) FROM pg_publication_tables "
        "WHERE pubname = $1 AND schemaname = $2 AND tablename = $3",
        settings.publication,
        facts.table.schema,
        facts.table.name,
    )
    columns = _names(rows[0][0]) if rows else None
    if columns is None:
        return facts
    generated = session.version < _GENERATED_VERSION
    kept = tuple(
        replace(a, generated=a.generated and generated)
        for a in facts.attributes
        if a.name in columns
    )
    return replace(facts, attributes=kept)


class PublicationWatch:
    """Notices a captured table that somebody took out of the publication: the log would just fall silent."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._seen: set[TableId] = set()

    def check(self, session: Session) -> None:
        """Look once.

        Raises:
            SourceError: a table that was published before exists and is published no more.
        """
        name = self._settings.publication_name
        published = set(_tables(session, name))
        if left := self._seen - published:
            there = {facts.table for facts in read_tables(session, self._settings.filter)}
            if gone := sorted(left & there):
                raise SourceError(
                    f"{', '.join(map(str, gone))} left publication {name} while being captured.",
                    next_step="put it back and dump it again, or exclude it; its changes meanwhile "
                    "are not in the log.",
                )
        self._seen |= {table for table in published if self._settings.filter.selects(table)}


def _names(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(json.loads(text))

"""What a publication publishes, as the catalog says, and how tables come into ours."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import SourceError
from headrace.model.schema import KeyCheck, TableId
from headrace.sources.postgres.catalog import TableFacts, read_tables
from headrace.sources.postgres.connection import Session, quote
from headrace.sources.postgres.published import CHOOSY_VERSION, GENERATED_VERSION, published_sql
from headrace.sources.postgres.settings import PostgresSettings

__all__ = [
    "OutOfStep",
    "PublicationFacts",
    "PublicationWatch",
    "PublishedTable",
    "add_tables",
    "add_tables_again",
    "all_as_published",
    "as_published",
    "listed",
    "out_of_step",
    "read_publication",
    "unlogged",
    "wanted_columns",
]

_ACTIONS = ("insert", "update", "delete", "truncate")
_FLAGS = "pubinsert, pubupdate, pubdelete, pubtruncate"


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
        f"SELECT pg_has_role(pubowner, 'USAGE'), {_FLAGS}, pubviaroot "
        "FROM pg_publication WHERE pubname = $1",
        name,
    )
    if not rows:
        return None
    owned, *flags, via_root = rows[0]
    whole = via_root == "t"
    return PublicationFacts(name, owned == "t", _lacking(flags), whole, _tables(session, name))


def _tables(session: Session, name: str) -> dict[TableId, PublishedTable]:
    return {
        TableId(schema or "", table or ""): PublishedTable(filtered == "t", _names(columns))
        for _, schema, table, filtered, columns in session.rows(
            published_sql(session.version), name
        )
    }


def as_published(session: Session, settings: PostgresSettings, facts: TableFacts) -> TableFacts:
    """Return the facts of one table with the columns that are captured; see `all_as_published`."""
    return all_as_published(session, settings, [facts])[0]


def all_as_published(
    session: Session, settings: PostgresSettings, tables: Sequence[TableFacts]
) -> list[TableFacts]:
    """Return the facts of tables with the columns that are captured.

    Those of an adopted publication's own list, or of ours, and of them what the configuration chooses, as text
    where it wants them so.
    """
    choosy = {
        facts.oid
        for facts in tables
        if session.version >= CHOOSY_VERSION
        and (settings.publication or settings.columns_of(facts.table))
    }
    columns = _lists(session, settings, choosy) if choosy else {}
    generated = session.version < GENERATED_VERSION
    return [
        _chosen(settings, facts, columns.get(facts.oid), generated=generated) for facts in tables
    ]


def _lists(
    session: Session, settings: PostgresSettings, oids: Collection[int]
) -> dict[int, frozenset[str] | None]:
    """Return the columns that the publication lists, by table."""
    sql = (
        f"SELECT oid, columns FROM ({published_sql(session.version)}) t WHERE oid = ANY ($2::oid[])"
    )
    asked = "{" + ",".join(map(str, sorted(oids))) + "}"
    rows = session.rows(sql, settings.publication_name, asked)
    return {int(oid or 0): _names(columns) for oid, columns in rows}


def _chosen(
    settings: PostgresSettings,
    facts: TableFacts,
    columns: frozenset[str] | None,
    *,
    generated: bool,
) -> TableFacts:
    """Return one table's facts as captured.

    Args:
        settings: what the configuration chooses.
        facts: as the catalog has them.
        columns: those that the publication lists; None for all.
        generated: whether listed columns that are generated come without their values all the same.
    """
    if texts := settings.text_of(facts.table):
        marked = (replace(a, as_text=a.name in texts) for a in facts.attributes)
        facts = replace(facts, attributes=tuple(marked))
    if settings.summed and facts.identity.key:
        facts = replace(facts, identity=replace(facts.identity, check=KeyCheck.DEFERRED))
    if columns is not None:
        attributes = (a for a in facts.attributes if a.name in columns)
        kept = tuple(replace(a, generated=a.generated and generated) for a in attributes)
        facts = replace(facts, attributes=kept)
    choice = settings.columns_of(facts.table)
    if choice is None:
        return facts
    keep = {a.name for a in facts.attributes if choice.keeps(a.name)} | set(facts.identity.key)
    return replace(facts, attributes=tuple(a for a in facts.attributes if a.name in keep))


def wanted_columns(
    session: Session, settings: PostgresSettings, facts: TableFacts
) -> tuple[str, ...] | None:
    """Return the column list that our own publication is to have for a table, None for none.

    A list that lacks a column of the replica identity would make the table's updates fail; under FULL that is every
    column, so there, and before 15, columns are left out on our side.
    """
    choice = settings.columns_of(facts.table)
    if choice is None or session.version < CHOOSY_VERSION or facts.identity.letter == "f":
        return None
    key = set(facts.identity.key)
    return tuple(a.name for a in facts.published if choice.keeps(a.name) or a.name in key)


@dataclass(frozen=True, slots=True)
class OutOfStep:
    """What our own publication has otherwise than wanted, by oid.

    Attributes:
        left: it does not name the table, or chooses rows of it: somebody did that, and changes passed by.
        otherwise: it lists other columns than are wanted now.
    """

    left: frozenset[int] = frozenset()
    otherwise: frozenset[int] = frozenset()


def out_of_step(
    session: Session, settings: PostgresSettings, tables: Mapping[int, TableFacts]
) -> OutOfStep:
    """Compare our own publication with the captured tables; an adopted one is its owner's matter."""
    if settings.publication is not None:
        return OutOfStep()
    choice = "r.prattrs::text, r.prqual IS NOT NULL"
    rows = session.rows(
        f"SELECT r.prrelid, {choice if session.version >= CHOOSY_VERSION else 'NULL, false'} "
        "FROM pg_publication p LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid WHERE p.pubname = $1",
        settings.publication_name,
    )
    if not rows:
        return OutOfStep()
    whole = {int(oid): numbers for oid, numbers, filtered in rows if oid and filtered == "f"}
    otherwise = {
        oid
        for oid, facts in tables.items()
        if oid in whole and whole[oid] != _numbers_wanted(session, settings, facts)
    }
    return OutOfStep(frozenset(tables.keys() - whole.keys()), frozenset(otherwise))


def _numbers_wanted(session: Session, settings: PostgresSettings, facts: TableFacts) -> str | None:
    """Return the column list that a table is to have, as the catalog writes it."""
    wanted = wanted_columns(session, settings, facts)
    if wanted is None:
        return None
    return " ".join(str(a.number) for a in facts.attributes if a.name in wanted)


def listed(session: Session, settings: PostgresSettings, tables: Iterable[TableFacts]) -> str:
    """Return tables as a publication lists them."""
    items = []
    for facts in sorted(tables, key=lambda facts: facts.table):
        # ONLY: tables that inherit from one of these are published when they are captured themselves.
        item = f"ONLY {quote(facts.table.schema)}.{quote(facts.table.name)}"
        columns = wanted_columns(session, settings, facts)
        if columns is not None:
            item += f" ({', '.join(quote(name) for name in columns)})"
        items.append(item)
    return ", ".join(items)


def add_tables(session: Session, settings: PostgresSettings, tables: Iterable[TableFacts]) -> None:
    """Add those of the tables that our own publication lacks.

    Raises:
        QueryFailed: the server refuses it.
    """
    rows = session.rows(
        "SELECT r.prrelid FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid "
        "WHERE p.pubname = $1",
        settings.publication_name,
    )
    held = {int(row[0] or 0) for row in rows}
    lacking = [facts for facts in tables if facts.oid not in held]
    if lacking:
        name = quote(settings.publication_name)
        session.run(f"ALTER PUBLICATION {name} ADD TABLE {listed(session, settings, lacking)}")


def add_tables_again(
    session: Session, settings: PostgresSettings, tables: Iterable[TableFacts]
) -> None:
    """Take tables out of our own publication and add them in one step, with the columns wanted now.

    Raises:
        QueryFailed: the server refuses it; nothing is changed.
    """
    tables = list(tables)
    name = quote(settings.publication_name)
    plain = ", ".join(f"ONLY {quote(f.table.schema)}.{quote(f.table.name)}" for f in tables)
    # One statement, so one transaction: at no place of the log are they missing.
    session.run(
        f"ALTER PUBLICATION {name} DROP TABLE {plain}; "
        f"ALTER PUBLICATION {name} ADD TABLE {listed(session, settings, tables)}"
    )


class PublicationWatch:
    """Notices what somebody took out of the publication, tables, rows or kinds of change: the log would fall silent."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._seen: dict[int, TableId] = {}
        self._whole: set[int] = set()

    def check(self, session: Session) -> None:
        """Look once.

        Raises:
            SourceError: a table that was published before exists and is published no more, or not with every row;
                or the publication leaves changes of a kind out.
        """
        name = self._settings.publication_name
        self._check_actions(session, name)
        published = {
            int(oid or 0): (TableId(schema or "", table or ""), filtered == "t")
            for oid, schema, table, filtered, _ in session.rows(
                published_sql(session.version), name
            )
        }
        left = {oid: table for oid, table in self._seen.items() if oid not in published}
        if left:
            # One that was made anew under its old name is another table, and joins by itself.
            there = {facts.oid: facts for facts in read_tables(session, self._settings.filter)}
            for oid in left.keys() & there.keys():
                if there[oid].persistence == "u":
                    raise unlogged(left[oid], left[oid])
            if gone := sorted(str(left[oid]) for oid in left.keys() & there.keys()):
                raise self._missed(
                    f"{', '.join(gone)} left publication {name} while being captured."
                )
        for oid, (table, filtered) in published.items():
            if not self._settings.filter.selects(table):
                continue
            if filtered and oid in self._whole:
                raise self._missed(
                    f"Publication {name} got a row filter on {table} while it is being captured."
                )
            # Renamed ones keep their oid.
            self._seen[oid] = table
            if not filtered:
                self._whole.add(oid)

    def _check_actions(self, session: Session, name: str) -> None:
        if lacking := _lacking_actions(session, name):
            raise SourceError(
                f"Publication {name} leaves out {', '.join(lacking)} by now: changes are missed.",
                next_step=f"ALTER PUBLICATION {quote(name)} SET (publish = '{', '.join(_ACTIONS)}'); then run "
                "`headrace resync FILE`, which compares the tables and repairs what differs.",
            )

    def _missed(self, what: str) -> SourceError:
        if self._settings.publication is None:
            return SourceError(
                what, next_step="start again: it is taken in and copied anew; or exclude it."
            )
        return SourceError(
            what,
            next_step="put it back and start again: it is copied anew; or exclude it.",
        )


def unlogged(table: TableId, part: TableId) -> SourceError:
    """Return why a captured table cannot go on; ``part`` is itself, or the partition that is to blame."""
    what = f"{table} is" if part == table else f"Partition {part} of {table} is"
    return SourceError(
        f"{what} unlogged or a foreign table by now: its changes are in no log of the server.",
        next_step=f"ALTER TABLE {part} SET LOGGED, or detach a foreign partition; or exclude {table}. Then run "
        "`headrace resync FILE`, which compares the tables and repairs what differs.",
    )


def _lacking_actions(session: Session, name: str) -> tuple[str, ...]:
    rows = session.rows(f"SELECT {_FLAGS} FROM pg_publication WHERE pubname = $1", name)
    return _lacking(rows[0]) if rows else ()


def _lacking(flags: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(a for a, flag in zip(_ACTIONS, flags, strict=True) if flag != "t")


def _names(text: str | None) -> frozenset[str] | None:
    return None if text is None else frozenset(json.loads(text))

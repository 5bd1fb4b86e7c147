"""Triggers and change tables as they are on the server: found, made, removed.

Triggers are made while their table is locked, so that no write falls between the old ones and the new. The lock waits
for writers that are there, and then everybody behind waits too, so it gives up soon and is tried again.
"""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from headrace.errors import SourceUnavailable
from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import facts_schema, read_rows
from headrace.sources.mysql.charsets import Collations
from headrace.sources.mysql.connection import QueryFailed, Session, quote_literal
from headrace.sources.mysql.keyset import table_sql
from headrace.sources.mysql.rekeyed import is_rekeyed
from headrace.sources.trigger.mysql import objects
from headrace.sources.trigger.mysql.layout import Layout
from headrace.sources.trigger.mysql.readers import read_place, read_places
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings

__all__ = [
    "has_objects",
    "held",
    "install",
    "install_table",
    "registered",
    "release",
    "remove",
    "stale",
    "with_triggers",
]

_LOG = logging.getLogger(__name__)

_HELD_S = 60
_LOCK_TIMEOUT = 1205
_GONE = 1146

_OBJECTS = (
    "SELECT COUNT(*) FROM information_schema.tables "
    "WHERE table_schema = 'headrace' AND table_name = 'txlog_readers'"
)
_TRIGGERS = (
    "SELECT event_object_schema, event_object_table, action_statement FROM information_schema.triggers "
    "WHERE action_statement LIKE '%headrace.txlog_changes%'"
)
_LAYOUTS = "SELECT layout FROM headrace.txlog_layouts WHERE at IS NOT NULL ORDER BY at, id"


@contextlib.contextmanager
def held(session: Session) -> Iterator[None]:
    """Be the only one who makes or removes something of ours, or says from where on changes are kept.

    Raises:
        SourceUnavailable: somebody else is at it for a minute.
    """
    if session.value(f"SELECT GET_LOCK('headrace.txlog', {_HELD_S})") != "1":
        raise SourceUnavailable(
            "Somebody else makes or removes triggers.", next_step="nothing: it is tried again."
        )
    try:
        yield
    finally:
        # A session that is gone holds nothing any more.
        with contextlib.suppress(QueryFailed, SourceUnavailable):
            session.rows("SELECT RELEASE_LOCK('headrace.txlog')")


def has_objects(session: Session) -> bool:
    """Return whether the change tables are there."""
    return session.value(_OBJECTS) == "1"


def registered(session: Session) -> dict[TableId, Layout]:
    """Return the layout of each table that its triggers were last made for."""
    layouts = (Layout.parse(row[0] or b"") for row in session.rows(_LAYOUTS))
    return {layout.table: layout for layout in layouts}


def stale(session: Session) -> set[int]:
    """Return the layouts whose triggers met a table that lacked one of their columns."""
    return {int(row[0] or 0) for row in session.rows("SELECT layout FROM headrace.txlog_stale")}


def with_triggers(session: Session, layouts: Mapping[TableId, Layout]) -> set[TableId]:
    """Return those of some tables that have all triggers of their layout."""
    found: dict[TableId, int] = {}
    for schema, name, body in session.texts(_TRIGGERS):
        table = TableId(schema or "", name or "")
        layout = layouts.get(table)
        if layout is not None and f"VALUES ({layout.layout_id}, '" in (body or ""):
            found[table] = found.get(table, 0) + 1
    return {table for table, count in found.items() if count == len(objects.trigger_names(table))}


def install(session: Session) -> None:
    """Make the change tables where they are missing.

    Raises:
        QueryFailed: we may not.
    """
    with held(session):
        session.run(*objects.create_objects())


def install_table(
    session: Session,
    settings: MysqlTriggerSettings,
    collations: Collations,
    before: Layout | None,
    layout: Layout,
) -> None:
    """Make the triggers of a table anew; when it returns, every write that they did not see is visible.

    Where no row that was known is one any more, the changes say so, to whoever reads them.

    Args:
        session: asks.
        settings: of the source.
        collations: of the server.
        before: what the table's triggers were made for, None where there are none.
        layout: what they are made for.

    Raises:
        QueryFailed: we may not, or the table is gone.
        SourceUnavailable: the table was not free in time, or is another one by now; it has the triggers that it had.
    """
    columns = layout.rows.facts(collations).columns
    rekeyed = before is not None and _is_rekeyed(collations, before, layout)
    session.run(objects.keep(layout))
    if before is not None and rekeyed:
        # Rows by the new key come behind it.
        session.run(objects.begin_anew(before))
    _locked(session, settings, layout.table, objects.create_triggers(layout, columns), layout)
    # Only now: until then more may have passed by. What came since comes by the dump, too.
    if before is not None and (rekeyed or before.layout_id in stale(session)):
        session.run(objects.begin_anew(before))
    elif before is not None and before.storage != layout.storage:
        session.run(objects.empty(before))
    session.run(objects.register(layout))


def _is_rekeyed(collations: Collations, before: Layout, now: Layout) -> bool:
    """Return whether rows may have other keys than they had."""
    # Columns may have changed names with each other, which nothing but the key's tells.
    one, other = (facts_schema(layout.rows.facts(collations)) for layout in (before, now))
    return before.rows.key != now.rows.key or is_rekeyed(one, other, ())


def remove(session: Session, settings: MysqlTriggerSettings) -> list[TableId]:
    """Take a pipeline away: its place, the triggers that no other one needs, and with the last one everything.

    Returns:
        tables whose triggers were removed.

    Raises:
        QueryFailed: we may not.
        SourceUnavailable: a table was not free in time; repeat it.
    """
    if not has_objects(session):
        return []
    places = read_places(session)
    others = [p for name, p in places.items() if name != settings.name and p.scn is not None]
    if others:
        place = read_place(session, settings.name)
        tables = _ours_alone(session, settings.name, place.tables if place else ())
    else:
        rows = session.texts(_TRIGGERS)
        tables = sorted({TableId(schema or "", name or "") for schema, name, _ in rows})
    for table in tables:
        _locked(session, settings, table, objects.drop_triggers(table))
    with held(session):
        if others:
            # At last: until then it may be repeated.
            name = quote_literal(settings.name)
            session.run(f"DELETE FROM headrace.txlog_readers WHERE name = {name}")
        else:
            session.run(*objects.drop_objects())
            left = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'headrace'"
            if session.value(left) == "0":
                session.run("DROP DATABASE IF EXISTS headrace")
    return tables


def release(session: Session, settings: MysqlTriggerSettings, tables: Iterable[TableId]) -> None:
    """Remove the triggers of tables that a pipeline does not capture any more, where no other one needs them.

    What cannot be removed now costs its writers something, and is wrong for nobody.
    """
    for table in _ours_alone(session, settings.name, tables):
        try:
            _locked(session, settings, table, objects.drop_triggers(table))
        except (QueryFailed, SourceUnavailable) as error:
            if not session.open:
                raise
            _LOG.warning("the triggers of %s stay, which nobody needs: %s", table, error.message)


def _ours_alone(
    session: Session, name: str, tables: Collection[TableId] | Iterable[TableId]
) -> list[TableId]:
    """Return those of some tables that no other pipeline needs triggers on."""
    needed = {
        table
        for other, place in read_places(session).items()
        if other != name and place.scn is not None
        for table in place.tables
    }
    return sorted(set(tables) - needed)


def _locked(
    session: Session,
    settings: MysqlTriggerSettings,
    table: TableId,
    statements: Iterable[str],
    layout: Layout | None = None,
) -> None:
    """Run statements while nobody writes to a table, only if it has the columns of a layout where one is given."""
    session.run(f"SET SESSION lock_wait_timeout = {max(1, math.ceil(settings.lock_s))}")
    try:
        session.run(f"LOCK TABLES {table_sql(table)} WRITE")
        if layout is not None and read_rows(session, table) != layout.rows:
            raise SourceUnavailable(
                f"{table} was altered since it was looked at.",
                next_step="nothing: it is tried again.",
            )
        session.run(*statements)
    except QueryFailed as error:
        if error.code == _GONE:
            return
        if error.code == _LOCK_TIMEOUT:
            raise SourceUnavailable(
                f"{table} was not free of writers in time.", next_step="nothing: it is tried again."
            ) from error
        raise
    finally:
        if session.open:
            session.run("UNLOCK TABLES", "SET SESSION lock_wait_timeout = DEFAULT")

"""Triggers and change tables as they are in the database: found, made, removed.

Making a trigger locks its table against writers for a moment. It waits for those that are there, and then everybody
behind waits too, so it gives up soon and is tried again; once it is made, whoever wrote before is visible.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from headrace.errors import SourceUnavailable
from headrace.model.schema import TableId
from headrace.sources.postgres.connection import QueryFailed, Session
from headrace.sources.trigger.postgres import objects
from headrace.sources.trigger.postgres.readers import read_place
from headrace.sources.trigger.postgres.settings import PostgresTriggerSettings

__all__ = [
    "has_objects",
    "install",
    "install_table",
    "release",
    "remove",
    "wrong_triggers",
]

_LOG = logging.getLogger(__name__)

_OBJECTS = """
SELECT EXISTS (SELECT FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                WHERE n.nspname = 'headrace' AND c.relname = 'txlog_readers')
"""
_WRONG = """
SELECT w.oid FROM unnest($1::oid[]) AS w(oid)
 WHERE (SELECT count(*) FROM pg_trigger t WHERE t.tgrelid = w.oid AND t.tgenabled = 'A'
           AND t.tgname = ANY ($2::text[]) AND t.tgfoid::regproc::text LIKE 'headrace.txlog%') < $3::int
"""
_NOBODY_ELSE_USES = """
SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.oid = ANY ($2::oid[])
   AND NOT EXISTS (SELECT FROM headrace.txlog_readers r
                    WHERE r.name <> $1 AND r.scn IS NOT NULL AND c.oid = ANY (r.tables))
 ORDER BY 1, 2
"""
_NOBODY_LEFT = """
SELECT NOT EXISTS (SELECT FROM headrace.txlog_readers WHERE name <> $1 AND scn IS NOT NULL)
"""
# Those of abandoned pipelines too.
_ALL_OURS = """
SELECT DISTINCT n.nspname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
  JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE t.tgname = ANY ($1::text[]) AND t.tgfoid::regproc::text LIKE 'headrace.txlog%' ORDER BY 1, 2
"""


def has_objects(session: Session) -> bool:
    """Return whether the change tables are there."""
    return session.value(_OBJECTS) == "t"


def wrong_triggers(session: Session, oids: Iterable[int]) -> set[int]:
    """Return those of some tables that lack a trigger, or have one that does not fire."""
    listed = "{" + ",".join(map(str, oids)) + "}"
    names = "{" + ",".join(objects.TRIGGERS) + "}"
    rows = session.rows(_WRONG, listed, names, str(len(objects.TRIGGERS)))
    return {int(row[0] or 0) for row in rows}


def install(session: Session) -> None:
    """Make the change tables and their functions where they are missing.

    Raises:
        QueryFailed: the role may not.
    """
    _together(session, (objects.LOCK, *objects.create_objects()))


def install_table(session: Session, settings: PostgresTriggerSettings, table: TableId) -> None:
    """Make the triggers of a table; when it returns, every write that they did not see is visible.

    Raises:
        QueryFailed: the role may not, or the table is gone.
        SourceUnavailable: the table was not free in time; nothing was changed.
    """
    limit = f"SET LOCAL lock_timeout = '{int(settings.lock_s * 1000)}ms'"
    _together(session, (limit, *objects.create_triggers(table)))


def remove(session: Session, settings: PostgresTriggerSettings) -> list[TableId]:
    """Take a pipeline away: its place, the triggers that no other one needs, and with the last one everything.

    Returns:
        tables whose triggers were removed.

    Raises:
        QueryFailed: the role may not.
        SourceUnavailable: a table was not free in time; repeat it.
    """
    if not has_objects(session):
        return []
    last = session.value(_NOBODY_LEFT, settings.name) == "t"
    if last:
        found = session.rows(_ALL_OURS, "{" + ",".join(objects.TRIGGERS) + "}")
        tables = [TableId(schema or "", name or "") for schema, name in found]
    else:
        place = read_place(session, settings.name)
        tables = _ours_alone(session, settings.name, place.tables if place else ())
    for table in tables:
        _remove_triggers(session, settings, table)
    if last:
        _together(session, (objects.LOCK, *objects.drop_objects()))
    else:
        # At last: until then it may be repeated.
        session.run("DELETE FROM headrace.txlog_readers WHERE name = $1", settings.name)
    return tables


def release(session: Session, settings: PostgresTriggerSettings, oids: Iterable[int]) -> None:
    """Remove the triggers of tables that a pipeline does not capture any more, where no other one needs them.

    What cannot be removed now costs its writers something, and is wrong for nobody.
    """
    for table in _ours_alone(session, settings.name, oids):
        try:
            _remove_triggers(session, settings, table)
        except (QueryFailed, SourceUnavailable) as error:
            if not session.usable:
                raise
            _LOG.warning("the triggers of %s stay, which nobody needs: %s", table, error.message)


def _ours_alone(session: Session, name: str, oids: Iterable[int]) -> list[TableId]:
    """Return those of some tables that no other pipeline needs triggers on."""
    listed = "{" + ",".join(map(str, oids)) + "}"
    rows = session.rows(_NOBODY_ELSE_USES, name, listed)
    return [TableId(schema or "", table or "") for schema, table in rows]


def _remove_triggers(session: Session, settings: PostgresTriggerSettings, table: TableId) -> None:
    limit = f"SET LOCAL lock_timeout = '{int(settings.lock_s * 1000)}ms'"
    _together(session, (limit, *objects.drop_triggers(table)))


def _together(session: Session, statements: Iterable[str]) -> None:
    """Run statements in one transaction."""
    session.run("BEGIN")
    try:
        for statement in statements:
            session.run(statement)
        session.run("COMMIT")
    finally:
        if session.usable and session.in_transaction:
            session.run("ROLLBACK")

"""The generator: SQL of everything that a trigger source has in the database. Pure.

A change is an image of the whole row before and after it, as the types' own output functions write it under settings of
the trigger's function, whatever those of the writer are. The row's layout stands with the first row of a statement: a
table cannot be altered in the middle of one. When the transaction commits it draws a number, which is its entry in the
log of transactions.

Nothing here ever makes a statement of the user fail that would not fail without it, as long as the disk has room: the
functions name no column of any table.
"""

from __future__ import annotations

from collections.abc import Iterable

from headrace.model.schema import TableId
from headrace.sources.postgres.connection import RENDERING, quote, quote_literal
from headrace.sources.trigger.postgres.settings import SCHEMA

__all__ = [
    "LOCK",
    "ROW_TRIGGER",
    "TRIGGERS",
    "create_objects",
    "create_triggers",
    "drop_objects",
    "drop_triggers",
    "grants",
    "script",
]

LOCK = "SELECT pg_advisory_xact_lock(7220311)"
"""Held by whoever makes or removes something of ours, or says from where on changes are kept."""

STATEMENT_TRIGGER, ROW_TRIGGER, TRUNCATE_TRIGGER = (
    "0_headrace_statement",
    "0_headrace_row",
    "0_headrace_truncate",
)
TRIGGERS = (STATEMENT_TRIGGER, ROW_TRIGGER, TRUNCATE_TRIGGER)
"""Names on each captured table. Triggers of one moment fire by name, and ours are to be the first."""

_ENTRY = """INSERT INTO headrace.txlog (xid, seq, at)
        VALUES (pg_current_xact_id(), nextval('headrace.txlog_seq'), clock_timestamp());"""


def _set_clauses() -> str:
    return "\n    ".join(
        f"SET {name} = {quote_literal(value)}" for name, value in RENDERING.items()
    )


_TABLES = (
    f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}",
    # No cache: a number drawn later must be higher, whoever draws it.
    "CREATE SEQUENCE IF NOT EXISTS headrace.txlog_seq CACHE 1",
    (
        "CREATE TABLE IF NOT EXISTS headrace.txlog ("
        "xid xid8 NOT NULL, seq bigint NOT NULL, at timestamptz NOT NULL, PRIMARY KEY (xid, seq))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS headrace.txlog_changes ("
        'xid xid8 NOT NULL, seq bigint NOT NULL, relid oid NOT NULL, op "char" NOT NULL, '
        "first boolean NOT NULL, layout text, before text, after text, PRIMARY KEY (xid, seq))"
    ),
    (
        "CREATE TABLE IF NOT EXISTS headrace.txlog_clock ("
        "after_scn bigint PRIMARY KEY, last_scn bigint NOT NULL, seen pg_snapshot NOT NULL, "
        "at timestamptz NOT NULL)"
    ),
    (
        "CREATE TABLE IF NOT EXISTS headrace.txlog_readers ("
        "name text PRIMARY KEY, scn bigint, tables oid[] NOT NULL, seen_at timestamptz NOT NULL, "
        "keep_s float8 NOT NULL, abandon_s float8 NOT NULL, "
        "queries bigint NOT NULL DEFAULT 0, rows bigint NOT NULL DEFAULT 0, "
        "seconds float8 NOT NULL DEFAULT 0, slow bigint NOT NULL DEFAULT 0)"
    ),
)

# In PL/pgSQL, which plans it once in a session.
_LAYOUT = """
CREATE OR REPLACE FUNCTION headrace.txlog_layout(oid) RETURNS text
    LANGUAGE plpgsql STABLE SET search_path = pg_catalog AS $headrace$
BEGIN RETURN (
SELECT json_build_object('schema', n.nspname, 'name', c.relname, 'storage', c.relfilenode,
    'key', (SELECT array_to_json((i.indkey::int2[])[0:i.indnkeyatts - 1]) FROM pg_index i
             WHERE i.indrelid = c.oid AND i.indisvalid
               AND CASE c.relreplident WHEN 'i' THEN i.indisreplident
                                       WHEN 'n' THEN false ELSE i.indisprimary END),
    'columns', (SELECT json_agg(json_build_array(a.attnum, a.attname, a.atttypid::int8, a.atttypmod,
                           a.attgenerated <> '', a.atthasmissing OR a.atthasdef OR a.attidentity <> '')
                       ORDER BY a.attnum)
                  FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped))::text
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1);
END $headrace$
""".strip()

_STATEMENT = """
CREATE OR REPLACE FUNCTION headrace.txlog_statement() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog AS $headrace$
BEGIN
    -- The layout may be another one than when this transaction last wrote to the table.
    PERFORM set_config('headrace.told' || TG_RELID, '', true);
    RETURN NULL;
END $headrace$
""".strip()

# concat calls the output function; a cast might be one that the table's owner made, and would run with our rights.
# Flags live as long as the transaction, and go back with a savepoint as the rows do.
_ROW = f"""
CREATE OR REPLACE FUNCTION headrace.txlog_row() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    {_set_clauses()}
AS $headrace$
DECLARE
    told text := 'headrace.told' || TG_RELID;
    begun boolean := coalesce(current_setting('headrace.begun', true), '') <> '';
    layout text;
BEGIN
    IF TG_LEVEL = 'STATEMENT' OR coalesce(current_setting(told, true), '') = '' THEN
        layout := headrace.txlog_layout(TG_RELID);
        PERFORM set_config(told, '1', true);
    END IF;
    INSERT INTO headrace.txlog_changes (xid, seq, relid, op, first, layout, before, after)
    VALUES (pg_current_xact_id(), nextval('headrace.txlog_seq'), TG_RELID,
            CASE TG_OP WHEN 'TRUNCATE' THEN 'T' ELSE left(TG_OP, 1) END::"char", NOT begun, layout,
            CASE WHEN TG_OP IN ('UPDATE', 'DELETE') THEN concat(OLD) END,
            CASE WHEN TG_OP IN ('INSERT', 'UPDATE') THEN concat(NEW) END);
    IF NOT begun THEN
        PERFORM set_config('headrace.begun', '1', true);
    ELSIF coalesce(current_setting('headrace.entered', true), '') <> '' THEN
        -- SET CONSTRAINTS … IMMEDIATE let the transaction draw its number before its last change.
        {_ENTRY}
    END IF;
    RETURN NULL;
END $headrace$
""".strip()

_COMMIT = f"""
CREATE OR REPLACE FUNCTION headrace.txlog_commit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog AS $headrace$
BEGIN
    {_ENTRY}
    PERFORM set_config('headrace.entered', '1', true);
    RETURN NULL;
END $headrace$
""".strip()

_COMMIT_TRIGGER = """
DO $headrace$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_trigger WHERE tgname = 'txlog_commit'
                      AND tgrelid = 'headrace.txlog_changes'::regclass) THEN
        CREATE CONSTRAINT TRIGGER txlog_commit AFTER INSERT ON headrace.txlog_changes
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (NEW.first)
            EXECUTE FUNCTION headrace.txlog_commit();
        ALTER TABLE headrace.txlog_changes ENABLE ALWAYS TRIGGER txlog_commit;
    END IF;
END $headrace$
""".strip()

_FIRST_TICK = """
INSERT INTO headrace.txlog_clock (after_scn, last_scn, seen, at)
SELECT 0, 1, pg_current_snapshot(), clock_timestamp()
 WHERE NOT EXISTS (SELECT FROM headrace.txlog_clock)
""".strip()


def create_objects() -> tuple[str, ...]:
    """Return the statements that make tables, functions and the clock's beginning where they are missing."""
    return (*_TABLES, _LAYOUT, _STATEMENT, _ROW, _COMMIT, _COMMIT_TRIGGER, _FIRST_TICK)


def create_triggers(table: TableId) -> tuple[str, ...]:
    """Return the statements that make the triggers of a table; those that are there are made anew.

    They fire whatever ``session_replication_role`` says: what another replication writes is a change too.
    """
    name = _name(table)
    moments = (
        (STATEMENT_TRIGGER, "BEFORE INSERT OR UPDATE OR DELETE", "STATEMENT", "txlog_statement"),
        (ROW_TRIGGER, "AFTER INSERT OR UPDATE OR DELETE", "ROW", "txlog_row"),
        (TRUNCATE_TRIGGER, "AFTER TRUNCATE", "STATEMENT", "txlog_row"),
    )
    statements = list(drop_triggers(table))
    for trigger, moment, level, function in moments:
        statements.append(
            f"CREATE TRIGGER {quote(trigger)} {moment} ON {name} "
            f"FOR EACH {level} EXECUTE FUNCTION headrace.{function}()"
        )
        statements.append(f"ALTER TABLE {name} ENABLE ALWAYS TRIGGER {quote(trigger)}")
    return tuple(statements)


def drop_triggers(table: TableId) -> tuple[str, ...]:
    """Return the statements that remove the triggers of a table."""
    return tuple(f"DROP TRIGGER IF EXISTS {quote(name)} ON {_name(table)}" for name in TRIGGERS)


def drop_objects() -> tuple[str, ...]:
    """Return the statements that remove everything that `create_objects` makes; no trigger may be left."""
    return (
        (
            "DROP TABLE IF EXISTS headrace.txlog, headrace.txlog_changes, headrace.txlog_clock, "
            "headrace.txlog_readers"
        ),
        "DROP SEQUENCE IF EXISTS headrace.txlog_seq",
        (
            "DROP FUNCTION IF EXISTS headrace.txlog_commit(), headrace.txlog_row(), "
            "headrace.txlog_statement(), headrace.txlog_layout(oid)"
        ),
        (
            f"DO $headrace$ BEGIN DROP SCHEMA IF EXISTS {SCHEMA}; "
            "EXCEPTION WHEN dependent_objects_still_exist THEN NULL; END $headrace$"
        ),
    )


def grants(role: str) -> tuple[str, ...]:
    """Return the statements that let a role read the change tables that another role has made."""
    to = quote(role)
    return (
        f"GRANT USAGE ON SCHEMA {SCHEMA} TO {to}",
        f"GRANT USAGE ON SEQUENCE headrace.txlog_seq TO {to}",
        (
            "GRANT SELECT, INSERT, DELETE ON headrace.txlog, headrace.txlog_changes, headrace.txlog_clock "
            f"TO {to}"
        ),
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON headrace.txlog_readers TO {to}",
    )


def script(tables: Iterable[TableId], role: str) -> str:
    """Return everything as a script for an administrator."""
    groups: list[tuple[str, ...]] = [create_objects(), *map(create_triggers, tables), grants(role)]
    return "\n\n".join(
        "BEGIN;\n" + "\n".join(f"{statement};" for statement in group) + "\nCOMMIT;"
        for group in groups
    )


def _name(table: TableId) -> str:
    return f"{quote(table.schema)}.{quote(table.name)}"

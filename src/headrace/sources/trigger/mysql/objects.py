"""The generator: SQL of everything that a trigger source has on a MySQL or MariaDB server. Pure.

A trigger of these servers names each column that it takes, so its body belongs to one layout of its table. A column
that is not there any more is caught: the writer goes on, and the layout is marked as stale, which makes the table join
anew. Values are rendered in the time zone of UTC, whatever that of the writer is, and other settings are those under
which the trigger was made.

``UPDATE IGNORE`` passes over rows that a constraint forbids to change, and MariaDB fires their triggers all the same.
So where a column of a constraint seems to be another one, the trigger looks whether the row is still what it was.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import CatalogColumn
from headrace.sources.mysql.connection import quote, quote_literal
from headrace.sources.mysql.keyset import table_sql
from headrace.sources.mysql.types import Kind
from headrace.sources.trigger.events import ANEW, EMPTIED
from headrace.sources.trigger.mysql.image import image_sql
from headrace.sources.trigger.mysql.layout import Layout

__all__ = [
    "TABLES",
    "begin_anew",
    "create_objects",
    "create_triggers",
    "drop_objects",
    "drop_triggers",
    "empty",
    "grants",
    "keep",
    "register",
    "script",
    "trigger_names",
]

_UNKNOWN_COLUMN = 1054
_NAME = "varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NOT NULL"

_CREATE = (
    "CREATE DATABASE IF NOT EXISTS headrace",
    (
        "CREATE TABLE IF NOT EXISTS headrace.txlog_changes ("
        "id bigint NOT NULL AUTO_INCREMENT PRIMARY KEY, scn bigint NULL, layout bigint NOT NULL, "
        "op char(1) CHARACTER SET ascii NOT NULL, `before` longblob, `after` longblob, KEY scn (scn)) "
        "ENGINE = InnoDB"
    ),
    (
        "CREATE TABLE IF NOT EXISTS headrace.txlog_clock ("
        "after_scn bigint PRIMARY KEY, last_scn bigint NOT NULL, changes bigint NOT NULL, at_us bigint NOT NULL) "
        "ENGINE = InnoDB"
    ),
    (
        f"CREATE TABLE IF NOT EXISTS headrace.txlog_readers (name {_NAME} PRIMARY KEY, "
        "scn bigint, tables longtext CHARACTER SET utf8mb4 NOT NULL, seen_at datetime(6) NOT NULL, "
        "keep_s double NOT NULL, abandon_s double NOT NULL, queries bigint NOT NULL DEFAULT 0, "
        "fetched bigint NOT NULL DEFAULT 0, seconds double NOT NULL DEFAULT 0, slow bigint NOT NULL DEFAULT 0) "
        "ENGINE = InnoDB"
    ),
    (
        f"CREATE TABLE IF NOT EXISTS headrace.txlog_layouts (id bigint PRIMARY KEY, table_schema {_NAME}, "
        f"table_name {_NAME}, layout longtext CHARACTER SET utf8mb4 NOT NULL, at datetime(6)) "
        "ENGINE = InnoDB"
    ),
    "CREATE TABLE IF NOT EXISTS headrace.txlog_stale (layout bigint PRIMARY KEY) ENGINE = InnoDB",
    (
        "CREATE TABLE IF NOT EXISTS headrace.txlog_life (one tinyint PRIMARY KEY, "
        "life char(36) CHARACTER SET ascii NOT NULL) ENGINE = InnoDB"
    ),
    "INSERT IGNORE INTO headrace.txlog_life VALUES (1, UUID())",
    (
        "INSERT INTO headrace.txlog_clock SELECT 0, 1, 0, CAST(UNIX_TIMESTAMP(SYSDATE(6)) * 1000000 AS SIGNED) "
        "FROM headrace.txlog_life WHERE NOT EXISTS (SELECT 1 FROM headrace.txlog_clock)"
    ),
)

TABLES = (
    "txlog_changes",
    "txlog_clock",
    "txlog_layouts",
    "txlog_life",
    "txlog_readers",
    "txlog_stale",
)
"""Names of our tables."""


def create_objects() -> tuple[str, ...]:
    """Return the statements that make the change tables and the clock's beginning where they are missing."""
    return _CREATE


def drop_objects() -> tuple[str, ...]:
    """Return the statements that remove our tables; no trigger may be left."""
    return tuple(f"DROP TABLE IF EXISTS headrace.{name}" for name in TABLES)


def trigger_names(table: TableId) -> tuple[str, str, str]:
    """Return the names of a table's triggers, of inserts, updates and deletes; a namespace has each name once."""
    digest = hashlib.sha256(table.name.encode()).hexdigest()[:12]
    insert, update, delete = (
        f"0_headrace_{digest}_{event}" for event in ("insert", "update", "delete")
    )
    return insert, update, delete


def keep(layout: Layout) -> str:
    """Return the statement that keeps a layout, before any change names it."""
    schema, name = (quote_literal(part) for part in layout.table)
    return (
        "INSERT IGNORE INTO headrace.txlog_layouts (id, table_schema, table_name, layout) "
        f"VALUES ({layout.layout_id}, {schema}, {name}, {quote_literal(layout.text)})"
    )


def register(layout: Layout) -> str:
    """Return the statement that says that a table's triggers are made for a layout."""
    return f"UPDATE headrace.txlog_layouts SET at = SYSDATE(6) WHERE id = {layout.layout_id}"


def empty(layout: Layout) -> str:
    """Return the statement that says among the changes that a table was emptied, or may have been."""
    return _said(layout, EMPTIED)


def begin_anew(layout: Layout) -> str:
    """Return the statement that says among them that no row of a table is known by now, as changes passed by."""
    return _said(layout, ANEW)


def _said(layout: Layout, op: bytes) -> str:
    return f"INSERT INTO headrace.txlog_changes (layout, op) VALUES ({layout.layout_id}, '{op.decode()}')"


def create_triggers(layout: Layout, columns: Sequence[CatalogColumn]) -> tuple[str, ...]:
    """Return the statements that make the triggers of a table anew.

    Args:
        layout: of the table.
        columns: of the table, as the layout has them.
    """
    events = (
        ("INSERT", "'I'", "NULL", image_sql(columns, "NEW")),
        ("UPDATE", "'U'", image_sql(columns, "OLD"), image_sql(columns, "NEW")),
        ("DELETE", "'D'", image_sql(columns, "OLD"), "NULL"),
    )
    in_utc = any(c.type is not None and c.type.kind is Kind.TIMESTAMP for c in columns)
    names = zip(trigger_names(layout.table), events, strict=True)
    return (
        *drop_triggers(layout.table),
        *(_create(name, layout, columns, event, in_utc=in_utc) for name, event in names),
    )


def _create(
    name: str,
    layout: Layout,
    columns: Sequence[CatalogColumn],
    event: tuple[str, str, str, str],
    *,
    in_utc: bool,
) -> str:
    moment, op, before, after = event
    back = "SET time_zone = zone; " if in_utc else ""
    insert = (
        "INSERT INTO headrace.txlog_changes (layout, op, `before`, `after`) "
        f"VALUES ({layout.layout_id}, {op}, {before}, {after}); "
    )
    if moment == "UPDATE" and (unchanged := _unchanged(layout, columns)):
        insert = f"IF NOT ({unchanged}) THEN {insert}END IF; "
    return (
        f"CREATE TRIGGER {quote(layout.table.schema)}.{quote(name)} AFTER {moment} ON {table_sql(layout.table)} "
        "FOR EACH ROW BEGIN "
        + ("DECLARE zone varchar(64) DEFAULT @@session.time_zone; " if in_utc else "")
        + f"DECLARE EXIT HANDLER FOR {_UNKNOWN_COLUMN} BEGIN {back}"
        f"INSERT IGNORE INTO headrace.txlog_stale (layout) VALUES ({layout.layout_id}); END; "
        + ("SET time_zone = '+00:00'; " if in_utc else "")
        + f"{insert}{back}END"
    )


def _unchanged(layout: Layout, columns: Sequence[CatalogColumn]) -> str:
    """Return the condition that an update did not happen, empty where it always does.

    The look is at what is committed, and at a row that the statement has locked: nobody is waited for.
    """
    guarded = [column for column in columns if column.name in layout.guarded]
    if not guarded or not layout.rows.key:
        return ""
    old, new, held = (image_sql(guarded, row) for row in ("OLD", "NEW", "held"))
    same = " AND ".join(f"held.{quote(name)} = OLD.{quote(name)}" for name in layout.rows.key)
    return (
        f"NOT ({old} <=> {new}) AND EXISTS (SELECT 1 FROM {table_sql(layout.table)} held "
        f"WHERE {same} AND {held} = {old} LOCK IN SHARE MODE)"
    )


def drop_triggers(table: TableId) -> tuple[str, ...]:
    """Return the statements that remove the triggers of a table."""
    return tuple(
        f"DROP TRIGGER IF EXISTS {quote(table.schema)}.{quote(name)}"
        for name in trigger_names(table)
    )


def grants(grantee: str) -> tuple[str, ...]:
    """Return the statements that let a user read the change tables that another one has made."""
    return (f"GRANT SELECT, INSERT, UPDATE, DELETE ON headrace.* TO {grantee}",)


def script(layouts: Iterable[tuple[Layout, Sequence[CatalogColumn]]], grantee: str) -> str:
    """Return everything as a script for an administrator."""
    lines = ["SET NAMES utf8mb4;", "SET SESSION sql_mode = '';", "DELIMITER ;;"]
    lines += [f"{statement};;" for statement in create_objects()]
    for layout, columns in layouts:
        lines += [f"{keep(layout)};;", f"LOCK TABLES {table_sql(layout.table)} WRITE;;"]
        lines += [f"{statement};;" for statement in create_triggers(layout, columns)]
        lines += ["UNLOCK TABLES;;", f"{register(layout)};;"]
    lines += [f"{statement};;" for statement in grants(grantee)]
    return "\n".join([*lines, "DELIMITER ;"])

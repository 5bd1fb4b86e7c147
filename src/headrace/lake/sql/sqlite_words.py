"""SQLite's words: the statements of the other dialects, for a database that has one schema, few types, and no casts.

In: statements in PostgreSQL's words. Out: those of SQLite that do the same, none or several for some. A table
``schema.name`` is called so as a whole; each value has one form, so that nothing has to be cast (see `SqliteSession`).
"""

from __future__ import annotations

from functools import lru_cache

import sqlglot
from sqlglot import exp

from headrace.lake.sql.dialect import Dialect, quoted

__all__ = ["SQLITE", "flat", "statements"]

_T = exp.DataType.Type
_INTEGER, _TEXT, _FLOAT = "INTEGER", "TEXT", "FLOAT BLOB"
_TYPES = {
    _T.BOOLEAN: "BOOLEAN",
    _T.SMALLINT: _INTEGER,
    _T.INT: _INTEGER,
    _T.BIGINT: _INTEGER,
    # The word BLOB keeps values as they come: a plain REAL would make a number of the text of a zero with a sign.
    _T.FLOAT: _FLOAT,
    _T.DOUBLE: _FLOAT,
    # With the word TEXT a number of 38 digits stays one.
    _T.DECIMAL: _TEXT,
    _T.TEXT: _TEXT,
    _T.VARBINARY: "BLOB",
    _T.DATE: "DATE",
    _T.TIMESTAMP: "TIMESTAMP",
    _T.TIMESTAMPTZ: "TIMESTAMPTZ",
}
_MEANWHILE = "headrace wider"
"""Name of a column while it takes another's place."""


class SqliteDialect(Dialect):
    """SQLite's SQL."""

    __slots__ = ()

    def type_of(self, text: str, *, own: bool = False) -> str:
        """Return the declared type; what SQLite has declared itself, it tells word for word."""
        return text if own else _type_name(exp.DataType.build(text, dialect="postgres"))


SQLITE = SqliteDialect(
    name="sqlite",
    row_id="_rowid_",
    columns_query="SELECT name, type FROM pragma_table_info({schema} || '.' || {name})",
    keeps_keys=False,
    indexes_keys=True,
    updates_zeros=False,
    tells_zeros=True,
    joins_deletes=False,
    changes_types=False,
    longest_name=None,
    folds_case=True,
    reserved=frozenset(),
    decimals_as_text=False,
)


@lru_cache(2_048)
def statements(text: str) -> tuple[str, ...]:
    """Return what does in SQLite what a statement in PostgreSQL's words does."""
    tree = sqlglot.parse_one(text, read="postgres")
    if isinstance(tree, exp.Create) and tree.kind == "SCHEMA":
        return ()
    changed = tree.find(exp.AlterColumn)
    if changed is not None:
        return _wider(tree.this.transform(_ours).sql("sqlite"), changed)
    return (tree.transform(_ours).sql("sqlite"),)


def flat(text: str) -> str:
    """Return a query in SQLite's words over the tables' whole names."""
    return sqlglot.parse_one(text, read="sqlite").transform(_ours).sql("sqlite")


def _ours(node: exp.Expression) -> exp.Expression:
    match node:
        case exp.Table() if node.db:
            node.set("this", exp.to_identifier(f"{node.db}.{node.name}", quoted=True))
            node.set("db", None)
        case exp.Cast() if not node.is_type(_T.TEXT):
            inner: exp.Expression = node.this
            return inner.transform(_ours)
        case exp.Ordered() if isinstance(node.parent, exp.IndexParameters):
            column: exp.Expression = node.this
            return column
        case exp.DataType():
            return exp.var(_type_name(node))
    return node


def _type_name(type_: exp.DataType) -> str:
    return _TYPES[type_.this]


def _wider(table: str, change: exp.AlterColumn) -> tuple[str, ...]:
    """Return what gives a column a wider type: a new one in its place, which then stands behind all others."""
    name, meanwhile = quoted(change.this.name), quoted(_MEANWHILE)
    type_ = change.args["dtype"]
    return (
        f"ALTER TABLE {table} ADD COLUMN {meanwhile} {_type_name(type_)}",
        f"UPDATE {table} SET {meanwhile} = {_as_wider(name, type_)}",
        f"ALTER TABLE {table} DROP COLUMN {name}",
        f"ALTER TABLE {table} RENAME COLUMN {meanwhile} TO {name}",
    )


def _as_wider(name: str, type_: exp.DataType) -> str:
    """Return a value in the form that a wider type has."""
    if type_.this is _T.DECIMAL and (zeros := "0" * int(type_.expressions[1].name)):
        return (
            f"CASE instr({name}, '.') WHEN 0 THEN {name} || '.{zeros}' "
            f"ELSE {name} || substr('{zeros}', 1 + length({name}) - instr({name}, '.')) END"
        )
    if type_.this is _T.DOUBLE:
        return f"CASE typeof({name}) WHEN 'integer' THEN CAST({name} AS REAL) ELSE {name} END"
    if type_.this is _T.TIMESTAMP:
        return (
            f"CASE WHEN {name} LIKE '%infinity' THEN {name} ELSE {name} || ' 00:00:00.000000' END"
        )
    return name

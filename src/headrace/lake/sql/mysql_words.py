"""MySQL's words, and MariaDB's: the statements of the other dialects for servers that join, and name types otherwise.

In: statements in PostgreSQL's words. Out: those that do the same, several for some. Texts and names are written for a
session in which a backslash is a letter like any other (see `MysqlSession`).
"""

from __future__ import annotations

import datetime as dt
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import sqlglot
from sqlglot import exp
from sqlglot.dialects.mysql import MySQL

from headrace.lake.sql.dialect import Dialect, refused_name
from headrace.lake.sql.mysql_forms import MOST_SCALE, moment_text
from headrace.model.schema import TableId, TableSchema

__all__ = [
    "MYSQL",
    "MYSQL_TEXTS",
    "NUMBER_AS_TEXT",
    "ROW_ID",
    "MysqlDialect",
    "name_of",
    "statements",
    "table_of",
]

ROW_ID = "headrace_row"
"""Column of ours in every table, which no ``*`` shows: the number of a row, and the primary key that servers want."""
_ROW_ID = f"`{ROW_ID}` bigint unsigned NOT NULL AUTO_INCREMENT INVISIBLE PRIMARY KEY"
_MOST_LETTERS = 64
_T = exp.DataType.Type
_TEXT = "longtext"
NUMBER_AS_TEXT = "varchar(64)"
"""Of a decimal with too many places, and of what `MYSQL_TEXTS` keeps as text; short enough for any index."""
_TYPES = {
    _T.BOOLEAN: "tinyint(1)",
    _T.SMALLINT: "smallint",
    _T.INT: "int",
    _T.BIGINT: "bigint",
    _T.FLOAT: "float",
    _T.DOUBLE: "double",
    _T.TEXT: _TEXT,
    _T.VARBINARY: "longblob",
    _T.DATE: "date",
    _T.TIMESTAMP: "datetime(6)",
    # Not its own type with a time zone, which ends in 2038.
    _T.TIMESTAMPTZ: "datetime(6)",
}
_AS_TEXT = frozenset({_T.FLOAT, _T.DOUBLE, _T.DATE, _T.TIMESTAMP, _T.TIMESTAMPTZ})
_WIDTH = re.compile(r"^(smallint|int|bigint)\(\d+\)")


class _Words(MySQL):
    """MySQL's SQL for sessions that do not escape by backslashes."""

    class Tokenizer(MySQL.Tokenizer):
        STRING_ESCAPES: ClassVar = ["'"]


@dataclass(frozen=True, slots=True)
class MysqlDialect(Dialect):
    """The SQL of MySQL and MariaDB.

    Attributes:
        as_text: whether floats, dates and times lie as text, which also holds what the servers' types do not.
    """

    as_text: bool = False

    def type_of(self, text: str, *, own: bool = False) -> str:
        """Return the declared type as MySQL 8 tells it; MariaDB tells widths that mean nothing."""
        if own:
            return _WIDTH.sub(r"\1", text)
        return self.type_name(exp.DataType.build(text, dialect="postgres"))

    def type_name(self, type_: exp.DataType) -> str:
        """Return the declared type of one of PostgreSQL's."""
        if type_.this is _T.DECIMAL:
            precision, scale = (int(part.name) for part in type_.expressions)
            return f"decimal({precision},{scale})" if scale <= MOST_SCALE else NUMBER_AS_TEXT
        if self.as_text and type_.this in _AS_TEXT:
            return NUMBER_AS_TEXT
        return _TYPES[type_.this]

    def same_key(self, left: Sequence[str], right: Sequence[str], *, null: bool) -> str:
        """Return the condition that two keys are the same, in the form that an index serves whether or not any is null.

        By a plain ``=`` MySQL holds both cells for one, and 0.0 takes the place of -0.0 elsewhere in the statement.
        """
        del null
        return Dialect.same_key(self, left, right, null=True)

    def check_names(self, schema: TableSchema, place: TableId) -> None:
        """Refuse names that the server would not take, or mix up: it compares them without case and accents.

        Raises:
            IncompatibleSchemaChange: names the table and the name.
        """
        if own := next((name for name in schema.names if name.lower() == ROW_ID), None):
            raise refused_name(schema, own, "is that of headrace's own column")
        # Not through `super()`: with slots this class is another one than it was when its methods were compiled.
        Dialect.check_names(self, schema, place)
        seen: dict[str, str] = {}
        for name in (place.schema, place.name, *schema.names):
            if refused := _refusal(name):
                raise refused_name(schema, name, refused)
        for name in schema.names:
            if twin := seen.get(_folded(name)):
                raise refused_name(schema, name, f"is the same to the server as {twin}")
            seen[_folded(name)] = name


def _refusal(name: str) -> str:
    """Return why a server does not take a name, empty when it does."""
    if len(name) > _MOST_LETTERS:
        return "is longer than the warehouse keeps"
    if name.endswith(" "):
        return "ends with a space, which the warehouse does not keep"
    if any(letter == "\0" or letter > "\uffff" for letter in name):
        return "has a character that the warehouse has not in names"
    return ""


def _folded(name: str) -> str:
    """Return a name as the server compares it, as far as that can be told without it."""
    letters = unicodedata.normalize("NFD", name.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


MYSQL = MysqlDialect(
    name="mysql",
    row_id=ROW_ID,
    columns_query=(
        "SELECT column_name, column_type FROM information_schema.columns WHERE table_schema = {schema} "
        # The server may compare without case.
        "AND table_name = {name} AND CAST(table_schema AS binary) = CAST({schema} AS binary) "
        f"AND CAST(table_name AS binary) = CAST({{name}} AS binary) AND column_name <> '{ROW_ID}'"
    ),
    keeps_keys=False,
    indexes_keys=True,
    updates_zeros=False,
    tells_zeros=False,
    joins_deletes=True,
    changes_types=True,
    longest_name=None,
    folds_case=True,
    reserved=frozenset({"mysql", "information_schema", "performance_schema", "sys"}),
    decimals_as_text=False,
    commits_ddl=True,
)
"""Values in the servers' own types."""
MYSQL_TEXTS = MysqlDialect(
    name="mysql",
    row_id=ROW_ID,
    columns_query=MYSQL.columns_query,
    keeps_keys=False,
    indexes_keys=True,
    updates_zeros=False,
    tells_zeros=True,
    joins_deletes=True,
    changes_types=True,
    longest_name=None,
    folds_case=True,
    reserved=MYSQL.reserved,
    decimals_as_text=False,
    commits_ddl=True,
    as_text=True,
)
"""Floats, dates and times as text: what no type of the servers' holds is held, too."""


def name_of(name: str) -> str:
    """Return a name as an identifier of the servers' own."""
    return "`" + name.replace("`", "``") + "`"


def table_of(place: TableId) -> str:
    """Return the identifier of a table, likewise."""
    return f"{name_of(place.schema)}.{name_of(place.name)}"


def table_text(table: str, parts: list[str], collation: str, further: str = "") -> str:
    """Return the statement that makes a table of ours.

    Args:
        table: identifier, ahead of it ``IF NOT EXISTS`` if need be.
        parts: columns and indexes.
        collation: by which texts are the same only when their bytes are.
        further: options of the table.
    """
    return (
        f"CREATE TABLE {table} ({', '.join([_ROW_ID, *parts])}) ENGINE=InnoDB ROW_FORMAT=DYNAMIC "
        f"DEFAULT CHARSET=utf8mb4 COLLATE={collation}{further}"
    )


@lru_cache(2_048)
def statements(dialect: MysqlDialect, text: str, collation: str) -> tuple[str, ...]:
    """Return what does at a server what a statement in PostgreSQL's words does.

    Args:
        dialect: says which types are used.
        text: the statement.
        collation: of tables that it makes.
    """
    tree = sqlglot.parse_one(text, read="postgres").transform(_ours, dialect)
    if isinstance(tree, exp.Create) and tree.kind == "TABLE":
        made: exp.Schema = tree.this
        there = "IF NOT EXISTS " if tree.args.get("exists") else ""
        parts = [_sql(part) for part in made.expressions]
        return (table_text(there + _sql(made.this), parts, collation),)
    if isinstance(tree, exp.Update) and (other := tree.args.get("from_")):
        return _updates(tree, other.this)
    if isinstance(tree, exp.Delete) and (using := tree.args.get("using")):
        # From the staged rows to those of the table, whatever the server's statistics say of a table made just now.
        (stage,) = using
        alias = name_of(tree.this.alias)
        joined = f"{_sql(stage)} STRAIGHT_JOIN {_sql(tree.this)}"
        return (f"DELETE {alias} FROM {joined} {_sql(tree.args['where'])}",)
    return (_sql(tree),)


def _updates(tree: exp.Update, other: exp.Expression) -> tuple[str, ...]:
    """Return an update from a second table; in two steps, for servers say in no order what reads what is also set."""
    alias = tree.this.alias
    tables = [_sql(tree.this), _sql(other)]
    if alias == "t":
        # As for deletions.
        tables.reverse()
    joined, where = " STRAIGHT_JOIN ".join(tables), _sql(tree.args["where"])
    reading = [one for one in tree.expressions if not isinstance(one.expression, exp.Boolean)]
    plain = [one for one in tree.expressions if isinstance(one.expression, exp.Boolean)]
    steps = [reading, plain] if alias == "s" else [tree.expressions]
    return tuple(
        f"UPDATE {joined} SET {', '.join(_set(alias, one) for one in step)} {where}"
        for step in steps
        if step
    )


def _set(alias: str, one: exp.EQ) -> str:
    return f"{name_of(alias)}.{name_of(one.this.name)} = {_sql(one.expression)}"


def _sql(tree: exp.Expression) -> str:
    text: str = tree.sql(_Words, identify=True)
    return text


def _ours(node: exp.Expression, dialect: MysqlDialect) -> exp.Expression:
    match node:
        case exp.Cast() if node.is_type(_T.TIMESTAMPTZ) and isinstance(node.this, exp.Literal):
            at = dt.datetime.fromisoformat(node.this.name)
            return exp.Literal.string(moment_text(at, as_text=dialect.as_text))
        case exp.Cast() if not node.is_type(_T.TEXT):
            # A cell takes the type of the column that it is put into.
            inner: exp.Expression = node.this
            return inner.transform(_ours, dialect)
        case exp.Ordered():
            # No null is ordered by.
            node.set("nulls_first", not node.args.get("desc"))
        case exp.CurrentTimestamp():
            return exp.Anonymous(this="now", expressions=[exp.Literal.number(6)])
        case exp.DataType() if not (isinstance(node.parent, exp.Cast)):
            return exp.var(dialect.type_name(node))
    return node

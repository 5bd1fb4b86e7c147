"""SQL that walks and looks up rows by their primary key, compared by the database alone.

In: a table's facts, keys as text as the database renders them. Out: statements. A literal is given in the form in which
the server compares it with the column itself: so order and equality are those of the index, and the index serves them.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import TableFacts
from headrace.sources.mysql.charsets import BINARY
from headrace.sources.mysql.connection import quote, quote_literal
from headrace.sources.mysql.texts import selected
from headrace.sources.mysql.types import ColumnType, Kind

__all__ = ["Keyset", "keyset_of", "literal", "table_sql"]

_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][-+]?\d+)?")
_POWER = re.compile(r"-?1(0*(\.0)?|e\+\d+)")
_NUMBERS = frozenset(
    {Kind.TINY, Kind.SHORT, Kind.INT24, Kind.LONG, Kind.LONGLONG, Kind.DECIMAL, Kind.YEAR, Kind.BIT}
)
_FLOATS = frozenset({Kind.FLOAT, Kind.DOUBLE})
_TIMES = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME})


def literal(type_: ColumnType, text: str) -> str:
    """Return a rendered value as the literal that the server compares with its column as its index does.

    Raises:
        ConfigError: the text is no value of the type.
    """
    if _is_bytes(type_):
        if len(text) % 2 or not re.fullmatch(r"[0-9A-Fa-f]*", text):
            raise _no_value(type_)
        return f"X'{text}'"
    if type_.kind in _NUMBERS or type_.kind in _FLOATS:
        if not _NUMBER.fullmatch(text):
            raise _no_value(type_)
        # A number with a point is a decimal, which a float is not compared with exactly.
        return f"{text}e0" if type_.kind in _FLOATS and "e" not in text.lower() else text
    if type_.kind in (Kind.ENUM, Kind.SET):
        return str(_label_number(type_, text))
    if type_.kind in _TIMES or type_.native:
        return "'" + text.replace("\\", "").replace("'", "") + "'"
    return quote_literal(text)


def _is_bytes(type_: ColumnType) -> bool:
    return type_.charset == BINARY and not type_.native


def _label_number(type_: ColumnType, text: str) -> int:
    """Return the number by which labels are ordered; compared with their text they would go by the alphabet."""
    try:
        if type_.kind is Kind.ENUM:
            # What an invalid label became looks as an empty one does, which a column may have, too.
            return type_.labels.index(text) + 1 if text or "" in type_.labels else 0
        return sum(1 << type_.labels.index(label) for label in text.split(",") if text)
    except ValueError:
        raise _no_value(type_) from None


def _no_value(type_: ColumnType) -> ConfigError:
    return ConfigError(
        f"A given key is not a value of its column's type, {type_.name}.",
        next_step="write keys as the database renders them, bytes in hexadecimal digits.",
    )


@dataclass(frozen=True, slots=True)
class Keyset:
    """A primary key, its columns in index order. Keys come and go in that order, as text.

    Attributes:
        table: quoted.
        names: of the key's columns, quoted.
        types: of them.
        collated: their collations, empty for a column without; left out where nothing is read in their order.
    """

    table: str
    names: tuple[str, ...]
    types: tuple[ColumnType, ...]
    collated: tuple[str, ...] = ()

    @property
    def order(self) -> str:
        """Short text that is another one for other columns and for another order of theirs."""
        types = [[t.kind.name, t.unsigned, t.native, t.labels] for t in self.types]
        told = json.dumps([self.names, types, self.collated])
        return hashlib.sha256(told.encode()).hexdigest()[:16]

    def last(self, predicate: str | None = None) -> str:
        """Return a select of the last key in index order, of rows for which a condition holds."""
        where = f" WHERE {_condition(predicate)}" if predicate else ""
        order = ", ".join(f"{name} DESC" for name in self.names)
        return f"SELECT {self._wanted()} FROM {self.table}{where} ORDER BY {order} LIMIT 1"

    def page(
        self,
        wanted: str,
        after: Sequence[str] | None,
        until: Sequence[str],
        limit: int,
        predicate: str | None = None,
    ) -> str:
        """Return a select of at most ``limit`` rows with ``after < key <= until``, in index order."""
        conditions = [self._beside("<", until, or_equal=True)]
        if after is not None:
            conditions.append(self._beside(">", after, or_equal=False))
        if predicate:
            conditions.append(_condition(predicate))
        order = ", ".join(self.names)
        return (
            f"SELECT {wanted} FROM {self.table} WHERE {' AND '.join(conditions)} "
            f"ORDER BY {order} LIMIT {int(limit)}"
        )

    def match(self, wanted: str, keys: Sequence[Sequence[str]]) -> str:
        """Return a select of the rows whose keys equal given ones, each row once."""
        rows = " OR ".join(f"({self._equal(self.names, key)})" for key in keys)
        return f"SELECT {wanted} FROM {self.table} WHERE {rows or 'FALSE'}"

    def spelled(self, keys: Sequence[Sequence[str]]) -> str:
        """Return a select of the keys of rows whose keys equal given ones, each behind the place of the given one."""
        return " UNION ALL ".join(
            f"(SELECT {place}, {self._wanted()} FROM {self.table} WHERE {self._equal(self.names, key)})"
            for place, key in enumerate(keys)
        )

    def _wanted(self) -> str:
        """Return the key's columns as they are selected."""
        pairs = zip(self.types, self.names, strict=True)
        return ", ".join(selected(type_, name) for type_, name in pairs)

    def delete(self, key: Sequence[str]) -> str:
        """Return the statement that removes the row of a key."""
        return f"DELETE FROM {self.table} WHERE {self._equal(self.names, key)}"

    def _equal(self, names: Sequence[str], key: Sequence[str]) -> str:
        triples = zip(names, self.types, key, strict=False)
        return " AND ".join(_compared(name, type_, "=", text) for name, type_, text in triples)

    def _beside(self, sign: str, key: Sequence[str], *, or_equal: bool) -> str:
        """Return the condition that a key lies on one side of another, as ranges of the index."""
        parts = []
        for place, (name, type_, text) in enumerate(zip(self.names, self.types, key, strict=True)):
            shared = self._equal(self.names[:place], key)
            last = place == len(self.names) - 1
            signs = f"{sign}=" if or_equal and last else sign
            comparison = _compared(name, type_, signs, text)
            parts.append(f"({shared} AND {comparison})" if shared else comparison)
        return f"({' OR '.join(parts)})"


def _compared(name: str, type_: ColumnType, sign: str, text: str) -> str:
    """Return the comparison of a key's column with a rendered value.

    Of a column such as ``float(10,4)`` the largest values are kept as a power of ten, which has a digit too many. MySQL
    takes a comparison with that for one with a value that no row has, unless it is made with an expression.
    """
    if type_.kind in _FLOATS and _POWER.fullmatch(text):
        name = selected(type_, name)
    return f"{name} {sign} {literal(type_, text)}"


def keyset_of(facts: TableFacts) -> Keyset:
    """Return the key of a table.

    Raises:
        ConfigError: it has none that rows can be found by.
    """
    types = {column.name: column.type for column in facts.columns}
    found = tuple(type_ for name in facts.key if (type_ := types[name]) is not None)
    if not found or len(found) != len(facts.key):
        raise ConfigError(
            f"{facts.table} has no primary key by which its rows are found.",
            next_step="dump the whole table.",
        )
    names = tuple(quote(name) for name in facts.key)
    return Keyset(table_sql(facts.table), names, found, facts.collated)


def table_sql(table: TableId) -> str:
    """Return a table's quoted name."""
    return f"{quote(table.schema)}.{quote(table.name)}"


def _condition(predicate: str) -> str:
    """Return a condition that people wrote, so that nothing after it belongs to a comment in it."""
    return f"(\n{predicate}\n)"

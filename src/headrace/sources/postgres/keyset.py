"""SQL that walks and looks up rows by their key, compared by the database alone.

In: the catalog's facts about the key's index, keys as text. Out: statements. Every comparison names the operator,
the collation and the direction of the index itself, not the column's or those a search path happens to show: so
order and equality are those under which the key is unique, and the index serves them. COPY takes no parameters, so
keys are literals, cast to the column's type below its domains, whose checks have nothing to say about a key that
is already there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.sources.postgres.catalog import TableFacts
from headrace.sources.postgres.connection import Session, quote, quote_literal

__all__ = ["KeyColumn", "Keyset", "read_keyset", "relation_sql"]

# Per column of an index: name, type below domains, operators < <= = >= > of its operator class, collation,
# option bits (1: descending, 2: nulls first); then what, besides the operators and the bits, makes its order another:
# number, type of whatever length, and what the collation is. Its version is that of the server's libraries.
_COLUMNS = """
WITH RECURSIVE part AS (
    SELECT n, a.attname, a.attnum, a.atttypid AS type, a.atttypmod AS modifier,
           i.indclass[n] AS class, i.indcollation[n] AS collation, i.indoption[n] AS option
      FROM pg_index i CROSS JOIN generate_series(0, i.indnkeyatts - 1) AS n
      JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[n]
     WHERE i.indexrelid = $1
), base AS (
    SELECT n, type, modifier FROM part
    UNION ALL
    SELECT b.n, t.typbasetype, CASE WHEN b.modifier = -1 THEN t.typtypmod ELSE b.modifier END
      FROM base b JOIN pg_type t ON t.oid = b.type WHERE t.typtype = 'd'
)
SELECT p.attname, format_type(b.type, b.modifier), o.operators,
       (SELECT quote_ident(s.nspname) || '.' || quote_ident(l.collname)
          FROM pg_collation l JOIN pg_namespace s ON s.oid = l.collnamespace
         WHERE l.oid = p.collation), p.option,
       concat_ws(' ', p.attnum, format_type(b.type, NULL),
                 (SELECT to_jsonb(l) - '{oid,collnamespace,collowner,collversion}'::text[]
                    FROM pg_collation l WHERE l.oid = p.collation))
  FROM part p JOIN base b ON b.n = p.n JOIN pg_type t ON t.oid = b.type AND t.typtype <> 'd'
  JOIN pg_opclass c ON c.oid = p.class,
       LATERAL (SELECT json_agg(quote_ident(s.nspname) || '.' || r.oprname
                                ORDER BY m.amopstrategy) AS operators
                  FROM pg_amop m JOIN pg_operator r ON r.oid = m.amopopr
                  JOIN pg_namespace s ON s.oid = r.oprnamespace
                 WHERE m.amopfamily = c.opcfamily AND m.amoppurpose = 's'
                   AND m.amoplefttype = c.opcintype AND m.amoprighttype = c.opcintype) o
 ORDER BY p.n
"""

_DESCENDING, _NULLS_FIRST = 1, 2


@dataclass(frozen=True, slots=True)
class KeyColumn:
    """One column of a key as its index has it.

    Attributes:
        name: quoted.
        type: what a literal is cast to.
        collation: of the index, empty for a type that has none.
        equal: the operator of equal values; this and the next four in the form ``OPERATOR(schema.sign)``.
        before: of values that the index has before others.
        upto: before or equal.
        after: behind.
        nulls: ``FIRST`` or ``LAST``, without which the index would not serve the order.
    """

    name: str
    type: str
    collation: str
    equal: str
    before: str
    upto: str
    after: str
    nulls: str

    @property
    def compared(self) -> str:
        """The column under the index's collation."""
        return self.collated(self.name)

    def collated(self, expression: str) -> str:
        """Return an expression of the column's type under the index's collation."""
        return f"{expression} COLLATE {self.collation}" if self.collation else expression

    def literal(self, text: str) -> str:
        """Return a value, given as the database renders it."""
        return f"{quote_literal(text).strip()}::{self.type}"

    def order(self, *, backwards: bool = False) -> str:
        """Return the column's part of an ORDER BY."""
        if not backwards:
            return f"{self.compared} USING {self.before} NULLS {self.nulls}"
        nulls = "FIRST" if self.nulls == "LAST" else "LAST"
        return f"{self.compared} USING {self.after} NULLS {nulls}"


@dataclass(frozen=True, slots=True)
class Keyset:
    """A key, its columns in index order. Keys come and go in that order, as text.

    Attributes:
        columns: of the key.
        order: short text that is another one for other columns and for another order of theirs.
    """

    columns: tuple[KeyColumn, ...]
    order: str

    @property
    def index_order(self) -> str:
        """The columns as a CREATE INDEX would name them, without operator classes."""
        return ", ".join(column.compared for column in self.columns)

    def last(self, relation: str, predicate: str | None = None) -> str:
        """Return a select of the last key in index order, of rows for which a condition holds."""
        names = ", ".join(column.name for column in self.columns)
        order = ", ".join(column.order(backwards=True) for column in self.columns)
        where = f" WHERE {_condition(predicate)}" if predicate else ""
        return f"SELECT {names} FROM {relation}{where} ORDER BY {order} LIMIT 1"

    def page(
        self,
        relation: str,
        selected: Sequence[tuple[str, str]],
        after: Sequence[str] | None,
        until: Sequence[str] | None,
        limit: int,
        predicate: str | None = None,
    ) -> str:
        """Return a select of at most ``limit`` rows with ``after < key <= until``, in index order.

        Args:
            relation: what to select from.
            selected: per column its quoted name and the expression that is wanted of it.
            after: the key before the first row, None to start at the beginning; only together with ``until``.
            until: the last key, None to go on to the end.
            limit: the number of rows.
            predicate: a condition that people wrote, which each row must meet besides; only together with ``until``.
        """
        order = ", ".join(column.order() for column in self.columns)
        wanted = ", ".join(expression for _, expression in selected)
        tail = f"ORDER BY {order} LIMIT {int(limit)}"
        if until is None:
            return f"SELECT {wanted} FROM {relation} {tail}"
        conditions = self._conditions(after, until)
        if predicate:
            conditions = [f"{condition} AND {_condition(predicate)}" for condition in conditions]
        if len(conditions) == 1:
            return f"SELECT {wanted} FROM {relation} WHERE {conditions[0]} {tail}"
        names = ", ".join(name for name, _ in selected)
        parts = (f"(SELECT {names} FROM {relation} WHERE {c} {tail})" for c in conditions)
        return f"SELECT {wanted} FROM ({' UNION ALL '.join(parts)}) AS page {tail}"

    def match(
        self, relation: str, selected: Sequence[tuple[str, str]], keys: Sequence[Sequence[str]]
    ) -> str:
        """Return a select of the rows whose keys equal given ones, each row once."""
        wanted = ", ".join(expression for _, expression in selected)
        arrays = [array_literal(values) for values in zip(*keys, strict=True)] or ["'{}'"] * len(
            self.columns
        )
        texts = ", ".join(f"{array}::text[]" for array in arrays)
        names = [f"k{n}" for n in range(len(self.columns))]
        # Each key is cast by itself: an array of the key's type would flatten keys that are arrays. The wanted side
        # has the collation too, or the planner makes it unique by bytes and finds a row once for each spelling.
        equal = " AND ".join(
            f"t.{column.compared} {column.equal} {column.collated(f'wanted.{name}::{column.type}')}"
            for column, name in zip(self.columns, names, strict=True)
        )
        return (
            f"SELECT {wanted} FROM {relation} AS t WHERE EXISTS (SELECT FROM "
            f"unnest({texts}) AS wanted ({', '.join(names)}) WHERE {equal})"
        )

    def render(self, relation: str, keys: Sequence[Sequence[str]]) -> str:
        """Return a select of given keys as their rows have them, or else as the database renders them, in their order.

        Equal values may be written in several ways: 1 and 1.0, or letters of both cases.
        """
        texts = ", ".join(f"{array_literal(values)}::text[]" for values in zip(*keys, strict=True))
        names = [f"k{n}" for n in range(len(self.columns))]
        both = list(zip(self.columns, names, strict=True))
        # Looked up in the index, key by key: an equality of other columns would be one join of all of them.
        equal = " AND ".join(
            f"t.{c.compared} {c.equal} {c.collated(f'wanted.{name}::{c.type}')}" for c, name in both
        )
        wanted = ", ".join(
            f"CASE WHEN found.there THEN found.{c.name} ELSE wanted.{name}::{c.type} END"
            for c, name in both
        )
        held = ", ".join(f"t.{c.name}" for c in self.columns)
        return (
            f"SELECT {wanted} FROM unnest({texts}) WITH ORDINALITY AS wanted ({', '.join(names)}, place) "
            f"LEFT JOIN LATERAL (SELECT {held}, true AS there FROM {relation} AS t WHERE {equal} LIMIT 1) AS found "
            "ON true ORDER BY place"
        )

    def _conditions(self, after: Sequence[str] | None, until: Sequence[str]) -> list[str]:
        """Return conditions that together mean ``after < key <= until``, no row twice.

        One row comparison where one operator compares all columns. Where operators differ (an extension's type
        beside a built-in one, a column that descends) the rows behind ``after`` are those that share all columns with
        it but the last, then all but the last two, and so on: each a range of the index.
        """
        columns = self.columns
        if len({(c.before, c.upto, c.after) for c in columns}) == 1:
            row = f"ROW({', '.join(c.compared for c in columns)})"
            condition = f"{row} {columns[0].upto} {self._row(until)}"
            if after is not None:
                condition += f" AND {row} {columns[0].after} {self._row(after)}"
            return [condition]
        bound = self._upto(until, 0)
        if after is None:
            return [bound]
        conditions = []
        for shared in reversed(range(len(columns))):
            equal = [
                f"{c.compared} {c.equal} {c.literal(text)} AND "
                for c, text in zip(columns[:shared], after, strict=False)
            ]
            behind = columns[shared]
            conditions.append(
                f"{''.join(equal)}{behind.compared} {behind.after} {behind.literal(after[shared])} "
                f"AND {bound}"
            )
        return conditions

    def _row(self, key: Sequence[str]) -> str:
        literals = (c.literal(text) for c, text in zip(self.columns, key, strict=True))
        return f"ROW({', '.join(literals)})"

    def _upto(self, until: Sequence[str], place: int) -> str:
        """Return ``key <= until`` for the columns from ``place`` on."""
        column, literal = self.columns[place], self.columns[place].literal(until[place])
        condition = f"{column.compared} {column.upto} {literal}"
        if place + 1 == len(self.columns):
            return condition
        rest = self._upto(until, place + 1)
        return (
            f"({condition} AND ({column.compared} {column.before} {literal} OR "
            f"({column.compared} {column.equal} {literal} AND {rest})))"
        )


def read_keyset(session: Session, index: int) -> Keyset:
    """Return the key of an index, given by its oid."""
    columns = []
    order = hashlib.sha256()
    for name, type_, operators, collation, option, ordered in session.rows(_COLUMNS, str(index)):
        before, upto, equal, since, after = (
            f"OPERATOR({operator})" for operator in json.loads(operators or "[]")
        )
        bits = int(option or 0)
        if bits & _DESCENDING:
            before, upto, after = after, since, before
        nulls = "FIRST" if bits & _NULLS_FIRST else "LAST"
        columns.append(
            KeyColumn(
                quote(name or ""), type_ or "", collation or "", equal, before, upto, after, nulls
            )
        )
        order.update(json.dumps([operators, option, ordered]).encode())
    return Keyset(tuple(columns), order.hexdigest()[:16])


def relation_sql(facts: TableFacts) -> str:
    """Return the table without tables that inherit from it: their rows travel under their own names.

    Partitions travel under their root.
    """
    name = f"{quote(facts.table.schema)}.{quote(facts.table.name)}"
    return name if facts.partitioned else f"ONLY {name}"


def _condition(predicate: str) -> str:
    """Return a condition that people wrote, so that nothing after it belongs to a comment in it."""
    return f"(\n{predicate}\n)"


def array_literal(values: Sequence[str]) -> str:
    """Return texts as the literal of an array."""
    quoted = ('"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values)
    return quote_literal("{" + ",".join(quoted) + "}").strip()

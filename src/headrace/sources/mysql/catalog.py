"""What the server's catalog says of tables, columns and character sets. Reads only."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from headrace.errors import SourceError
from headrace.fold.form import refuse_taken
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.model.succession import Numbers, column_number
from headrace.sources.mysql.charsets import BINARY, CODECS, Collations
from headrace.sources.mysql.connection import Session, quote_literal
from headrace.sources.mysql.natives import NATIVE_BYTES
from headrace.sources.mysql.types import ColumnType, Kind
from headrace.sources.mysql.vendors import vendor_of
from headrace.sources.naming import refuse_unnameable
from headrace.sources.taken import NOT_LEFT_OUT

__all__ = [
    "CatalogColumn",
    "CatalogRows",
    "TableFacts",
    "facts_schema",
    "own_numbers",
    "read_collations",
    "read_rows",
    "read_table",
    "table_schema",
    "undecoded",
    "with_collations",
]

_COLUMNS = """
SELECT column_name, data_type, column_type, character_octet_length, character_set_name,
       numeric_precision, numeric_scale, datetime_precision, is_nullable, column_default
  FROM information_schema.columns WHERE table_schema = {} AND table_name = {}
 ORDER BY ordinal_position
"""

_KEY = """
SELECT column_name FROM information_schema.statistics
 WHERE table_schema = {} AND table_name = {} AND index_name = 'PRIMARY' ORDER BY seq_in_index
"""

_COLLATED = """
SELECT column_name, collation_name FROM information_schema.columns
 WHERE table_schema = {} AND table_name = {}
"""

_KINDS: Mapping[str, Kind] = {
    "tinyint": Kind.TINY,
    "smallint": Kind.SHORT,
    "mediumint": Kind.INT24,
    "int": Kind.LONG,
    "bigint": Kind.LONGLONG,
    "float": Kind.FLOAT,
    "double": Kind.DOUBLE,
    "decimal": Kind.DECIMAL,
    "bit": Kind.BIT,
    "date": Kind.DATE,
    "datetime": Kind.DATETIME,
    "timestamp": Kind.TIMESTAMP,
    "time": Kind.TIME,
    "year": Kind.YEAR,
    "char": Kind.CHAR,
    "binary": Kind.CHAR,
    "varchar": Kind.VARCHAR,
    "varbinary": Kind.VARCHAR,
    "enum": Kind.ENUM,
    "set": Kind.SET,
    "json": Kind.JSON,
    "vector": Kind.VECTOR,
    **{
        f"{size}{what}": Kind.BLOB
        for size in ("tiny", "", "medium", "long")
        for what in ("text", "blob")
    },
    **dict.fromkeys(
        ("geometry", "point", "linestring", "polygon", "multipoint")
        + ("multilinestring", "multipolygon", "geometrycollection", "geomcollection"),
        Kind.GEOMETRY,
    ),
}

_VERSION = (1 << 46) - 1
_BLOB_SIZES = {"tiny": 1, "medium": 3, "long": 4}
_LABEL = re.compile(r"'((?:[^'\\]|\\.|'')*)'", re.DOTALL)
_ESCAPED = re.compile(r"''|\\(.)", re.DOTALL)
_MEANT = {"n": "\n", "r": "\r", "0": "\0"}


@dataclass(frozen=True, slots=True)
class CatalogColumn:
    """A column as the catalog has it; ``type`` is None where it is not captured here."""

    name: str
    type: ColumnType | None
    declared: str
    nullable: bool
    default: str | None


@dataclass(frozen=True, slots=True)
class TableFacts:
    """A table as the catalog has it.

    Attributes:
        table: its name.
        columns: of it.
        key: names of the primary key's columns in its own order.
        collated: the collation of each of them, empty for one without; left out where nobody reads by key.
    """

    table: TableId
    columns: tuple[CatalogColumn, ...]
    key: tuple[str, ...]
    collated: tuple[str, ...] = ()


def read_collations(session: Session) -> Collations:
    """Return the server's collations and the widths of its character sets."""
    vendor = vendor_of(session)
    # A row for each set, not for each of a thousand collations: a sixth of the processor time.
    sets = session.texts(
        f"SELECT c.character_set_name, MAX(s.maxlen), GROUP_CONCAT(c.id) FROM ({vendor.collations}) AS c "
        "JOIN information_schema.character_sets AS s ON s.character_set_name = c.character_set_name "
        "GROUP BY c.character_set_name"
    )
    return Collations(
        {int(number): name or "" for name, _, ids in sets for number in (ids or "").split(",")},
        {name or "": int(width or 0) for name, width, _ in sets},
        vendor.collated,
    )


@dataclass(frozen=True, slots=True)
class CatalogRows:
    """What the catalog says of a table, as it says it: plain values, to be kept and read again later.

    Attributes:
        table: its name.
        columns: a row of the catalog for each.
        key: names of the primary key's columns in its own order.
    """

    table: TableId
    columns: tuple[tuple[str | None, ...], ...]
    key: tuple[str, ...]

    def facts(self, collations: Collations) -> TableFacts:
        """Return what they mean."""
        columns = tuple(
            CatalogColumn(
                name or "",
                _type(list(rest[:7]), collations),
                rest[1] or "",
                rest[7] == "YES",
                None if rest[8] in (None, "NULL") else rest[8],
            )
            for name, *rest in self.columns
        )
        return TableFacts(self.table, columns, self.key)


def read_rows(session: Session, table: TableId) -> CatalogRows | None:
    """Return what the catalog says of a table now, None when there is none of that name."""
    names = [quote_literal(part) for part in table]
    columns = tuple(session.texts(_COLUMNS.format(*names)))
    if not columns:
        return None
    key = tuple(name or "" for (name,) in session.texts(_KEY.format(*names)))
    return CatalogRows(table, columns, key)


def read_table(session: Session, table: TableId, collations: Collations) -> TableFacts | None:
    """Return a table as the catalog has it now, None when there is none of that name."""
    rows = read_rows(session, table)
    return None if rows is None else rows.facts(collations)


def with_collations(session: Session, facts: TableFacts) -> TableFacts:
    """Return a table's facts together with the collations of its key."""
    names = [quote_literal(part) for part in facts.table]
    collations = {row[0]: row[1] or "" for row in session.texts(_COLLATED.format(*names))}
    return replace(facts, collated=tuple(collations.get(name, "") for name in facts.key))


def table_schema(
    table: TableId, columns: list[tuple[str, ColumnType, bool]], key: tuple[str, ...]
) -> TableSchema:
    """Return a table's shape from names, types and whether null is allowed; ``key`` is empty without one.

    Raises:
        SourceError: text of a character set that is not decoded here.
        IncompatibleSchemaChange: a column has a name that changes need for themselves, or the table that of another.
    """
    for name, type_, _ in columns:
        if why := _why_undecoded(type_, type_.name):
            raise _undecoded(table, name, why)
    schema = TableSchema(
        table,
        tuple(Column(name, type_.arrow, type_.name, nullable) for name, type_, nullable in columns),
        key,
        KeyCheck.IMMEDIATE if key else KeyCheck.NONE,
    )
    refuse_taken(schema, NOT_LEFT_OUT)
    refuse_unnameable(table)
    return replace(schema, numbers=own_numbers(schema))


def own_numbers(schema: TableSchema) -> Numbers:
    """Return numbers that columns of no other version have: the server has none that stay with a column for life.

    So a column of a later version is the one that has its name. One that got another name is taken for a new one, and
    is filled by the dump that a column whose values no event brought needs anyway.
    """
    version = schema.schema_id & _VERSION
    return {name: column_number(version, place) for place, name in enumerate(schema.names, 1)}


def facts_schema(facts: TableFacts) -> TableSchema:
    """Return the shape of a table as the catalog has it.

    Raises:
        SourceError: a column is of a type, or of a character set, that is not decoded here.
        IncompatibleSchemaChange: a column has a name that changes need for themselves.
    """
    for name, why in undecoded(facts):
        raise _undecoded(facts.table, name, why)
    columns = [(c.name, c.type, c.nullable) for c in facts.columns if c.type is not None]
    in_order = tuple(column.name for column in facts.columns if column.name in facts.key)
    return table_schema(facts.table, columns, in_order)


def undecoded(facts: TableFacts) -> list[tuple[str, str]]:
    """Return the columns that are not decoded here, and what they are."""
    found = ((c.name, _why_undecoded(c.type, c.declared)) for c in facts.columns)
    return [(name, why) for name, why in found if why]


def _why_undecoded(type_: ColumnType | None, declared: str) -> str:
    if type_ is None:
        return f"is a {declared}"
    if type_.charset not in ("", BINARY) and type_.charset not in CODECS:
        return f"has the character set {type_.charset}"
    return ""


def _undecoded(table: TableId, name: str, why: str) -> SourceError:
    return SourceError(
        f"{table}.{name} {why}, which is not decoded.",
        next_step="change the column, or exclude the table.",
    )


def _type(facts: list[str | None], collations: Collations) -> ColumnType | None:
    name, declared, octets, charset, precision, scale, fraction = facts
    name, declared = (name or "").lower(), declared or ""
    if name in NATIVE_BYTES:
        return ColumnType(Kind.CHAR, length=NATIVE_BYTES[name], charset=BINARY, native=name)
    kind = _KINDS.get(name)
    if kind is None or "compressed" in declared.lower():
        return None
    plain = ColumnType(kind)
    if kind is Kind.BIT:
        return replace(plain, length=int(precision or 0))
    if kind is Kind.DECIMAL:
        unsigned = "unsigned" in declared.lower()
        return replace(
            plain, precision=int(precision or 0), scale=int(scale or 0), unsigned=unsigned
        )
    if kind in (Kind.DATETIME, Kind.TIMESTAMP, Kind.TIME):
        return replace(plain, scale=int(fraction or 0))
    if kind is Kind.BLOB:
        size = _BLOB_SIZES.get(name.removesuffix("text").removesuffix("blob"), 2)
        return replace(plain, length=size, charset=charset or BINARY)
    if kind in (Kind.GEOMETRY, Kind.JSON):
        return replace(plain, length=4)
    if kind is Kind.VECTOR:
        return replace(plain, length=4, precision=int(octets or 0) // 4)
    if kind in (Kind.ENUM, Kind.SET):
        labels = tuple(_ESCAPED.sub(_meant, label) for label in _LABEL.findall(declared))
        return replace(plain, labels=labels, length=_label_bytes(kind, len(labels)))
    if kind in (Kind.CHAR, Kind.VARCHAR):
        charset = charset or BINARY
        width = 1 if charset == BINARY else collations.widths.get(charset, 1)
        return replace(plain, length=int(octets or 0), charset=charset, characters=width)
    unsigned = "unsigned" in declared.lower() and kind not in (Kind.DATE, Kind.YEAR)
    if kind is Kind.DOUBLE:
        return replace(plain, unsigned=unsigned, rounded="(" in declared)
    return replace(plain, unsigned=unsigned)


def _meant(escaped: re.Match[str]) -> str:
    """Return the character of a label that the catalog writes as two."""
    letter: str | None = escaped[1]
    return "'" if letter is None else _MEANT.get(letter, letter)


def _label_bytes(kind: Kind, count: int) -> int:
    if kind is Kind.ENUM:
        return 1 if count < 256 else 2
    wanted = (count + 7) // 8
    return wanted if wanted <= 4 else 8

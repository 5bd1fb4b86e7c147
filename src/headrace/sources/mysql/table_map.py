"""Table maps: the log's own description of a table, which comes before its rows.

With ``binlog_row_metadata=FULL`` it has names, signs, character sets, labels and the primary key. Without, it has only
how values lie in a row, and the catalog must know the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from headrace.errors import SourceError
from headrace.model.schema import TableId
from headrace.sources.mysql.charsets import BINARY, CODECS, Collations, decode_text
from headrace.sources.mysql.events import Event
from headrace.sources.mysql.reading import Reading, bit_places, broken
from headrace.sources.mysql.types import PACKED, ColumnType, Kind

__all__ = ["LoggedColumn", "TableMap", "parse_table_map", "table_map_id"]

# Columns that have a sign; MariaDB counts years among them.
_NUMBERS = frozenset(
    {Kind.TINY, Kind.SHORT, Kind.INT24, Kind.LONG, Kind.LONGLONG}
    | {Kind.FLOAT, Kind.DOUBLE, Kind.DECIMAL, Kind.YEAR}
)
_LABELLED = frozenset({Kind.ENUM, Kind.SET})

# Types of servers before MariaDB 10.1.2 and MySQL 5.6.4, and compressed columns.
_OLD_TIMES = frozenset({7, 11, 12, 14})
_COMPRESSED = frozenset({140, 141})
_VAR_STRING = 253

# Bytes of metadata per type.
_METADATA = {
    4: 1, 5: 1, 15: 2, 16: 2, 17: 1, 18: 1, 19: 1, 140: 1, 141: 2, 242: 1, 245: 1, 246: 2, 247: 2, 248: 2,
    249: 1, 250: 1, 251: 1, 252: 1, 253: 2, 254: 2, 255: 1,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class LoggedColumn:
    """A column as the log describes it.

    Attributes:
        name: empty where the log does not name columns.
        type: its signs, character set and labels only where the log names columns.
        nullable: whether it may hold null.
    """

    name: str
    type: ColumnType
    nullable: bool


@dataclass(frozen=True, slots=True)
class TableMap:
    """A table as the log describes it.

    Attributes:
        table_id: by which events with rows name it, until the next map of that number.
        table: its name.
        columns: in order.
        key: places of the primary key's columns, None where the log does not say.
        raw: everything but the number: equal bytes describe the same.
    """

    table_id: int
    table: TableId
    columns: tuple[LoggedColumn, ...]
    key: tuple[int, ...] | None
    raw: bytes = field(repr=False)

    @property
    def named(self) -> bool:
        """Whether the log names the columns."""
        return bool(self.columns) and bool(self.columns[0].name)

    @property
    def is_sequence(self) -> bool:
        """Whether it is a sequence of MariaDB's, of which each step is logged as if a row were inserted."""
        return tuple(column.name for column in self.columns) == _SEQUENCE


_SEQUENCE = (
    "next_not_cached_value", "minimum_value", "maximum_value", "start_value", "increment", "cache_size", "cycle_option",
    "cycle_count",
)  # fmt: skip


def table_map_id(event: Event) -> tuple[int, TableId, bytes]:
    """Return number, table, and all bytes behind the number, without reading the description."""
    body = event.body()
    table_id = body.number(6)
    raw = event.data[body.at : event.end]
    body.take(2)
    return table_id, _table(body), raw


def parse_table_map(event: Event, collations: Collations) -> TableMap:
    """Read a description.

    Raises:
        SourceError: a column is of a type that is not decoded here.
        ProtocolError: it does not follow the protocol.
    """
    table_id, table, raw = table_map_id(event)
    body = event.body()
    body.take(8)
    _table(body)
    count = body.length()
    codes = body.take(count)
    metadata = body.counted()
    nullable = body.bits(count)
    places = set(bit_places(nullable, count))
    types = _types(table, codes, Reading(metadata, 0, len(metadata)))
    more = _Optional.read(body)
    types = more.applied(types, collations)
    if more.names and len(more.names) != count:
        raise broken("a table map names another number of columns than it has")
    columns = tuple(
        LoggedColumn(more.names[place] if more.names else "", type_, place in places)
        for place, type_ in enumerate(types)
    )
    if any(place >= count for place in more.key):
        raise broken("a table map's key lies outside its columns")
    key = tuple(sorted(more.key)) if more.names else None
    return TableMap(table_id, table, columns, key, raw)


def _table(body: Reading) -> TableId:
    schema = body.text(body.number(1))
    body.take(1)
    name = body.text(body.number(1))
    body.take(1)
    return TableId(schema, name)


def _types(table: TableId, codes: bytes, metadata: Reading) -> list[ColumnType]:
    types = [_type(table, code, metadata.take(_METADATA.get(code, 0))) for code in codes]
    if not all(map(_exists, types)):
        raise broken("a table map has a column of a form that no server makes")
    return types


def _exists(type_: ColumnType) -> bool:
    """Return whether a column may be of a type's sizes."""
    kind, length = type_.kind, type_.length
    if kind in PACKED:
        return 1 <= length <= 4
    if kind is Kind.BIT:
        return 1 <= length <= 64
    if kind is Kind.DECIMAL:
        return 1 <= type_.precision <= 65 and type_.scale <= type_.precision
    if kind is Kind.ENUM:
        return 1 <= length <= 2
    if kind is Kind.SET:
        return 1 <= length <= 8
    return type_.scale <= 6


def _type(table: TableId, code: int, meta: bytes) -> ColumnType:
    if code == Kind.CHAR:
        # The upper bits of a length above 255 hide in those of the type.
        real, low = meta
        if real & 0x30 != 0x30:
            return ColumnType(Kind.CHAR, length=low | ((real & 0x30 ^ 0x30) << 4))
        if real in (Kind.ENUM, Kind.SET):
            return ColumnType(Kind(real), length=low)
        return ColumnType(Kind.CHAR, length=low)
    if code in (Kind.VARCHAR, _VAR_STRING):
        return ColumnType(Kind.VARCHAR, length=int.from_bytes(meta, "little"))
    if code in _OLD_TIMES:
        raise SourceError(
            f"{table} has a column of a time type as old servers wrote it.",
            next_step="SET GLOBAL mysql56_temporal_format = ON; then ALTER TABLE … FORCE, and dump the table again.",
        )
    if code in _COMPRESSED:
        raise SourceError(
            f"{table} has a COMPRESSED column, which is not decoded.",
            next_step="take COMPRESSED away from the column, or exclude the table.",
        )
    try:
        kind = Kind(code)
    except ValueError:
        raise SourceError(
            f"{table} has a column of type {code}, which is not decoded.",
            next_step="exclude the table.",
        ) from None
    if kind is Kind.BIT:
        return ColumnType(kind, length=meta[0] + 8 * meta[1])
    if kind is Kind.DECIMAL:
        return ColumnType(kind, precision=meta[0], scale=meta[1])
    if kind in PACKED:
        return ColumnType(kind, length=meta[0])
    if kind in (Kind.TIME, Kind.DATETIME, Kind.TIMESTAMP):
        return ColumnType(kind, scale=meta[0])
    return ColumnType(kind)


@dataclass(slots=True)
class _Optional:
    """The fields behind the fixed part: each a type, a length and its bytes."""

    signs: bytes | None = None
    names: list[str] = field(default_factory=list)
    key: list[int] = field(default_factory=list)
    text_default: list[int] | None = None
    text_each: list[int] | None = None
    label_default: list[int] | None = None
    label_each: list[int] | None = None
    enums: list[list[bytes]] = field(default_factory=list)
    sets: list[list[bytes]] = field(default_factory=list)
    vectors: list[int] = field(default_factory=list)

    @classmethod
    def read(cls, body: Reading) -> _Optional:
        found = cls()
        while body.left:
            kind = body.number(1)
            size = body.length()
            part = Reading(body.data, body.at, body.at + size)
            body.take(size)
            found._take(kind, part)
        return found

    def _take(self, kind: int, part: Reading) -> None:
        if kind == 1:
            self.signs = part.take(part.left)
        elif kind == 2:
            self.text_default = _numbers(part)
        elif kind == 3:
            self.text_each = _numbers(part)
        elif kind == 4:
            while part.left:
                self.names.append(part.text(part.length()))
        elif kind == 5:
            self.sets = _labels(part)
        elif kind == 6:
            self.enums = _labels(part)
        elif kind == 8:
            self.key = _numbers(part)
        elif kind == 9:
            # With the length of each column's prefix, which says nothing about which column it is.
            self.key = _numbers(part)[::2]
        elif kind == 10:
            self.label_default = _numbers(part)
        elif kind == 11:
            self.label_each = _numbers(part)
        elif kind == 13:
            self.vectors = _numbers(part)

    def applied(self, types: Sequence[ColumnType], collations: Collations) -> list[ColumnType]:
        """Return the types with what these fields say of them."""
        numbers = [place for place, type_ in enumerate(types) if type_.kind in _NUMBERS]
        unsigned = set()
        if self.signs is not None:
            unsigned = {
                place
                for n, place in enumerate(numbers)
                if n >> 3 < len(self.signs) and self.signs[n >> 3] << (n & 7) & 0x80
            }
        charsets = _collations(types, collations.collated, self.text_default, self.text_each)
        charsets |= _collations(types, _LABELLED, self.label_default, self.label_each)
        types = _sized(types, self.vectors)
        labels = _by_place(types, Kind.ENUM, self.enums) | _by_place(types, Kind.SET, self.sets)
        return [
            _with(
                type_,
                place in unsigned,
                collations.charset(charsets[place]) if place in charsets else "",
                labels.get(place, ()),
                collations,
            )
            for place, type_ in enumerate(types)
        ]


def _with(
    type_: ColumnType,
    unsigned: bool,
    charset: str,
    labels: Sequence[bytes],
    collations: Collations,
) -> ColumnType:
    """Return the type with its sign, character set and labels."""
    if type_.kind in (Kind.YEAR, Kind.GEOMETRY, Kind.JSON, Kind.VECTOR):
        return type_
    if type_.kind in _LABELLED:
        if not charset:
            return type_
        return ColumnType(type_.kind, length=type_.length, labels=_decoded(labels, charset))
    characters = 1
    if type_.kind in (Kind.CHAR, Kind.VARCHAR) and charset:
        characters = collations.widths.get(charset, 1)
    return ColumnType(
        type_.kind,
        unsigned,
        type_.length,
        type_.precision,
        type_.scale,
        charset,
        characters,
    )


def _decoded(labels: Sequence[bytes], charset: str) -> tuple[str, ...]:
    charset = "utf8mb4" if charset == BINARY else charset
    if charset not in CODECS:
        raise SourceError(
            f"The labels of an ENUM or SET are in the character set {charset}, which is not decoded.",
            next_step="convert the column to utf8mb4, or exclude its table.",
        )
    try:
        return tuple(decode_text(label, charset) for label in labels)
    except ValueError:
        raise broken("a label is no text of its character set") from None


def _collations(
    types: Sequence[ColumnType],
    kinds: frozenset[int],
    default: list[int] | None,
    each: list[int] | None,
) -> dict[int, int]:
    """Return the collation of each column of some kinds, by place: a default with exceptions, or a list."""
    places = [place for place, type_ in enumerate(types) if type_.kind in kinds]
    if each is not None:
        if len(each) != len(places):
            raise broken("a table map has another number of collations than columns of text")
        return dict(zip(places, each, strict=True))
    if default is None:
        return {}
    if not len(default) & 1:
        raise broken("a table map has half a collation")
    found = dict.fromkeys(places, default[0])
    for n, collation in zip(default[1::2], default[2::2], strict=True):
        if n >= len(places):
            raise broken("a table map has a collation of a column that is not there")
        found[places[n]] = collation
    return found


def _sized(types: Sequence[ColumnType], vectors: Sequence[int]) -> list[ColumnType]:
    """Return the types, vectors with how many numbers they hold."""
    sizes = iter(vectors)
    return [
        replace(type_, precision=next(sizes, 0)) if type_.kind is Kind.VECTOR else type_
        for type_ in types
    ]


def _by_place(
    types: Sequence[ColumnType], kind: Kind, lists: Sequence[Sequence[bytes]]
) -> dict[int, Sequence[bytes]]:
    places = [place for place, type_ in enumerate(types) if type_.kind is kind]
    if lists and len(lists) != len(places):
        raise broken("a table map has another number of label lists than labelled columns")
    return dict(zip(places, lists, strict=False))


def _numbers(part: Reading) -> list[int]:
    found = []
    while part.left:
        found.append(part.length())
    return found


def _labels(part: Reading) -> list[list[bytes]]:
    found = []
    while part.left:
        found.append([part.counted() for _ in range(part.length())])
    return found

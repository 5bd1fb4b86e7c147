"""Which Arrow type holds a MySQL or MariaDB type exactly, text where none does.

A `ColumnType` is made from a table map of the log (`headrace.sources.mysql.table_map`) and from the catalog
(`headrace.sources.mysql.catalog`) alike, and says the same of both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

import pyarrow as pa

from headrace.sources.mysql.charsets import BINARY

__all__ = ["PACKED", "ColumnType", "Kind"]


class Kind(IntEnum):
    """How a value lies in a row of the log; the numbers are the protocol's own."""

    TINY = 1
    SHORT = 2
    LONG = 3
    FLOAT = 4
    DOUBLE = 5
    LONGLONG = 8
    INT24 = 9
    DATE = 10
    YEAR = 13
    VARCHAR = 15
    BIT = 16
    TIMESTAMP = 17
    DATETIME = 18
    TIME = 19
    VECTOR = 242
    JSON = 245
    DECIMAL = 246
    ENUM = 247
    SET = 248
    BLOB = 252
    CHAR = 254
    GEOMETRY = 255


PACKED = frozenset({Kind.BLOB, Kind.GEOMETRY, Kind.JSON, Kind.VECTOR})
"""Kinds whose values lie behind a length of as many bytes as the type says."""

_INTEGERS: Mapping[Kind, tuple[str, pa.DataType, pa.DataType]] = {
    Kind.TINY: ("tinyint", pa.int16(), pa.int16()),
    Kind.SHORT: ("smallint", pa.int16(), pa.int32()),
    Kind.INT24: ("mediumint", pa.int32(), pa.int32()),
    Kind.LONG: ("int", pa.int32(), pa.int64()),
    Kind.LONGLONG: ("bigint", pa.int64(), pa.decimal128(20, 0)),
}
"""Name, and what holds it with and without a sign."""

_PLAIN: Mapping[Kind, tuple[str, pa.DataType]] = {
    Kind.FLOAT: ("float", pa.float32()),
    Kind.DOUBLE: ("double", pa.float64()),
    Kind.DATE: ("date", pa.date32()),
    Kind.YEAR: ("year", pa.int16()),
    Kind.GEOMETRY: ("geometry", pa.binary()),
    # As the server renders it.
    Kind.JSON: ("json", pa.string()),
}

_TIMES: Mapping[Kind, tuple[str, pa.DataType]] = {
    Kind.TIMESTAMP: ("timestamp", pa.timestamp("us", tz="UTC")),
    Kind.DATETIME: ("datetime", pa.timestamp("us")),
    # It may be negative and longer than a day.
    Kind.TIME: ("time", pa.string()),
}

_SIZES = ("", "tiny", "", "medium", "long")

MOST_DIGITS = 38
"""Digits that a decimal of Arrow's holds."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A column's type.

    Attributes:
        kind: how its values lie in the log.
        unsigned: of numbers.
        length: of ``char`` and ``varchar`` bytes at most; of ``bit`` bits; of blobs, geometry, documents and
            vectors the bytes of the length; of labels those of the label's number.
        precision: digits of a decimal, numbers of a vector at most.
        scale: digits behind the point, of decimals and of seconds.
        charset: of text, ``binary`` for bytes; empty for what is neither.
        characters: of ``char`` and ``varchar``, bytes of their longest character.
        labels: of ``enum`` and ``set``.
        native: name of a type that the log shows as bytes: ``uuid``, ``inet4``, ``inet6``.
        rounded: whether a number's text has fewer digits than it: one that was declared as ``double(10,3)`` is.
    """

    kind: Kind
    unsigned: bool = False
    length: int = 0
    precision: int = 0
    scale: int = 0
    charset: str = ""
    characters: int = 1
    labels: tuple[str, ...] = ()
    native: str = ""
    rounded: bool = False

    @property
    def arrow(self) -> pa.DataType:
        """What holds its values exactly."""
        if self.native or self.kind in (Kind.ENUM, Kind.SET):
            return pa.string()
        if self.kind in _INTEGERS:
            return _INTEGERS[self.kind][1 + self.unsigned]
        if self.kind in _PLAIN:
            return _PLAIN[self.kind][1]
        if self.kind in _TIMES:
            return _TIMES[self.kind][1]
        if self.kind is Kind.BIT:
            if self.length == 1:
                return pa.bool_()
            return pa.int64() if self.length < 64 else pa.decimal128(20, 0)
        if self.kind is Kind.DECIMAL:
            if self.precision <= MOST_DIGITS:
                return pa.decimal128(self.precision, self.scale)
            return pa.string()
        if self.kind is Kind.VECTOR:
            return pa.binary()
        return pa.binary() if self.charset == BINARY else pa.string()

    @property
    def name(self) -> str:
        """The source's own name; the same from the log and from the catalog."""
        if self.native:
            return self.native
        if self.kind in _INTEGERS:
            return _INTEGERS[self.kind][0] + " unsigned" * self.unsigned
        if self.kind in _PLAIN:
            return _PLAIN[self.kind][0] + " unsigned" * self.unsigned
        if self.kind in _TIMES:
            return _TIMES[self.kind][0] + (f"({self.scale})" if self.scale else "")
        if self.kind is Kind.BIT:
            return f"bit({self.length})"
        if self.kind is Kind.VECTOR:
            return f"vector({self.precision})"
        if self.kind is Kind.DECIMAL:
            return f"decimal({self.precision},{self.scale})" + " unsigned" * self.unsigned
        if self.kind in (Kind.ENUM, Kind.SET):
            labels = ",".join("'" + label.replace("'", "''") + "'" for label in self.labels)
            return f"{self.kind.name.lower()}({labels})"
        return self._text_name()

    def _text_name(self) -> str:
        binary = self.charset == BINARY
        if self.kind is Kind.BLOB:
            return _SIZES[self.length] + ("blob" if binary else "text")
        count = self.length // self.characters
        if self.kind is Kind.CHAR:
            return f"binary({count})" if binary else f"char({count})"
        return f"varbinary({count})" if binary else f"varchar({count})"

    @property
    def width(self) -> int | None:
        """Bytes of a value in the log, None where it differs from value to value."""
        kind = self.kind
        if kind in _WIDTHS:
            return _WIDTHS[kind]
        if kind is Kind.BIT:
            return (self.length + 7) // 8
        if kind is Kind.DECIMAL:
            return decimal_width(self.precision - self.scale) + decimal_width(self.scale)
        if kind in _FRACTIONAL:
            return _FRACTIONAL[kind] + (self.scale + 1) // 2
        if kind in (Kind.ENUM, Kind.SET):
            return self.length
        return None

    @property
    def prefix(self) -> int:
        """Bytes of the length before a value; only where `width` is None."""
        if self.kind in PACKED:
            return self.length
        return 1 if self.length < 256 else 2


_WIDTHS: Mapping[Kind, int] = {
    Kind.TINY: 1,
    Kind.SHORT: 2,
    Kind.INT24: 3,
    Kind.LONG: 4,
    Kind.LONGLONG: 8,
    Kind.FLOAT: 4,
    Kind.DOUBLE: 8,
    Kind.DATE: 3,
    Kind.YEAR: 1,
}
_FRACTIONAL: Mapping[Kind, int] = {Kind.TIMESTAMP: 4, Kind.DATETIME: 5, Kind.TIME: 3}
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4)


def decimal_width(digits: int) -> int:
    """Return the bytes of so many digits on one side of the point: nine in four, fewer in what they need."""
    return digits // 9 * 4 + _DIGIT_BYTES[digits % 9]

"""How the cells of a prepared select lie in its rows.

A row is a zero, a mask of nulls whose first two bits are none, and the cells that are not null, one behind the other.
Numbers and times have a form of their own; everything else is text or bytes behind a length.
Source: https://dev.mysql.com/doc/dev/mysql-server/latest/page_protocol_binary_resultset.html
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from headrace.sources.mysql.reading import broken
from headrace.sources.mysql.types import ColumnType, Kind

__all__ = ["Form", "Wire", "check_wires", "wire_of"]


class Form(IntEnum):
    """What a cell is; the numbers are those of ``_native.pyx``."""

    COUNTED = 0
    """Bytes behind their length."""
    SIGNED = 1
    UNSIGNED = 2
    FLOAT = 3
    MOMENT = 4
    """Behind a byte with its length, as far as not zero: year (2 bytes), month, day; hour, minute, second; µs (4)."""


class Wire(NamedTuple):
    """How a column's cells lie.

    Attributes:
        form: what they are.
        width: bytes of a number.
    """

    form: Form
    width: int


_COUNTED = Wire(Form.COUNTED, 0)
_MOMENT = Wire(Form.MOMENT, 0)

# By the protocol's numbers.
_WHOLE: Mapping[int, int] = {1: 1, 2: 2, 13: 2, 3: 4, 9: 4, 8: 8}
_FLOATS: Mapping[int, int] = {4: 4, 5: 8}
_MOMENTS = frozenset({7, 10, 11, 12})
_UNSIGNED = 0x20

_FORMS: Mapping[Kind, frozenset[Form]] = {
    **dict.fromkeys(
        (Kind.TINY, Kind.SHORT, Kind.INT24, Kind.LONG, Kind.LONGLONG, Kind.YEAR, Kind.BIT),
        frozenset({Form.SIGNED, Form.UNSIGNED}),
    ),
    **dict.fromkeys((Kind.FLOAT, Kind.DOUBLE), frozenset({Form.FLOAT})),
    **dict.fromkeys((Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP), frozenset({Form.MOMENT})),
}
_OTHERS = frozenset({Form.COUNTED})


def wire_of(type_code: int, flags: int) -> Wire:
    """Return how cells lie of a column that is described by these numbers."""
    if type_code in _WHOLE:
        return Wire(Form.UNSIGNED if flags & _UNSIGNED else Form.SIGNED, _WHOLE[type_code])
    if type_code in _FLOATS:
        return Wire(Form.FLOAT, _FLOATS[type_code])
    return _MOMENT if type_code in _MOMENTS else _COUNTED


def check_wires(types: Sequence[ColumnType], wires: Sequence[Wire]) -> None:
    """Refuse rows that are not of these columns.

    Raises:
        ProtocolError: their cells are something else.
    """
    if len(types) != len(wires):
        raise broken("a select has other columns than those that were asked for")
    for type_, wire in zip(types, wires, strict=True):
        if wire.form not in _FORMS.get(type_.kind, _OTHERS):
            raise broken(f"a column of the type {type_.name} comes as {wire.form.name.lower()}")

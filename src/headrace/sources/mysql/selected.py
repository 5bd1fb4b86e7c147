"""The rows of a prepared select, packet by packet, to columns of text as a server renders it.

`headrace.sources.mysql.built.NativeRows` is the twin in C.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum

import pyarrow as pa

from headrace.sources.mysql.packets import is_end
from headrace.sources.mysql.reading import Reading, broken
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.texts import column_of_texts
from headrace.sources.mysql.types import ColumnType, Kind
from headrace.sources.mysql.wire import Form, Wire, check_wires

__all__ = ["SelectedRows", "Stop"]

_HEADER = 4
_MOST_OF_A_PACKET = 0xFFFFFF
_REFUSED = 0xFF
# Bits of the mask of nulls before those of the columns.
_NO_COLUMNS = 2


class Stop(IntEnum):
    """Why no more rows were taken; the numbers are those of ``_native.pyx``."""

    MORE = 0
    END = 1
    LARGE = 2
    REFUSED = 3
    ENOUGH = 4


class SelectedRows:
    """Rows of a select.

    Args:
        types: of its columns.
        wires: how their cells lie.

    Raises:
        ProtocolError: both do not go together.
    """

    def __init__(self, types: Sequence[ColumnType], wires: Sequence[Wire]) -> None:
        check_wires(types, wires)
        self.types = tuple(types)
        self._wires = tuple(wires)
        self.clear()

    def clear(self) -> None:
        """Forget all rows."""
        self._cells: list[list[bytes | None]] = [[] for _ in self.types]
        self.nbytes = 0
        self.count = 0

    def take(self, buffer: bytearray, at: int, end: int, most: int) -> tuple[int, int]:
        """Add the rows of whole packets.

        Args:
            buffer: holds packets.
            at: where one begins.
            end: behind the last byte.
            most: bytes of values after which no row is added.

        Returns:
            the place of the first packet that was left, and a `Stop`.
        """
        while end - at > _HEADER:
            size = int.from_bytes(buffer[at : at + 3], "little")
            first = buffer[at + _HEADER]
            if size == _MOST_OF_A_PACKET:
                return at, Stop.LARGE
            if size > end - at - _HEADER:
                break
            if is_end(first, size):
                return at, Stop.END
            if first == _REFUSED and size:
                return at, Stop.REFUSED
            if self.nbytes >= most:
                return at, Stop.ENOUGH
            self.add(bytes(buffer[at + _HEADER : at + _HEADER + size]))
            at += _HEADER + size
        return at, Stop.MORE

    def add(self, payload: bytes) -> None:
        """Add the row of one packet.

        Raises:
            ProtocolError: it does not have the select's columns.
        """
        reading = Reading(payload, 0, len(payload))
        if reading.number(1):
            raise broken("a row of a select does not begin as one")
        nulls = reading.bits(len(self.types) + _NO_COLUMNS)
        for place, (cells, wire) in enumerate(
            zip(self._cells, self._wires, strict=True), _NO_COLUMNS
        ):
            null = nulls[place >> 3] >> (place & 7) & 1
            cells.append(None if null else _text(reading, wire, self.types[place - _NO_COLUMNS]))
        if reading.left:
            raise broken("a row of a select has more than its columns")
        self.nbytes += len(payload)
        self.count += 1

    def column(self, place: int, zero_dates: ZeroDates) -> pa.Array:
        """Return one of the columns.

        Raises:
            ValueError: a value has no exact place in its type.
        """
        raw = pa.array(self._cells[place], pa.binary())
        return column_of_texts(self.types[place], raw, zero_dates)


def _text(reading: Reading, wire: Wire, type_: ColumnType) -> bytes:
    """Return a cell as the server renders it."""
    if wire.form is Form.COUNTED:
        return reading.counted()
    if wire.form is Form.MOMENT:
        return _moment(reading.take(reading.number(1)), day_alone=type_.kind is Kind.DATE)
    raw = reading.take(wire.width)
    if wire.form is Form.FLOAT:
        (value,) = struct.unpack("<f" if wire.width == 4 else "<d", raw)
        return repr(value).encode()
    return b"%d" % int.from_bytes(raw, "little", signed=wire.form is Form.SIGNED)


def _moment(raw: bytes, *, day_alone: bool) -> bytes:
    if len(raw) not in ((0, 4) if day_alone else (0, 4, 7, 11)):
        raise broken("a time in a row of a select has another length than times have")
    year, month, day, hour, minute, second, micros = struct.unpack("<H5BI", raw.ljust(11, b"\0"))
    text = b"%04d-%02d-%02d" % (year, month, day)
    return text if day_alone else text + b" %02d:%02d:%02d.%06d" % (hour, minute, second, micros)

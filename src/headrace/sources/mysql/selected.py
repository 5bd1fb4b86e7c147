"""The rows of a select, packet by packet, to columns of bytes as the server rendered them.

`headrace.sources.mysql.built.NativeRows` is the twin in C.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import pyarrow as pa

from headrace.sources.mysql.packets import is_end
from headrace.sources.mysql.reading import Reading, broken
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.texts import column_of_texts
from headrace.sources.mysql.types import ColumnType

__all__ = ["SelectedRows", "Stop"]

_HEADER = 4
_MOST_OF_A_PACKET = 0xFFFFFF
_NULL, _REFUSED = 0xFB, 0xFF


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
    """

    def __init__(self, types: Sequence[ColumnType]) -> None:
        self.types = tuple(types)
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
        for cells in self._cells:
            if reading.left and payload[reading.at] == _NULL:
                reading.take(1)
                cells.append(None)
            else:
                cells.append(reading.counted())
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

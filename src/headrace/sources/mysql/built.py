"""Columns that are made in C, as Arrow arrays; only where there was a compiler.

What is rare comes as bytes, and goes on to `headrace.sources.mysql.values` or `texts` as it does from the twins.
"""

from __future__ import annotations

import abc
import functools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from enum import IntEnum

import numpy as np
import pyarrow as pa

from headrace.sources.mysql import _native
from headrace.sources.mysql.images import Run
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.texts import column_of_texts
from headrace.sources.mysql.types import MOST_DIGITS, ColumnType, Kind
from headrace.sources.mysql.values import of_bytes, of_rows
from headrace.sources.mysql.wire import Form, Wire, check_wires

__all__ = ["NativeImages", "NativeRows", "scns_and_ords", "walk", "walk_alike", "walk_transactions"]


class Op(IntEnum):
    """What a column is made of; the numbers are those of ``_native.pyx``."""

    BYTES = 0
    INT = 1
    UNSIGNED = 2
    UNSIGNED_LONG = 3
    DECIMAL = 4
    YEAR = 5
    COPIED = 6
    DATE = 7
    DATETIME = 8
    TIMESTAMP = 9


# Of less than this, to wake another thread takes as long as it saves.
_SHARED_BYTES = 1 << 18

_WHOLE = frozenset({Kind.TINY, Kind.SHORT, Kind.INT24, Kind.LONG, Kind.LONGLONG})
_OPS = {
    Kind.YEAR: Op.YEAR,
    Kind.FLOAT: Op.COPIED,
    Kind.DOUBLE: Op.COPIED,
    Kind.DATE: Op.DATE,
    Kind.DATETIME: Op.DATETIME,
    Kind.TIMESTAMP: Op.TIMESTAMP,
}


def _logged(type_: ColumnType) -> Op:
    """Return what a column is made of from its values in the log."""
    if type_.native:
        return Op.BYTES
    if type_.kind in _WHOLE:
        if not type_.unsigned:
            return Op.INT
        return Op.UNSIGNED_LONG if type_.kind is Kind.LONGLONG else Op.UNSIGNED
    if type_.kind is Kind.DECIMAL and type_.precision <= MOST_DIGITS:
        return Op.DECIMAL
    return _OPS.get(type_.kind, Op.BYTES)


def _selected(type_: ColumnType) -> Op:
    """Return what a column is made of from its cells in a row of a select."""
    op = _logged(type_)
    return Op.INT if op in (Op.UNSIGNED, Op.YEAR) else op


class _Columns(abc.ABC):
    def __init__(
        self, types: Sequence[ColumnType], ops: Sequence[Op], wires: Sequence[Wire]
    ) -> None:
        self.types = tuple(types)
        self._ops = ops
        self._plan = [
            (
                op,
                *wire,
                0 if op is Op.BYTES else type_.arrow.bit_width // 8,
                type_.precision,
                type_.scale,
            )
            for type_, op, wire in zip(self.types, ops, wires, strict=True)
        ]
        self.columns = _native.Columns(self._plan)

    @property
    def count(self) -> int:
        """Rows."""
        return self.columns.count

    def clear(self) -> None:
        """Forget all rows."""
        self.columns.clear()

    def column(self, place: int, zero_dates: ZeroDates) -> pa.Array:
        """Return one of the columns; once, then all are to be cleared.

        Raises:
            ValueError: a value has no exact place in its type.
        """
        type_ = self.types[place]
        valid, data, offsets, no_days, unfit = self.columns.take(place)
        if no_days and zero_dates == "refuse":
            raise ValueError("a date that is no day")
        if unfit:
            raise ValueError("a value is not of its column's type")
        if self._ops[place] is not Op.BYTES:
            return pa.Array.from_buffers(type_.arrow, self.count, [valid, data])
        raw = pa.Array.from_buffers(pa.binary(), self.count, [valid, offsets, data])
        return self._of_bytes(type_, raw, zero_dates)

    @abc.abstractmethod
    def _of_bytes(self, type_: ColumnType, raw: pa.Array, zero_dates: ZeroDates) -> pa.Array:
        """Return a column of what is rare from its bytes."""


class NativeImages(_Columns):
    """Images in which the same columns are present.

    Args:
        types: of the columns that are present.
    """

    def __init__(self, types: Sequence[ColumnType]) -> None:
        widths = [-one.prefix if one.width is None else one.width for one in types]
        wires = [Wire(Form.COUNTED, width) for width in widths]
        super().__init__(types, [_logged(type_) for type_ in types], wires)
        self._beside: _native.Columns | None = None

    @property
    def beside(self) -> _native.Columns:
        """Columns for what another thread adds, to be appended to ours."""
        if self._beside is None:
            self._beside = _native.Columns(self._plan)
        # Of events that were refused something may be left.
        self._beside.clear()
        return self._beside

    def _of_bytes(self, type_: ColumnType, raw: pa.Array, zero_dates: ZeroDates) -> pa.Array:
        if type_.width is None:
            return of_bytes(type_, raw)
        _, _, data = raw.buffers()
        valid = np.asarray(raw.is_valid())
        rows = np.frombuffer(data, np.uint8)[: int(valid.sum()) * type_.width]
        return of_rows(type_, rows.reshape(-1, type_.width), valid, zero_dates)


class NativeRows(_Columns):
    """Rows of a select.

    Args:
        types: of its columns.
        wires: how their cells lie; see the twin.
    """

    def __init__(self, types: Sequence[ColumnType], wires: Sequence[Wire]) -> None:
        check_wires(types, wires)
        super().__init__(types, [_selected(type_) for type_ in types], wires)

    @property
    def nbytes(self) -> int:
        """Bytes of all values, about."""
        return self.columns.nbytes

    def take(self, buffer: bytearray, at: int, end: int, most: int) -> tuple[int, int]:
        """Add the rows of whole packets; see the twin."""
        return _native.result_rows(buffer, at, end, self.columns, most)

    def add(self, payload: bytes) -> None:
        """Add the row of one packet; see the twin."""
        _native.result_row(payload, self.columns)

    def _of_bytes(self, type_: ColumnType, raw: pa.Array, zero_dates: ZeroDates) -> pa.Array:
        return column_of_texts(type_, raw, zero_dates)


def walk(data: bytes, at: int, end: int, first: NativeImages, second: NativeImages) -> int:
    """Walk through images; see the twin."""
    return _native.walk(data, at, end, first.columns, second.columns)


def walk_alike(
    buffer: bytearray,
    at: int,
    end: int,
    model: bytes,
    checksum: bool,
    pairs: bool,
    images: tuple[NativeImages, NativeImages],
    most: int,
) -> tuple[int, int, int, int]:
    """Walk through the images of whole packets whose events go on where another one ended.

    Args:
        buffer: holds packets.
        at: where one begins.
        end: behind the last byte.
        model: the event before them up to its first image; those whose table, columns or kind differ are left.
        checksum: whether events end with one.
        pairs: whether images come in twos.
        images: where they are added, in turn.
        most: bytes of images after which to stop.

    Returns:
        the place of the first packet that was left, the images, their bytes, and the place behind the last event in its
        file (32 bits), 0 when there was none.
    """
    at, events, end_pos = _native.events_alike(buffer, at, end, model, checksum, most)
    _walk_events(buffer, events, pairs, images)
    return at, events.images(0, len(events)), events.nbytes, end_pos


def walk_transactions(
    buffer: bytearray,
    at: int,
    end: int,
    begin: int,
    described: bytes,
    model: bytes,
    checksum: bool,
    pairs: bool,
    images: tuple[NativeImages, NativeImages],
    most: int,
) -> tuple[int, list[tuple[bytes, int, int, int]]]:
    """Walk through the images of whole transactions that are like one before them; else as `walk_alike`.

    Args:
        buffer: holds packets.
        at: where one begins.
        end: behind the last byte.
        begin: type of the event with which they begin.
        described: the table's description behind the event's header; of another one they are left.
        model: an event with rows up to its first image, likewise.
        checksum: whether events end with one.
        pairs: whether images come in twos.
        images: where they are added, in turn.
        most: bytes of images after which to stop.

    Returns:
        the place of the first packet that was left, and of each transaction its first event, the place behind it in its
        file (32 bits), its images and their bytes.
    """
    at, found, events = _native.transactions_alike(
        buffer, at, end, begin, described, model, checksum, most
    )
    _walk_events(buffer, events, pairs, images)
    transactions, first = [], 0
    for event, end_pos, count, size in found:
        transactions.append((event, end_pos, events.images(first, first + count), size))
        first += count
    return at, transactions


def _walk_events(
    buffer: bytearray,
    events: _native.Events,
    pairs: bool,
    images: tuple[NativeImages, NativeImages],
) -> None:
    """Add the images of events; of many, another thread adds the second half beside us.

    Which events there are is known by then, and none needs what another one holds. What is left to do in turn is to put
    the halves together, a tenth of the work. Where the processors are busy and the other thread has not even begun when
    we are done, its half is ours, too.
    """
    one, other = (each.columns for each in images)
    # Ours is the larger one: the other thread has to wake first.
    half = len(events) * 9 // 16
    if not half or events.nbytes < _SHARED_BYTES or not _may_share():
        _native.walk_events(buffer, events, 0, len(events), pairs, one, other)
        return
    # The same columns twice where images have all of them.
    beside = [images[0].beside] * 2 if other is one else [each.beside for each in images]
    second = _helper().submit(
        _native.walk_events, buffer, events, half, len(events), pairs, *beside
    )
    try:
        _native.walk_events(buffer, events, 0, half, pairs, one, other)
    finally:
        began = not second.cancel()
        if began:
            # Until it is done the buffer must not change.
            second.exception()
    if not began:
        _native.walk_events(buffer, events, half, len(events), pairs, one, other)
        return
    second.result()
    one.append(beside[0])
    if other is not one:
        other.append(beside[1])


def scns_and_ords(runs: Sequence[Run]) -> tuple[pa.Array, pa.Array]:
    """Return SCNs and ords; see the twin."""
    scns, ords = _native.scns_and_ords(runs)
    count = scns.size // 8
    return (
        pa.Array.from_buffers(pa.int64(), count, [None, scns]),
        pa.Array.from_buffers(pa.int32(), count, [None, ords]),
    )


@functools.cache
def _may_share() -> bool:
    """Return whether there is a processor for another thread; one that we may not use takes no half."""
    return (os.cpu_count() or 1) > 1


@functools.cache
def _helper() -> ThreadPoolExecutor:
    """Return the thread that walks beside others, of however many logs; it begins with its first work."""
    return ThreadPoolExecutor(1, "headrace-images")

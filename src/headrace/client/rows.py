"""The rows of one table in a block: slices of them as batches, or one by one as events.

Whoever takes batches pays for views only. Python values are made some thousand rows at a time, and only for whoever
takes events, so a block costs the same whether its transactions are many or few.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.client.consumer import Batch, Event
from headrace.client.errors import Unconvertible
from headrace.client.shapes import Shape
from headrace.model.block import Body
from headrace.model.change import META, UPDATE_NEW, UPDATE_OLD, missing_matrix
from headrace.model.schema import TableSchema

__all__ = ["RowSlice", "Rows"]

_AT_ONCE = 4096
"""Rows whose values lie in Python's memory at a time."""


class Rows:
    """Change rows of one table version in one block, in ``(scn, ord)`` order.

    Args:
        body: as it was received.
        schema: its table version.
        shape: what the consumer asked for; None for the rows as they are.

    Attributes:
        schema: the table version.
        count: rows.
    """

    def __init__(self, body: Body, schema: TableSchema, shape: Shape | None) -> None:
        self.schema = schema
        self.count = body.batch.num_rows
        self._batch = body.batch
        self._shape = shape
        self._shaped: pa.RecordBatch | None = None if shape else body.batch
        self._held: _Held | None = None

    @cached_property
    def scns(self) -> npt.NDArray[np.int64]:
        """Of each row."""
        return cast("npt.NDArray[np.int64]", self._batch.column("_scn").to_numpy())

    @cached_property
    def ords(self) -> npt.NDArray[np.int32]:
        """Of each row."""
        return cast("npt.NDArray[np.int32]", self._batch.column("_ord").to_numpy())

    def place_of(self, scn: int, order: int) -> int:
        """Return how many rows lie below ``(scn, order)``."""
        first, behind = (int(self.scns.searchsorted(scn, side)) for side in ("left", "right"))
        return first + int(self.ords[first:behind].searchsorted(order))

    def batch(self, start: int, stop: int) -> pa.RecordBatch:
        """Return rows as the consumer asked for them; views unless a column had to be converted."""
        whole = self._whole()
        return whole if stop - start == self.count else whole.slice(start, stop - start)

    def received(self, start: int, stop: int) -> pa.RecordBatch:
        """Return rows as they were received; views."""
        return self._batch.slice(start, stop - start)

    def events(self, start: int, stop: int) -> Iterator[Event]:
        """Yield rows as events; the two images of an update are one.

        Raises:
            Unconvertible: a row does not fit the model that was asked for, or Python.
        """
        at = start
        while at < stop:
            held = self._hold(at)
            end = min(stop, held.stop)
            while at < end:
                i = at - held.start
                scn, order, op = held.scns[i], held.ords[i], held.ops[i]
                row, missing = held.row(i)
                before = None
                if op == UPDATE_OLD and at + 1 < end and held.follows(i):
                    before = row
                    order, op = held.ords[i + 1], UPDATE_NEW
                    row, missing = held.row(i + 1)
                    at += 1
                at += 1
                value = None if self._shape is None else self._shape.value(op, row, missing)
                # Of an update it is that of the new image, which is the row at hand.
                key = held.key(at - 1 - held.start, row)
                yield Event(scn, order, op, self.schema.table, key, row, before, missing, value)

    def _whole(self) -> pa.RecordBatch:
        if self._shaped is None:
            assert self._shape is not None
            self._shaped = self._shape.rows(self._batch, self.schema)
        return self._shaped

    def _hold(self, at: int) -> _Held:
        held = self._held
        if held is None or not held.start <= at < held.stop:
            batch = self._whole()
            stop = min(at + _AT_ONCE, batch.num_rows)
            if stop < batch.num_rows and batch.column("_op")[stop - 1].as_py() == UPDATE_OLD:
                stop += 1
            rows, count = batch.slice(at, stop - at), stop - at
            held = self._held = _Held(rows, at, self.schema, self._batch.slice(at, count))
        return held


class RowSlice(NamedTuple):
    """Rows of one table that one window has between two system events."""

    rows: Rows
    start: int
    stop: int

    @property
    def schema(self) -> TableSchema:
        """Version of the table."""
        return self.rows.schema

    def batch(self) -> Batch:
        """Return them as columns."""
        rows = self.rows
        whole = self.stop - self.start == rows.count
        return Batch(rows.schema.table, rows.schema, rows.batch(self.start, self.stop), whole)

    def received(self) -> pa.RecordBatch:
        """Return them as the source sent them, whatever the consumer asked for."""
        return self.rows.received(self.start, self.stop)

    def events(self) -> Iterator[Event]:
        """Yield them one by one."""
        return self.rows.events(self.start, self.stop)


class _Held:
    """Some rows as Python values, and their keys, which may be none of the columns that were asked for."""

    def __init__(
        self, batch: pa.RecordBatch, start: int, schema: TableSchema, received: pa.RecordBatch
    ) -> None:
        self.start, self.stop = start, start + batch.num_rows
        self.scns: list[int] = batch.column("_scn").to_pylist()
        self.ords: list[int] = batch.column("_ord").to_pylist()
        self.ops: list[str] = batch.column("_op").to_pylist()
        self._names = batch.schema.names[len(META) :]
        self._table = str(schema.table)
        self._unreadable: dict[int, str] = {}
        self._key = [
            (name, None if name in self._names else self._values(name, received.column(name)))
            for name in schema.key
            if name in received.schema.names
        ]
        sent = zip(self._names, batch.columns[len(META) :], strict=True)
        columns = [self._values(name, column) for name, column in sent]
        self._cells: list[tuple[Any, ...]] = list(zip(*columns, strict=True))
        self._missing = _missing_names(batch, self._names)

    def row(self, i: int) -> tuple[dict[str, Any], frozenset[str]]:
        """Return the cells that were sent, and the names of those that were not.

        Raises:
            Unconvertible: a cell has no value in Python.
        """
        if i in self._unreadable:
            raise Unconvertible(
                self._table,
                self._unreadable[i],
                "a value is none of Python's, such as an infinite date or a year beyond 9999",
            )
        # A table of which no column was asked for has rows of nothing.
        row = dict(zip(self._names, self._cells[i], strict=True)) if self._cells else {}
        missing = self._missing.get(i)
        if not missing:
            return row, frozenset()
        for name in missing:
            del row[name]
        return row, missing

    def key(self, i: int, row: dict[str, Any]) -> tuple[Any, ...]:
        """Return the key of a row with these cells."""
        return tuple(row.get(name) if cells is None else cells[i] for name, cells in self._key)

    def _values(self, name: str, column: pa.Array) -> list[Any]:
        try:
            return cast("list[Any]", column.to_pylist())
        except (OverflowError, ValueError):
            # Told when its row is: the windows before it are in order.
            return [self._value(i, name, cell) for i, cell in enumerate(column)]

    def _value(self, i: int, name: str, cell: pa.Scalar) -> Any:
        try:
            return cell.as_py()
        except (OverflowError, ValueError):
            self._unreadable.setdefault(i, name)
            return None

    def follows(self, i: int) -> bool:
        """Whether the next row is the new image of the update whose old one this is."""
        return (
            self.ops[i + 1] == UPDATE_NEW
            and self.scns[i + 1] == self.scns[i]
            and self.ords[i + 1] == self.ords[i] + 1
        )


def _missing_names(batch: pa.RecordBatch, names: list[str]) -> dict[int, frozenset[str]]:
    """Return the columns that were not sent, by row; rows that lack nothing are left out."""
    cells = batch.column("_missing")
    if cells.null_count == batch.num_rows:
        return {}
    matrix = missing_matrix(cells, len(names))
    return {
        int(i): frozenset(names[c] for c in np.flatnonzero(matrix[i]))
        for i in np.flatnonzero(matrix.any(axis=1))
    }

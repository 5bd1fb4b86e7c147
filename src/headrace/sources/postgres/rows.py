"""Collects change rows of one table version and turns them into a body."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import pyarrow as pa

from headrace.errors import ProtocolError
from headrace.model.block import Body
from headrace.model.change import (
    DELETE,
    INSERT,
    PATCH,
    UPDATE_NEW,
    UPDATE_OLD,
    change_schema,
    pack_missing,
)
from headrace.model.schema import KeyCheck, TableSchema
from headrace.sources.postgres.binary import mixed_column
from headrace.sources.postgres.messages import UNCHANGED, Binary, Cell, Delete, Insert, Update
from headrace.sources.postgres.types import Form

__all__ = ["ChangeRows"]


class ChangeRows:
    """Rows of one table version, in ``(scn, ord)`` order; ords are given by the caller.

    Each method returns how many rows it added.

    Args:
        schema: the table's shape.
        schema_id: its id.
        forms: how the binary form of each column is read; none is known when empty.
    """

    def __init__(self, schema: TableSchema, schema_id: int, forms: Sequence[Form] = ()) -> None:
        self.schema = schema
        self.schema_id = schema_id
        self._width = len(schema.columns)
        self._forms = tuple(forms) or (Form.UNKNOWN,) * self._width
        self._text_only = {i for i, form in enumerate(self._forms) if form is Form.UNKNOWN}
        self._key = {i for i, name in enumerate(schema.names) if name in schema.key}
        # A key-only old image has a cell for every column, null where the column is not in the key.
        self._key_only = pack_missing(
            (i for i in range(self._width) if i not in self._key), self._width
        )
        self._arrow = change_schema(schema)
        self._scns: list[int] = []
        self._ords: list[int] = []
        self._ops: list[str] = []
        self._masks: list[bytes | None] = []
        self._rows: list[Sequence[bytes | None]] = []

    def __len__(self) -> int:
        return len(self._ops)

    @property
    def first(self) -> tuple[int, int]:
        """Place ``(scn, ord)`` of the first row."""
        return self._scns[0], self._ords[0]

    def message(self, scn: int, ord_: int, message: Insert | Update | Delete) -> int:
        """Add the rows of one message."""
        if isinstance(message, Insert):
            return self.insert(scn, ord_, message.new)
        if isinstance(message, Update):
            return self.update(scn, ord_, message.old_kind, message.old, message.new)
        return self.delete(scn, ord_, message.old_kind, message.old)

    def insert(self, scn: int, ord_: int, new: list[Cell]) -> int:
        """Add a new row."""
        self._add(scn, ord_, INSERT, new)
        return 1

    def update(
        self, scn: int, ord_: int, kind: str, old: list[Cell] | None, new: list[Cell]
    ) -> int:
        """Add a changed row: a patch without old image, else two neighbours that nothing separates."""
        if old is None:
            if self.schema.key_check is not KeyCheck.IMMEDIATE:
                raise self._no_image("an update")
            self._add(scn, ord_, PATCH, new)
            return 1
        if kind == "O":
            self._add(scn, ord_, UPDATE_OLD, old)
            new = [before if cell is UNCHANGED else cell for cell, before in self._pairs(new, old)]
        else:
            self._add_key(scn, ord_, UPDATE_OLD, old)
            # A key that is stored out of line has an old image though it has not changed, and the new one lacks it.
            new = [
                before if cell is UNCHANGED and place in self._key else cell
                for place, (cell, before) in enumerate(self._pairs(new, old))
            ]
        self._add(scn, ord_ + 1, UPDATE_NEW, new)
        return 2

    def delete(self, scn: int, ord_: int, kind: str, old: list[Cell]) -> int:
        """Add a removed row."""
        if kind == "O":
            self._add(scn, ord_, DELETE, old)
        else:
            self._add_key(scn, ord_, DELETE, old)
        return 1

    def body(self) -> Body:
        """Return everything added so far as one body and start anew."""
        arrays = [
            pa.array(self._scns, pa.int64()),
            pa.array(self._ords, pa.int32()),
            pa.array(self._ops, pa.string()),
            pa.array(self._masks, pa.binary()),
            *self._columns(),
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._arrow)
        self._scns, self._ords, self._ops = [], [], []
        self._masks, self._rows = [], []
        return Body(self.schema_id, self.schema.table, batch)

    def _columns(self) -> list[pa.Array]:
        """Return the table's own columns."""
        cells = zip(*self._rows, strict=True) if self._rows else ((),) * self._width
        return [
            mixed_column(self.schema, place, form, column)
            for place, (form, column) in enumerate(zip(self._forms, cells, strict=True))
        ]

    def _add(self, scn: int, ord_: int, op: str, cells: list[Cell]) -> None:
        self._check_width(cells)
        mask = None
        if UNCHANGED in cells:
            places = [i for i, cell in enumerate(cells) if cell is UNCHANGED]
            mask = pack_missing(places, self._width)
            cells = [None if cell is UNCHANGED else cell for cell in cells]
        self._append(scn, ord_, op, mask, cells)

    def _add_key(self, scn: int, ord_: int, op: str, cells: list[Cell]) -> None:
        if self.schema.key_check is not KeyCheck.IMMEDIATE:
            raise self._no_image(op)
        self._check_width(cells)
        if UNCHANGED in cells:
            raise self._no_image(op)
        if any(cells[place] is None for place in self._key):
            raise self._no_key(cells)
        self._append(scn, ord_, op, self._key_only, cells)

    def _append(self, scn: int, ord_: int, op: str, mask: bytes | None, cells: list[Cell]) -> None:
        self._scns.append(scn)
        self._ords.append(ord_)
        self._ops.append(op)
        self._masks.append(mask)
        self._rows.append(cast("list[bytes | None]", cells))

    def _pairs(self, new: list[Cell], old: list[Cell]) -> zip[tuple[Cell, Cell]]:
        self._check_width(new)
        return zip(new, old, strict=True)

    def _check_width(self, cells: list[Cell]) -> None:
        if len(cells) != self._width:
            raise ProtocolError(
                f"{self.schema.table}: a row of {len(cells)} cells for {self._width} columns.",
                next_step="report it with the server's version; capture stops rather than guess.",
            )
        if any(isinstance(cells[place], Binary) for place in self._text_only):
            raise ProtocolError(
                f"{self.schema.table}: a binary value of a column of which only the text is known.",
                next_step="set source.log_format to text, and report it with the server's version.",
            )

    def _no_key(self, cells: list[Cell]) -> ProtocolError:
        """Return why an old key cannot be taken: what is replica identity can never be null."""
        lacking = [self.schema.names[place] for place in sorted(self._key) if cells[place] is None]
        return ProtocolError(
            f"{self.schema.table}: an old key without {', '.join(lacking)}: the row was told by another "
            "replica identity than its table's, as those of a partition are that has one of its own.",
            next_step=f"ALTER TABLE … REPLICA IDENTITY DEFAULT, {self.schema.table} and its partitions. Then run "
            "`headrace resync FILE`, which compares the tables and repairs what differs.",
        )

    def _no_image(self, what: str) -> ProtocolError:
        return ProtocolError(
            f"{self.schema.table}: {what} without its whole old row, which only a key that is "
            "checked row by row can do without.",
            next_step=f"ALTER TABLE {self.schema.table} REPLICA IDENTITY FULL, then dump it again.",
        )

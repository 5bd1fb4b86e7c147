"""Collects the row images of one table version and turns them into a body.

Bytes of events are kept as they came; columns are built once, when a body is asked for. An image that lacks columns
(``binlog_row_image`` of any session) keeps them missing, unless the other image of its update has them: what an image
after an update leaves out did not change.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import SourceError, UndecodableValue
from headrace.model.block import Body
from headrace.model.change import DELETE, INSERT, UPDATE_NEW, UPDATE_OLD, change_schema
from headrace.model.schema import KeyCheck, TableSchema
from headrace.sources.mysql.events import DELETES, UPDATES, EventType, RowsHeader
from headrace.sources.mysql.images import Cells, Layout
from headrace.sources.mysql.partial import with_whole_documents
from headrace.sources.mysql.reading import bit_places, broken
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.types import ColumnType
from headrace.sources.mysql.values import column_of
from headrace.sources.mysql.walker import Walk

__all__ = ["TableRows"]

_CODES = pa.array([INSERT, UPDATE_OLD, UPDATE_NEW, DELETE], pa.string())
_INSERT, _OLD, _NEW, _DELETE = range(4)


class _Images:
    """Images of one layout, and their places among all."""

    def __init__(self, types: list[ColumnType], mask: bytes) -> None:
        self.present = bit_places(mask, len(types))
        self.layout = Layout([types[place] for place in self.present])
        self.order: list[npt.NDArray[np.int64]] = []

    def clear(self) -> None:
        self.layout.clear()
        self.order = []


class TableRows:
    """Rows of one table version, in ``(scn, ord)`` order.

    Args:
        schema: the table's shape.
        schema_id: its id.
        types: of its columns.
        zero_dates: what becomes of dates that are no days.
        walker: finds the cells of images.
    """

    def __init__(
        self,
        schema: TableSchema,
        schema_id: int,
        types: list[ColumnType],
        zero_dates: ZeroDates,
        walker: Walk,
    ) -> None:
        self.schema = schema
        self.schema_id = schema_id
        self._types = types
        self._zero_dates = zero_dates
        self._walk = walker
        self._arrow = change_schema(schema)
        self._key = frozenset(schema.key_indexes)
        self._images: dict[bytes, _Images] = {}
        self._start()

    def _start(self) -> None:
        self._data = bytearray()
        self._count = 0
        self._scns: list[npt.NDArray[np.int64]] = []
        self._ords: list[npt.NDArray[np.int32]] = []
        self._ops: list[npt.NDArray[np.int8]] = []
        self.first = (0, 0)
        for images in self._images.values():
            images.clear()

    def __len__(self) -> int:
        return self._count

    def add(self, scn: int, ord_: int, type_: int, header: RowsHeader) -> int:
        """Add the rows of an event; return how many images that are, which is how many ords they take.

        Raises:
            SourceError: an image lacks what the table cannot do without.
            ProtocolError: the images do not follow the protocol.
        """
        if header.width != len(self._types):
            raise broken("rows have another number of columns than their table")
        if type_ == EventType.PARTIAL_UPDATE_ROWS:
            header = with_whole_documents(header, self._types, str(self.schema.table))
        before, after = self._of(header.before), self._of(header.after)
        base = len(self._data) - header.start
        found = self._walk(header.data, header.start, header.end, base, before.layout, after.layout)
        if not found:
            return 0
        self._data += header.data[header.start : header.end]
        places = np.arange(self._count, self._count + found)
        if type_ in UPDATES:
            if found & 1:
                raise broken("an update has no second image")
            ops = np.tile(np.array([_OLD, _NEW], np.int8), found // 2)
        else:
            ops = np.full(found, _DELETE if type_ in DELETES else _INSERT, np.int8)
        if before is after:
            before.order.append(places)
        else:
            before.order.append(places[0::2])
            after.order.append(places[1::2])
        if not self._count:
            self.first = (scn, ord_)
        self._scns.append(np.full(found, scn))
        self._ords.append(np.arange(ord_, ord_ + found, dtype=np.int32))
        self._ops.append(ops)
        self._count += found
        return found

    def body(self) -> Body:
        """Return everything added so far as one body and start anew.

        Raises:
            UndecodableValue: a value has no exact place in its column's type.
        """
        ops = np.concatenate(self._ops)
        columns, missing = self._columns()
        if missing is not None:
            columns, missing = _completed(columns, missing, ops)
        masks: pa.Array = pa.nulls(self._count, pa.binary())
        if missing is not None:
            self._check(missing, ops)
            masks = _packed(missing)
        batch = pa.RecordBatch.from_arrays(
            [
                pa.array(np.concatenate(self._scns)),
                pa.array(np.concatenate(self._ords)),
                _CODES.take(pa.array(ops)),
                masks,
                *columns,
            ],
            schema=self._arrow,
        )
        self._start()
        return Body(self.schema_id, self.schema.table, batch)

    def _of(self, mask: bytes) -> _Images:
        images = self._images.get(mask)
        if images is None:
            images = self._images[mask] = _Images(self._types, mask)
        return images

    def _columns(self) -> tuple[list[pa.Array], npt.NDArray[np.bool_] | None]:
        """Return the columns, and where cells are missing (rows × columns) if any are."""
        data = np.frombuffer(self._data, np.uint8)
        used = [images for images in self._images.values() if images.layout.count]
        width = len(self._types)
        if len(used) == 1 and len(used[0].present) == width:
            return self._built(used[0], data), None
        order = np.concatenate([part for images in used for part in images.order])
        back = pa.array(np.argsort(order))
        missing = np.zeros((self._count, width), bool)
        parts: list[list[pa.Array]] = [[] for _ in range(width)]
        for images in used:
            built = dict(zip(images.present, self._built(images, data), strict=True))
            places = np.concatenate(images.order)
            for place, column in enumerate(self.schema.columns):
                if place in built:
                    parts[place].append(built[place])
                else:
                    parts[place].append(pa.nulls(images.layout.count, column.type))
                    missing[places, place] = True
        columns = [pa.concat_arrays(part).take(back) for part in parts]
        return columns, missing if missing.any() else None

    def _built(self, images: _Images, data: npt.NDArray[np.uint8]) -> list[pa.Array]:
        return [
            self._column(place, data, cells)
            for place, cells in zip(images.present, images.layout.cells(), strict=True)
        ]

    def _column(self, place: int, data: npt.NDArray[np.uint8], cells: Cells) -> pa.Array:
        try:
            return column_of(self._types[place], data, cells, self._zero_dates)
        except (ValueError, pa.ArrowException) as error:
            column = self.schema.columns[place]
            raise UndecodableValue(
                f"{self.schema.table}.{column.name}: a value does not fit {column.type}, which stands for "
                f"{column.source_type}.",
                next_step="change the value at the source; source.zero_dates: null lets dates that are no days be "
                f"null; or exclude the table. Then dump {self.schema.table} again.",
            ) from error

    def _check(self, missing: npt.NDArray[np.bool_], ops: npt.NDArray[np.int8]) -> None:
        """Refuse images that lack what the key needs."""
        if self.schema.key_check is KeyCheck.IMMEDIATE:
            needed = missing[:, sorted(self._key)].any()
        else:
            needed = missing.any()
        if needed or missing[ops == _INSERT].any():
            raise SourceError(
                f"{self.schema.table}: a row in the log lacks columns that its table cannot do without.",
                next_step="see that every session has binlog_row_image=FULL, and dump the table again.",
            )


def _completed(
    columns: list[pa.Array], missing: npt.NDArray[np.bool_], ops: npt.NDArray[np.int8]
) -> tuple[list[pa.Array], npt.NDArray[np.bool_] | None]:
    """Give each image after an update what it left out and the image before it has."""
    new = np.flatnonzero(ops == _NEW)
    missing = missing.copy()
    completed = list(columns)
    for place, column in enumerate(columns):
        lend = new[missing[new, place] & ~missing[new - 1, place]]
        if len(lend):
            take = np.arange(len(ops))
            take[lend] = lend - 1
            completed[place] = column.take(pa.array(take))
            missing[lend, place] = False
    return completed, missing if missing.any() else None


def _packed(missing: npt.NDArray[np.bool_]) -> pa.Array:
    """Return a mask per row, null where nothing is missing."""
    bits = np.packbits(missing, axis=1, bitorder="little")
    offsets = np.arange(len(bits) + 1, dtype=np.int32) * bits.shape[1]
    packed = pa.Array.from_buffers(
        pa.binary(),
        len(bits),
        [None, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(bits))],
    )
    places = pa.array(np.arange(len(bits)), mask=~missing.any(axis=1))
    return packed.take(places)

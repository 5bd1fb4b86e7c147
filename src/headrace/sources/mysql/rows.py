"""Collects the row images of one table version and turns them into a body.

Images are added as they come; columns are built once, when a body is asked for. An image that lacks columns
(``binlog_row_image`` of any session) keeps them missing, unless the other image of its update has them: what an image
after an update leaves out did not change.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SourceError, UndecodableValue
from headrace.model.block import Body
from headrace.model.change import DELETE, INSERT, UPDATE_NEW, UPDATE_OLD, change_schema
from headrace.model.schema import KeyCheck, TableSchema
from headrace.sources.mysql.engine import Engine
from headrace.sources.mysql.events import DELETES, UPDATES, EventType, RowsHeader
from headrace.sources.mysql.partial import with_whole_documents
from headrace.sources.mysql.reading import bit_places, broken
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.types import ColumnType

__all__ = ["Alike", "ImageKind", "TableRows", "Taken"]

_CODES = pa.array([INSERT, UPDATE_OLD, UPDATE_NEW, DELETE], pa.string())
_INSERT, _OLD, _NEW, _DELETE = range(4)
# Rows of one kind whose words are kept; a body of narrow rows has not many more than half as many.
_SAME_ROWS = 1 << 17


class Alike(NamedTuple):
    """What became of packets.

    Attributes:
        at: where the first one begins that was not taken.
        images: added.
        size: their bytes.
        end_pos: low 32 bits of the place behind the last event in its file, 0 without one.
    """

    at: int
    images: int
    size: int
    end_pos: int


class Taken(NamedTuple):
    """One of whole transactions that were taken at once.

    Attributes:
        begin: its first event.
        end_pos: low 32 bits of the place behind it in its file.
        images: it has.
        size: their bytes.
    """

    begin: bytes
    end_pos: int
    images: int
    size: int


class _Images:
    """Images in which the same columns are present."""

    def __init__(self, types: list[ColumnType], mask: bytes, engine: Engine) -> None:
        self.present = bit_places(mask, len(types))
        self.set = engine.images([types[place] for place in self.present])


class ImageKind(NamedTuple):
    """What images of one event with rows are.

    Attributes:
        op: what became of their rows; of updates the first and every second image is an old one.
        sides: the sets that their images are in, the first one's first.
    """

    op: int
    sides: tuple[_Images, _Images]


@dataclass(slots=True)
class _Run:
    """Images that follow one another in one transaction.

    Attributes:
        scn: of the transaction.
        ord: of the first image.
        kind: what they are.
        count: images.
    """

    scn: int
    ord: int
    kind: ImageKind
    count: int


class TableRows:
    """Rows of one table version, in ``(scn, ord)`` order.

    Args:
        schema: the table's shape.
        schema_id: its id.
        types: of its columns, and of those behind them that are left out.
        zero_dates: what becomes of dates that are no days.
        engine: makes columns of images.
    """

    def __init__(
        self,
        schema: TableSchema,
        schema_id: int,
        types: list[ColumnType],
        zero_dates: ZeroDates,
        engine: Engine,
    ) -> None:
        self.schema = schema
        self.schema_id = schema_id
        self._types = types
        self._zero_dates = zero_dates
        self._engine = engine
        self._arrow = change_schema(schema)
        self._key = frozenset(schema.key_indexes)
        self._images: dict[tuple[int, bytes], _Images] = {}
        self._forms = [types]
        self._form = 0
        self._image_bytes = 0.0
        self._start()

    def _start(self) -> None:
        self._count = 0
        self._undone: list[tuple[int, int, int]] = []
        self._runs: list[_Run] = []
        self.first = (0, 0)
        for images in self._images.values():
            images.set.clear()

    def __len__(self) -> int:
        return self._count - sum(_shared(run, *gap) for gap in self._undone for run in self._runs)

    def read_as(self, types: list[ColumnType]) -> None:
        """Read what is added from here on as columns of other types: one shape may lie in several character sets."""
        if types == self._types:
            return
        if types not in self._forms:
            self._forms.append(types)
        self._form, self._types = self._forms.index(types), types

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
        found = self._engine.walk(header.data, header.start, header.end, before.set, after.set)
        if not found:
            return 0
        op = _OLD if type_ in UPDATES else _DELETE if type_ in DELETES else _INSERT
        if op == _OLD and found & 1:
            raise broken("an update has no second image")
        self._weigh(found, header.end - header.start)
        self._note(_Run(scn, ord_, ImageKind(op, (before, after)), found))
        return found

    def add_alike(
        self, buffer: bytearray, at: int, end: int, model: bytes, checksum: bool, most: int
    ) -> Alike:
        """Add the rows of events that go on where the one that was added last ended.

        Args:
            buffer: holds packets.
            at: where one begins.
            end: behind the last byte.
            model: the event that was added last, up to its first image.
            checksum: whether events end with one.
            most: images, about, after which to stop.
        """
        walk = self._engine.walk_alike
        if walk is None or not self._runs:
            return Alike(at, 0, 0, 0)
        last = self._runs[-1]
        op, sides = last.kind
        sets = tuple(side.set for side in sides)
        size = self._bytes_of(most)
        found = Alike(*walk(buffer, at, end, model, checksum, op == _OLD, sets, size))
        self._weigh(found.images, found.size)
        last.count += found.images
        self._count += found.images
        return found

    @property
    def last_kind(self) -> ImageKind:
        """What the rows are that were added last."""
        return self._runs[-1].kind

    def walk_transactions(
        self,
        buffer: bytearray,
        at: int,
        end: int,
        begin: int,
        described: bytes,
        model: bytes,
        kind: ImageKind,
        checksum: bool,
        most: int,
    ) -> tuple[int, list[Taken]]:
        """Add the images of whole transactions; of each that is returned `note` has to be told, in their order.

        Args:
            buffer: holds packets.
            at: where one begins.
            end: behind the last byte.
            begin: type of the event with which they begin.
            described: the table's description behind the event's header.
            model: an event with rows up to its first image.
            kind: what its rows are.
            checksum: whether events end with one.
            most: images, about, after which to stop.
        """
        walk = self._engine.walk_transactions
        if walk is None:
            return at, []
        sets, pairs = tuple(side.set for side in kind.sides), kind.op == _OLD
        size = self._bytes_of(most)
        at, found = walk(buffer, at, end, begin, described, model, checksum, pairs, sets, size)
        taken = [Taken(*one) for one in found]
        self._weigh(sum(one.images for one in taken), sum(one.size for one in taken))
        return at, taken

    def _bytes_of(self, images: int) -> int:
        """Return the bytes of so many images, if they are as long as those before."""
        return math.ceil(images * self._image_bytes)

    def _weigh(self, images: int, size: int) -> None:
        if images:
            self._image_bytes = size / images

    def note(self, scn: int, kind: ImageKind, images: int) -> None:
        """Take note of the transaction to which images belong that were added."""
        self._note(_Run(scn, 0, kind, images))

    def _note(self, run: _Run) -> None:
        if not self._count:
            self.first = (run.scn, run.ord)
        last = self._runs[-1] if self._runs else None
        if (
            last is not None
            and (last.scn, last.kind) == (run.scn, run.kind)
            and last.ord + last.count == run.ord
        ):
            last.count += run.count
        else:
            self._runs.append(run)
        self._count += run.count

    def undo(self, scn: int, since: int, end: int) -> int:
        """Leave the rows of a transaction out that are at some ords; return how many more these are.

        Args:
            scn: of the transaction.
            since: the first ord.
            end: behind the last one, which is the last one yet.
        """
        before = len(self)
        self._undone = [gap for gap in self._undone if gap[0] != scn or gap[1] < since]
        if any(_shared(run, scn, since, end) for run in self._runs):
            self._undone.append((scn, since, end))
        left = len(self)
        if not left:
            self._start()
        return before - left

    def body(self) -> Body:
        """Return everything added so far as one body and start anew.

        Raises:
            UndecodableValue: a value has no exact place in its column's type.
        """
        ops = self._ops()
        columns, missing = self._columns()
        if missing is not None:
            columns, missing = _completed(columns, missing, ops)
        masks: pa.Array = pa.nulls(self._count, pa.binary())
        if missing is not None:
            self._check(missing, ops)
            masks = _packed(missing)
        batch = pa.RecordBatch.from_arrays(
            [
                *self._engine.scns_and_ords(self._runs),
                _codes(ops),
                masks,
                *columns,
            ],
            schema=self._arrow,
        )
        for scn, since, end in self._undone:
            ords = batch.column("_ord")
            inside = pc.and_(pc.greater_equal(ords, since), pc.less(ords, end))
            batch = batch.filter(pc.invert(pc.and_(pc.equal(batch.column("_scn"), scn), inside)))
        self._start()
        return Body(self.schema_id, self.schema.table, batch)

    def _ops(self) -> npt.NDArray[np.int8]:
        """Return what became of each row."""
        counts = np.array([run.count for run in self._runs])
        kinds = np.array([run.kind.op for run in self._runs], np.int8)
        ops = np.repeat(kinds, counts)
        if (kinds == _OLD).any():
            inside = np.arange(self._count) - np.repeat(np.cumsum(counts) - counts, counts)
            # Of an update the second image is the new one.
            ops += (ops == _OLD) & (inside & 1).astype(bool)
        return ops

    def _of(self, mask: bytes) -> _Images:
        images = self._images.get((self._form, mask))
        if images is None:
            images = self._images[self._form, mask] = _Images(self._types, mask, self._engine)
        return images

    def _columns(self) -> tuple[list[pa.Array], npt.NDArray[np.bool_] | None]:
        """Return the columns, and where cells are missing (rows × columns) if any are."""
        used = [images for images in self._images.values() if images.set.count]
        width = len(self.schema.columns)
        if len(used) == 1 and len(used[0].present) == len(self._types):
            return self._built(used[0]), None
        orders = [self._order(images) for images in used]
        back = pa.array(np.argsort(np.concatenate(orders)))
        missing = np.zeros((self._count, width), bool)
        parts: list[list[pa.Array]] = [[] for _ in range(width)]
        for images, places in zip(used, orders, strict=True):
            built = dict(zip(images.present, self._built(images), strict=False))
            for place, column in enumerate(self.schema.columns):
                if place in built:
                    parts[place].append(built[place])
                else:
                    parts[place].append(pa.nulls(images.set.count, column.type))
                    missing[places, place] = True
        columns = [pa.concat_arrays(part).take(back) for part in parts]
        return columns, missing if missing.any() else None

    def _order(self, images: _Images) -> npt.NDArray[np.int64]:
        """Return the places of some images among all."""
        parts, at = [], 0
        for run in self._runs:
            places = np.arange(at, at + run.count)
            first, second = run.kind.sides
            if first is second:
                parts += [places] if first is images else []
            else:
                parts += [places[n::2] for n, side in enumerate(run.kind.sides) if side is images]
            at += run.count
        return np.concatenate(parts)

    def _built(self, images: _Images) -> list[pa.Array]:
        shown = len(self.schema.columns)
        places = enumerate(images.present)
        return [self._column(images, n, place) for n, place in places if place < shown]

    def _column(self, images: _Images, number: int, place: int) -> pa.Array:
        try:
            return images.set.column(number, self._zero_dates)
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


def _shared(run: _Run, scn: int, since: int, end: int) -> int:
    """Return how many rows of a run are a transaction's at some ords."""
    return max(0, min(run.ord + run.count, end) - max(run.ord, since)) if run.scn == scn else 0


def _codes(ops: npt.NDArray[np.int8]) -> pa.Array:
    """Return what became of rows in words; most bodies have rows of one kind."""
    count = len(ops)
    if count > _SAME_ROWS or (ops != ops[0]).any():
        return _CODES.take(pa.array(ops))
    # Parts of the buffers, so that a small body does not count for the whole of them.
    width, ends, words = _same(int(ops[0]))
    parts = [None, ends.slice(0, 4 * (count + 1)), words.slice(0, width * count)]
    return pa.Array.from_buffers(pa.string(), count, parts)


@functools.cache
def _same(op: int) -> tuple[int, pa.Buffer, pa.Buffer]:
    """Return the bytes of a word, and where many of it end, and those themselves."""
    word = _CODES[op].as_py().encode()
    ends = np.arange(_SAME_ROWS + 1, dtype=np.int32) * np.int32(len(word))
    # Not of Arrow's own memory, of which what is kept for ever would look like what somebody forgot.
    return len(word), pa.py_buffer(ends), pa.py_buffer(word * _SAME_ROWS)


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

"""Where the rows of given keys lie: only the key columns are read, and of the fewest files.

Source: docs/paper_map.md, the apply step.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.data_file import DataFile
from headrace.lake.mapping import in_files
from headrace.lake.partition_values import partition_of, sizes
from headrace.lake.settle import Dead
from headrace.lake.snapshot import Snapshot
from headrace.lake.stages import stage
from headrace.lake.vectors import Places
from headrace.model.rowkey import encode_rows

__all__ = ["KeySet", "places_of", "rows_at"]


_AT_ONCE = 2_000_000
"""Rows looked through at once: where a type has no order of ours, each look builds a table of the keys anew."""


class KeySet:
    """Keys to look for.

    Args:
        keys: one row per key, with the columns of the key.
        partitions: partition columns of the table; they tell files apart, and rows only where there is no other.
    """

    def __init__(self, keys: pa.Table, partitions: Sequence[str] = ()) -> None:
        self.names = sorted(keys.column_names, key=lambda name: name in partitions)
        self.count = keys.num_rows
        self._placed = [name for name in self.names if name in partitions]
        self._partitions = sizes(keys, self._placed)
        columns = [keys[name].combine_chunks() for name in self.names]
        self._first = columns[0]
        numbers = _numbers(self._first)
        self._ordered = None if numbers is None or not self.count else _ascending(numbers)
        self._plain = len(columns) == 1 and not pa.types.is_floating(self._first.type)
        self._encoded = None if self._plain else encode_rows(columns)

    def may_be_in(self, file: DataFile, schema: pa.Schema) -> bool:
        """Whether a file's partition and its statistics allow it to hold one of the keys.

        Args:
            file: of the table.
            schema: of the table, or of the key's columns in it.

        Raises:
            pyarrow.ArrowException: its partition has a value of another type.
        """
        placed = [schema.field(name) for name in self._placed]
        if partition_of(file.partition_values, placed) not in self._partitions:
            return False
        if self._ordered is None or not pa.types.is_integer(self._first.type):
            return True
        known = file.statistics()
        name = in_files(schema.field(self.names[0]))
        low, high = (known.get(bound, {}).get(name) for bound in ("minValues", "maxValues"))
        if not isinstance(low, int) or not isinstance(high, int):
            return True
        return bool(len(_between(self._ordered, low, high)))

    def found_in(self, rows: pa.Table | pa.RecordBatch) -> Places:
        """Return the places of the rows that have one of the keys, ascending."""
        places = self._first_found_in(rows.column(self.names[0]))
        if self._plain or not len(places):
            return places
        near = rows.take(pa.array(places))
        cells = encode_rows([near.column(name) for name in self.names])
        same = pc.is_in(cells, self._encoded).to_numpy(zero_copy_only=False)
        return np.compress(same, places)

    def _first_found_in(self, column: pa.ChunkedArray | pa.Array) -> Places:
        """Return the places of the values that are the first cell of a key."""
        if self._ordered is None:
            found = pc.is_in(column, self._first).to_numpy(zero_copy_only=False)
            return np.flatnonzero(found)
        begin = 0
        hits = [np.empty(0, np.int64)]
        for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
            values = _numbers(chunk)
            if values is None:
                found = pc.is_in(chunk, self._first).to_numpy(zero_copy_only=False)
                hits.append(np.flatnonzero(found) + begin)
            elif len(values):
                hits.append(_hits(self._ordered, values) + begin)
            begin += len(chunk)
        return np.concatenate(hits)


def _numbers(column: pa.Array) -> npt.NDArray[np.int64] | None:
    """Return a column's values as integers in their own order; None where it has a null, or is of a type without."""
    kind = column.type
    if column.null_count or pa.types.is_uint64(kind):
        return None
    if pa.types.is_integer(kind):
        return np.asarray(column).astype(np.int64)
    if pa.types.is_temporal(kind) and kind.bit_width in (32, 64):
        width = pa.int32() if kind.bit_width == 32 else pa.int64()
        return np.asarray(column.view(width)).astype(np.int64)
    return None


def _ascending(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the different values in order; `numpy.unique` hashes them first, which takes ten times as long."""
    ordered = np.sort(numbers)
    return np.compress(np.append(True, ordered[1:] != ordered[:-1]), ordered)


def _between(ordered: npt.NDArray[np.int64], low: int, high: int) -> npt.NDArray[np.int64]:
    return ordered[np.searchsorted(ordered, low, "left") : np.searchsorted(ordered, high, "right")]


def _hits(ordered: npt.NDArray[np.int64], values: npt.NDArray[np.int64]) -> Places:
    """Return the places of the values that are among ordered ones; at least one value."""
    keys = _between(ordered, int(values.min()), int(values.max()))
    if not len(keys):
        return np.empty(0, np.int64)
    if len(keys) < len(values) and bool((values[1:] > values[:-1]).all()):
        # Our files lie in order of their key: a look for each key instead of one for each row.
        places = np.searchsorted(values, keys)
        return np.compress(values[places] == keys, places)
    places = np.minimum(np.searchsorted(keys, values), len(keys) - 1)
    return np.flatnonzero(keys[places] == values)


@stage("probe")
def places_of(snapshot: Snapshot, keys: KeySet) -> Dead:
    """Return, per index of the snapshot's file, the places of living rows that have one of the keys.

    Raises:
        CorruptTable: a file of the table does not read.
    """
    found: dict[int, Places] = {}
    held: dict[int, pa.Table] = {}
    schema = snapshot.schema_of(keys.names)
    for index, file in enumerate(snapshot.files if keys.count else ()):
        try:
            if not keys.may_be_in(file, schema):
                continue
            batches = file.batches(schema, snapshot.partition_columns)
            held[index] = pa.Table.from_batches(batches, schema=schema)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise snapshot.corrupt(file, error) from error
        if sum(table.num_rows for table in held.values()) >= _AT_ONCE:
            found |= _places_in(snapshot, held, keys)
            held.clear()
    return found | _places_in(snapshot, held, keys)


def _places_in(snapshot: Snapshot, held: Mapping[int, pa.Table], keys: KeySet) -> dict[int, Places]:
    """Return the places of some files' living rows that have one of the keys, per file that has any."""
    if not held:
        return {}
    hits = keys.found_in(pa.concat_tables(held.values()))
    found = {}
    begin = 0
    for index, table in held.items():
        first, last = np.searchsorted(hits, [begin, begin + table.num_rows])
        places = hits[first:last] - begin
        begin += table.num_rows
        file = snapshot.files[index]
        if len(places) and file.vector:
            try:
                places = np.setdiff1d(places, file.deleted(), assume_unique=True)
            except (OSError, ValueError) as error:
                raise snapshot.corrupt(file, error) from error
        if len(places):
            found[index] = places
    return found


def rows_at(snapshot: Snapshot, places: Dead) -> Iterator[pa.RecordBatch]:
    """Yield the rows that lie at the given places.

    Raises:
        CorruptTable: a file of the table does not read.
    """
    for index, wanted in places.items():
        file = snapshot.files[index]
        begin = 0
        try:
            for batch in file.batches(snapshot.schema, snapshot.partition_columns):
                first, last = np.searchsorted(wanted, [begin, begin + batch.num_rows])
                if last > first:
                    yield batch.take(pa.array(wanted[first:last] - begin))
                begin += batch.num_rows
        except (OSError, ValueError, pa.ArrowException) as error:
            raise snapshot.corrupt(file, error) from error

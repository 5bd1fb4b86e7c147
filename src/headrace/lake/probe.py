"""Where the rows of given keys lie: only the key columns are read, and of the fewest files.

Source: docs/paper_map.md, the apply step.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.data_file import DataFile
from headrace.lake.settle import Dead
from headrace.lake.snapshot import Snapshot
from headrace.lake.vectors import Places
from headrace.model.rowkey import encode_rows

__all__ = ["KeySet", "places_of", "rows_at"]


class KeySet:
    """Keys to look for.

    Args:
        keys: one row per key, with the columns of the key.
    """

    def __init__(self, keys: pa.Table) -> None:
        self.names = keys.column_names
        self.count = keys.num_rows
        columns = [column.combine_chunks() for column in keys.columns]
        self._first = columns[0].unique()
        self._plain = len(columns) == 1 and not pa.types.is_floating(columns[0].type)
        self._encoded = None if self._plain else encode_rows(columns)
        self._sorted = self._ordered()

    def may_be_in(self, file: DataFile) -> bool:
        """Whether a file's statistics allow it to hold one of the keys."""
        if self._sorted is None:
            return True
        known = file.statistics()
        name = self.names[0]
        low, high = (known.get(bound, {}).get(name) for bound in ("minValues", "maxValues"))
        if type(low) is not type(high) or not isinstance(low, type(self._sorted[0].item())):
            return True
        begin = np.searchsorted(self._sorted, low, side="left")
        end = np.searchsorted(self._sorted, high, side="right")
        return bool(begin < end)

    def found_in(self, batch: pa.RecordBatch) -> Places:
        """Return the places of the batch's rows that have one of the keys."""
        first = pc.is_in(batch.column(self.names[0]), self._first)
        places: Places = np.flatnonzero(first.to_numpy(zero_copy_only=False))
        if self._plain or not len(places):
            return places
        near = batch.take(pa.array(places))
        cells = encode_rows([near.column(name) for name in self.names])
        same = pc.is_in(cells, self._encoded).to_numpy(zero_copy_only=False)
        return np.compress(same, places)

    def _ordered(self) -> npt.NDArray[np.generic] | None:
        """Return the values of the first key column in order, None when bounds cannot be compared with them."""
        kind = self._first.type
        if self._first.null_count or not self.count:
            return None
        if pa.types.is_integer(kind):
            return np.sort(self._first.to_numpy(zero_copy_only=False).astype(np.int64))
        return None


def places_of(snapshot: Snapshot, keys: KeySet) -> Dead:
    """Return, per index of the snapshot's file, the places of living rows that have one of the keys.

    Raises:
        CorruptTable: a file of the table does not read.
    """
    if not keys.count:
        return {}
    found = {}
    for index, file in enumerate(snapshot.files):
        if not keys.may_be_in(file):
            continue
        try:
            places = _places_in(file, snapshot, keys)
        except (OSError, ValueError, pa.ArrowException) as error:
            raise snapshot.corrupt(file, error) from error
        if len(places):
            found[index] = places
    return found


def _places_in(file: DataFile, snapshot: Snapshot, keys: KeySet) -> Places:
    begin = 0
    hits = []
    for batch in file.batches(snapshot.schema_of(keys.names), snapshot.partition_columns):
        hits.append(keys.found_in(batch) + begin)
        begin += batch.num_rows
    places = np.concatenate(hits) if hits else np.empty(0, np.int64)
    if len(places) and file.vector:
        places = np.setdiff1d(places, file.deleted(), assume_unique=True)
    return places


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

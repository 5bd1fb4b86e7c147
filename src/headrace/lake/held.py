"""Rows of a table at some keys, with the places where they lie.

In: a table and keys. Out: the rows, of which a commit marks some as dead by their places.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.lake.keyed import all_dead
from headrace.lake.probe import KeySet, places_of, rows_at
from headrace.lake.settle import Dead
from headrace.lake.snapshot import Snapshot

__all__ = ["Held", "held_rows"]

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Held:
    """Rows of a table.

    Attributes:
        rows: with the table's schema.
        files: index of each row's file in the snapshot.
        places: of each row in its file.
    """

    rows: pa.Table
    files: npt.NDArray[np.int64]
    places: npt.NDArray[np.int64]

    def only(self, flags: Flags) -> Held:
        """Return some of the rows."""
        return Held(self.rows.filter(pa.array(flags)), self.files[flags], self.places[flags])

    def flags(self, column: str) -> Flags:
        """Return a column of truth values; null is false."""
        cells = self.rows[column].combine_chunks().fill_null(False)
        return np.asarray(cells.to_numpy(zero_copy_only=False), bool)

    def dead(self) -> Dead:
        """Return the places of all of them."""
        return {
            int(file): np.sort(self.places[self.files == file]) for file in np.unique(self.files)
        }


def held_rows(
    snapshot: Snapshot, keys: pa.Table | None, wanted: Callable[[pa.RecordBatch], Flags]
) -> Held:
    """Return rows of a table.

    Args:
        snapshot: the table.
        keys: to look for, None for all that there are.
        wanted: says of a batch of rows which are.

    Raises:
        CorruptTable: a file of the table does not read.
    """
    if keys is None:
        found = all_dead(snapshot)
    else:
        found = places_of(snapshot, KeySet(keys, snapshot.partition_columns))
    batches, flags = [], [np.empty(0, bool)]
    for batch in rows_at(snapshot, found):
        flags.append(wanted(batch))
        batches.append(batch.filter(pa.array(flags[-1])))
    none, chosen = np.empty(0, np.int64), np.concatenate(flags)
    files = [np.full(len(places), index, np.int64) for index, places in found.items()]
    return Held(
        pa.Table.from_batches(batches, schema=snapshot.schema),
        np.concatenate([none, *files])[chosen],
        np.concatenate([none, *found.values()])[chosen],
    )

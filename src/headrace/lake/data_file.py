"""One data file of a table: where it lies, which of its rows count, and how to read them.

Rows come out with the table's schema whatever version of it the file was written with: a column that is younger
than the file is null, a column whose type was widened since is cast.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import UnsupportedTableFeature
from headrace.lake.mapping import in_files
from headrace.lake.partition_values import value_of
from headrace.lake.vectors import Places, read_vector
from headrace.store import Location, store_of

__all__ = ["DataFile"]

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class DataFile:
    """One active Parquet file.

    Attributes:
        folder: of the table.
        path: where the file lies.
        partition_values: text of each partition column, by its name in files, None for null.
        size: bytes.
        stats: the writer's statistics as JSON text, None when it kept none.
        vector: descriptor of its deletion vector, None when all its rows count.
        action: the ``add`` of the log.
    """

    folder: Location
    path: Location
    partition_values: Mapping[str, str | None]
    size: int
    stats: str | None
    vector: Mapping[str, Any] | None
    action: Mapping[str, Any]

    @classmethod
    def from_action(cls, folder: Location, add: Mapping[str, Any]) -> DataFile:
        """Read an ``add`` action; its path is URL-encoded and relative to the table.

        Raises:
            UnsupportedTableFeature: when the file lies in another store.
        """
        url = urlsplit(add["path"])
        if url.scheme not in ("", "file") or (url.scheme and not isinstance(folder, Path)):
            raise UnsupportedTableFeature(
                f"The table {folder.name} names a file in another store ({url.scheme}).",
                next_step="copy the table instead of cloning it shallowly.",
            )
        path = folder / unquote(url.path if url.scheme else add["path"])
        values = add.get("partitionValues") or {}
        size = int(add.get("size") or 0)
        return cls(folder, path, values, size, add.get("stats"), add.get("deletionVector"), add)

    def deleted(self) -> Places:
        """Return the places of rows that do not count.

        Raises:
            OSError: the vector's file is gone.
            ValueError: the vector is damaged.
        """
        return read_vector(self.folder, self.vector)

    def rows(self) -> int:
        """Return how many rows the file holds, those included that do not count."""
        known = self.statistics().get("numRecords")
        if known is not None:
            return int(known)
        return int(pq.read_metadata(self._parquet()).num_rows)

    def statistics(self) -> Mapping[str, Any]:
        """Return the writer's statistics, empty when it kept none or they do not read."""
        try:
            found = json.loads(self.stats or "{}")
        except ValueError:
            return {}
        return found if isinstance(found, dict) else {}

    def batches(
        self, schema: pa.Schema, partitions: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield all rows in their order, also those that do not count, with the columns of ``schema``.

        Args:
            schema: columns of the table, all or some.
            partitions: columns that lie in paths and not in files.

        Raises:
            OSError: the file is gone.
            pyarrow.ArrowException: it does not fit the schema.
        """
        # Spark may write timestamps as INT96, which would overflow as nanoseconds after 2262.
        with pq.ParquetFile(self._parquet(), coerce_int96_timestamp_unit="us") as parquet:
            held = set(parquet.schema_arrow.names)
            own = [field for field in schema if field.name not in partitions]
            wanted = [name for field in own if (name := in_files(field)) in held]
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=wanted):
                yield self._conform(batch, schema, partitions)

    def live_batches(
        self, schema: pa.Schema, partitions: Sequence[str] = ()
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows that count; errors as of `batches` and `deleted`."""
        yield from without(self.batches(schema, partitions), self.deleted())

    def _parquet(self) -> Any:
        return store_of(self.path).parquet(self.path, self.size)

    def _conform(
        self, batch: pa.RecordBatch, schema: pa.Schema, partitions: Sequence[str]
    ) -> pa.RecordBatch:
        arrays = []
        for field in schema:
            name = in_files(field)
            if field.name in partitions:
                value = value_of(self.partition_values.get(name), field.type)
                arrays.append(pa.repeat(value, batch.num_rows))
            elif name in batch.schema.names:
                array = batch.column(name)
                arrays.append(array if array.type == field.type else array.cast(field.type))
            else:
                arrays.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def without(batches: Iterator[pa.RecordBatch], places: Places) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a file but those at ``places``, which ascend."""
    begin = 0
    for batch in batches:
        first, last = np.searchsorted(places, [begin, begin + batch.num_rows])
        if last > first:
            keep = np.ones(batch.num_rows, bool)
            keep[places[first:last] - begin] = False
            yield batch.filter(pa.array(keep))
        else:
            yield batch
        begin += batch.num_rows

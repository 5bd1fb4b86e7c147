"""One version of a Delta table: its schema, its files, its rows.

Rows come out with the table's schema whatever version of it their file was written with: a column
that is younger than the file is null, a column whose type was widened since is cast.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import UnsupportedTableFeature
from headrace.lake.errors import CorruptTable

__all__ = ["DataFile", "Snapshot"]

_BATCH_ROWS = 65_536


@dataclass(frozen=True, slots=True)
class DataFile:
    """One active Parquet file.

    Attributes:
        path: where it lies.
        partition_values: text of each partition column, None for null.
        size: bytes.
        stats: the writer's statistics as JSON text, None when it kept none.
    """

    path: Path
    partition_values: Mapping[str, str | None]
    size: int
    stats: str | None

    @classmethod
    def from_action(cls, folder: Path, add: Mapping[str, Any]) -> DataFile:
        """Read an ``add`` action; its path is URL-encoded and relative to the table.

        Raises:
            UnsupportedTableFeature: when the file lies in another store.
        """
        url = urlsplit(add["path"])
        if url.scheme not in ("", "file"):
            raise UnsupportedTableFeature(
                f"The table {folder.name} names a file in another store ({url.scheme}).",
                next_step="copy the table instead of cloning it shallowly.",
            )
        path = folder / unquote(url.path if url.scheme else add["path"])
        values = add.get("partitionValues") or {}
        return cls(path, values, int(add.get("size") or 0), add.get("stats"))


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table as of one version.

    Attributes:
        table: name of the table's folder, for messages.
        version: the Delta version.
        schema: the table's columns in Arrow terms.
        partition_columns: columns that lie in paths and not in files.
        files: the active files.
        transactions: last version per application id of the ``txn`` actions.
        properties: the table's properties.
    """

    table: str
    version: int
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    files: tuple[DataFile, ...]
    transactions: Mapping[str, int]
    properties: Mapping[str, str]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows, file by file, with the table's schema or the named part of it.

        Raises:
            CorruptTable: a file is gone or does not fit the schema.
        """
        schema = self.schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        for file in self.files:
            yield from self._file_batches(file, schema)

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows as one table."""
        schema = self.schema
        if columns is not None:
            schema = pa.schema([schema.field(name) for name in columns])
        return pa.Table.from_batches(self.batches(columns), schema=schema)

    def _file_batches(self, file: DataFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        try:
            # Spark writes timestamps as INT96, which would overflow as nanoseconds after 2262.
            with pq.ParquetFile(file.path, coerce_int96_timestamp_unit="us") as parquet:
                held = set(parquet.schema_arrow.names) - set(self.partition_columns)
                wanted = [name for name in schema.names if name in held]
                for batch in parquet.iter_batches(_BATCH_ROWS, columns=wanted):
                    yield self._conform(batch, file, schema)
        except (OSError, pa.ArrowException) as error:
            raise CorruptTable(
                f"The file {file.path.name} of the table {self.table}, version {self.version}, is "
                f"gone or does not fit the table's schema ({type(error).__name__}).",
                next_step="read a newer version; if it is the newest, dump the table again.",
            ) from error

    def _conform(self, batch: pa.RecordBatch, file: DataFile, schema: pa.Schema) -> pa.RecordBatch:
        """Return the rows of one file with the table's columns and types."""
        arrays = []
        for field in schema:
            if field.name in self.partition_columns:
                arrays.append(_partition(file.partition_values.get(field.name), field, batch))
            elif field.name in batch.schema.names:
                array = batch.column(field.name)
                arrays.append(array if array.type == field.type else array.cast(field.type))
            else:
                arrays.append(pa.nulls(batch.num_rows, field.type))
        return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _partition(text: str | None, field: pa.Field, batch: pa.RecordBatch) -> pa.Array:
    """Return a partition column: one value for the whole file, the empty text being null."""
    if not text:
        return pa.nulls(batch.num_rows, field.type)
    if pa.types.is_timestamp(field.type):
        # Writers give a zone-less text in UTC, or mark UTC with a Z; both are the same instant.
        value = pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us")).cast(field.type)
    else:
        value = pa.scalar(text).cast(field.type)
    return pa.repeat(value, batch.num_rows)

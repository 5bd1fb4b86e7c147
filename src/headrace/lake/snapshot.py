"""One version of a Delta table: its schema, its files, its rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.lake.data_file import DataFile
from headrace.lake.errors import CorruptTable
from headrace.lake.vectors import Places
from headrace.store import Location

__all__ = ["DataFile", "Snapshot"]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A table as of one version.

    Attributes:
        folder: of the table; messages name its last part.
        version: the Delta version.
        schema: the table's columns in Arrow terms.
        partition_columns: columns that lie in paths and not in files.
        files: the active files.
        transactions: last version per application id of the ``txn`` actions.
        properties: the table's properties.
        domains: configuration per domain of the ``domainMetadata`` actions.
        metadata: the newest ``metaData`` action.
        protocol: the newest ``protocol`` action.
    """

    folder: Location
    version: int
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    files: tuple[DataFile, ...]
    transactions: Mapping[str, int]
    properties: Mapping[str, str]
    domains: Mapping[str, str]
    metadata: Mapping[str, Any]
    protocol: Mapping[str, Any]

    def batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """Yield all rows, file by file, with the table's schema or the named part of it.

        Raises:
            CorruptTable: a file is gone or does not fit the schema.
        """
        schema = self.schema_of(columns)
        for file in self.files:
            try:
                yield from file.live_batches(schema, self.partition_columns)
            except (OSError, ValueError, pa.ArrowException) as error:
                raise self.corrupt(file, error) from error

    def to_table(self, columns: Sequence[str] | None = None) -> pa.Table:
        """Return all rows as one table."""
        return pa.Table.from_batches(self.batches(columns), schema=self.schema_of(columns))

    def schema_of(self, columns: Sequence[str] | None) -> pa.Schema:
        """Return the schema of the named columns, of all by default."""
        if columns is None:
            return self.schema
        return pa.schema([self.schema.field(name) for name in columns])

    @property
    def partition_fields(self) -> list[pa.Field]:
        """The partition columns."""
        return [self.schema.field(name) for name in self.partition_columns]

    def extent(self, file: DataFile) -> tuple[int, Places]:
        """Return how many rows a file of the table holds, and the places of those that do not count.

        Raises:
            CorruptTable: it is gone, or the vector is that names these.
        """
        try:
            return file.rows(), file.deleted()
        except (OSError, ValueError, pa.ArrowException) as error:
            raise self.corrupt(file, error) from error

    def corrupt(self, file: DataFile, error: Exception) -> CorruptTable:
        """Return the error that names a file which does not read."""
        return CorruptTable(
            f"The file {file.path.name} of the table {self.folder.name}, version {self.version}, is "
            f"gone or does not fit the table's schema ({type(error).__name__}).",
            next_step="read a newer version; if it is the newest, dump the table again.",
        )

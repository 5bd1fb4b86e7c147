"""Reads of a feed's tables, of which there are none: before the first line every table was empty.

So a dump ends at once, and the lines bring everything.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import SourceError
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import YES
from headrace.sources.base import Bound, CanonicalKeys, Chunk, TableDump
from headrace.sources.files.cells import column_of
from headrace.sources.files.manifest import read_manifest
from headrace.sources.files.settings import FilesSettings
from headrace.wire.plain import plain

__all__ = ["EmptyChunks", "key_texts"]


class _SeesAll:
    """Whatever was told has happened."""

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Return `YES`."""
        del scn
        return np.full(len(xid), YES, np.int8)


class EmptyChunks:
    """`headrace.sources.base.ChunkReader` of a feed."""

    def __init__(self, settings: FilesSettings) -> None:
        self._settings = settings

    def describe(self, table: TableId) -> TableSchema:
        """Return the last version that the feed describes.

        Raises:
            SourceError: it describes none.
        """
        found = [
            schema
            for schema in read_manifest(self._settings.folder).versions.values()
            if schema.table == table
        ]
        if not found:
            raise SourceError(
                f"The feed in {self._settings.folder} does not describe {table}.",
                next_step="exclude it, or add it to the feed's description of tables.",
            )
        return found[-1]

    def estimate_rows(self, table: TableId) -> int:
        """Return 0."""
        del table
        return 0

    def upper_bound(self, table: TableId, predicate: str | None = None) -> Bound:
        """Return that there is no row."""
        del table, predicate
        return Bound(None)

    def read(
        self,
        table: TableId,
        after: Sequence[str] | None,
        until: Sequence[str],
        limit: int,
        predicate: str | None = None,
    ) -> Chunk:
        """Return no row."""
        del after, until, limit, predicate
        return self._nothing(table)

    def read_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> Chunk:
        """Refuse: nobody can ask a feed what a row is.

        Raises:
            SourceError: always.
        """
        del keys
        raise SourceError(
            f"Rows of {table} cannot be read again: its source is a feed of changes.",
            next_step="read the feed from its beginning, with a new state folder and target.",
        )

    def canonical_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> CanonicalKeys:
        """Refuse, likewise."""
        self.read_keys(table, keys)
        return CanonicalKeys(())

    def key_rows(self, schema: TableSchema, keys: Sequence[Sequence[str]]) -> pa.RecordBatch:
        """Return a row for each rendered key, all other columns null."""
        cells: list[list[str | None]] = [[None] * len(schema.columns) for _ in keys]
        for row, key in zip(cells, keys, strict=True):
            for index, value in zip(schema.key_indexes, key, strict=True):
                row[index] = value
        columns = [
            column_of(schema, place, [row[place] for row in cells])
            for place in range(len(schema.columns))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=table_arrow_schema(schema))

    def read_table(self, table: TableId) -> TableDump:
        """Return no row."""
        nothing = self._nothing(table)
        return TableDump(nothing.schema, nothing.visibility, iter(()))

    def snapshot(self) -> _SeesAll:
        """Return that whatever was told is seen."""
        return _SeesAll()

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as text."""
        return key_texts(schema, rows)

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def _nothing(self, table: TableId) -> Chunk:
        schema = self.describe(table)
        rows = table_arrow_schema(schema).empty_table().combine_chunks().to_batches()
        empty = rows[0] if rows else pa.RecordBatch.from_pylist([], table_arrow_schema(schema))
        return Chunk(schema, empty, _SeesAll(), None)


def key_texts(schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
    """Return each row's key as text, as the lines have it."""
    columns = [rows.column(name).to_pylist() for name in schema.key]
    return [tuple(_said(cell) for cell in key) for key in zip(*columns, strict=True)]


def _said(cell: object) -> str:
    value = plain(cell)
    if isinstance(value, bool):
        return "true" if value else "false"
    return value.isoformat() if hasattr(value, "isoformat") else str(value)

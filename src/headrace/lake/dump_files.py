"""Files of a dump that was made elsewhere, read as the rows of one table version.

In: a folder of Parquet or Arrow files. Out: batches with exactly the version's columns and types. Only conversions that
lose nothing are made; what does not fit is refused by name, every file's columns before a row is read. Values never
reach a message.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from headrace.errors import DumpUnfit
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableSchema, render_type
from headrace.plural import be, counted

__all__ = ["DumpFiles"]

_FORMATS = {".parquet": "parquet", ".arrow": "ipc", ".feather": "ipc"}
_BATCH_ROWS = 64 * 1024
_AHEAD = 2
"""Batches, and files, that are read before they are asked for."""


@dataclass(frozen=True, slots=True)
class DumpFiles:
    """The files of a dump, whose columns all fit.

    Attributes:
        schema: version of the table.
        files: that hold the rows.
        rows: in all of them.
        passed_over: columns that the table has not.
    """

    schema: TableSchema
    files: tuple[tuple[Path, ds.Fragment], ...]
    rows: int
    passed_over: tuple[str, ...]

    @classmethod
    def open(cls, folder: Path, schema: TableSchema) -> DumpFiles:
        """Look at every file of a folder and below it; what begins with ``_`` or ``.`` is no part of a dump.

        Args:
            folder: or a single file.
            schema: the version that its rows are to have.

        Raises:
            DumpUnfit: there is no file, one of another format, one that does not read, or a column is missing or of a
                type that does not fit.
        """
        table = str(schema.table)
        if (folder / "_delta_log").exists():
            raise DumpUnfit(
                f"{folder} is a Delta table, whose folder holds rows that it no longer has.",
                next_step="write its rows into Parquet files in a folder of their own.",
            )
        files, rows, others = [], 0, dict[str, None]()
        for path in _files_in(folder, table):
            try:
                (fragment,) = ds.dataset(path, format=_FORMATS[path.suffix]).get_fragments()
                held = fragment.physical_schema
                _check_columns(held, schema, path)
                rows += fragment.count_rows()
            except (OSError, ValueError, pa.ArrowException) as error:
                raise _unreadable(path, error) from None
            files.append((path, fragment))
            others |= dict.fromkeys(name for name in held.names if name not in schema.names)
        return cls(schema, tuple(files), rows, tuple(others))

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield all rows.

        Raises:
            DumpUnfit: a file does not read, a value does not fit its column, or is null where that allows none.
        """
        wanted = table_arrow_schema(self.schema)
        for path, fragment in self.files:
            try:
                for batch in fragment.to_batches(
                    columns=self.schema.names,
                    batch_size=_BATCH_ROWS,
                    batch_readahead=_AHEAD,
                    fragment_readahead=_AHEAD,
                ):
                    yield self._cast(batch, wanted, path)
            except (OSError, pa.ArrowException) as error:
                raise _unreadable(path, error) from None

    def _cast(self, batch: pa.RecordBatch, wanted: pa.Schema, path: Path) -> pa.RecordBatch:
        columns = []
        for field in wanted:
            cells = batch.column(field.name)
            try:
                columns.append(cells.cast(field.type))
            except pa.ArrowException:
                # Its message holds the value.
                raise DumpUnfit(
                    f"{path.name}: a value of {self.schema.table}.{field.name} does not fit "
                    f"{render_type(field.type)}.",
                    next_step="make the dump again with the type that the column has at the source.",
                ) from None
            self._check_nulls(cells, field.name, path)
        return pa.record_batch(columns, schema=wanted)

    def _check_nulls(self, cells: pa.Array, name: str, path: Path) -> None:
        in_key = name in self.schema.key
        if cells.null_count and (in_key or not self.schema.column(name).nullable):
            why = "is part of the key" if in_key else "allows none at the source"
            raise DumpUnfit(
                f"{path.name}: {counted(cells.null_count, 'row')} {be(cells.null_count)} null in "
                f"{self.schema.table}.{name}, which {why}.",
                next_step="make the dump again from the table itself.",
            )


def _files_in(folder: Path, table: str) -> list[Path]:
    """Return the files of a dump, in order of their names."""
    found = [folder] if folder.is_file() else sorted(folder.rglob("*"))
    files = [
        path
        for path in found
        if path.is_file()
        and not any(p[0] in "_." for p in path.relative_to(folder.parent).parts[1:])
    ]
    if not files:
        raise DumpUnfit(
            f"{folder} holds no file of a dump of {table}.",
            next_step="name the folder of its Parquet files; an empty table is a file without rows.",
        )
    if other := next((path for path in files if path.suffix not in _FORMATS), None):
        raise DumpUnfit(
            f"{other} is no file of a dump that can be read.",
            next_step=f"keep nothing in the folder but files that end in {', '.join(_FORMATS)}.",
        )
    return files


def _unreadable(path: Path, error: Exception) -> DumpUnfit:
    return DumpUnfit(
        f"{path} does not read ({type(error).__name__}).",
        next_step="make the dump again, or correct the rights of its files.",
    )


def _check_columns(held: pa.Schema, schema: TableSchema, path: Path) -> None:
    for column in schema.columns:
        if column.name not in held.names:
            raise DumpUnfit(
                f"{path.name} lacks the column {column.name} of {schema.table}.",
                next_step="make the dump again with the columns that the table had at that position.",
            )
        given = held.field(column.name).type
        if not _fits(given, column.type):
            raise DumpUnfit(
                f"{path.name} has {schema.table}.{column.name} as {given}, which is not "
                f"{render_type(column.type)} ({column.source_type} at the source).",
                next_step="make the dump again with that type; text as the source's server writes it.",
            )


def _fits(given: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of a type may be taken for another's; whether each of them is one, its cast says."""
    kinds = pa.types
    if given == wanted:
        return True
    if kinds.is_dictionary(given):
        return _fits(given.value_type, wanted)
    if kinds.is_string(wanted):
        return bool(kinds.is_large_string(given) or kinds.is_string_view(given))
    if kinds.is_binary(wanted):
        return bool(kinds.is_large_binary(given) or kinds.is_fixed_size_binary(given))
    if kinds.is_integer(wanted):
        return bool(kinds.is_integer(given))
    if kinds.is_decimal(wanted):
        return bool(kinds.is_decimal(given) or kinds.is_integer(given))
    if kinds.is_floating(wanted):
        return bool(kinds.is_floating(given)) and given.bit_width <= wanted.bit_width
    if kinds.is_date(wanted):
        return bool(kinds.is_date(given))
    if kinds.is_timestamp(wanted) and kinds.is_timestamp(given):
        # A time with a zone is a moment, one without is not.
        return (given.tz is None) == (wanted.tz is None)
    return False

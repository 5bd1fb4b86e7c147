"""Warehouses that are DuckDB files. One process at a time may hold a file open for writing, and no reader meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError, TargetConflict, TargetError, TargetUnwritable
from headrace.lake.sql.dialect import CATALOG, DUCKDB, Dialect, literal, quoted, table_name
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema

__all__ = ["DuckdbSession", "DuckdbWarehouse"]

_BATCH_ROWS = 65_536
_LOCK_WAIT_S = 10.0
"""How long another process may hold the file before we give up."""
_POLL_S = 0.02
_LOCKED = "Could not set lock"
_UNWRITTEN = "Could not write"


@dataclass(frozen=True, slots=True)
class DuckdbWarehouse:
    """One file.

    Attributes:
        path: of the file; its folder is made with it.
        memory_bytes: most memory of one batch; beyond it DuckDB spills beside the file.
    """

    path: Path
    memory_bytes: int = 2**30

    @property
    def dialect(self) -> Dialect:
        """DuckDB's."""
        return DUCKDB

    def place(self, table: TableId) -> TableId:
        """Return schema and name of a table's target: the source's own."""
        return table

    @contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[DuckdbSession]:
        """Open the file, once nobody else has it open; a read-only session sees one moment."""
        if read_only and not self.path.exists():
            # Nothing was applied yet, and a reader makes no file.
            connection = duckdb.connect()
        else:
            connection = self._connect(read_only)
        with connection:
            session = DuckdbSession(connection)
            if not read_only:
                yield session
                return
            with session.transaction():
                yield session

    def _connect(self, read_only: bool) -> duckdb.DuckDBPyConnection:
        if not read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        config: dict[str, Any] = {
            "memory_limit": f"{self.memory_bytes} B",
            "temp_directory": f"{self.path}.tmp",
            # Nothing is fetched while a batch waits.
            "autoinstall_known_extensions": False,
        }
        deadline = time.monotonic() + _LOCK_WAIT_S
        while True:
            connection = duckdb.connect(":memory:", config=config)
            try:
                # Under a name of ours: a file's own name may be that of a schema, and then neither is found.
                mode = " (READ_ONLY)" if read_only else ""
                connection.execute(f"ATTACH {literal(os.fspath(self.path))} AS {CATALOG}{mode}")
                connection.execute(f"USE {CATALOG}")
                return connection
            except duckdb.Error as error:
                connection.close()
                if _LOCKED not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_POLL_S)

    def refusal(self, error: Exception, what: str) -> HeadraceError:
        """Return what an error of DuckDB means; its own text may hold values of rows."""
        reason, step = _reason(error)
        refused = isinstance(error, OSError | duckdb.IOException | duckdb.OutOfMemoryException)
        # A commit that cannot be written has another name, and is undone.
        if refused or _UNWRITTEN in str(error):
            return TargetUnwritable(
                f"{what} cannot be written: {reason}.",
                next_step=f"{step}; the batch is tried again.",
            )
        if isinstance(
            error, duckdb.CatalogException | duckdb.BinderException | duckdb.DependencyException
        ):
            return TargetConflict(
                f"{what} is not as headrace left it ({type(error).__name__}).",
                next_step="undo the change of tables and columns; the batch is tried again.",
            )
        return TargetError(
            f"{what} cannot be written: {reason}.", next_step=f"{step}; the batch is tried again."
        )


def _reason(error: Exception) -> tuple[str, str]:
    text = str(error)
    if _LOCKED in text:
        return "another process has the file open", "close it there"
    if "Permission denied" in text or "read-only" in text:
        return "the file may not be written", "give this process write permission"
    if _UNWRITTEN in text:
        return "the disk takes no more", "make room"
    if isinstance(error, duckdb.OutOfMemoryException):
        return (
            "a batch does not fit into its memory",
            "raise target.memory, or lower apply.max_rows",
        )
    return type(error).__name__, "HEADRACE_DEBUG=1 puts the whole error into the apply log"


class DuckdbSession:
    """One connection to the file."""

    def __init__(self, connection: duckdb.DuckDBPyConnection) -> None:
        self._connection = connection

    def run(self, text: str, *, own: bool = False) -> int:
        """Carry out a statement; return how many rows it changed."""
        changed = self._connection.execute(text if own else DUCKDB.written(text)).fetchone()
        return int(changed[0]) if changed and isinstance(changed[0], int) else 0

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return the few rows that a query has."""
        return self._connection.execute(text).fetchall()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Return a block that is committed at its end, or leaves nothing behind."""
        self._connection.begin()
        try:
            yield
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def stage(self, name: str, rows: pa.Table) -> None:
        """Make a staging table of rows, which is seen by this session alone."""
        self._connection.register("headrace_incoming", _with_ends(rows, _INWARDS))
        try:
            self._connection.execute(f"CREATE TEMP TABLE {name} AS SELECT * FROM headrace_incoming")
        finally:
            self._connection.unregister("headrace_incoming")

    def unstage(self, name: str) -> None:
        """Remove a staging table."""
        self.run(f"DROP TABLE {name}")

    def read(self, place: TableId, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a table, in the columns of the version it has."""
        names = ", ".join(map(quoted, schema.names))
        form = table_arrow_schema(schema)
        query = self._connection.sql(f"SELECT {names} FROM {table_name(place)}")
        for batch in query.to_arrow_reader(_BATCH_ROWS):
            rows = pa.Table.from_batches([batch]).cast(form)
            yield from _with_ends(rows, _OUTWARDS).combine_chunks().to_batches()


_INWARDS, _OUTWARDS = 1, -1


def _with_ends(rows: pa.Table, step: int) -> pa.Table:
    """Move minus infinity of dates and timestamps: ours is the lowest integer, DuckDB's the one above."""
    for index, field in enumerate(rows.schema):
        if not pa.types.is_date32(field.type) and not pa.types.is_timestamp(field.type):
            continue
        whole = pa.int32() if pa.types.is_date32(field.type) else pa.int64()
        lowest = np.iinfo(whole.to_pandas_dtype()).min
        ours, theirs = (lowest, lowest + 1) if step == _INWARDS else (lowest + 1, lowest)
        chunks = []
        for chunk in rows.column(index).chunks:
            values = chunk.view(whole)
            moved = pa.compute.if_else(
                pa.compute.equal(values, ours), pa.scalar(theirs, whole), values
            )
            chunks.append(moved.view(field.type))
        column = pa.chunked_array(chunks, type=field.type)
        rows = rows.set_column(index, field, column)
    return rows

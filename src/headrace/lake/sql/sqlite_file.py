"""Warehouses that are SQLite files: one process writes at a time, and any number reads."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from headrace.errors import (
    ConfigError,
    HeadraceError,
    TargetConflict,
    TargetError,
    TargetUnwritable,
)
from headrace.lake.sql.dialect import Dialect, quoted, table_name
from headrace.lake.sql.sqlite_forms import arrow_of, cells_of
from headrace.lake.sql.sqlite_words import SQLITE, flat, statements
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema

__all__ = ["SqliteSession", "SqliteWarehouse"]

_FETCH_ROWS = 20_000
_LOCK_WAIT_S = 10.0
"""How long another process may write the file before we give up."""
_OLDEST = (3, 35)
"""The first that drops columns."""

_REASONS = (
    # Beginning of SQLite's name of the error; the error; what it means; what to do.
    ("SQLITE_BUSY", TargetUnwritable, "another process writes the file", "end what writes it"),
    ("SQLITE_LOCKED", TargetUnwritable, "another process writes the file", "end what writes it"),
    ("SQLITE_FULL", TargetUnwritable, "the disk takes no more", "make room"),
    ("SQLITE_IOERR", TargetUnwritable, "the disk fails", "look at disk and file system"),
    (
        "SQLITE_READONLY",
        TargetUnwritable,
        "the file may not be written",
        "give this process write permission",
    ),
    (
        "SQLITE_CANTOPEN",
        TargetUnwritable,
        "the file cannot be opened",
        "give this process write permission for file and folder",
    ),
    (
        "SQLITE_NOTADB",
        TargetUnwritable,
        "the file is no SQLite database",
        "name another file, or move this one away",
    ),
    (
        "SQLITE_CORRUPT",
        TargetUnwritable,
        "the file is damaged",
        "restore it from a backup, or move it away and begin anew",
    ),
    (
        "SQLITE_CONSTRAINT",
        TargetError,
        "a constraint or trigger of a table refuses a row",
        "drop it",
    ),
    (
        "SQLITE_TOOBIG",
        TargetError,
        "SQLite cannot hold a value",
        "leave its column out: source.columns",
    ),
)


@dataclass(frozen=True, slots=True)
class SqliteWarehouse:
    """One file.

    Attributes:
        path: of the file; its folder is made with it.
    """

    path: Path

    @property
    def dialect(self) -> Dialect:
        """SQLite's."""
        return SQLITE

    def place(self, table: TableId) -> TableId:
        """Return schema and name of a table's target: the source's own, which together are the name in the file."""
        return table

    @contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[SqliteSession]:
        """Open the file; a read-only session sees one moment."""
        with closing(self._connect(read_only)) as connection:
            session = SqliteSession(connection)
            if not read_only:
                yield session
                return
            with session.transaction("DEFERRED"):
                yield session

    def _connect(self, read_only: bool) -> sqlite3.Connection:
        if sqlite3.sqlite_version_info < _OLDEST:
            raise ConfigError(
                f"Python's SQLite is {sqlite3.sqlite_version}, which drops no columns.",
                next_step=f"use a Python with SQLite {'.'.join(map(str, _OLDEST))} or newer.",
            )
        if read_only and not self.path.exists():
            # Nothing was applied yet, and a reader makes no file.
            return sqlite3.connect(":memory:", isolation_level=None)
        if not read_only:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not self.path.exists()
        connection = sqlite3.connect(
            f"{self.path.absolute().as_uri()}?mode={'ro' if read_only else 'rwc'}",
            timeout=_LOCK_WAIT_S,
            isolation_level=None,
            uri=True,
        )
        try:
            if is_new:
                # Readers then read on while a batch is written.
                connection.execute("PRAGMA journal_mode = WAL")
            # A commit that we report is on the disk.
            connection.execute("PRAGMA synchronous = FULL")
        except BaseException:
            connection.close()
            raise
        return connection

    def refusal(self, error: Exception, what: str) -> HeadraceError:
        """Return what an error of SQLite means; its own text may hold values of rows."""
        name = getattr(error, "sqlite_errorname", "")
        for prefix, kind, reason, step in _REASONS:
            if name.startswith(prefix):
                return kind(
                    f"{what} cannot be written: {reason}.",
                    next_step=f"{step}; the batch is tried again.",
                )
        if isinstance(error, OSError):
            return TargetUnwritable(
                f"{what} cannot be written: {error.strerror or type(error).__name__}.",
                next_step="give this process write permission, and room; the batch is tried again.",
            )
        if name == "SQLITE_ERROR":
            return TargetConflict(
                f"{what} is not as headrace left it.",
                next_step="undo the change of tables and columns; the batch is tried again.",
            )
        return TargetError(
            f"{what} cannot be written: {name or type(error).__name__}.",
            next_step="HEADRACE_DEBUG=1 shows the whole error; the batch is tried again.",
        )


class SqliteSession:
    """One connection to the file."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def run(self, text: str, *, own: bool = False) -> int:
        """Carry out a statement; return how many rows it changed."""
        changed = 0
        for statement in (text,) if own else statements(text):
            changed = max(0, self._connection.execute(statement).rowcount)
        return changed

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return the few rows that a query has."""
        return self._connection.execute(flat(text)).fetchall()

    @contextmanager
    def transaction(self, kind: str = "IMMEDIATE") -> Iterator[None]:
        """Return a block that is committed at its end, or leaves nothing behind.

        Args:
            kind: ``IMMEDIATE`` waits at once for its turn to write; ``DEFERRED`` reads.
        """
        self._connection.execute(f"BEGIN {kind}")
        try:
            yield
            self._connection.execute("COMMIT")
        except BaseException:
            # A full disk has undone it already.
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            raise

    def stage(self, name: str, rows: pa.Table) -> None:
        """Make a staging table of rows, which is seen by this session alone."""
        # Without types nothing is converted: the cells have the form of the target's already.
        self._connection.execute(f"CREATE TEMP TABLE {name} ({', '.join(rows.column_names)})")
        places = ", ".join("?" * rows.num_columns)
        for batch in rows.to_batches(_FETCH_ROWS):
            cells = zip(*map(cells_of, batch.columns), strict=True)
            self._connection.executemany(f"INSERT INTO {name} VALUES ({places})", cells)

    def unstage(self, name: str) -> None:
        """Remove a staging table."""
        self.run(f"DROP TABLE {name}")

    def read(self, place: TableId, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a table, in the columns of the version it has."""
        # A quoted name without its table would be a text where there is no such column.
        names = ", ".join(f"t.{quoted(name)}" for name in schema.names)
        form = table_arrow_schema(schema)
        cursor = self._connection.execute(flat(f"SELECT {names} FROM {table_name(place)} AS t"))
        while rows := cursor.fetchmany(_FETCH_ROWS):
            columns = zip(*rows, strict=True)
            yield pa.record_batch(
                [arrow_of(cells, f.type) for cells, f in zip(columns, form, strict=True)],
                schema=form,
            )

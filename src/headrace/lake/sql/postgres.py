"""Warehouses that are PostgreSQL databases.

Rows go in by binary COPY and come back through a cursor of the server's, as numbers and text that Arrow takes as they
are.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
import pyarrow as pa
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from headrace.errors import HeadraceError, TargetConflict, TargetError, TargetUnwritable
from headrace.lake.sql.dialect import POSTGRES, Dialect, quoted, table_name
from headrace.lake.sql.postgres_copy import END, START, copy_pieces
from headrace.lake.sql.types import staged_type
from headrace.model.change import table_arrow_schema
from headrace.model.schema import Column, TableId, TableSchema

__all__ = ["PostgresSession", "PostgresWarehouse"]

_FETCH_ROWS = 20_000
_CONNECT_S = 10
_SETTINGS = (
    # Whatever database, role, URL or environment say: our bytes are these, and the server refuses what it has not.
    "SET client_encoding = 'UTF8'",
    # The role's own settings shall neither end a long merge nor report a commit that is not durable.
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    # Servers before 17 have none.
    "SELECT set_config(name, '0', false) FROM pg_settings WHERE name = 'transaction_timeout'",
    "SET lock_timeout = '30s'",
    "SET synchronous_commit = on",
    "SET standard_conforming_strings = on",
    # Texts of rows are compared with each other.
    "SET extra_float_digits = 1",
    "SET client_min_messages = warning",
)
_KEEPALIVES = {
    "keepalives": "1",
    "keepalives_idle": "30",
    "keepalives_interval": "10",
    "keepalives_count": "3",
    "tcp_user_timeout": "60000",
}
"""A server that is gone without a word is missed in a minute, not in the two hours that systems wait."""
_ONE_MOMENT = "SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY"

_REASONS = (
    # Prefix of the SQLSTATE; the error; what it means; what to do.
    ("42501", TargetUnwritable, "the role may not write there", "grant the role what it lacks"),
    ("25006", TargetUnwritable, "it is read-only", "name a server that takes writes"),
    ("53100", TargetUnwritable, "its disk is full", "make room on the server"),
    ("53", TargetUnwritable, "the server has no room", "give the server room or connections"),
    ("55P03", TargetUnwritable, "somebody holds a lock on it", "end what holds the lock"),
    ("57", TargetUnwritable, "the server was told to stop", "start the server"),
    ("08", TargetUnwritable, "the connection was lost", "look at server and network"),
    ("28", TargetUnwritable, "the server refused role or password", "correct target.url"),
    ("3D000", TargetUnwritable, "there is no such database", "correct target.url"),
    ("40", TargetConflict, "another writer came in between", "let headrace be the only writer"),
    ("42P01", TargetConflict, "a table is gone", "put the table back"),
    ("42703", TargetConflict, "a column is gone", "undo the change of its columns"),
    ("2BP01", TargetConflict, "something else depends on it", "drop what depends on it"),
    ("0A000", TargetConflict, "something else depends on it", "drop what depends on it"),
    (
        "22",
        TargetError,
        "the server cannot hold a value",
        "keep the column as another type, or leave it out",
    ),
)
_REFUSALS = (
    ("failed to resolve host", "its host has no address", "correct target.url"),
    (
        "certificate",
        "its certificate is not one that target.url trusts",
        "correct sslmode or sslrootcert in target.url",
    ),
    ("authentication failed", "the server refused role or password", "correct target.url"),
    ("does not exist", "there is no such role or database", "correct target.url"),
)


@dataclass(frozen=True, slots=True)
class PostgresWarehouse:
    """One database.

    Attributes:
        url: of libpq; holds secrets.
        schema_prefix: put before the names of the source's schemas.
    """

    url: str = field(repr=False)
    schema_prefix: str = ""

    @property
    def dialect(self) -> Dialect:
        """PostgreSQL's."""
        return POSTGRES

    def place(self, table: TableId) -> TableId:
        """Return schema and name of a table's target."""
        return TableId(self.schema_prefix + table.schema, table.name)

    @contextmanager
    def opened(self, *, read_only: bool = False) -> Iterator[PostgresSession]:
        """Open a session; a read-only one is a single transaction, which sees one moment."""
        with closing(self.connect(read_only=read_only)) as session:
            yield session

    def connect(self, *, read_only: bool = False) -> PostgresSession:
        """Open a session that the caller closes."""
        connection = psycopg.connect(
            make_conninfo("", **(_KEEPALIVES | conninfo_to_dict(self.url))),
            autocommit=not read_only,
            connect_timeout=_CONNECT_S,
            application_name="headrace",
        )
        try:
            for setting in _SETTINGS:
                connection.execute(setting)
            if read_only:
                connection.execute(_ONE_MOMENT)
                connection.commit()
        except BaseException:
            connection.close()
            raise
        return PostgresSession(connection)

    def refusal(self, error: Exception, what: str) -> HeadraceError:
        """Return what an error of the driver means; its own text may hold values of rows."""
        state = getattr(error, "sqlstate", None)
        if state is None and isinstance(error, psycopg.OperationalError):
            # Refused while connecting, or cut off: there is no code, and no row either.
            text = str(error)
            for words, reason, step in _REFUSALS:
                if words in text:
                    return _refusal(TargetUnwritable, what, reason, step)
            return _refusal(
                TargetUnwritable, what, "the server cannot be reached", "look at server and network"
            )
        for prefix, kind, reason, step in _REASONS:
            if state and state.startswith(prefix):
                return _refusal(kind, what, f"{reason} ({state})", step)
        return TargetError(
            f"{what} cannot be written: {type(error).__name__} {state or ''}".rstrip() + ".",
            next_step="the batch is tried again; the server's own log has the whole error.",
        )


def _refusal(kind: type[HeadraceError], what: str, reason: str, step: str) -> HeadraceError:
    return kind(
        f"{what} cannot be written: {reason}.", next_step=f"{step}; the batch is tried again."
    )


class PostgresSession:
    """One connection."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self._connection = connection

    def run(self, text: str, *, own: bool = False) -> int:
        """Carry out a statement; return how many rows it changed."""
        # The text is ours; names and values in it are quoted.
        written = text if own else POSTGRES.written(text)
        return self._connection.execute(written.encode()).rowcount

    def rows(self, text: str) -> list[tuple[Any, ...]]:
        """Return the few rows that a query has."""
        return self._connection.execute(text.encode()).fetchall()

    def transaction(self) -> AbstractContextManager[object]:
        """Return a block that is committed at its end, or leaves nothing behind."""
        return self._connection.transaction()

    def is_alive(self) -> bool:
        """Return whether the server still answers."""
        try:
            self._connection.execute("SELECT 1")
        except psycopg.Error:
            return False
        return True

    def close(self) -> None:
        """End the session."""
        self._connection.close()

    def stage(self, name: str, rows: pa.Table) -> None:
        """Make a staging table of rows and tell the planner of them; durable as a whole or not there."""
        columns = ", ".join(f"{f.name} {staged_type(POSTGRES, f.type)}" for f in rows.schema)
        with self.transaction(), self._connection.cursor() as cursor:
            # Unlogged: after a crash of the server it is empty, and is made again anyway.
            cursor.execute(f"CREATE UNLOGGED TABLE {name} ({columns})".encode())
            with cursor.copy(f"COPY {name} FROM STDIN (FORMAT binary)".encode()) as copy:
                copy.write(START)
                for piece in copy_pieces(rows):
                    copy.write(piece)
                copy.write(END)
            cursor.execute(f"ANALYZE {name}".encode())

    def unstage(self, name: str) -> None:
        """Remove a staging table."""
        self.run(f"DROP TABLE {name}")

    def read(self, place: TableId, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a table, in the columns of the version it has."""
        cells = ", ".join(map(_readable, schema.columns))
        query = f"SELECT {cells} FROM {table_name(place)}"
        form = table_arrow_schema(schema)
        with self._connection.cursor("headrace_read", binary=True) as cursor:
            cursor.execute(query.encode())
            while rows := cursor.fetchmany(_FETCH_ROWS):
                columns = zip(*rows, strict=True)
                yield pa.record_batch(
                    [_arrow(cells, f.type) for cells, f in zip(columns, form, strict=True)],
                    schema=form,
                )


def _readable(column: Column) -> str:
    """Return the SQL of a cell in a form that Arrow takes, whatever its value."""
    name, type_ = quoted(column.name), column.type
    if pa.types.is_decimal(type_):
        return f"{name}::text"
    if pa.types.is_date32(type_):
        return _or_ends(name, f"{name} - date '1970-01-01'", 32)
    if pa.types.is_timestamp(type_):
        return _or_ends(name, f"(extract(epoch FROM {name}) * 1000000)::bigint", 64)
    return name


def _or_ends(name: str, number: str, bits: int) -> str:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return (
        f"CASE WHEN isfinite({name}) THEN {number} WHEN {name} = 'infinity' THEN {high} "
        f"WHEN {name} = '-infinity' THEN {low} END"
    )


def _arrow(cells: tuple[Any, ...], type_: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(type_):
        return pa.array(cells, pa.string()).cast(type_)
    if pa.types.is_date32(type_):
        return pa.array(cells, pa.int32()).view(type_)
    if pa.types.is_timestamp(type_):
        return pa.array(cells, pa.int64()).view(type_)
    return pa.array(cells, type_)

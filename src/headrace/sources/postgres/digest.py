"""The source side of verify: one snapshot of the server, its rows rendered and hashed by the server.

In: a URL and table shapes. Out: what the snapshot saw, and per table the number of rows and the sum of
their digests in each of 256 key ranges, or the digests of the rows of some ranges. No value comes to us, so
no decoder of ours can hide its own fault. `headrace.lake.digest` describes the text form.

Tables are held in ACCESS SHARE mode, as by any select, from before the snapshot: otherwise a truncate or rewrite
that commits in between shows this snapshot an empty table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import psycopg
import pyarrow as pa
from psycopg import sql

from headrace.errors import SourceUnavailable
from headrace.model.schema import Column, TableId, TableSchema
from headrace.model.snapshot import TransactionSnapshot
from headrace.sources.postgres.lsn import parse_lsn

__all__ = ["SourceView", "cell_sql"]

_FETCH_ROWS = 20_000
_NAN = {32: "7fc00000", 64: "7ff8000000000000"}
_SETTINGS = (
    "SET statement_timeout = 0",
    "SET idle_in_transaction_session_timeout = 0",
    "SET lock_timeout = '30s'",
)

Digests = npt.NDArray[np.uint8]


class SourceView:
    """One REPEATABLE READ snapshot of some tables; a context manager, used from one thread.

    Args:
        connection: open, idle, in autocommit mode, with the session settings under which the log and
            chunk reads render text; closed with the view.
        tables: the tables that will be asked for.

    Attributes:
        snapshot: which transactions the view sees.
        snapshot_text: the same as the server writes it.
        log_end: insert position of the log after the snapshot; all it sees lies before.
    """

    snapshot: TransactionSnapshot
    snapshot_text: str
    log_end: int

    def __init__(
        self, connection: psycopg.Connection[tuple[object, ...]], tables: Sequence[TableId]
    ) -> None:
        self._connection = connection
        self._tables = tables

    def __enter__(self) -> Self:
        try:
            for setting in _SETTINGS:
                self._connection.execute(setting.encode())
            self._connection.execute(b"BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            if self._tables:
                names = sql.SQL(", ").join(sql.Identifier(*table) for table in self._tables)
                self._connection.execute(
                    sql.SQL("LOCK TABLE {} IN ACCESS SHARE MODE").format(names)
                )
            row = self._connection.execute(
                b"SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text, "
                b"current_setting('server_encoding')"
            ).fetchone()
        except psycopg.Error as error:
            self._connection.close()
            raise _unavailable("a snapshot of the tables", error) from error
        assert row is not None
        self.snapshot_text = str(row[0])
        self.snapshot = TransactionSnapshot.parse(self.snapshot_text)
        self.log_end = parse_lsn(str(row[1]))
        self._utf8 = row[2] in ("UTF8", "SQL_ASCII")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def range_sums(self, schema: TableSchema) -> Iterator[tuple[int, int, int]]:
        """Yield ``(range, rows, sum of the leading 60 bits of the row digests)``, empty ranges left out."""
        query = sql.SQL(
            "SELECT ('x' || left(k, 2))::bit(8)::int, count(*), "
            "sum(('x' || left(r, 15))::bit(60)::bigint)::text FROM ({}) d GROUP BY 1"
        ).format(self._digests(schema))
        try:
            rows = self._connection.execute(query).fetchall()
        except psycopg.Error as error:
            raise _unavailable(f"the digests of {schema.table}", error) from error
        for number, count, total in rows:
            yield int(str(number)), int(str(count)), int(str(total))

    def row_digests(
        self, schema: TableSchema, ranges: Sequence[int]
    ) -> Iterator[tuple[Digests, Digests]]:
        """Yield key and row digests (rows × 16 bytes each) of all rows in some key ranges."""
        query = sql.SQL(
            "SELECT decode(k, 'hex'), decode(r, 'hex') FROM ({}) d "
            "WHERE ('x' || left(k, 2))::bit(8)::int = ANY(%s)"
        ).format(self._digests(schema))
        try:
            with self._connection.cursor("headrace_verify", binary=True) as cursor:
                cursor.execute(query, (list(ranges),))
                while rows := cursor.fetchmany(_FETCH_ROWS):
                    yield _matrix(row[0] for row in rows), _matrix(row[1] for row in rows)
        except psycopg.Error as error:
            raise _unavailable(f"the digests of {schema.table}", error) from error

    def _digests(self, schema: TableSchema) -> sql.Composed:
        """Return a select of ``k``, ``r``: digests of key and row in hex; the row's for both without a key."""
        row = self._md5(list(schema.columns))
        key = self._md5([schema.column(name) for name in schema.key]) if schema.key else row
        table = sql.Identifier(*schema.table)
        return sql.SQL("SELECT {} AS k, {} AS r FROM {}").format(key, row, table)

    def _md5(self, columns: Sequence[Column]) -> sql.Composed:
        cells = sql.SQL(" || ").join(cell_sql(column, utf8=self._utf8) for column in columns)
        if self._utf8:
            return sql.SQL("md5({})").format(cells)
        return sql.SQL("md5(convert_to({}, 'UTF8'))").format(cells)


def cell_sql(column: Column, *, utf8: bool = True) -> sql.Composed:
    """Return the SQL of a cell: ``N`` or ``<octets>:<text>``.

    Args:
        column: name and neutral type.
        utf8: whether the server stores text as UTF-8; otherwise octets are counted after a conversion.
    """
    text = _text_sql(column)
    counted = text if utf8 else sql.SQL("convert_to({}, 'UTF8')").format(text)
    return sql.SQL("coalesce(octet_length({})::text || ':' || {}, 'N')").format(counted, text)


def _text_sql(column: Column) -> sql.Composed:
    """Return the SQL of a cell's text, null for null."""
    return sql.SQL(_pattern(column.type)).format(sql.Identifier(column.name))


def _pattern(type_: pa.DataType) -> str:
    if pa.types.is_floating(type_):
        # The sign and payload of NaN are lost in text, and PostgreSQL holds all of them equal.
        width = type_.bit_width
        send = f"encode(float{width // 8}send({{0}}), 'hex')"
        return f"CASE WHEN {{0}} = 'NaN' THEN '{_NAN[width]}' ELSE {send} END"
    if pa.types.is_binary(type_):
        return "encode({0}, 'hex')"
    if pa.types.is_date32(type_):
        return "CASE WHEN isfinite({0}) THEN ({0} - date '1970-01-01')::text ELSE {0}::text END"
    if pa.types.is_timestamp(type_):
        micros = "(extract(epoch FROM {0}) * 1000000)::bigint::text"
        return f"CASE WHEN isfinite({{0}}) THEN {micros} ELSE {{0}}::text END"
    if pa.types.is_string(type_):
        # A cast to text trims char(n) and adds a mask to inet; concat writes what the log carries.
        # A composite value is null only as a whole, which IS NOT NULL does not say.
        return "CASE WHEN {0} IS DISTINCT FROM NULL THEN concat({0}) END"
    return "{0}::text"


def _matrix(cells: Iterator[object]) -> Digests:
    return np.frombuffer(b"".join(bytes(cell) for cell in cells), np.uint8).reshape(-1, 16)  # type: ignore[call-overload]


def _unavailable(what: str, error: psycopg.Error) -> SourceUnavailable:
    reason = error.sqlstate or type(error).__name__
    return SourceUnavailable(
        f"The source did not give {what} ({reason}).",
        next_step="check that the server is up, that the tables exist and that the role may read them.",
    )

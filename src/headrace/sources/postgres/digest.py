"""The source side of verify: one snapshot of the server, its rows rendered and hashed by the server.

In: settings and table names. Out: the tables' shapes, what the snapshot saw, and per table the number
of rows and the sum of their digests in each of 256 key ranges, or the digests of the rows of some
ranges. No value comes to us, so no decoder of ours can hide its own fault. `headrace.lake.digest`
describes the text form.

Tables are held in ACCESS SHARE mode, as by any select, from before the snapshot: otherwise a truncate
or rewrite that commits in between shows this snapshot an empty table.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import SourceError
from headrace.model.digest import DigestForm
from headrace.model.schema import Column, TableId, TableSchema
from headrace.model.snapshot import TransactionSnapshot
from headrace.sources.postgres.catalog import TypeCache, describe, read_tables
from headrace.sources.postgres.connection import QueryFailed, Row, connect, quote
from headrace.sources.postgres.copy_binary import rendered_sql
from headrace.sources.postgres.keyset import read_keyset, relation_sql
from headrace.sources.postgres.lsn import parse_lsn
from headrace.sources.postgres.publication import as_published
from headrace.sources.postgres.settings import PostgresSettings

__all__ = ["SourceView", "cell_sql"]

_FETCH_ROWS = 20_000
_NAN = {32: "7fc00000", 64: "7ff8000000000000"}
_SETTINGS = (
    "SET lock_timeout = '30s'",
    # The planner takes each row for a group of its own and would sort the table on disk.
    "SET enable_sort = off",
)
_SNAPSHOT = """
SELECT pg_current_snapshot()::text, pg_current_wal_insert_lsn()::text,
       current_setting('server_encoding')
"""

Digests = npt.NDArray[np.uint8]


class SourceView:
    """One REPEATABLE READ snapshot of some tables; a context manager, used from one thread.

    Args:
        settings: where the server is.
        tables: the tables to look at.

    Attributes:
        schemas: their shapes, as published.
        snapshot: which transactions the view sees.
        snapshot_text: the same as the server writes it.
        log_end: insert position of the log after the snapshot; all it sees lies before.
    """

    form = DigestForm()
    schemas: dict[TableId, TableSchema]
    snapshot: TransactionSnapshot
    snapshot_text: str
    log_end: int

    def __init__(self, settings: PostgresSettings, tables: Sequence[TableId]) -> None:
        self._settings = settings
        self._tables = tables
        self._from: dict[TableId, str] = {}
        self._indexes: dict[TableId, int] = {}
        self._left_out: dict[TableId, tuple[str, ...]] = {}

    def __enter__(self) -> Self:
        self._session = connect(self._settings)
        try:
            self._begin()
        except BaseException:
            self._session.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._session.close()

    @property
    def end_scn(self) -> int:
        """The end is where the next record begins, and a transaction's SCN where its commit record does."""
        return self.log_end - 1

    def _begin(self) -> None:
        """Lock, then take the snapshot, then read the shapes, which cannot change any more."""
        for setting in _SETTINGS:
            self._session.run(setting)
        self._session.run("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        for table in self._tables:
            self._ask(f"LOCK TABLE {_name(table)} IN ACCESS SHARE MODE", table)
        text, log_end, encoding = self._session.rows(_SNAPSHOT)[0]
        self.snapshot_text = text or ""
        self.snapshot = TransactionSnapshot.parse(self.snapshot_text)
        self.log_end = parse_lsn(log_end or "")
        self._utf8 = encoding in ("UTF8", "SQL_ASCII")
        types = TypeCache()
        self.schemas = {}
        for table in self._tables:
            found = read_tables(self._session, only=table)
            if not found:
                raise _unreadable(table, "it is not a table")
            facts = as_published(self._session, self._settings, found[0])
            self.schemas[table] = describe(self._session, types, facts)
            self._from[table] = relation_sql(facts)
            self._indexes[table] = facts.identity.index

    def key_order(self, table: TableId) -> str:
        """Return which key the table has and how it is ordered, as chunks name it; empty for none."""
        index = self._indexes[table]
        return read_keyset(self._session, index).order if index else ""

    def narrow(self, table: TableId, schema: TableSchema) -> None:
        """Look at some columns of a table only, from here on.

        Args:
            table: of the view.
            schema: its shape with the columns to look at.
        """
        gone = [name for name in self.schemas[table].names if name not in schema.names]
        self._left_out[table] = tuple(gone)
        self.schemas[table] = schema

    def left_out(self, table: TableId) -> tuple[str, ...]:
        """Return the columns of a table that the view does not look at."""
        return self._left_out.get(table, ())

    def range_sums(self, table: TableId) -> Iterator[tuple[int, int, int]]:
        """Yield ``(range, rows, sum of the leading 60 bits of the row digests)`` of filled ranges."""
        sql = (
            "SELECT ('x' || left(k, 2))::bit(8)::int, count(*), "
            "sum(('x' || left(r, 15))::bit(60)::bigint)::text "
            f"FROM ({self._digests(table)}) d GROUP BY 1"
        )
        for number, count, total in self._ask(sql, table):
            yield int(number or 0), int(count or 0), int(total or 0)

    def row_digests(
        self, table: TableId, ranges: Sequence[int]
    ) -> Iterator[tuple[Digests, Digests]]:
        """Yield key and row digests (rows × 16 bytes each) of all rows in some key ranges."""
        wanted = ", ".join(str(int(number)) for number in ranges)
        self._ask(
            f"DECLARE headrace_verify NO SCROLL CURSOR FOR SELECT k || r "
            f"FROM ({self._digests(table)}) d WHERE ('x' || left(k, 2))::bit(8)::int IN ({wanted})",
            table,
        )
        fetch = f"FETCH {_FETCH_ROWS} FROM headrace_verify"
        while rows := self._session.cells(fetch):
            data = binascii.unhexlify(b"".join(row[0] or b"" for row in rows))
            both = np.frombuffer(data, np.uint8).reshape(-1, 32)
            yield both[:, :16], both[:, 16:]
        self._session.run("CLOSE headrace_verify")

    def keys(self, table: TableId, digests: Sequence[bytes]) -> Iterator[tuple[str, ...]]:
        """Yield the keys, as the server renders them, of the rows whose key digest is one of some."""
        wanted = ",".join(digest.hex() for digest in digests)
        columns = [quote(name) for name in self.schemas[table].key]
        self._ask(
            "DECLARE headrace_keys NO SCROLL CURSOR FOR SELECT "
            f"{', '.join(columns)} FROM {self._from[table]} "
            f"WHERE {self._key_digest(table)} = ANY ('{{{wanted}}}'::text[])",
            table,
        )
        while rows := self._session.cells(f"FETCH {_FETCH_ROWS} FROM headrace_keys"):
            for row in rows:
                yield tuple((cell or b"").decode() for cell in row)
        self._session.run("CLOSE headrace_keys")

    def _ask(self, sql: str, table: TableId) -> list[Row]:
        try:
            return self._session.rows(sql, timeout_s=float("inf"))
        except QueryFailed as error:
            raise _unreadable(table, error.sqlstate) from error

    def _digests(self, table: TableId) -> str:
        """Return a select of ``k``, ``r``: digests of key and row in hex, both the row's without a key."""
        schema = self.schemas[table]
        row = self._md5(schema.columns)
        key = self._key_digest(table) if schema.key else row
        return f"SELECT {key} AS k, {row} AS r FROM {self._from[table]}"

    def _key_digest(self, table: TableId) -> str:
        schema = self.schemas[table]
        return self._md5([schema.column(name) for name in schema.key])

    def _md5(self, columns: Sequence[Column]) -> str:
        cells = " || ".join(cell_sql(column, utf8=self._utf8) for column in columns)
        return f"md5({cells})" if self._utf8 else f"md5(convert_to({cells}, 'UTF8'))"


def cell_sql(column: Column, *, utf8: bool = True) -> str:
    """Return the SQL of a cell: ``N`` or ``<octets>:<text>``.

    Args:
        column: name and neutral type.
        utf8: whether the server stores text as UTF-8; otherwise octets are counted as if it did.
    """
    text = _text_sql(quote(column.name), column.type)
    counted = text if utf8 else f"convert_to({text}, 'UTF8')"
    return f"coalesce(octet_length({counted})::text || ':' || {text}, 'N')"


def _text_sql(name: str, type_: pa.DataType) -> str:
    """Return the SQL of a cell's text, null for null."""
    if pa.types.is_floating(type_):
        # The sign and payload of NaN are lost in text, and PostgreSQL holds all of them equal.
        width = type_.bit_width
        send = f"encode(float{width // 8}send({name}), 'hex')"
        return f"CASE WHEN {name} = 'NaN' THEN '{_NAN[width]}' ELSE {send} END"
    if pa.types.is_binary(type_):
        return f"encode({name}, 'hex')"
    if pa.types.is_date32(type_):
        return _or_ends(name, f"{name} - date '1970-01-01'", 32)
    if pa.types.is_timestamp(type_):
        return _or_ends(name, f"(extract(epoch FROM {name}) * 1000000)::bigint", 64)
    if pa.types.is_string(type_):
        return rendered_sql(name)
    return f"{name}::text"


def _or_ends(name: str, number: str, bits: int) -> str:
    """Return the SQL of a number's text, for an infinite date or timestamp that of the end of its integer."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    return (
        f"CASE {name} WHEN 'infinity' THEN '{high}' WHEN '-infinity' THEN '{low}' "
        f"ELSE ({number})::text END"
    )


def _unreadable(table: TableId, reason: str) -> SourceError:
    return SourceError(
        f"The source does not let verify read {table} ({reason}).",
        next_step=f"check that {table} exists, that the role may select from it, and that nothing "
        "holds an exclusive lock on it.",
    )


def _name(table: TableId) -> str:
    return f"{quote(table.schema)}.{quote(table.name)}"

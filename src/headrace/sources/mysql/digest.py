"""The source side of verify: one snapshot of the server, its rows rendered and hashed by the server.

In: settings and table names. Out: what `headrace.sources.database.View` promises. `headrace.lake.digest` describes the
text form; the hash is SHA-256, which later servers still have where MD5 is gone.

The tables are opened before they are read, which holds off whoever would alter, truncate or drop one; what changed
between snapshot and opening the server refuses to show (1412), and the snapshot is taken again.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np

from headrace.errors import SourceError
from headrace.model.digest import DigestForm
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import Visibility
from headrace.plural import be, counted
from headrace.sources.database import Digests
from headrace.sources.mysql.catalog import (
    TableFacts,
    facts_schema,
    read_collations,
    read_table,
    with_collations,
)
from headrace.sources.mysql.charsets import BINARY
from headrace.sources.mysql.chunks import rows_batch
from headrace.sources.mysql.connection import QueryFailed, Session, connect, quote
from headrace.sources.mysql.dump import stretch
from headrace.sources.mysql.keyset import keyset_of, table_sql
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.rendering import key_texts
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.texts import selected
from headrace.sources.mysql.types import ColumnType, Kind
from headrace.sources.mysql.vendors import vendor_of

__all__ = ["MysqlView"]

_ATTEMPTS = 5
_CHANGED = 1412
_ROWS_AT_ONCE = 20_000
# A table is hashed in one statement, however long that takes.
_PATIENT = "SET SESSION wait_timeout = 86400, net_write_timeout = 3600"
_DATES = frozenset({Kind.DATE, Kind.DATETIME, Kind.TIMESTAMP})
_INTEGERS = frozenset(
    {Kind.TINY, Kind.SHORT, Kind.INT24, Kind.LONG, Kind.LONGLONG, Kind.YEAR, Kind.BIT}
)


class MysqlView:
    """One consistent snapshot of some tables; a context manager, used from one thread.

    Args:
        settings: where the server is.
        tables: the tables to look at.
        numbers: of transactions whose ids are none; None where nobody asks what the view has seen of the log.

    Attributes:
        form: how rows are hashed.
        schemas: the tables' shapes, as captured.
        snapshot: the place of the log at which the view stands.
        snapshot_text: the same as text.
    """

    form = DigestForm("sha256", wide_floats=True)
    schemas: dict[TableId, TableSchema]
    snapshot: Visibility
    snapshot_text: str

    def __init__(
        self,
        settings: MysqlSettings,
        tables: Sequence[TableId],
        numbers: GtidNumbers | None = None,
    ) -> None:
        self._settings = settings
        self._numbers = numbers
        self._tables = tables
        self._facts: dict[TableId, TableFacts] = {}
        self._left_out: dict[TableId, tuple[str, ...]] = {}
        self._held = ExitStack()
        self._end_scn = 0

    def __enter__(self) -> Self:
        self._session = connect(self._settings, patient=True)
        try:
            self._vendor = vendor_of(self._session)
            self._session.run(_PATIENT, self._vendor.patient)
            self._begin(self._session)
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
        # The snapshot ends with its session; rows that nobody took may be left on it.
        self._session.close()
        self._held.close()

    def _begin(self, session: Session) -> None:
        collations = read_collations(session)
        for attempt in range(1, _ATTEMPTS + 1):
            self.snapshot = self._held.enter_context(self.seeing(session))
            try:
                for table in self._tables:
                    session.rows(f"SELECT 1 FROM {table_sql(table)} LIMIT 1")
                    facts = read_table(session, table, collations)
                    if facts is None:
                        raise _unreadable(table, "it is not a table")
                    self._facts[table] = facts
            except QueryFailed as error:
                if error.code != _CHANGED or attempt == _ATTEMPTS:
                    raise _unreadable(table, str(error.code)) from error
                self._held.pop_all().close()
            else:
                break
        self.snapshot_text = str(self.snapshot)
        self.schemas = {table: facts_schema(facts) for table, facts in self._facts.items()}

    @contextmanager
    def seeing(self, session: Session) -> Iterator[Visibility]:
        """Open the snapshot, in a read-only transaction of its own, and note where it stands."""
        log = partial(stretch, self._settings)
        with self._vendor.placed(session, log, self._numbers) as seen:
            # A transaction is numbered by where it begins, which is before its end.
            self._end_scn = seen.place.scn
            yield seen

    @property
    def end_scn(self) -> int:
        """An SCN at or below which every transaction lies that the snapshot sees."""
        return self._end_scn

    def key_order(self, table: TableId) -> str:
        """Return which key the table has and how it is ordered, as chunks name it; empty for none."""
        facts = self._facts[table]
        if not facts.key:
            return ""
        # Read only here: the table is held, so they are still those of the snapshot.
        return keyset_of(with_collations(self._session, facts)).order

    def narrow(self, table: TableId, schema: TableSchema) -> None:
        """Look at some columns of a table only, from here on."""
        gone = [name for name in self.schemas[table].names if name not in schema.names]
        self._left_out[table] = tuple(gone)
        self.schemas[table] = schema

    def left_out(self, table: TableId) -> tuple[str, ...]:
        """Return the columns of a table that the view does not look at."""
        return self._left_out.get(table, ())

    def range_sums(self, table: TableId) -> Iterator[tuple[int, int, int]]:
        """Yield ``(range, rows, sum of the leading 60 bits of the row digests)`` of filled ranges."""
        sql = (
            "SELECT CONV(LEFT(k, 2), 16, 10), COUNT(*), SUM(CAST(CONV(LEFT(r, 15), 16, 10) AS UNSIGNED)), "
            f"SUM(r IS NULL) FROM ({self._digests(table)}) d GROUP BY 1"
        )
        for (rows,) in self._ask(sql, table, 1):
            number, count, total, unhashed = (int(cell or 0) for cell in rows)
            if unhashed:
                raise _too_large(table, unhashed)
            yield number, count, total

    def row_digests(
        self, table: TableId, ranges: Sequence[int]
    ) -> Iterator[tuple[Digests, Digests]]:
        """Yield key and row digests of all rows in some key ranges."""
        wanted = ", ".join(str(int(number)) for number in ranges)
        sql = (
            f"SELECT CONCAT(LEFT(k, 32), LEFT(r, 32)) FROM ({self._digests(table)}) d "
            f"WHERE CONV(LEFT(k, 2), 16, 10) IN ({wanted})"
        )
        for rows in self._ask(sql, table, _ROWS_AT_ONCE):
            data = binascii.unhexlify(b"".join(row[0] or b"" for row in rows))
            both = np.frombuffer(data, np.uint8).reshape(-1, 32)
            yield both[:, :16], both[:, 16:]

    def keys(self, table: TableId, digests: Sequence[bytes]) -> Iterator[tuple[str, ...]]:
        """Yield the keys, as the server renders them, of the rows whose key digest is one of some."""
        facts, key = self._facts[table], self.schemas[table].key
        types = {column.name: column.type for column in facts.columns}
        columns = ", ".join(selected(_known(types[name]), quote(name)) for name in key)
        wanted = ", ".join(f"'{digest.hex()}'" for digest in digests)
        sql = (
            f"SELECT {columns} FROM {table_sql(table)} "
            f"WHERE LEFT({self._hash(table, key)}, 32) IN ({wanted})"
        )
        schema = facts_schema(facts)
        for rows in self._ask(sql, table, _ROWS_AT_ONCE):
            found = [dict(zip(key, row, strict=True)) for row in rows]
            whole = [tuple(row.get(column.name) for column in facts.columns) for row in found]
            batch = rows_batch(facts, schema, whole, self._settings.zero_dates)
            yield from key_texts(schema, batch)

    def _ask(
        self, sql: str, table: TableId, most: int
    ) -> Iterator[Sequence[Sequence[bytes | None]]]:
        try:
            yield from self._session.stream(sql, most)
        except QueryFailed as error:
            raise _unreadable(table, str(error.code)) from error

    def _digests(self, table: TableId) -> str:
        """Return a select of ``k``, ``r``: digests of key and row in hex, both the row's without a key."""
        schema = self.schemas[table]
        row = self._hash(table, schema.names)
        key = self._hash(table, schema.key) if schema.key else row
        return f"SELECT {key} AS k, {row} AS r FROM {table_sql(table)}"

    def _hash(self, table: TableId, names: Sequence[str]) -> str:
        types = {column.name: column.type for column in self._facts[table].columns}
        group = self._vendor.backreference
        cells = ", ".join(_cell_sql(_known(types[name]), quote(name), group) for name in names)
        return f"SHA2(CONCAT({cells}), 256)"


def _known(type_: ColumnType | None) -> ColumnType:
    assert type_ is not None, "a column that is not decoded has no shape either"
    return type_


def _cell_sql(type_: ColumnType, name: str, group: str) -> str:
    """Return the SQL of a cell: ``N`` or ``<octets>:<text>``, as bytes, so that no collation meets another.

    It is null where the text is larger than any that the server makes.
    """
    text = f"CAST({_text_sql(type_, name, group)} AS BINARY)"
    is_day = f"COALESCE({_is_day(name)}, FALSE)"
    there = is_day if type_.kind in _DATES else f"{name} IS NOT NULL"
    return f"IF({there}, CONCAT(LENGTH({text}), ':', {text}), 'N')"


def _text_sql(type_: ColumnType, name: str, group: str) -> str:
    """Return the SQL of a cell's text.

    Args:
        type_: of the column.
        name: of the column, quoted.
        group: what stands for the first group in a replacement.
    """
    kind = type_.kind
    if type_.native or kind in (Kind.TIME, Kind.JSON):
        return f"CAST({name} AS CHAR)"
    if kind is Kind.BIT and type_.length == 1:
        return f"CASE {name} + 0 WHEN 1 THEN 'true' WHEN 0 THEN 'false' END"
    if kind in _INTEGERS:
        # As a number it has no zeros in front, whatever ZEROFILL says.
        return f"CAST({name} + 0 AS CHAR)"
    if kind is Kind.DECIMAL:
        return f"REGEXP_REPLACE(CAST({name} AS CHAR), '^0+([0-9])', '{group}')"
    if kind in (Kind.FLOAT, Kind.DOUBLE):
        # No function shows the bytes of a number, but a point holds its place as they are, the lowest first.
        return f"LOWER(HEX(REVERSE(SUBSTRING(POINT({name}, 0), 10, 8))))"
    if kind is Kind.DATE:
        return f"DATEDIFF({name}, '1970-01-01')"
    if kind in (Kind.DATETIME, Kind.TIMESTAMP):
        return f"TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', {name})"
    if kind in (Kind.GEOMETRY, Kind.VECTOR) or type_.charset == BINARY:
        return f"LOWER(HEX({name}))"
    return f"CONVERT({name} USING utf8mb4)"


def _is_day(name: str) -> str:
    """Return the condition that a date is a day; where it is none the copy has null."""
    return f"YEAR({name}) > 0 AND DAY({name}) > 0 AND DAY({name}) <= DAY(LAST_DAY({name}))"


def _too_large(table: TableId, rows: int) -> SourceError:
    return SourceError(
        f"{counted(rows, 'row')} of {table} {be(rows)} larger as text than max_allowed_packet, "
        "so the server does not hash them.",
        next_step="raise it: SET GLOBAL max_allowed_packet = 1073741824; then compare again.",
    )


def _unreadable(table: TableId, reason: str) -> SourceError:
    return SourceError(
        f"The source does not let verify read {table} ({reason}).",
        next_step=f"check that {table} exists, that the user may select from it, and that nobody alters it meanwhile.",
    )

"""Chunk reads: bounded selects, each in a READ ONLY REPEATABLE READ transaction of its own.

Rows and ``pg_current_snapshot()`` come from one snapshot. The database alone orders and compares keys. After a select
the heap's identity in the snapshot is compared with the present one: an ALTER TABLE that wrote the table anew
between snapshot and select would make it look empty, so such a read is thrown away and made again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pyarrow as pa

from headrace.errors import ConfigError, SourceError, SourceUnavailable
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import TransactionSnapshot
from headrace.sources.base import Chunk, TableDump
from headrace.sources.postgres.catalog import (
    TableFacts,
    TypeCache,
    describe,
    estimate_rows,
    read_tables,
)
from headrace.sources.postgres.connection import QueryFailed, Session, connect, quote
from headrace.sources.postgres.publication import as_published
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.values import build_batch, render_text

__all__ = ["PostgresChunkReader"]

_T = TypeVar("_T")

_ATTEMPTS = 5
# Undefined column, table, schema, object; invalid cached plan: the table changed under the read.
_CHANGED = frozenset({"42703", "42P01", "3F000", "42704", "0A000"})
_BAD_LITERAL = "22"

_FIRST_FETCH_ROWS = 500
_MAX_FETCH_ROWS = 20_000
_FETCH_BYTES = 4 << 20

_REWRITTEN = """
SELECT count(*) FROM pg_class
 WHERE oid IN (SELECT relid FROM pg_partition_tree($1::oid::regclass) UNION ALL SELECT $1::oid)
   AND relfilenode <> 0 AND relfilenode IS DISTINCT FROM pg_relation_filenode(oid)
"""


class _Rewritten(Exception):
    """The table was written anew between snapshot and select."""


class PostgresChunkReader:
    """Reads chunks over one connection; opens it again when it was lost."""

    def __init__(self, settings: PostgresSettings, types: TypeCache) -> None:
        self._settings = settings
        self._types = types
        self._session: Session | None = None

    def describe(self, table: TableId) -> TableSchema:
        """Return the table's shape as the catalog has it now."""
        return self._once(table, lambda session, facts, _: describe(session, self._types, facts))

    def estimate_rows(self, table: TableId) -> int:
        """Return the catalog's estimate of the number of rows, 0 when unknown."""
        return self._once(table, lambda session, facts, _: estimate_rows(session, facts))

    def upper_bound(self, table: TableId) -> tuple[str, ...] | None:
        """Return the largest key as the database renders it, None for an empty table."""

        def read(
            session: Session, facts: TableFacts, _: TransactionSnapshot
        ) -> tuple[str, ...] | None:
            key = _key(facts)
            order = ", ".join(f"{quote(name)} DESC" for name in key)
            sql = f"SELECT {_names(key)} FROM {_relation(facts)} ORDER BY {order} LIMIT 1"
            rows = self._select(session, facts, sql)
            return _in_table_order(facts, rows[0]) if rows else None

        return self._once(table, read)

    def read(
        self, table: TableId, after: Sequence[str] | None, until: Sequence[str], limit: int
    ) -> Chunk:
        """Return at most ``limit`` rows with ``after < key <= until``, ordered by the database."""

        def read(session: Session, facts: TableFacts, seen: TransactionSnapshot) -> Chunk:
            schema = describe(session, self._types, facts)
            key = _key(facts)
            parameters = [*_in_index_order(facts, until)]
            where = f"ROW({_names(key)}) <= ROW({_casts(schema, key, 1)})"
            if after is not None:
                where += f" AND ROW({_names(key)}) > ROW({_casts(schema, key, 1 + len(key))})"
                parameters += _in_index_order(facts, after)
            sql = (
                f"SELECT {_names(schema.names)} FROM {_relation(facts)} WHERE {where} "
                f"ORDER BY {_names(key)} LIMIT {int(limit)}"
            )
            rows = self._select(session, facts, sql, *parameters)
            last = None
            if rows:
                last = tuple((rows[-1][i] or b"").decode() for i in schema.key_indexes)
            return Chunk(schema, _batch(schema, rows), seen, last)

        return self._once(table, read)

    def read_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> Chunk:
        """Return the rows of the given keys that exist; keys are in the order of the schema's key."""

        def read(session: Session, facts: TableFacts, seen: TransactionSnapshot) -> Chunk:
            schema = describe(session, self._types, facts)
            _key(facts)
            if any(len(key) != len(schema.key) for key in keys):
                raise ConfigError(
                    f"{table}: a key has {len(schema.key)} columns ({', '.join(schema.key)}).",
                    next_step="give each key with all its columns.",
                )
            columns = [_array(values) for values in zip(*keys, strict=True)]
            columns = columns or ["{}"] * len(schema.key)
            # Each key is cast by itself: an array of the key's type would flatten keys that are arrays.
            casts = ", ".join(
                f"k{n}::{schema.column(name).source_type}" for n, name in enumerate(schema.key)
            )
            arrays = ", ".join(f"${n}::text[]" for n in range(1, len(columns) + 1))
            names = ", ".join(f"k{n}" for n in range(len(columns)))
            sql = (
                f"SELECT {_names(schema.names)} FROM {_relation(facts)} WHERE "
                f"({_names(schema.key)}) IN "
                f"(SELECT {casts} FROM unnest({arrays}) AS k ({names}))"
            )
            rows = self._select(session, facts, sql, *columns)
            # Under a collation that calls different texts equal, two given keys may find one row.
            unique = {tuple(row[i] for i in schema.key_indexes): row for row in rows}
            return Chunk(schema, _batch(schema, list(unique.values())), seen, None)

        return self._once(table, read)

    def read_table(self, table: TableId) -> TableDump:
        """Return every row of a table under one snapshot, in bounded batches."""

        def opened(session: Session, facts: TableFacts, seen: TransactionSnapshot) -> TableDump:
            schema = describe(session, self._types, facts)
            session.run(
                f"DECLARE headrace_dump NO SCROLL CURSOR FOR "
                f"SELECT {_names(schema.names)} FROM {_relation(facts)}"
            )
            # The open cursor holds its own lock from here on: nothing rewrites the table any more.
            _refuse_rewritten(session, facts)
            return TableDump(schema, seen, self._fetch(session, schema))

        return self._attempts(table, opened, keep_open=True)

    def snapshot(self) -> TransactionSnapshot:
        """Return what a read would see now."""
        session = self._connected()
        return TransactionSnapshot.parse(session.value("SELECT pg_current_snapshot()"))

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as the database would render it, for `read_keys`."""
        columns = [render_text(rows.column(name)) for name in schema.key]
        return list(zip(*columns, strict=True))

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    # -- transactions ---------------------------------------------------------------------------

    def _connected(self) -> Session:
        """Return a usable connection outside any transaction."""
        if self._session is not None and not self._session.usable:
            self.close()
        if self._session is None:
            self._session = connect(self._settings)
        elif self._session.in_transaction:  # a dump that nobody read to its end
            self._session.run("ROLLBACK")
        return self._session

    def _once(
        self, table: TableId, read: Callable[[Session, TableFacts, TransactionSnapshot], _T]
    ) -> _T:
        return self._attempts(table, read, keep_open=False)

    def _attempts(
        self,
        table: TableId,
        read: Callable[[Session, TableFacts, TransactionSnapshot], _T],
        *,
        keep_open: bool,
    ) -> _T:
        """Run ``read`` in a fresh snapshot, again when the table changed under it."""
        for _ in range(_ATTEMPTS):
            session = self._connected()
            try:
                session.run("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
                seen = TransactionSnapshot.parse(session.value("SELECT pg_current_snapshot()"))
                outcome = read(session, self._facts(session, table), seen)
                if not keep_open:
                    session.run("COMMIT")
                return outcome
            except _Rewritten:
                continue
            except QueryFailed as error:
                if error.sqlstate not in _CHANGED:
                    raise _refused(table, error) from error
            except SourceUnavailable:
                self.close()
                raise
        raise SourceUnavailable(
            f"{table} changed its shape under {_ATTEMPTS} reads in a row.",
            next_step="nothing to do when a migration is running; it is tried again.",
        )

    def _facts(self, session: Session, table: TableId) -> TableFacts:
        facts = read_tables(session, only=table)
        if not facts:
            raise SourceError(
                f"{table} does not exist at the source.",
                next_step="exclude it, or create it again and dump it.",
            )
        return as_published(session, self._settings, facts[0])

    def _select(
        self, session: Session, facts: TableFacts, sql: str, *parameters: str
    ) -> list[list[bytes | None]]:
        rows = session.cells(sql, *parameters)
        _refuse_rewritten(session, facts)
        return rows

    def _fetch(self, session: Session, schema: TableSchema) -> Iterator[pa.RecordBatch]:
        """Yield the cursor's rows; each fetch is sized by the width of the rows before it."""
        limit = _FIRST_FETCH_ROWS
        try:
            while rows := session.cells(f"FETCH {limit} FROM headrace_dump"):
                size = sum(len(cell) for row in rows for cell in row if cell is not None)
                yield _batch(schema, rows)
                limit = max(1, min(_MAX_FETCH_ROWS, _FETCH_BYTES * len(rows) // max(size, 1)))
        finally:
            with contextlib.suppress(SourceUnavailable):
                if session.usable and session.in_transaction:
                    session.run("ROLLBACK")


def _refuse_rewritten(session: Session, facts: TableFacts) -> None:
    if session.value(_REWRITTEN, str(facts.oid)) != "0":
        raise _Rewritten


def _refused(table: TableId, error: QueryFailed) -> Exception:
    if error.sqlstate.startswith(_BAD_LITERAL):
        return ConfigError(
            f"{table}: a given key is not a value of its column's type ({error.sqlstate}).",
            next_step="write keys as the database renders them.",
        )
    return SourceError(
        f"{table} cannot be read: {error.message}",
        next_step="run `headrace preflight FILE`, which lists what is missing.",
    )


def _batch(schema: TableSchema, rows: Sequence[Sequence[bytes | None]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(build_batch(schema, rows), schema=table_arrow_schema(schema))


# -- SQL parts -------------------------------------------------------------------------------------


def _key(facts: TableFacts) -> tuple[str, ...]:
    """Return the key in index order, which is the order that an index serves."""
    if not facts.identity.key:
        raise SourceError(
            f"{facts.table} has no key, so it has no chunks.",
            next_step="it is dumped whole under one snapshot instead.",
        )
    return facts.identity.key


def _table_ordered_key(facts: TableFacts) -> list[str]:
    return [a.name for a in facts.published if a.name in facts.identity.key]


def _in_index_order(facts: TableFacts, key: Sequence[str]) -> list[str]:
    by_name = dict(zip(_table_ordered_key(facts), key, strict=True))
    return [by_name[name] for name in facts.identity.key]


def _in_table_order(facts: TableFacts, cells: Sequence[bytes | None]) -> tuple[str, ...]:
    by_name = dict(zip(facts.identity.key, cells, strict=True))
    return tuple((by_name[name] or b"").decode() for name in _table_ordered_key(facts))


def _relation(facts: TableFacts) -> str:
    """Return the table without tables that inherit from it: their rows travel under their own names."""
    name = f"{quote(facts.table.schema)}.{quote(facts.table.name)}"
    return name if facts.partitioned else f"ONLY {name}"


def _names(names: Sequence[str]) -> str:
    return ", ".join(quote(name) for name in names)


def _casts(schema: TableSchema, key: Sequence[str], first: int) -> str:
    return ", ".join(
        f"${number}::{schema.column(name).source_type}" for number, name in enumerate(key, first)
    )


def _array(values: Sequence[str]) -> str:
    """Return texts as an array literal."""
    quoted = ('"' + v.replace("\\", "\\\\").replace('"', '\\"') + '"' for v in values)
    return "{" + ",".join(quoted) + "}"

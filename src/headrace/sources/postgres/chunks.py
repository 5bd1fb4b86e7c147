"""Chunk reads: bounded selects, each in a READ ONLY REPEATABLE READ transaction of its own.

Rows and ``pg_current_snapshot()`` come from one snapshot. The database alone orders and compares keys. A select takes
the table as it is by then, whatever its snapshot. So after it, heap and columns in the snapshot are compared with
the present ones: an ALTER TABLE that wrote the table anew in between would make it look empty, and one that dropped or
renamed columns would give a name to other values. Such a read is thrown away and made again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa

from headrace.errors import (
    ConfigError,
    HeadraceError,
    ProtocolError,
    SourceError,
    SourceUnavailable,
    UndecodableValue,
)
from headrace.fold.form import refuse_taken
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import TransactionSnapshot
from headrace.sources.base import Bound, CanonicalKeys, CatalogEntry, CatalogLook, Chunk, TableDump
from headrace.sources.key_columns import in_index_order
from headrace.sources.postgres.catalog import (
    TableFacts,
    TypeCache,
    describe,
    estimate_rows,
    read_tables,
)
from headrace.sources.postgres.catalog_look import CatalogWatch, Seen
from headrace.sources.postgres.connection import QueryFailed, Session, connect, quote
from headrace.sources.postgres.copy_binary import HEADER, TRAILER, decode_copy, selected_columns
from headrace.sources.postgres.copy_stream import copy_out
from headrace.sources.postgres.keyset import Keyset, read_keyset, relation_sql
from headrace.sources.postgres.plan import check_plan
from headrace.sources.postgres.publication import as_published
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.values import build_batch, render_text
from headrace.sources.taken import LEFT_OUT

__all__ = ["PostgresChunkReader"]

_LOG = logging.getLogger(__name__)

_T = TypeVar("_T")

_ATTEMPTS = 5
_LOCK_TIMEOUT_MS = 2_000
"""A table may be locked for days, by a transaction that is only prepared; while a read waits for its lock no other
read is made, and nobody who pauses or cancels is heard."""
# Undefined column, table, schema, object, function; invalid cached plan: the table changed under the read.
_CHANGED = frozenset({"42703", "42P01", "3F000", "42704", "42883", "0A000"})
_BAD_LITERAL = "22"

_BATCH_BYTES = 4 << 20
# Rows that are decoded at once; the socket holds about as much meanwhile.
_PIECE_BYTES = 256 << 10
_NO_ROWS = HEADER + TRAILER

# How many heaps of the table were written anew since the snapshot, and how many of its columns are no more what they
# were called. Functions look at the present catalog, tables of the catalog at the snapshot's.
_STORAGE = """
SELECT count(*) FILTER (
           WHERE relfilenode <> 0 AND relfilenode IS DISTINCT FROM pg_relation_filenode(oid))
       + (SELECT count(*)
            FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE c.oid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
             AND (pg_identify_object('pg_class'::regclass, c.oid, a.attnum)).identity IS DISTINCT FROM
                 concat_ws('.', quote_ident(n.nspname), quote_ident(c.relname), quote_ident(a.attname)))
  FROM pg_class
 WHERE oid IN (SELECT relid FROM pg_partition_tree($1::oid::regclass) UNION ALL SELECT $1::oid)
"""


class _Rewritten(Exception):
    """The table was written anew between snapshot and select, or its columns are others."""


class PostgresChunkReader:
    """Reads chunks over one connection; opens it again when it was lost.

    Args:
        settings: what to read.
        types: shared with the stream.
        seen: what looks at the catalog tell the stream.
        watch: makes the looks; as the publication has the tables when None.
        names_taken: what to do about a column that has a name of ours.
    """

    def __init__(
        self,
        settings: PostgresSettings,
        types: TypeCache,
        seen: Seen | None = None,
        watch: CatalogWatch | None = None,
        names_taken: str = LEFT_OUT,
    ) -> None:
        self._settings = settings
        self._names_taken = names_taken
        self._types = types
        self._session: Session | None = None
        self._keysets: dict[int, Keyset] = {}
        self._fitting: dict[TableId, int] = {}
        self._watch = watch or CatalogWatch(settings, seen)

    def look(
        self,
        known: Mapping[str, CatalogEntry],
        settled: Collection[TableId],
        admitted: Collection[str],
    ) -> CatalogLook:
        """Compare the catalog with what was known of it; see `headrace.sources.base.CatalogReader`."""
        try:
            return self._watch.look(self._connected(), known, settled, admitted)
        except QueryFailed as error:
            raise SourceError(
                f"The catalog cannot be read: {error.message}",
                next_step="run `headrace preflight FILE`, which lists what is missing.",
            ) from error

    def describe(self, table: TableId) -> TableSchema:
        """Return the table's shape as the catalog has it now."""
        return self._once(table, lambda session, facts, _: self._described(session, facts))

    def estimate_rows(self, table: TableId) -> int:
        """Return the catalog's estimate of the number of rows, 0 when unknown."""
        return self._once(table, lambda session, facts, _: estimate_rows(session, facts))

    def upper_bound(self, table: TableId, predicate: str | None = None) -> Bound:
        """Return the largest key, and by which order it is the largest; both of one snapshot.

        A dump begins with it, so this is where the plan of its chunks is looked at.
        """

        def read(session: Session, facts: TableFacts, _: TransactionSnapshot) -> Bound:
            keyset = self._keyset(session, facts)
            rows = session.cells(keyset.last(relation_sql(facts), predicate))
            self._refuse_changed(session, facts)
            if not rows:
                return Bound(None, keyset.order)
            if finding := check_plan(session, self._types, facts):
                _LOG.warning("%s Next step: %s", finding.description, finding.suggestion)
            last = _in_table_order(facts, [(cell or b"").decode() for cell in rows[0]])
            return Bound(last, keyset.order)

        return self._once(table, read, predicate)

    def read(
        self,
        table: TableId,
        after: Sequence[str] | None,
        until: Sequence[str],
        limit: int,
        predicate: str | None = None,
    ) -> Chunk:
        """Return at most ``limit`` rows with ``after < key <= until``, ordered by the database.

        A chunk that reaches `PostgresSettings.chunk_bytes` ends with the piece that does; the next ones ask for fewer
        rows.
        """

        def read(session: Session, facts: TableFacts, seen: TransactionSnapshot) -> Chunk:
            schema = self._described(session, facts)
            wanted = max(1, min(limit, self._fitting.get(table, limit)))
            keyset = self._keyset(session, facts)
            sql = keyset.page(
                relation_sql(facts),
                selected_columns(schema),
                None if after is None else _in_index_order(facts, after),
                _in_index_order(facts, until),
                wanted,
                predicate,
            )
            if predicate:
                # A condition that would end COPY's parentheses makes no select of its own.
                session.result(f"EXPLAIN {sql}", single=True)
            try:
                rows, size, cut = _decoded(session, sql, schema, self._settings.chunk_bytes)
            except (ProtocolError, UndecodableValue):
                # What does not read as the column that was described may be another one's.
                self._refuse_changed(session, facts)
                raise
            self._refuse_changed(session, facts)
            if rows.num_rows:
                width = max(1, size // rows.num_rows)
                self._fitting[table] = self._settings.chunk_bytes // width
            cut = cut or rows.num_rows == wanted < limit
            last = self.render_keys(schema, rows.slice(rows.num_rows - 1)) if rows.num_rows else []
            return Chunk(schema, rows, seen, last[0] if last else None, cut, keyset.order)

        return self._once(table, read, predicate)

    def read_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> Chunk:
        """Return the rows of the given keys that exist; keys are in the order of the schema's key."""

        def read(session: Session, facts: TableFacts, seen: TransactionSnapshot) -> Chunk:
            schema = self._described(session, facts)
            keyset = self._keyset(session, facts)
            sql = keyset.match(
                relation_sql(facts),
                selected_columns(schema),
                [_in_index_order(facts, key) for key in keys],
            )
            data = b"".join(copy_out(session, _copy(sql), self._settings.chunk_bytes))
            self._refuse_changed(session, facts)
            return Chunk(schema, decode_copy(data, schema), seen, None, key_order=keyset.order)

        return self._once(table, read)

    def canonical_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> CanonicalKeys:
        """Return keys that people wrote as the database has them, each once, in the order given."""

        def read(session: Session, facts: TableFacts, _: TransactionSnapshot) -> CanonicalKeys:
            keyset = self._keyset(session, facts)
            wanted = [_in_index_order(facts, key) for key in keys]
            rows = session.cells(keyset.render(relation_sql(facts), wanted))
            texts = ([(cell or b"").decode() for cell in row] for row in rows)
            found = dict.fromkeys(_in_table_order(facts, key) for key in texts)
            return CanonicalKeys(tuple(found), keyset.order)

        return self._once(table, read)

    def key_rows(self, schema: TableSchema, keys: Sequence[Sequence[str]]) -> pa.RecordBatch:
        """Return a row for each rendered key, all other columns null."""
        cells: list[list[bytes | None]] = [[None] * len(schema.columns) for _ in keys]
        for row, key in zip(cells, keys, strict=True):
            for index, value in zip(schema.key_indexes, key, strict=True):
                row[index] = value.encode()
        return pa.RecordBatch.from_arrays(
            build_batch(schema, cells), schema=table_arrow_schema(schema)
        )

    def read_table(self, table: TableId) -> TableDump:
        """Return every row of a table under one snapshot, in bounded batches."""

        def opened(session: Session, facts: TableFacts, seen: TransactionSnapshot) -> TableDump:
            schema = self._described(session, facts)
            # An empty select takes the lock of the one that follows: nothing rewrites the table any more.
            session.run(f"SELECT FROM {relation_sql(facts)} LIMIT 0")
            self._refuse_changed(session, facts)
            wanted = ", ".join(expression for _, expression in selected_columns(schema))
            sql = f"SELECT {wanted} FROM {relation_sql(facts)}"
            return TableDump(schema, seen, self._batches(session, schema, sql))

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
        # A transaction that is still open is of a dump that nobody read to its end.
        if self._session is not None and (not self._session.usable or self._session.in_transaction):
            self.close()
        if self._session is None:
            self._session = connect(self._settings)
            self._session.run(f"SET lock_timeout = {_LOCK_TIMEOUT_MS}")
        return self._session

    def _once(
        self,
        table: TableId,
        read: Callable[[Session, TableFacts, TransactionSnapshot], _T],
        predicate: str | None = None,
    ) -> _T:
        return self._attempts(table, read, keep_open=False, predicate=predicate)

    def _attempts(
        self,
        table: TableId,
        read: Callable[[Session, TableFacts, TransactionSnapshot], _T],
        *,
        keep_open: bool,
        predicate: str | None = None,
    ) -> _T:
        """Run ``read`` in a fresh snapshot, again when the table changed under it."""
        refused: QueryFailed | None = None
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
                refused = error
                if error.sqlstate not in _CHANGED:
                    raise _refused(table, error, predicate) from error
                self._keysets.clear()  # Operators and collations may have been renamed.
            except SourceUnavailable:
                self.close()
                raise
        if predicate and refused is not None:
            # What is missing is missing from the condition, not from a table on the move.
            raise _refused(table, refused, predicate) from refused
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

    def _described(self, session: Session, facts: TableFacts) -> TableSchema:
        """Return a table's shape.

        Raises:
            IncompatibleSchemaChange: a column has a name that changes need for themselves.
        """
        schema = describe(session, self._types, facts)
        refuse_taken(schema, self._names_taken)
        return schema

    def _keyset(self, session: Session, facts: TableFacts) -> Keyset:
        """Return the key's columns; an index keeps them for life, so they are asked for once under their names."""
        index = facts.identity.index
        if not index:
            # Bounds of a key that was dropped meanwhile are no keys any more: the dump asks for the shape anew.
            raise ConfigError(
                f"{facts.table} has no key, so no rows of it can be read by key.",
                next_step="ask for the whole table.",
            )
        keyset = self._keysets.get(index)
        # Two columns may have exchanged their names: those of before are then no error, but another column.
        if keyset is None or [c.name for c in keyset.columns] != [*map(quote, facts.identity.key)]:
            keyset = self._keysets[index] = read_keyset(session, index)
        return keyset

    def _refuse_changed(self, session: Session, facts: TableFacts) -> None:
        """Throw the read away when heap or columns are others."""
        if session.value(_STORAGE, str(facts.oid)) != "0":
            raise _Rewritten

    def _batches(self, session: Session, schema: TableSchema, sql: str) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a select, then end the transaction."""
        for data in _pieces(session, sql, _BATCH_BYTES):
            yield decode_copy(data, schema)
        session.run("COMMIT")


def _refused(table: TableId, error: QueryFailed, predicate: str | None = None) -> Exception:
    if predicate:
        return SourceError(
            f"{table} cannot be read under the given condition: {error.message}",
            next_step="correct the condition, an SQL expression over the table's columns, and ask again.",
        )
    if error.sqlstate.startswith(_BAD_LITERAL):
        return ConfigError(
            f"{table}: a given key is not a value of its column's type ({error.sqlstate}).",
            next_step="write keys as the database renders them.",
        )
    return SourceError(
        f"{table} cannot be read: {error.message}",
        next_step="run `headrace preflight FILE`, which lists what is missing.",
    )


def _copy(sql: str) -> str:
    return f"COPY ({sql}) TO STDOUT (FORMAT binary)"


def _pieces(session: Session, sql: str, limit: int) -> Iterator[bytearray]:
    """Yield the rows of a select as binary COPY that ends with the row that reaches ``limit`` bytes; at least one."""
    held: bytearray | None = None
    for piece in copy_out(session, _copy(sql), limit, HEADER):
        if held is not None:
            held += TRAILER
            if piece == _NO_ROWS:
                continue
            yield held
        held = piece
    if held is not None:
        yield held


def _decoded(
    session: Session, sql: str, schema: TableSchema, limit: int
) -> tuple[pa.RecordBatch, int, bool]:
    """Return a select's rows up to about ``limit`` bytes, their size, and whether there are more.

    The first rows are decoded while the server is still at the next ones.

    Raises:
        ProtocolError: a cell does not read as its column is described; the connection is free again.
        UndecodableValue: likewise.
    """
    batches: list[pa.RecordBatch] = []
    size, cut = 0, False
    failed: HeadraceError | None = None
    for piece in _pieces(session, sql, min(_PIECE_BYTES, limit)):
        if size >= limit or failed is not None:
            # What is beyond is let go: the connection must be free again.
            cut = True
            continue
        try:
            batches.append(decode_copy(piece, schema))
        except (ProtocolError, UndecodableValue) as error:
            failed = error
        size += len(piece)
    if failed is not None:
        raise failed
    return pa.concat_batches(batches), size, cut


# -- order of key columns --------------------------------------------------------------------------


def _table_ordered_key(facts: TableFacts) -> list[str]:
    return [a.name for a in facts.published if a.name in facts.identity.key]


def _in_index_order(facts: TableFacts, key: Sequence[str]) -> list[str]:
    return in_index_order(facts.table, _table_ordered_key(facts), facts.identity.key, key)


def _in_table_order(facts: TableFacts, key: Sequence[str]) -> tuple[str, ...]:
    by_name = dict(zip(facts.identity.key, key, strict=True))
    return tuple(by_name[name] for name in _table_ordered_key(facts))

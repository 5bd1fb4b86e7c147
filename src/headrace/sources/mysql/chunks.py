"""Chunk reads: bounded selects, each in a consistent snapshot of its own of which is known what it has seen.

The database alone orders and compares keys. A select takes a table as it is by then, whatever its snapshot: where it
changed its shape, the server may refuse it, or give rows of other columns, or of another table of that name. So after
it the table's description is compared with the one that it was made by, and the read is made again where they differ.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import pyarrow as pa

from headrace.errors import (
    ConfigError,
    ProtocolError,
    SourceError,
    SourceUnavailable,
    UndecodableValue,
)
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import Visibility
from headrace.sources.base import Bound, CanonicalKeys, Chunk, TableDump
from headrace.sources.key_columns import in_index_order
from headrace.sources.mysql.catalog import TableFacts, facts_schema, read_collations, read_table
from headrace.sources.mysql.charsets import Collations
from headrace.sources.mysql.connection import (
    Cells,
    QueryFailed,
    Session,
    connect,
    quote,
    quote_literal,
)
from headrace.sources.mysql.dump import stretch
from headrace.sources.mysql.engine import make_engine
from headrace.sources.mysql.keyset import keyset_of, table_sql
from headrace.sources.mysql.known import KnownTables
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.position import Resume
from headrace.sources.mysql.rendering import key_texts, row_of_keys
from headrace.sources.mysql.results import batch_of, select
from headrace.sources.mysql.settings import MysqlSettings, ZeroDates
from headrace.sources.mysql.texts import column_of_texts, selected
from headrace.sources.mysql.vendors import vendor_of

__all__ = ["MysqlChunkReader", "rows_batch"]

_T = TypeVar("_T")

_ATTEMPTS = 5
_KEYS_AT_ONCE = 50
# The table's shape changed after the snapshot; unknown column; no such table.
_CHANGED = frozenset({1412, 1054, 1146})

_ESTIMATE = (
    "SELECT table_rows FROM information_schema.tables WHERE table_schema = {} AND table_name = {}"
)


class MysqlChunkReader:
    """Reads chunks over one connection; opens it again when it was lost.

    Args:
        settings: of the source.
        chunk_bytes: a chunk ends soon after the row that reaches this size, however many rows were asked for.
        numbers: of transactions whose ids are none; None where nobody asks what a chunk has seen of the log.
        read: tells how far the log was read by now; None likewise.
    """

    def __init__(
        self,
        settings: MysqlSettings,
        chunk_bytes: int = 16 << 20,
        numbers: GtidNumbers | None = None,
        read: Callable[[], Resume] | None = None,
    ) -> None:
        self._settings = settings
        self._engine = make_engine()
        self._numbers = numbers
        self._read = read
        self._chunk_bytes = chunk_bytes
        self._session: Session | None = None
        self._collations = Collations()
        self._tables = KnownTables()
        self._fitting: dict[TableId, int] = {}

    def describe(self, table: TableId) -> TableSchema:
        """Return the table's shape as the catalog has it now."""
        return self._once(table, lambda _, facts, __: facts_schema(facts))

    def estimate_rows(self, table: TableId) -> int:
        """Return the catalog's estimate of the number of rows, 0 when unknown."""

        def read(session: Session, facts: TableFacts, _: Visibility) -> int:
            names = [quote_literal(part) for part in facts.table]
            return int(session.value(_ESTIMATE.format(*names)) or 0)

        return self._once(table, read)

    def upper_bound(self, table: TableId, predicate: str | None = None) -> Bound:
        """Return the largest key, and by which order it is the largest; both of one moment."""

        def read(session: Session, facts: TableFacts, _: Visibility) -> Bound:
            keyset = keyset_of(facts)
            rows = session.rows(keyset.last(predicate))
            key = self._rendered(facts, rows)[0] if rows else None
            return Bound(key, keyset.order)

        return self._once(table, read, predicate)

    def read(
        self,
        table: TableId,
        after: Sequence[str] | None,
        until: Sequence[str],
        limit: int,
        predicate: str | None = None,
    ) -> Chunk:
        """Return at most ``limit`` rows with ``after < key <= until``, ordered by the database."""

        def read(session: Session, facts: TableFacts, seen: Visibility) -> Chunk:
            schema = facts_schema(facts)
            wanted = max(1, min(limit, self._fitting.get(table, limit)))
            keyset = keyset_of(facts)
            sql = keyset.page(
                _wanted(facts),
                None if after is None else _in_index_order(facts, after),
                _in_index_order(facts, until),
                wanted,
                predicate,
            )
            # What is beyond the first batch is let go when the select is closed.
            with contextlib.closing(self._select(session, facts, schema, sql)) as batches:
                rows, cut = next(batches, (None, False))
            if rows is None:
                rows = rows_batch(facts, schema, [], self._settings.zero_dates)
            if rows.num_rows:
                width = max(1, rows.nbytes // rows.num_rows)
                self._fitting[table] = self._chunk_bytes // width
            cut = cut or rows.num_rows == wanted < limit
            last = key_texts(schema, rows.slice(rows.num_rows - 1)) if rows.num_rows else []
            return Chunk(schema, rows, seen, last[0] if last else None, cut, keyset.order)

        return self._once(table, read, predicate)

    def read_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> Chunk:
        """Return the rows of the given keys that exist; keys are in the order of the schema's key."""

        def read(session: Session, facts: TableFacts, seen: Visibility) -> Chunk:
            schema = facts_schema(facts)
            ordered = [_in_index_order(facts, key) for key in keys]
            keyset = keyset_of(facts)
            rows = session.rows(keyset.match(_wanted(facts), ordered))
            batch = rows_batch(facts, schema, rows, self._settings.zero_dates)
            return Chunk(schema, batch, seen, None, key_order=keyset.order)

        return self._once(table, read)

    def canonical_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> CanonicalKeys:
        """Return keys that people wrote, each once, in the order given.

        As their rows have them, which a collation may not tell from what was written, or else as the database renders
        them.
        """

        def read(session: Session, facts: TableFacts, _: Visibility) -> CanonicalKeys:
            schema = facts_schema(facts)
            keyset = keyset_of(facts)
            found = key_texts(schema, row_of_keys(schema, keys))
            for start in range(0, len(found), _KEYS_AT_ONCE):
                asked = [
                    _in_index_order(facts, key) for key in found[start : start + _KEYS_AT_ONCE]
                ]
                rows = session.rows(keyset.spelled(asked))
                places = [start + int(row[0] or 0) for row in rows]
                for place, key in zip(
                    places, self._rendered(facts, [r[1:] for r in rows]), strict=True
                ):
                    found[place] = key
            return CanonicalKeys(tuple(dict.fromkeys(found)), keyset.order)

        return self._once(table, read)

    def _rendered(
        self, facts: TableFacts, keys: Sequence[Sequence[bytes | None]]
    ) -> list[tuple[str, ...]]:
        """Return keys that were selected in index order as texts, in the order of the schema's key."""
        # As rows of which only the key is known, so that every key is rendered in one way.
        schema = facts_schema(facts)
        rows = []
        for key in keys:
            cells = dict(zip(facts.key, key, strict=True))
            rows.append(tuple(cells.get(column.name) for column in facts.columns))
        return key_texts(schema, rows_batch(facts, schema, rows, self._settings.zero_dates))

    def key_rows(self, schema: TableSchema, keys: Sequence[Sequence[str]]) -> pa.RecordBatch:
        """Return a row for each rendered key, all other columns null."""
        return row_of_keys(schema, keys)

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as the database would render it."""
        return key_texts(schema, rows)

    def read_table(self, table: TableId) -> TableDump:
        """Return every row of a table under one snapshot, which stays open until the batches end."""
        session, collations = self.connected()
        held = contextlib.ExitStack()
        seen = held.enter_context(self.whole(session))
        try:
            # From here on nobody alters it until the snapshot ends.
            session.rows(f"SELECT 1 FROM {table_sql(table)} LIMIT 0")
            facts = _known(read_table(session, table, collations), table)
            schema = facts_schema(facts)
        except QueryFailed as error:
            self.close()
            raise _refused(table, error) from error
        except BaseException:
            self.close()
            raise

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                sql = f"SELECT {_wanted(facts)} FROM {table_sql(table)}"
                for batch, _ in self._select(session, facts, schema, sql):
                    yield batch
            except QueryFailed as error:
                raise _refused(table, error) from error
            finally:
                # Rows may be left on the connection when not all were taken.
                self.close()
                held.close()

        return TableDump(schema, seen, batches())

    def snapshot(self) -> Visibility:
        """Return what a read would see now."""
        session, _ = self.connected()
        try:
            with self.seeing(session) as seen:
                return seen
        except SourceUnavailable:
            self.close()
            raise

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    # -- what a read sees -------------------------------------------------------------------------

    def seeing(self, session: Session) -> AbstractContextManager[Visibility]:
        """Open a snapshot in a read-only transaction of its own; it knows what it has surely seen."""
        # Asked first: what is read while the snapshot is made says nothing of it.
        read = None if self._read is None else self._read()
        return vendor_of(session).snapshot(session, self._numbers, read)

    def whole(self, session: Session) -> AbstractContextManager[Visibility]:
        """Open a snapshot likewise for a table without a key.

        Raises:
            SourceError: of such a table nobody can say what was seen.
        """
        log = functools.partial(stretch, self._settings)
        return vendor_of(session).whole(session, log, self._numbers)

    # -- machinery --------------------------------------------------------------------------------

    def connected(self) -> tuple[Session, Collations]:
        """Return the connection, made anew where it was lost, and the collations of the server."""
        if self._session is None or not self._session.open:
            self._session = connect(self._settings, patient=True)
            self._session.widen()
            self._collations = read_collations(self._session)
            self._tables = KnownTables()
        return self._session, self._collations

    def _once(
        self,
        table: TableId,
        read: Callable[[Session, TableFacts, Visibility], _T],
        predicate: str | None = None,
    ) -> _T:
        """Read in a snapshot of its own; again, when the table's shape changed behind it, or before it was read."""
        for attempt in range(1, _ATTEMPTS + 1):
            session, collations = self.connected()
            tables = self._tables
            try:
                with self.seeing(session) as seen:
                    facts = _known(tables.read(session, table, collations), table)
                    found = read(session, facts, seen)
                    # Only now: behind its select nobody alters a table until the snapshot ends.
                    if tables.holds(session, table):
                        return found
            except QueryFailed as error:
                tables.forget(table)
                if error.code not in _CHANGED or predicate or attempt == _ATTEMPTS:
                    raise _refused(table, error, predicate) from error
            except (ConfigError, ProtocolError, UndecodableValue):
                # What does not go with the table that was known may go with the one that is there by now.
                if tables.holds(self.connected()[0], table):
                    raise
            except SourceUnavailable:
                self.close()
                raise
        raise SourceUnavailable(
            f"{table} was altered each time that it was read.",
            next_step="nothing: it is read again.",
        )

    def _select(
        self, session: Session, facts: TableFacts, schema: TableSchema, sql: str
    ) -> Generator[tuple[pa.RecordBatch, bool], None, None]:
        zero_dates, most = self._settings.zero_dates, self._chunk_bytes
        return select(session, sql, self._engine, facts, schema, zero_dates, most)


def rows_batch(
    facts: TableFacts, schema: TableSchema, rows: Sequence[Cells], zero_dates: ZeroDates
) -> pa.RecordBatch:
    """Return rows of a select as the columns that the log would have.

    Args:
        facts: the table as the catalog had it for the select.
        schema: its shape.
        rows: cells as the server rendered them, each column selected by `selected`.
        zero_dates: what becomes of a date that is no day.

    Raises:
        UndecodableValue: names table and column, never the value.
    """
    columns = list(zip(*rows, strict=True)) or [()] * len(facts.columns)

    def column(place: int) -> pa.Array:
        type_ = facts.columns[place].type
        assert type_ is not None
        return column_of_texts(type_, pa.array(columns[place], pa.binary()), zero_dates)

    return batch_of(facts, schema, column)


def _wanted(facts: TableFacts) -> str:
    return ", ".join(
        selected(column.type, quote(column.name))
        for column in facts.columns
        if column.type is not None
    )


def _known(facts: TableFacts | None, table: TableId) -> TableFacts:
    if facts is None:
        raise SourceError(
            f"There is no table {table}.",
            next_step="exclude it, or give us the right to read it.",
        )
    return facts


def _refused(table: TableId, error: QueryFailed, predicate: str | None = None) -> SourceError:
    if predicate:
        return SourceError(
            f"{table} cannot be read under the given condition: {error.message}",
            next_step="correct the condition, an SQL expression over the table's columns, and ask again.",
        )
    return SourceError(
        f"{table} cannot be read: {error.message}",
        next_step="run `headrace preflight FILE`, which lists what is missing.",
    )


# -- order of key columns --------------------------------------------------------------------------


def _table_ordered(facts: TableFacts) -> list[str]:
    return [column.name for column in facts.columns if column.name in facts.key]


def _in_index_order(facts: TableFacts, key: Sequence[str]) -> list[str]:
    return in_index_order(facts.table, _table_ordered(facts), facts.key, key)

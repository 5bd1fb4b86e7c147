"""Changes into tables of a database: PostgreSQL, MySQL or MariaDB, a DuckDB file, or an SQLite file.

Rows and place become durable in one transaction, so each change counts exactly once, whatever crashes. The statements
are `headrace.lake.sql`'s, and so are the rules: changes are folded first, keys that move take their cells along, and
tables without a key are right too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import pyarrow as pa

from headrace.client import Batch, Consumer, Result
from headrace.fold import fold, promote
from headrace.lake.sql.session import Session, Warehouse, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.block import SystemEvent, SystemKind
from headrace.model.schema import TableId, TableSchema
from headrace.outputs.place_table import Held, PlaceTable
from headrace.wire.place import Place

__all__ = ["SqlOutput"]

_Work: TypeAlias = tuple[TableSchema, pa.Table]
"""A version of a table, and what happens to its keys."""


@dataclass(slots=True)
class _Waiting:
    """What came for one table since the last checkpoint, in its order."""

    batches: list[tuple[TableSchema, pa.RecordBatch]] = field(default_factory=list)
    truncates: list[tuple[int, int]] = field(default_factory=list)


class SqlOutput(Consumer):
    """Keeps a copy of each table, and its own place beside them.

    A subscription takes it as checkpoints too::

        output = SqlOutput(PostgresWarehouse("postgresql://…"), "copy-of-shop")
        Subscription(relay, "shop", output, output).run()

    What comes again is known by its SCN and left out, table by table: an older state never overwrites a newer one,
    after a rewind neither. Whatever lies between two checkpoints is held in memory and written at once, so
    ``checkpoint_every`` or ``merge_windows`` of the subscription decides how large a transaction is.

    Until the dump of a table is complete, a change of a row that is not there yet is left out: the chunk of the dump
    brings the whole row. From then on it is `MissingBase`.

    When no relay holds the place any more and the subscription begins anew (``on_lost``), the tables are emptied with
    the new place, and filled by the dump: nobody tells which rows were deleted meanwhile.

    Args:
        warehouse: `PostgresWarehouse`, `MysqlWarehouse`, `DuckdbWarehouse` or `SqliteWarehouse` of `headrace.lake.sql`.
        name: of this consumer, unlike that of any other that writes there.
    """

    def __init__(self, warehouse: Warehouse, name: str) -> None:
        self._warehouse = warehouse
        self._tables = WarehouseTables(warehouse, name)
        self._places = PlaceTable(warehouse.dialect, name)
        stage = f"stage{hashlib.sha256(name.encode()).hexdigest()[:12]}"
        # Staging tables of PostgreSQL lie in our schema, those of a file in the session.
        self._stage = f"headrace.{stage}" if warehouse.dialect.keeps_keys else stage
        self._waiting: dict[TableId, _Waiting] = {}
        self._held = Held(None, frozenset())
        self._complete: set[str] = set()
        self._anew = False
        # What was stored last; None behind a rollback.
        self._placed: Place | None = None

    # -- the place, as checkpoints ----------------------------------------------------------------

    def load(self) -> Place | None:
        """Return the place in the database, None when it has none yet.

        Raises:
            TargetError: the database does not answer.
        """
        with told(self._warehouse), self._warehouse.opened(read_only=True) as session:
            self._remember(self._places.read(session))
        return self._held.place

    def store(self, place: Place) -> None:
        """Remember a place that is none behind our own data: a person wants to begin elsewhere, or all comes anew.

        Behind our own data `on_checkpoint` has remembered it already.
        """
        self._placed = place
        if place == self._held.place:
            return
        with told(self._warehouse), self._warehouse.opened() as session:
            # Before anything else: a subscription stores where it begins ahead of `on_start`.
            with session.transaction():
                self._places.make(session)
            held = Held(place, frozenset() if self._anew else self._held.complete)
            self._commit(session, held, self._emptied(session, place) if self._anew else [])
        self._remember(held)

    # -- callbacks --------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Make our own table, and see what is held."""
        with told(self._warehouse), self._warehouse.opened() as session:
            with session.transaction():
                self._places.make(session)
            self._remember(self._places.read(session))
        self._placed = None

    def on_data_batch(self, batch: Batch) -> None:
        """Take rows."""
        self._of(batch.table).batches.append((batch.schema, batch.rows))

    def on_system_event(self, event: SystemEvent) -> None:
        """Take what empties a table, or tells whether it is whole."""
        name = str(event.table)
        if event.kind is SystemKind.TRUNCATE:
            self._of(event.table).truncates.append((event.scn, event.ord))
        if event.kind is SystemKind.DUMP_COMPLETE:
            self._complete.add(name)
        elif event.kind is SystemKind.GAP or event.payload.get("anew"):
            self._complete.discard(name)

    def on_checkpoint(self, place: Place) -> Result | None:
        """Write everything, with the place, in one transaction.

        Raises:
            MissingBase: a whole table lacks the row that a change patches; nothing was written.
            NegativeCount: a whole table without a key holds a row less often than it is removed; likewise.
            IncompatibleSchemaChange: a table changed in a way that cannot be carried over.
            TargetError: the database refused.
        """
        if not place.whole:
            # A transaction is written as a whole.
            return Result.SKIP_CHECKPOINT
        self._write(place)
        return None

    def on_rollback(self, place: Place) -> None:
        """Forget what was not written; what was written too, when we stood further and everything comes anew."""
        self._waiting.clear()
        self._complete = set(self._held.complete)
        # Emptied with the place that is stored next: until then the copy is what it was. A person's rewind to there has
        # been stored before, and the log has all of it.
        self._anew = place == Place(0) != self._placed
        self._placed = None

    # -- writing ----------------------------------------------------------------------------------

    def _of(self, table: TableId) -> _Waiting:
        return self._waiting.setdefault(table, _Waiting())

    def _remember(self, held: Held) -> None:
        self._held = held
        self._complete = set(held.complete)
        self._anew = False

    def _write(self, place: Place) -> None:
        held = Held(place, frozenset(self._complete))
        with told(self._warehouse), self._warehouse.opened() as session:
            works = [
                work
                for table, waiting in self._waiting.items()
                if (work := self._folded(session, table, waiting)) is not None
            ]
            self._commit(session, held, works)
        self._remember(held)
        self._waiting.clear()

    def _commit(self, session: Session, held: Held, works: Sequence[_Work]) -> None:
        """Make what happens to tables durable together with the place behind it."""
        assert held.place is not None
        with session.transaction():
            for schema, effects in works:
                staged = self._tables.stage(session, schema, effects, self._stage)
                complete = str(schema.table) in held.complete
                self._tables.apply(session, schema, staged, held.place.scn, complete=complete)
            self._places.write(session, self._held, held)

    def _emptied(self, session: Session, place: Place) -> list[_Work]:
        """Return what empties each of our tables at a place."""
        schemas = [entry.schema for entry in self._tables.entries(session).values()]
        return [(schema, fold(schema, [], [(place.scn, place.ord)])) for schema in schemas]

    def _folded(self, session: Session, table: TableId, waiting: _Waiting) -> _Work | None:
        """Bring a table's columns to what waits, and return what that does to its keys; None when it has it all."""
        entry = self._tables.entry(session, table)
        applied = entry.applied_scn if entry is not None else 0
        batches = [
            (schema, left)
            for schema, batch in waiting.batches
            if (left := _above(batch, applied)).num_rows
        ]
        truncates = [position for position in waiting.truncates if position[0] > applied]
        if batches:
            entry = self._tables.evolve(session, batches[-1][0])
        if entry is None or not (batches or truncates):
            return None
        schema = entry.schema
        changes = [promote(batch, old, schema) for old, batch in batches]
        return schema, fold(schema, changes, truncates)


def _above(batch: pa.RecordBatch, scn: int) -> pa.RecordBatch:
    """Return the rows above an SCN; a view."""
    return batch.slice(int(batch.column("_scn").to_numpy().searchsorted(scn, side="right")))

"""Changes into tables of a database: PostgreSQL, MySQL or MariaDB, a DuckDB file, or an SQLite file.

Rows and place become durable in one transaction, so each change counts exactly once, whatever crashes. The statements
are `headrace.lake.sql`'s, and so are the rules: changes are folded first, keys that move take their cells along, and
tables without a key are right too.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import pyarrow as pa

from headrace.client import Batch, Consumer, Result
from headrace.errors import TargetConflict
from headrace.fold import fold
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.session import Session, Warehouse, told
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.block import SystemEvent, SystemKind
from headrace.model.schema import TableId
from headrace.outputs.place_table import Held, PlaceTable
from headrace.outputs.steps import Step, Told, Waiting
from headrace.wire.place import Place

__all__ = ["SqlOutput"]


class _Work(NamedTuple):
    """What happens to the keys of a table that has the columns for it."""

    entry: Entry
    effects: pa.Table


class SqlOutput(Consumer):
    """Keeps a copy of each table, and its own place beside them.

    A subscription takes it as checkpoints too::

        output = SqlOutput(PostgresWarehouse("postgresql://…"), "copy-of-shop")
        Subscription(relay, "shop", output, output).run()

    What comes again is known by its SCN and left out, table by table: an older state never overwrites a newer one,
    after a rewind neither. Whatever lies between two checkpoints is held in memory and written at once, so
    ``checkpoint_every`` or ``merge_windows`` of the subscription decides how large a transaction is.

    Where a table's columns change, what is older is written ahead of the others, while the table has the columns of its
    time: so nothing has to be guessed of columns that get another name, or go and come back.

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
        self._waiting: dict[TableId, Waiting] = {}
        self._held = Held(None, frozenset())
        self._complete: set[str] = set()
        self._in_gap: set[str] = set()
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
            held = self._held._replace(place=place, since=min(self._held.since, place.after_scn))
            if self._anew or self._held.place is None:
                since = place.after_scn
                held = Held(place, frozenset(), self._held.told, since)
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
        """Take what empties a table, tells of its columns, or whether it is whole."""
        name = str(event.table)
        if event.kind is SystemKind.SCHEMA:
            self._of(event.table).told.append(Told.of(event))
        if event.kind is SystemKind.TRUNCATE:
            self._of(event.table).truncates.append((event.scn, event.ord))
        if event.kind is SystemKind.DUMP_COMPLETE:
            if self._is_whole(name, event.payload.get("first_scn")):
                self._complete.add(name)
            self._in_gap.discard(name)
        elif event.payload.get("anew"):
            self._complete.discard(name)
            self._in_gap.discard(name)
        elif event.kind is SystemKind.GAP and name in self._complete:
            self._complete.discard(name)
            self._in_gap.add(name)

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
        self._complete, self._in_gap = set(self._held.complete), set(self._held.in_gap)
        # Emptied with the place that is stored next: until then the copy is what it was. A person's rewind to there has
        # been stored before, and the log has all of it.
        self._anew = place == Place(0) != self._placed
        self._placed = None

    # -- writing ----------------------------------------------------------------------------------

    def _of(self, table: TableId) -> Waiting:
        if table not in self._waiting:
            self._waiting[table] = Waiting([*self._held.told.get(str(table), ())])
        return self._waiting[table]

    def _is_whole(self, name: str, first_scn: int | None) -> bool:
        """Return whether a table lacks nothing behind a dump whose rows begin at an SCN; an older log names none.

        A repair, which begins at 0, brings rows that differed, and nothing of others that never came.
        """
        if first_scn is None:
            return True
        return first_scn > self._held.since if first_scn else name in self._in_gap | self._complete

    def _remember(self, held: Held) -> None:
        self._held = held
        self._complete, self._in_gap = set(held.complete), set(held.in_gap)
        self._anew = False

    def _write(self, place: Place) -> None:
        works: list[_Work] = []
        told_of = dict(self._held.told)
        with told(self._warehouse), self._warehouse.opened() as session:
            for table, waiting in self._waiting.items():
                work, left = self._brought(session, table, waiting)
                works += [work] if work is not None else []
                told_of.pop(str(table), None)
                told_of |= {str(table): left} if left else {}
            held = Held(
                place,
                frozenset(self._complete),
                told_of,
                self._held.since,
                frozenset(self._in_gap),
            )
            self._commit(session, held, works)
        self._remember(held)
        self._waiting.clear()

    def _commit(self, session: Session, held: Held, works: Sequence[_Work]) -> None:
        """Make what happens to tables durable together with the place behind it."""
        assert held.place is not None
        with session.transaction():
            for work in works:
                complete = str(work.entry.schema.table) in held.complete
                self._apply(session, work, held.place.scn, complete=complete)
            self._places.write(session, self._held, held)

    def _apply(self, session: Session, work: _Work, scn: int, *, complete: bool) -> Entry:
        schema = work.entry.schema
        staged = self._tables.stage(session, schema, work.effects, self._stage)
        return self._tables.apply(session, schema, staged, scn, complete=complete)

    def _emptied(self, session: Session, place: Place) -> list[_Work]:
        """Return what empties each of our tables at a place."""
        return [
            _Work(entry, fold(entry.schema, [], [(place.scn, place.ord)]))
            for entry in self._tables.entries(session).values()
        ]

    def _brought(
        self, session: Session, table: TableId, waiting: Waiting
    ) -> tuple[_Work | None, list[Told]]:
        """Bring a table to the columns of what waits, and write what is older than these.

        Returns:
            What the rest does to its keys, None when the table has it all; and what was said of its columns that no
            row has followed. Of a table that is not there its next schema event will say it again.
        """
        entry = self._tables.entry(session, table)
        *earlier, last = waiting.steps(entry.applied_scn if entry is not None else 0)
        for step in earlier:
            self._write_ahead(session, table, step)
        work = self._worked_out(session, table, last)
        there = entry is not None or bool(earlier)
        return work, last.told if there and not last.batches else []

    def _write_ahead(self, session: Session, table: TableId, step: Step) -> None:
        """Write a step by itself, before the columns of the next one come: the ledger says that the table has it.

        Raises:
            TargetConflict: somebody else has written the table meanwhile.
        """
        work = self._worked_out(session, table, step)
        if work is None:
            return
        assert step.upto_scn is not None
        # Where the dump ended meanwhile, nobody looks whether that was before the step or behind it.
        complete = str(table) in self._complete & self._held.complete
        with session.transaction():
            entry = self._apply(session, work, step.upto_scn, complete=complete)
            if entry.version != work.entry.version + 1:
                raise TargetConflict(
                    f"Somebody else brought the target table of {table} further during a batch.",
                    next_step="let one consumer write the table; the batch is tried again.",
                )

    def _worked_out(self, session: Session, table: TableId, step: Step) -> _Work | None:
        """Bring a table's columns to a step, and return what that does to its keys; None when that is nothing."""
        schema = step.schema
        entry = self._tables.entry(session, table)
        if schema is not None:
            if entry is not None and not entry.numbers and (was := step.was(entry.schema)):
                # Nothing was told of the columns when the table was made.
                self._tables.evolve(session, was)
            entry = self._tables.evolve(session, schema)
        if entry is None or not (step.batches or step.truncates):
            return None
        changes = step.changes(replace(entry.schema, numbers=entry.numbers))
        return _Work(entry, fold(entry.schema, changes, step.truncates))

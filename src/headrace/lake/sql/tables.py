"""What a pipeline does with the tables of a warehouse: ask, evolve, stage, apply; each in a session of the caller's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pyarrow as pa

from headrace.errors import TargetConflict, TargetUnwritable, UnheldValue
from headrace.lake.copies import Copy
from headrace.lake.ledger import check_ahead
from headrace.lake.modes import Mode, shaped
from headrace.lake.policies import DEFAULTS, Policies
from headrace.lake.sql import columns, copied, ledger, mysql_shapes
from headrace.lake.sql.batch import apply_batch, rows_to_stage
from headrace.lake.sql.dialect import table_name
from headrace.lake.sql.ledger import LEDGER, Entry
from headrace.lake.sql.mysql_forms import UnheldCell
from headrace.lake.sql.session import Session, Warehouse
from headrace.lake.sql.staged import Staged
from headrace.model.schema import TableId, TableSchema

__all__ = ["WarehouseTables"]


class WarehouseTables:
    """The tables of one pipeline; a value that travels to Spark's tasks.

    Args:
        warehouse: where they are.
        pipeline: name under which positions are committed.
    """

    def __init__(self, warehouse: Warehouse, pipeline: str) -> None:
        self.warehouse = warehouse
        self._pipeline = pipeline
        self._dialect = warehouse.dialect
        self._is_begun = False

    def entries(self, session: Session) -> dict[TableId, Entry]:
        """Return what the ledger says of all tables."""
        if not self._has_ledger(session):
            return {}
        found = ledger.read(session, self._pipeline)
        return {
            table: mysql_shapes.settled(session, self.warehouse.place(table), entry)
            for table, entry in found.items()
            if entry.copy is None
        }

    def entry(self, session: Session, table: TableId) -> Entry | None:
        """Return what the ledger says of a table, of its new copy while there is one; None when it has none."""
        if not self._has_ledger(session):
            return None
        place = self.warehouse.place(table)
        shown, copy = copied.entries(session, self._pipeline, place, table)
        return copy or shown

    def evolve(self, session: Session, schema: TableSchema, policies: Policies = DEFAULTS) -> Entry:
        """Create a table, or bring its columns to a version; does nothing when they are there.

        Args:
            session: in no transaction.
            schema: the version, with the columns that the table's mode adds.
            policies: what happens to columns that cannot live on.

        Raises:
            CopyNeeded: the change takes a new copy.
            IncompatibleSchemaChange: the change cannot be carried over.
            TargetConflict: the table is not as we left it.
        """
        held = self.entry(session, schema.table)
        if held is not None and held.schema.kept:
            held = self._without_gone(session, held)
        same = held is not None and held.schema.schema_id == schema.schema_id
        if held and same and held.numbers.items() >= schema.numbers.items():
            return held
        place = self._written(schema.table, held)
        with self._changing(session, schema.table):
            if held is None:
                ledger.create(session)
                copied.discard(session, self._dialect, self._pipeline, schema.table)
                return columns.make(session, self._dialect, self._pipeline, place, schema)
            return columns.bring_to(
                session, self._dialect, self._pipeline, place, held, schema, policies
            )

    def begin_copy(self, session: Session, schema: TableSchema, copy: Copy) -> Entry:
        """Begin an empty copy beside the table, in the place of one that was begun before."""
        with self._changing(session, schema.table):
            place = self.warehouse.place(schema.table)
            return copied.begin(session, self._dialect, self._pipeline, place, schema, copy)

    def ask_again(self, session: Session, table: TableId, request: str) -> Entry:
        """Let another dump fill the copy that was begun."""
        with session.transaction():
            place = self.warehouse.place(table)
            return copied.ask_again(session, self._pipeline, place, table, request)

    def end_copy(self, session: Session, table: TableId) -> Entry:
        """Put the copy in the table's place, in one transaction.

        Raises:
            TargetConflict: the table is not as we left it.
        """
        with self._changing(session, table):
            return copied.take_place(
                session, self._dialect, self._pipeline, self.warehouse.place(table), table
            )

    def drop(self, session: Session, table: TableId) -> None:
        """Remove a table and what the ledger says of it; does nothing when the ledger does not know it."""
        if self.entry(session, table) is None:
            return
        with self._changing(session, table):
            copied.discard(session, self._dialect, self._pipeline, table)
            session.run(f"DROP TABLE IF EXISTS {table_name(self.warehouse.place(table))}")
            ledger.forget(session, self._pipeline, table)

    def stage(
        self,
        session: Session,
        schema: TableSchema,
        batch: pa.Table,
        name: str,
        mode: Mode = Mode.MIRROR,
    ) -> Staged:
        """Put a batch into a new staging table, and return what is there; errors as of `rows_to_stage`.

        Raises:
            UnheldValue: a cell has a value that no type of the warehouse's holds.
        """
        rows, staged = rows_to_stage(self._dialect, schema, mode, batch)
        if not rows.num_rows:
            return staged
        try:
            session.stage(name, rows)
        except UnheldCell as error:
            columns_of = schema if mode is not Mode.APPEND else shaped(schema, mode)
            part, number = error.column[:1], int(error.column[1:])
            names = columns_of.names if part == "c" else columns_of.key
            raise UnheldValue(str(schema.table), names[number], error.what) from None
        return replace(staged, name=name)

    def apply(
        self,
        session: Session,
        schema: TableSchema,
        staged: Staged,
        scn: int,
        mode: Mode = Mode.MIRROR,
        *,
        complete: bool,
    ) -> Entry:
        """Bring a table behind a batch, inside a transaction; its staging table is gone afterwards.

        Raises:
            MissingBase: a complete table lacks the row that a change patches.
            NegativeCount: a complete table without a key holds a row less often than it is removed.
            TargetConflict: the table is not as we left it, or further than ``scn``.
            TargetUnwritable: the server lost what was staged.
        """
        table = schema.table
        held = self.entry(session, table)
        if held is None:
            raise TargetConflict(
                f"The row of {table} vanished from {LEDGER} during a batch.",
                next_step="let headrace be the only writer of its schema; the batch is tried again.",
            )
        check_ahead(table, held.applied_scn, scn)
        if staged.name and not session.rows(f"SELECT 1 FROM {staged.name} LIMIT 1"):
            # A server that died in between, or another one that took its place, has the staging table and none of it.
            raise TargetUnwritable(
                f"The target table of {table} cannot be written: its server has lost the rows that were staged.",
                next_step="look at why the server started anew; the batch is tried again.",
            )
        place = self._written(table, held)
        # First, so that two writers wait for each other here and nowhere else.
        entry = ledger.write(
            session, self._pipeline, held, replace(held.schema, numbers=held.numbers), scn
        )
        columns.check_columns(session, self._dialect, place, held.schema)
        apply_batch(session, self._dialect, place, schema, mode, staged, complete=complete)
        if staged.name:
            session.unstage(staged.name)
        return entry

    def rows(self, session: Session, table: TableId, held: Entry) -> Iterator[pa.RecordBatch]:
        """Yield all rows of a table, in the columns of its entry."""
        yield from session.read(self._written(table, held), held.schema)

    def _without_gone(self, session: Session, held: Entry) -> Entry:
        """Forget the kept columns that a person has dropped: the source has them no more, so they are theirs."""
        schema = held.schema
        place = self._written(schema.table, held)
        there = columns.found_columns(session, self._dialect, place)
        gone = schema.kept.difference(there)
        if not there or not gone:
            return held
        left = replace(
            schema,
            columns=tuple(column for column in schema.columns if column.name not in gone),
            kept=schema.kept - gone,
        )
        with session.transaction():
            return ledger.write(session, self._pipeline, held, left, held.applied_scn)

    @contextmanager
    def _changing(self, session: Session, table: TableId) -> Iterator[None]:
        """Give a transaction in which tables are made, changed or removed."""
        if not self._dialect.commits_ddl:
            with session.transaction():
                yield
            return
        # It ends with each of them, so locks of rows do not keep others away.
        with mysql_shapes.alone(session, self.warehouse.place(table)), session.transaction():
            yield

    def _written(self, table: TableId, held: Entry | None) -> TableId:
        """Return where an entry's rows are."""
        if held is not None and held.copy is not None:
            return ledger.copy_place(self._pipeline, table)
        return self.warehouse.place(table)

    def _has_ledger(self, session: Session) -> bool:
        if not self._is_begun:
            self._is_begun = bool(columns.found_columns(session, self._dialect, LEDGER))
        return self._is_begun

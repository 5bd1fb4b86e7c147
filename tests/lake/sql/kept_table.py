"""A table of some mode in a warehouse, which a test brings through a random life without Spark."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from headrace.errors import TargetConflict
from headrace.lake.modes import Mode, live_rows, shaped
from headrace.lake.policies import DEFAULTS, Policies
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.session import Session, Warehouse
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.schema import TableSchema
from headrace.testing.lives import Transaction
from tests.lake.kept_table import logged
from tests.lake.sql.warehouses import STAGES, content, plain

Cells = tuple[Any, ...]


def _nothing(_session: Session) -> None:
    return


class KeptInWarehouse:
    """One table, whose sessions come and go as those of batches do."""

    def __init__(self, warehouse: Warehouse, schema: TableSchema, mode: Mode) -> None:
        self.warehouse = warehouse
        self.schema = schema
        self.mode = mode
        self.tables = WarehouseTables(warehouse, "test")
        self.evolve(schema)

    def evolve(self, schema: TableSchema, policies: Policies = DEFAULTS) -> Entry:
        """Bring the columns to a version."""
        self.schema = schema
        with self.warehouse.opened() as session:
            return self.tables.evolve(session, shaped(schema, self.mode), policies)

    def apply(
        self,
        life: Sequence[Transaction],
        *,
        complete: bool = True,
        inside: Callable[[Session], None] = _nothing,
    ) -> None:
        """Apply some transactions as one batch; ``inside`` is called at the end of its transaction."""
        changes = logged(self.schema, life)
        name, scn = STAGES[self.warehouse.dialect.name], life[-1].scn
        with self.warehouse.opened() as session:
            # Ahead of the transaction, as tasks of Spark do.
            staged = self.tables.stage(session, self.schema, changes, name, self.mode)
            try:
                with session.transaction():
                    self.tables.apply(
                        session, self.schema, staged, scn, self.mode, complete=complete
                    )
                    inside(session)
            except BaseException:
                if staged.name:
                    session.unstage(staged.name)
                raise

    def apply_again(self, life: Sequence[Transaction]) -> None:
        """Apply what is there already, which the ledger refuses."""
        try:
            self.apply(life)
        except TargetConflict:
            return
        raise AssertionError("a batch was applied twice")

    @property
    def names(self) -> list[str]:
        """Names of the table's columns."""
        names: list[str] = content(self.warehouse, self.schema).schema.names
        return names

    def rows(self, *, without: Sequence[str] = ()) -> Counter[Cells]:
        """Return the rows, times as microseconds."""
        return plain(content(self.warehouse, self.schema).drop_columns(list(without)))

    def live(self) -> Counter[Cells]:
        """Return the rows that are said to be the source's now, without the mode's own columns."""
        held = content(self.warehouse, self.schema)
        batches = [live_rows(batch, self.mode) for batch in held.to_batches()]
        return plain(pa.Table.from_batches(batches, held.schema).select(self.schema.names))

"""One batch of a mirror: from the staging table into the target, inside a transaction of the caller's.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

from headrace.errors import NegativeCount, TargetConflict
from headrace.lake.sql.cells import Cells
from headrace.lake.sql.dialect import Dialect, table_name
from headrace.lake.sql.session import Session
from headrace.lake.sql.staged import Staged
from headrace.model.schema import KeyCheck, TableId, TableSchema

__all__ = ["merge"]


def merge(
    session: Session,
    dialect: Dialect,
    place: TableId,
    schema: TableSchema,
    staged: Staged,
    *,
    complete: bool,
) -> None:
    """Bring a table's rows behind a batch.

    Args:
        session: in a transaction.
        dialect: of the warehouse.
        place: of the target table, which has the columns of ``schema``.
        schema: table version of the staged rows.
        staged: what is staged.
        complete: whether every row of the source is in the table.

    Raises:
        MissingBase: a complete table lacks the row that a change patches.
        NegativeCount: a complete table without a key holds a row less often than it is removed.
        TargetConflict: a table without a key would lose more rows than are removed.
    """
    work = _Work(session, dialect, place, schema, staged, complete)
    if schema.key_check is KeyCheck.NONE:
        work.multiset()
    else:
        work.keyed()


class _Work:
    """The statements of one batch; ``t`` is the target's row, ``s`` the staged one."""

    def __init__(
        self,
        session: Session,
        dialect: Dialect,
        place: TableId,
        schema: TableSchema,
        staged: Staged,
        complete: bool,
    ) -> None:
        self.session, self.dialect, self.schema, self.staged = session, dialect, schema, staged
        self.complete = complete
        self.target = table_name(place)
        self.stage = staged.name
        self.cells = Cells(dialect, schema, staged)

    def keyed(self) -> None:
        cells = self.cells
        if self.stage and self.staged.lacking:
            # Before anything is written: the same batch may delete or replace the rows that lend cells.
            self._borrow()
        self._wipe()
        if not self.stage:
            return
        same = cells.same_key()
        if not self.dialect.updates_zeros:
            self.session.run(self.dialect.deletion(self.target, self.stage, same))
            self._insert("s.effect = 1")
            return
        updates = ", ".join(f"{n} = {c}" for n, c in zip(cells.names, cells.staged, strict=True))
        self.session.run(
            f"MERGE INTO {self.target} AS t USING {self.stage} AS s ON {same} "
            "WHEN MATCHED AND s.effect = 0 THEN DELETE "
            # The key too: 0.0 and -0.0 are the same to a server.
            f"WHEN MATCHED THEN UPDATE SET {updates} "
            "WHEN NOT MATCHED AND s.effect = 1 THEN "
            f"INSERT ({', '.join(cells.names)}) VALUES ({', '.join(cells.staged)})"
        )

    def multiset(self) -> None:
        self._wipe()
        if not self.stage:
            return
        same = self.cells.same_row(self.cells.held, self.cells.staged)
        removed = self.session.run(
            f"DELETE FROM {self.target} WHERE {self.dialect.row_id} IN (SELECT id FROM ("
            f"SELECT t.{self.dialect.row_id} AS id, s.copies AS copies, "
            "ROW_NUMBER() OVER (PARTITION BY s.place) AS nth "
            f"FROM {self.target} AS t JOIN {self.stage} AS s ON {same} "
            "WHERE s.copies < 0) AS held WHERE nth <= -copies)"
        )
        query = f"SELECT coalesce(sum(-copies), 0) FROM {self.stage} WHERE copies < 0"
        ((wanted,),) = self.session.rows(query)
        if removed > wanted:
            raise TargetConflict(
                f"{self.schema.table} has no key, and more of its rows would go than the source removed.",
                next_step=f"rename its column {self.dialect.row_id} at the source, or leave it out: source.columns; "
                f"then copy the table again: headrace dump start FILE --table {self.schema.table}.",
            )
        if removed < wanted and self.complete:
            raise NegativeCount(
                f"{self.schema.table} has no key, and a change removes a row more often than the target holds it.",
                next_step=f"copy the table again: headrace dump start FILE --table {self.schema.table}.",
            )
        self._insert("s.copies > 0")

    def _insert(self, chosen: str) -> None:
        self.session.run(
            f"INSERT INTO {self.target} ({', '.join(self.cells.names)}) "
            f"SELECT {', '.join(self.cells.staged)} FROM {self.stage} AS s WHERE {chosen}"
        )

    def _wipe(self) -> None:
        if self.staged.wiped:
            # No TRUNCATE: it would empty the table under readers whose snapshot is older.
            self.session.run(f"DELETE FROM {self.target}")

    def _borrow(self) -> None:
        """Fill in the cells that a change left out; a row that has nowhere to take them from counts as dead."""
        self.cells.borrow(self.session, self.target)
        if not self.staged.needed:
            return
        lost = " OR ".join(f"m{i}" for i in self.staged.needed)
        if self.complete:
            self.cells.refuse_lost(self.session, lost)
        # Its chunk has not come yet, and will bring the whole row.
        self.session.run(f"UPDATE {self.stage} SET effect = 0 WHERE {lost}")

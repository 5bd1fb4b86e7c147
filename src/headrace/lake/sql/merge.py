"""One batch of one table: from the staging table into the target, inside a transaction of the caller's.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

import pyarrow as pa

from headrace.errors import MissingBase, NegativeCount
from headrace.lake.sql.dialect import Dialect, quoted, table_name
from headrace.lake.sql.session import Session
from headrace.lake.sql.staged import Staged
from headrace.lake.sql.types import column_type, staged_type
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
        self.names = [quoted(name) for name in schema.names]
        self.cells = [self._cell(f"c{i}", c.type) for i, c in enumerate(schema.columns)]

    def keyed(self) -> None:
        schema, key = self.schema, [f"t.{quoted(name)}" for name in self.schema.key]
        if self.stage and self.staged.lacking:
            # Before anything is written: the same batch may delete or replace the rows that lend cells.
            self._borrow(key)
        self._wipe()
        if not self.stage:
            return
        own = [self.cells[index] for index in schema.key_indexes]
        same = self._same_key(key, own)
        if not self.dialect.updates_zeros:
            self.session.run(f"DELETE FROM {self.target} AS t USING {self.stage} AS s WHERE {same}")
            self._insert("s.effect = 1")
            return
        updates = ", ".join(f"{n} = {c}" for n, c in zip(self.names, self.cells, strict=True))
        self.session.run(
            f"MERGE INTO {self.target} AS t USING {self.stage} AS s ON {same} "
            "WHEN MATCHED AND s.effect = 0 THEN DELETE "
            # The key too: 0.0 and -0.0 are the same to a server.
            f"WHEN MATCHED THEN UPDATE SET {updates} "
            "WHEN NOT MATCHED AND s.effect = 1 THEN "
            f"INSERT ({', '.join(self.names)}) VALUES ({', '.join(self.cells)})"
        )

    def multiset(self) -> None:
        self._wipe()
        if not self.stage:
            return
        removed = self.session.run(
            f"DELETE FROM {self.target} WHERE {self.dialect.row_id} IN (SELECT id FROM ("
            f"SELECT t.{self.dialect.row_id} AS id, s.copies AS copies, "
            "ROW_NUMBER() OVER (PARTITION BY s.place) AS nth "
            f"FROM {self.target} AS t JOIN {self.stage} AS s ON {self._same_row()} "
            "WHERE s.copies < 0) AS held WHERE nth <= -copies)"
        )
        query = f"SELECT coalesce(sum(-copies), 0) FROM {self.stage} WHERE copies < 0"
        ((wanted,),) = self.session.rows(query)
        if removed < wanted and self.complete:
            raise NegativeCount(
                f"{self.schema.table} has no key, and a change removes a row more often than the target holds it.",
                next_step=f"copy the table again: headrace dump start FILE --table {self.schema.table}.",
            )
        self._insert("s.copies > 0")

    def _insert(self, chosen: str) -> None:
        self.session.run(
            f"INSERT INTO {self.target} ({', '.join(self.names)}) "
            f"SELECT {', '.join(self.cells)} FROM {self.stage} AS s WHERE {chosen}"
        )

    def _wipe(self) -> None:
        if self.staged.wiped:
            # No TRUNCATE: it would empty the table under readers whose snapshot is older.
            self.session.run(f"DELETE FROM {self.target}")

    def _borrow(self, key: list[str]) -> None:
        """Fill in the cells that a change left out; a row that has nowhere to take them from counts as dead."""
        lacking = self.staged.lacking
        types = [self.schema.column(name).type for name in self.schema.key]
        origins = [self._cell(f"o{index}", type_) for index, type_ in enumerate(types)]
        cells = "".join(
            f", c{i} = CASE WHEN s.m{i} THEN CAST(t.{self.names[i]} AS {self._staged(i)}) ELSE s.c{i} END"
            for i in lacking
        )
        nothing = "".join(f", m{i} = FALSE" for i in lacking)
        self.session.run(
            f"UPDATE {self.stage} AS s SET asks = FALSE{cells}{nothing} FROM {self.target} AS t "
            f"WHERE s.asks AND {self._same_key(key, origins)}"
        )
        lost = " OR ".join(f"m{i}" for i in lacking)
        if self.complete:
            masks = ", ".join(f"m{i}" for i in lacking)
            found = self.session.rows(f"SELECT {masks} FROM {self.stage} WHERE {lost} LIMIT 1")
            if found:
                columns = [
                    self.schema.names[i] for i, mask in zip(lacking, found[0], strict=True) if mask
                ]
                key_text = f"({', '.join(self.schema.key)})"
                raise MissingBase(str(self.schema.table), key_text, columns)
        # Its chunk has not come yet, and will bring the whole row.
        self.session.run(f"UPDATE {self.stage} SET effect = 0 WHERE {lost}")

    def _cell(self, name: str, type_: pa.DataType) -> str:
        staged = f"s.{name}"
        if staged_type(self.dialect, type_) == column_type(type_):
            return staged
        return f"CAST({staged} AS {column_type(type_)})"

    def _same_key(self, ours: list[str], theirs: list[str]) -> str:
        return self.dialect.same_key(ours, theirs, null=self.staged.null_keys)

    def _staged(self, index: int) -> str:
        return staged_type(self.dialect, self.schema.columns[index].type)

    def _same_row(self) -> str:
        """Return the condition that two rows are the same bit for bit, in a form that the server can hash."""
        ours = [f"t.{name}" for name in self.names]
        if self.dialect.keeps_keys:
            left, right = ", ".join(ours), ", ".join(self.cells)
            return f"CAST(ROW({left}) AS text) = CAST(ROW({right}) AS text)"
        pairs = []
        for column, one, other in zip(self.schema.columns, ours, self.cells, strict=True):
            if pa.types.is_floating(column.type):
                # As numbers 0.0 and -0.0 are equal.
                one, other = f"CAST({one} AS text)", f"CAST({other} AS text)"
            pairs.append(f"{one} IS NOT DISTINCT FROM {other}")
        return " AND ".join(pairs)

"""Parts of statements that work on a row of the target, ``t``, and a staged one, ``s``."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from headrace.errors import MissingBase
from headrace.lake.sql.dialect import Dialect, quoted
from headrace.lake.sql.session import Session
from headrace.lake.sql.staged import Staged
from headrace.lake.sql.types import column_type, staged_type
from headrace.model.schema import TableSchema

__all__ = ["Cells"]


class Cells:
    """The cells of one table in statements.

    Args:
        dialect: of the warehouse.
        schema: table version of the staged rows.
        staged: what is staged.
        exact: whether keys are the same bit for bit, and not only to the server: it holds 0.0 and -0.0 for equal.

    Attributes:
        names: of the columns.
        held: their cells in a row of the target.
        staged: those in a staged row, in the types that the target has.
    """

    def __init__(
        self, dialect: Dialect, schema: TableSchema, staged: Staged, *, exact: bool = False
    ) -> None:
        self._dialect = dialect
        self._schema = schema
        self._stage = staged
        self._exact = exact
        self.names = [quoted(name) for name in schema.names]
        self.held = [f"t.{name}" for name in self.names]
        self.staged = self.staged_as("s")

    def staged_as(self, alias: str) -> list[str]:
        """Return the cells of a staged row, in the types that the target has."""
        return [
            self._cell(f"{alias}.c{index}", column.type)
            for index, column in enumerate(self._schema.columns)
        ]

    def same_key(self) -> str:
        """Return the condition that both rows have one key."""
        return self._keys([self.staged[index] for index in self._schema.key_indexes])

    def same_row(self, left: Sequence[str], right: Sequence[str]) -> str:
        """Return the condition that two rows are the same bit for bit, in a form that the server can hash."""
        if self._dialect.keeps_keys:
            one, other = ", ".join(left), ", ".join(right)
            return f"CAST(ROW({one}) AS text) = CAST(ROW({other}) AS text)"
        pairs = []
        for column, one, other in zip(self._schema.columns, left, right, strict=True):
            pairs.append(f"{one} IS NOT DISTINCT FROM {other}")
            if pa.types.is_floating(column.type):
                # As numbers 0.0 and -0.0 are equal, as text some numbers that are not.
                pairs.append(f"CAST({one} AS text) IS NOT DISTINCT FROM CAST({other} AS text)")
        return " AND ".join(pairs)

    def borrow(self, session: Session, target: str, chosen: str = "TRUE") -> None:
        """Fill in the cells that changes left out, from the rows that the target holds at the keys they come from.

        Args:
            session: in a transaction.
            target: name of the table, of which nothing was written yet.
            chosen: condition of the rows of ``t`` that lend.
        """
        schema, lacking = self._schema, self._stage.lacking
        types = [schema.column(name).type for name in schema.key]
        origins = [self._cell(f"s.o{index}", type_) for index, type_ in enumerate(types)]
        cells = "".join(
            f", c{i} = CASE WHEN s.m{i} THEN CAST({self.held[i]} AS {self._staged_type(i)}) ELSE s.c{i} END"
            for i in lacking
        )
        nothing = "".join(f", m{i} = FALSE" for i in lacking)
        session.run(
            f"UPDATE {self._stage.name} AS s SET asks = FALSE{cells}{nothing} FROM {target} AS t "
            f"WHERE s.asks AND {chosen} AND {self._keys(origins)}"
        )

    def refuse_lost(self, session: Session, lost: str) -> None:
        """Refuse cells that came from nowhere.

        Args:
            session: in a transaction.
            lost: condition of the staged rows that may not have any.

        Raises:
            MissingBase: naming the columns of one such row.
        """
        lacking = self._stage.lacking
        masks = ", ".join(f"m{i}" for i in lacking)
        found = session.rows(f"SELECT {masks} FROM {self._stage.name} WHERE {lost} LIMIT 1")
        if found:
            names = self._schema.names
            columns = [names[i] for i, mask in zip(lacking, found[0], strict=True) if mask]
            key = f"({', '.join(self._schema.key)})"
            raise MissingBase(str(self._schema.table), key, columns)

    def _keys(self, theirs: Sequence[str]) -> str:
        ours = [self.held[index] for index in self._schema.key_indexes]
        same = self._dialect.same_key(ours, theirs, null=self._stage.null_keys)
        if not self._exact:
            return same
        floats = "".join(
            f" AND CAST({one} AS text) IS NOT DISTINCT FROM CAST({other} AS text)"
            for name, one, other in zip(self._schema.key, ours, theirs, strict=True)
            if pa.types.is_floating(self._schema.column(name).type)
        )
        return same + floats

    def _cell(self, staged: str, type_: pa.DataType) -> str:
        if staged_type(self._dialect, type_) == column_type(type_):
            return staged
        return f"CAST({staged} AS {column_type(type_)})"

    def _staged_type(self, index: int) -> str:
        return staged_type(self._dialect, self._schema.columns[index].type)

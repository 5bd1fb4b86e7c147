"""A table's rows with a stretch of later changes laid over them, without writing anything.

In: the rows of a snapshot, and the folded form of changes above the position the snapshot reflects.
Out: the rows the table would hold after them, as batches with a weight per row. A cell whose base
row does not exist stays null and is counted.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.fold import ALL_DEAD, DEAD, NET, ROW, cells_as
from headrace.lake.lent import filled, origins_of
from headrace.model.change import table_arrow_schema
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableSchema

__all__ = ["Overlay", "conform"]

Weights = npt.NDArray[np.int64]


def conform(batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
    """Return the rows with the columns and types of a table version.

    A column that the rows do not have is null; one that the version does not have is left out.

    Raises:
        IncompatibleSchemaChange: a value does not fit the version's type.
    """
    refusal = "The target's values of {column} do not fit the source's type {type}."
    cells = cells_as(batch, schema, refusal)
    return pa.RecordBatch.from_arrays(cells, schema=table_arrow_schema(schema))


@dataclass(slots=True)
class Overlay:
    """Folded changes, ready to be laid over a table's rows.

    Attributes:
        schema: the table version of the changes.
        effects: their folded form (`headrace.fold.form`).
        unresolved: rows with a cell that came from nowhere, counted while `rows` runs.
    """

    schema: TableSchema
    effects: pa.Table
    unresolved: int = 0
    _bases: list[pa.RecordBatch] = field(default_factory=list)

    def rows(
        self, batches: Iterable[pa.RecordBatch]
    ) -> Iterator[tuple[pa.RecordBatch, Weights | None]]:
        """Yield all rows after the changes, with how often each counts; None stands for once each.

        Args:
            batches: the rows before the changes; read once, to the end.
        """
        if pc.any(pc.equal(self.effects["_effect"], ALL_DEAD)).as_py():
            batches = ()
        touched, origins = self._touched(), self._origins()
        for batch in batches:
            rows = conform(batch, self.schema)
            if touched is not None and len(touched):
                rows = self._untouched(rows, touched, origins)
            if rows.num_rows:
                yield rows, None
        yield from self._changed()

    def _own(self, effects: pa.Table) -> pa.Table:
        return effects.select(self.schema.names).cast(table_arrow_schema(self.schema))

    def _touched(self) -> pa.Array | None:
        """Return the keys whose rows the changes decide; None without a key."""
        if not self.schema.key:
            return None
        decided = self.effects.filter(pc.is_in(self.effects["_effect"], pa.array([ROW, DEAD])))
        return encode_rows([decided[name].combine_chunks() for name in self.schema.key])

    def _origins(self) -> pa.Array | None:
        """Return the keys whose rows lend cells to changed ones."""
        if not self.schema.key:
            return None
        origins = origins_of(self.schema, self.effects)
        return encode_rows([column.combine_chunks() for column in origins.columns])

    def _untouched(
        self, rows: pa.RecordBatch, touched: pa.Array, origins: pa.Array | None
    ) -> pa.RecordBatch:
        """Return the rows that the changes leave alone; keep those that lend cells."""
        keys = encode_rows([rows.column(index) for index in self.schema.key_indexes])
        if origins is not None and len(origins):
            lenders = rows.filter(pc.is_in(keys, origins))
            if lenders.num_rows:
                self._bases.append(lenders)
        return rows.filter(pc.invert(pc.is_in(keys, touched)))

    def _changed(self) -> Iterator[tuple[pa.RecordBatch, Weights | None]]:
        live = self.effects.filter(pc.equal(self.effects["_effect"], ROW))
        lenders = pa.Table.from_batches(self._bases, schema=table_arrow_schema(self.schema))
        rows, lost = filled(self.schema, live, lenders)
        self.unresolved += int(lost.sum())
        for batch in rows.combine_chunks().to_batches():
            yield batch, None
        net = self.effects.filter(pc.equal(self.effects["_effect"], NET)).combine_chunks()
        for batch in net.to_batches():
            own = self._own(pa.Table.from_batches([batch])).combine_chunks().to_batches()[0]
            yield own, batch.column("_count").to_numpy(zero_copy_only=False)

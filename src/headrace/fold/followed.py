"""Effects whose cells stand in several change rows, or in the row that the target holds.

Works on row numbers, not on values: a cell is the place of the change row that carries it, or one of two signs.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.fold.form import DEAD, ROW, folded_schema, origin_name
from headrace.model.schema import TableSchema

__all__ = ["ABSOLUTE", "FROM_ORIGIN", "HOLE", "Followed", "Places", "masks"]

FROM_ORIGIN = -1
"""The cell is the one that the target holds at the row's origin key."""
ABSOLUTE = -1
"""The row does not depend on what the target held."""
HOLE = -2
"""The cell has nowhere to come from: the row it was in is dead."""

Places = npt.NDArray[np.int64]


@dataclass(slots=True)
class Followed:
    """Effects on keys, one row each.

    Attributes:
        cells: rows × columns, the place that carries each cell or one of the signs; of a dead row they mean nothing.
        origins: a place whose key columns name the row that this one grew out of, or `ABSOLUTE`.
        dead: whether there is no row any more.
        last: a place that carries the key itself.
    """

    cells: Places
    origins: Places
    dead: npt.NDArray[np.bool_]
    last: Places

    def assemble(self, schema: TableSchema, changes: pa.Table) -> pa.Table:
        """Return the effects in the folded form."""
        form = folded_schema(schema)
        places = np.where(self.dead[:, None], FROM_ORIGIN, self.cells)
        places[:, schema.key_indexes] = self.last[:, None]
        lacking = (places < 0) & ~self.dead[:, None]
        origins = np.where(self.dead, ABSOLUTE, self.origins)
        cells = {
            "_effect": pa.array([ROW, DEAD], pa.string()).take(pa.array(self.dead.astype(np.int8))),
            "_missing": masks(lacking),
            "_hole": pa.array((lacking & (places == HOLE)).any(axis=1)),
        }
        for name in schema.key:
            cells[origin_name(name)] = _take(changes[name], origins)
        for index, name in enumerate(schema.names):
            cells[name] = _take(changes[name], places[:, index])
        return pa.table(
            [cells[f.name] if f.name in cells else pa.nulls(len(self.dead), f.type) for f in form],
            schema=form,
        )


def _take(column: pa.ChunkedArray, places: Places) -> pa.ChunkedArray:
    """Return the cells at the given places, null where the place is negative."""
    return column.take(pa.array(places, mask=places < 0))


def masks(lacking: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the ``_missing`` cell of each row, null where nothing is missing."""
    packed = np.packbits(lacking, axis=1, bitorder="little")
    valid = pa.array(lacking.any(axis=1)).buffers()[1]
    kind = pa.binary(packed.shape[1])
    cells = pa.Array.from_buffers(kind, len(packed), [valid, pa.py_buffer(packed.tobytes())])
    return cells.cast(pa.binary())

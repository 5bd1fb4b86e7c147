"""Cells that a change left out, taken from the rows that held them before.

Source: docs/paper_map.md, decision table of the apply step.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from headrace.fold import origin_name
from headrace.model.change import missing_matrix, table_arrow_schema
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableSchema

__all__ = ["filled", "origins_of"]


def origins_of(schema: TableSchema, effects: pa.Table) -> pa.Table:
    """Return the keys, under the names of the key columns, whose rows lend cells to changed ones."""
    lacking = effects.filter(_asks(effects))
    columns = [lacking[origin_name(name)] for name in schema.key]
    return pa.table(columns, names=list(schema.key))


def filled(
    schema: TableSchema, live: pa.Table, lenders: pa.Table
) -> tuple[pa.Table, npt.NDArray[np.bool_]]:
    """Return the table's own columns of changed rows, with their missing cells filled in.

    Args:
        schema: table version of the changes.
        live: effects that leave a row.
        lenders: the rows that held the origins' keys before, with the columns of ``schema``.

    Returns:
        The rows, and which of them have a cell that came from nowhere and is null.
    """
    own = live.select(schema.names).cast(table_arrow_schema(schema))
    masks = live["_missing"].combine_chunks()
    if masks.null_count == len(masks):
        return own, np.zeros(live.num_rows, bool)
    missing = missing_matrix(masks, len(schema.columns))
    place = _lender_places(schema, live, lenders)
    stay = np.arange(live.num_rows)
    cells = []
    for index, name in enumerate(schema.names):
        lent = np.where(missing[:, index] & (place >= 0), place + live.num_rows, stay)
        both = pa.chunked_array(
            [*own[name].chunks, *lenders[name].chunks], type=own.schema.field(name).type
        )
        cells.append(both.take(pa.array(lent)))
    # A row that came after one died, or was not there, has nothing in a column that the source no longer has.
    needed = ~np.isin(schema.names, [*schema.kept])
    lost = (missing & needed).any(axis=1) & (place < 0)
    return pa.table(cells, schema=own.schema), lost


def _asks(effects: pa.Table) -> pa.ChunkedArray:
    """Return which effects lack cells that a row of the table holds."""
    return pc.and_(pc.is_valid(effects["_missing"]), pc.invert(effects["_hole"]))


def _lender_places(schema: TableSchema, live: pa.Table, lenders: pa.Table) -> npt.NDArray[np.int64]:
    """Return where each row's lender lies, -1 where there is none."""
    keys = encode_rows([lenders[name].combine_chunks() for name in schema.key])
    wanted = encode_rows([live[origin_name(name)].combine_chunks() for name in schema.key])
    found = np.asarray(pc.fill_null(pc.index_in(wanted, keys), -1), np.int64)
    return np.where(np.asarray(_asks(live)), found, -1)

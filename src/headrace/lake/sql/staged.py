"""The folded form as rows of a staging table, ready for plain SQL.

In: the folded form of one table's batch. Out: an Arrow table of positions instead of names, so that no name of the
source's can be in the way::

    with a key                                           without
    effect  int16  1 the key holds this row, 0 nothing   place   int64  number of the row
    asks    bool   cells come from the target            copies  int64  1 to add, -n to remove n
    o0…     …      the key they come from                c0…     …      the row
    m0…     bool   whether that cell is missing
    c0…     …      the row

``asks``, ``o…`` and ``m…`` are there only when some row lacks a cell, and ``m…`` only for the columns that do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from headrace.fold import ALL_DEAD, NET, ROW, origin_name
from headrace.model.change import missing_matrix
from headrace.model.rowkey import encode_rows
from headrace.model.schema import KeyCheck, TableSchema

__all__ = ["Staged", "staged_rows"]


@dataclass(frozen=True, slots=True)
class Staged:
    """What a staging table holds.

    Attributes:
        name: of the table, empty when no row was staged.
        wiped: whether everything that the target holds goes first.
        lacking: places of the columns that some row lacks.
        needed: those of them without which there is no row: the source still has the column.
        null_keys: whether null stands in a key, which a unique index may let in.
    """

    name: str
    wiped: bool
    lacking: tuple[int, ...] = ()
    needed: tuple[int, ...] = ()
    null_keys: bool = False


def staged_rows(
    schema: TableSchema, folded: pa.Table, *, tells_zeros: bool
) -> tuple[pa.Table, Staged]:
    """Return the rows to stage, and what they are; the name is the caller's to give.

    Args:
        schema: table version of the folded form.
        folded: the whole of it.
        tells_zeros: whether 0.0 and -0.0 are two keys to the server.
    """
    wiped = bool(pc.any(pc.equal(folded["_effect"], ALL_DEAD)).as_py())
    if schema.key_check is KeyCheck.NONE:
        return _multiset(schema, folded.filter(pc.equal(folded["_effect"], NET))), Staged("", wiped)
    effects = folded.filter(pc.not_equal(folded["_effect"], ALL_DEAD)).combine_chunks()
    if not tells_zeros:
        effects = _without_twins(schema, effects)
    live = pc.equal(effects["_effect"], ROW)
    columns: dict[str, pa.ChunkedArray | pa.Array] = {"effect": live.cast(pa.int16())}
    missing = missing_matrix(effects["_missing"].combine_chunks(), len(schema.columns))
    missing &= np.asarray(live)[:, None]
    lacking = tuple(int(index) for index in np.flatnonzero(missing.any(axis=0)))
    if lacking:
        holes = effects["_hole"].to_numpy()
        columns["asks"] = pa.array(missing.any(axis=1) & ~holes)
        for index, name in enumerate(schema.key):
            columns[f"o{index}"] = effects[origin_name(name)]
        for index in lacking:
            columns[f"m{index}"] = pa.array(missing[:, index])
    for index, name in enumerate(schema.names):
        columns[f"c{index}"] = effects[name]
    null_keys = any(effects[name].null_count for name in schema.key)
    if lacking:
        asking = effects.filter(columns["asks"])
        null_keys |= any(asking[origin_name(name)].null_count for name in schema.key)
    # A row that came after one died has nothing in a column that the source no longer has.
    needed = tuple(index for index in lacking if schema.names[index] not in schema.kept)
    return pa.table(columns), Staged("", wiped, lacking, needed, null_keys)


def _multiset(schema: TableSchema, net: pa.Table) -> pa.Table:
    """Return each row that is added as often as it is added, and each that is removed once."""
    counts = net["_count"].to_numpy()
    taken = net.take(pa.array(np.repeat(np.arange(len(counts)), np.maximum(counts, 1))))
    copies = np.minimum(taken["_count"].to_numpy(), 1)
    columns = {
        "place": pa.array(np.arange(taken.num_rows), pa.int64()),
        "copies": pa.array(copies, pa.int64()),
    }
    return pa.table(columns | {f"c{index}": taken[name] for index, name in enumerate(schema.names)})


def _without_twins(schema: TableSchema, effects: pa.Table) -> pa.Table:
    """Leave out a key that dies when the server holds it for the same as one that lives: 0.0 and -0.0, any two NaN."""
    if not any(pa.types.is_floating(schema.column(name).type) for name in schema.key):
        return effects
    keys = encode_rows([_as_server(effects[name].combine_chunks()) for name in schema.key])
    live = np.asarray(pc.equal(effects["_effect"], ROW))
    born = keys.filter(pa.array(live))
    return effects.filter(pa.array(live | ~np.asarray(pc.is_in(keys, born))))


def _as_server(keys: pa.Array) -> pa.Array:
    if not pa.types.is_floating(keys.type):
        return keys
    # A copy: filling nulls may hand out the column's own memory.
    values = np.array(pc.fill_null(keys, 0.0)) + keys.type.to_pandas_dtype()(0.0)
    values[np.isnan(values)] = np.nan
    return pc.if_else(keys.is_valid(), pa.array(values, keys.type), pa.scalar(None, keys.type))

"""Fold: from change rows in order to the effect on each key.

In: batches of `headrace.model.change` rows of one table version, in ``(scn, ord)`` order, and the positions of
truncates. Out: the folded form of `headrace.fold.form`. Pure: no I/O, no clock.

Three rules, by when the source checks the key (`KeyCheck`):

- immediate: the last event per key decides; cells that the source left out are followed through patches and key changes
  back to a value or to the key whose row held them before the stretch.
- deferred: per transaction and key the images are summed as weights; an empty sum means unchanged, the last transaction
  with a non-empty sum decides. Never summed across transactions, so never cut inside one.
- none: the rows are a multiset; weights are summed over the whole stretch.

Source: docs/paper_map.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import polars as pl
import pyarrow as pa

from headrace.errors import MalformedTransaction, ProtocolError
from headrace.fold.chain import follow_chains
from headrace.fold.form import ALL_DEAD, DEAD, NET, ROW, folded_schema
from headrace.model.change import (
    DELETE,
    INSERT,
    PATCH,
    READ,
    UPDATE_NEW,
    UPDATE_OLD,
    change_schema,
    missing_matrix,
)
from headrace.model.rowkey import encode_rows
from headrace.model.schema import KeyCheck, TableSchema

__all__ = ["codes_of", "fold", "last_of"]

Indexes = npt.NDArray[np.int64]


def fold(
    schema: TableSchema,
    batches: Sequence[pa.RecordBatch],
    truncates: Sequence[tuple[int, int]] = (),
) -> pa.Table:
    """Return the effect of the changes on each key.

    Args:
        schema: the version all batches have; `headrace.fold.promote` brings older ones there.
        batches: change rows in ``(scn, ord)`` order. For deferred keys they hold whole transactions.
        truncates: ``(scn, ord)`` of each truncate of this table in the same stretch.

    Raises:
        MalformedTransaction: a deferred key ends a transaction with two rows.
        ProtocolError: rows that no source may send (a patch on a table that needs full images, half an update).
    """
    changes = pa.Table.from_batches(list(batches), schema=change_schema(schema))
    if truncates:
        changes = _after(changes, max(truncates))
    changes = changes.combine_chunks()
    if changes.num_rows == 0:
        effects = folded_schema(schema).empty_table()
    elif schema.key_check is KeyCheck.IMMEDIATE:
        effects = _immediate(schema, changes)
    elif schema.key_check is KeyCheck.DEFERRED:
        effects = _deferred(schema, changes)
    else:
        effects = _multiset(schema, changes)
    if truncates:
        effects = pa.concat_tables([_all_dead(schema), effects])
    return effects


def _after(changes: pa.Table, position: tuple[int, int]) -> pa.Table:
    """Return the rows behind a position; what came before a truncate has no effect."""
    scn, order = changes["_scn"].to_numpy(), changes["_ord"].to_numpy()
    return changes.filter(
        pa.array((scn > position[0]) | ((scn == position[0]) & (order > position[1])))
    )


def _all_dead(schema: TableSchema) -> pa.Table:
    form = folded_schema(schema)
    cells = {"_effect": pa.array([ALL_DEAD]), "_hole": pa.array([False])}
    return pa.table([cells.get(f.name, pa.nulls(1, f.type)) for f in form], schema=form)


def codes_of(columns: Sequence[pa.Array | pa.ChunkedArray]) -> Indexes:
    """Return small integers, equal exactly where the encoded cells are equal."""
    encoded = encode_rows(columns).dictionary_encode()
    return np.asarray(encoded.indices, dtype=np.int64)


def last_of(codes: Indexes) -> Indexes:
    """Return the place of the last row of each code, ascending."""
    last = np.empty(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    # Repeated indexes: numpy assigns in order, the last one stays.
    last[codes] = np.arange(len(codes))
    return np.sort(last)


def _immediate(schema: TableSchema, changes: pa.Table) -> pa.Table:
    codes = codes_of([changes[name] for name in schema.key])
    ops = np.asarray(
        changes["_op"].combine_chunks().dictionary_encode().to_numpy(zero_copy_only=False)
    )
    missing = missing_matrix(changes["_missing"].combine_chunks(), len(schema.columns))
    holey = missing.any(axis=1) & ~np.isin(ops, (DELETE, UPDATE_OLD))
    last = last_of(codes)
    if not holey.any():
        return _assemble(schema, changes, last, _is_dead(ops[last]))
    slow = np.zeros(int(codes.max()) + 1, bool)
    slow[codes[holey]] = True
    # A move with missing columns ties its old key to its new one.
    slow[codes[np.maximum(np.flatnonzero(holey & (ops == UPDATE_NEW)) - 1, 0)]] = True
    events = np.flatnonzero(slow[codes])
    chains = follow_chains(
        events, ops, codes, missing, changes["_scn"].to_numpy(), changes["_ord"].to_numpy()
    )
    last = last[~slow[codes[last]]]
    easy = _assemble(schema, changes, last, _is_dead(ops[last]))
    return pa.concat_tables([easy, chains.assemble(schema, changes)])


def _is_dead(ops: npt.NDArray[np.object_]) -> npt.NDArray[np.bool_]:
    return np.isin(ops, (DELETE, UPDATE_OLD))


def _assemble(
    schema: TableSchema, changes: pa.Table, rows: Indexes, dead: npt.NDArray[np.bool_]
) -> pa.Table:
    """Return ROW and DEAD effects whose cells all stand in one change row each."""
    taken = changes.take(pa.array(rows)) if len(rows) < changes.num_rows else changes
    form = folded_schema(schema)
    cells: dict[str, pa.Array | pa.ChunkedArray] = {
        "_effect": pa.array(np.where(dead, DEAD, ROW)).cast(pa.string()),
        "_hole": pa.array(np.zeros(len(rows), bool)),
    }
    any_dead = bool(dead.any())
    for name in schema.names:
        cells[name] = taken[name]
        if any_dead and name not in schema.key:
            cells[name] = _blank(taken[name].combine_chunks(), dead)
    return pa.table(
        [cells[f.name] if f.name in cells else pa.nulls(len(rows), f.type) for f in form],
        schema=form,
    )


def _blank(column: pa.Array, where: npt.NDArray[np.bool_]) -> pa.Array:
    """Return the column with null in the given rows."""
    places = pa.array(np.arange(len(column)), mask=where)
    return column.take(places)


def _deferred(schema: TableSchema, changes: pa.Table) -> pa.Table:
    weighted = _weighted(schema, changes)
    frame = weighted.with_columns(key=codes_of([changes[name] for name in schema.key]))
    logged = frame.filter(pl.col("weight") != 0)
    net = (
        logged.group_by("scn", "key", "row")
        .agg(pl.col("weight").sum(), pl.col("place").last())
        .filter(pl.col("weight") != 0)
    )
    per_key = net.group_by("scn", "key").agg(
        plus=pl.col("weight").filter(pl.col("weight") > 0).sum(),
        minus=pl.col("weight").filter(pl.col("weight") < 0).sum(),
        place=pl.col("place").filter(pl.col("weight") > 0).last(),
        old=pl.col("place").last(),
    )
    bad = per_key.filter((pl.col("plus") > 1) | (pl.col("minus") < -1))
    if len(bad):
        raise MalformedTransaction(
            f"{schema.table}: transaction at SCN {bad['scn'][0]} leaves {len(bad)} keys with more than one row.",
            next_step="check that the table's replica identity is FULL; then request a dump of the table.",
        )
    reads = frame.filter(pl.col("weight") == 0).select("scn", "key", "place", old="place")
    final = (
        pl.concat([per_key.select("scn", "key", "place", "old"), reads])
        .sort("scn", maintain_order=True)
        .unique("key", keep="last", maintain_order=True)
    )
    dead = final["place"].is_null().to_numpy()
    rows = final["place"].fill_null(pl.Series(final["old"])).to_numpy()
    order = np.argsort(rows, kind="stable")
    return _assemble(schema, changes, rows[order], dead[order])


def _multiset(schema: TableSchema, changes: pa.Table) -> pa.Table:
    frame = _weighted(schema, changes)
    if (frame["weight"] == 0).any():
        raise ProtocolError(
            f"{schema.table} has no key, yet a row without weight came for it.",
            next_step="report this as a defect of the source adapter; the table was not changed.",
        )
    net = (
        frame.group_by("row", maintain_order=True)
        .agg(pl.col("weight").sum(), pl.col("place").first())
        .filter(pl.col("weight") != 0)
    )
    taken = changes.take(pa.array(net["place"].to_numpy()))
    form = folded_schema(schema)
    cells: dict[str, pa.Array | pa.ChunkedArray] = {
        "_effect": pa.array([NET] * len(net), pa.string()),
        "_count": pa.array(net["weight"].to_numpy(), pa.int64()),
        "_hole": pa.array(np.zeros(len(net), bool)),
        **{name: taken[name] for name in schema.names},
    }
    return pa.table(
        [cells[f.name] if f.name in cells else pa.nulls(len(net), f.type) for f in form],
        schema=form,
    )


def _weighted(schema: TableSchema, changes: pa.Table) -> pl.DataFrame:
    """Return scn, row code, weight and place of each change; full images are required."""
    ops = np.asarray(
        changes["_op"].combine_chunks().dictionary_encode().to_numpy(zero_copy_only=False)
    )
    if changes["_missing"].null_count < changes.num_rows or (ops == PATCH).any():
        raise ProtocolError(
            f"{schema.table} needs whole images, yet a change left columns out.",
            next_step=f"ALTER TABLE {schema.table} REPLICA IDENTITY FULL; then request a dump of the table.",
        )
    weight = np.isin(ops, (INSERT, UPDATE_NEW)).astype(np.int64)
    weight -= np.isin(ops, (DELETE, UPDATE_OLD)).astype(np.int64)
    known = (weight != 0) | (ops == READ)
    if not known.all():
        raise ProtocolError(f"{schema.table}: a change row has an unknown operation code.")
    return pl.DataFrame(
        {
            "scn": changes["_scn"].to_numpy(),
            "row": codes_of([changes[name] for name in schema.names]),
            "weight": weight,
            "place": np.arange(changes.num_rows),
        }
    )

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
import pyarrow as pa

from headrace.errors import MalformedTransaction, ProtocolError
from headrace.fold.chain import follow_chains
from headrace.fold.form import ALL_DEAD, DEAD, NET, ROW, folded_schema, refuse_taken
from headrace.fold.patches import follow_patches
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
from headrace.plural import counted

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
        IncompatibleSchemaChange: a column has the name of one of ours.
    """
    refuse_taken(schema)
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
    cells = columns[0] if len(columns) == 1 else None
    if isinstance(cells, pa.ChunkedArray):
        cells = cells.combine_chunks()
    if cells is None or cells.null_count or pa.types.is_floating(cells.type):
        cells = encode_rows(columns)
    return np.asarray(cells.dictionary_encode().indices, dtype=np.int64)


def last_of(codes: Indexes) -> Indexes:
    """Return the place of the last row of each code, ascending; every code up to the largest occurs."""
    last = np.empty(int(codes.max()) + 1 if len(codes) else 0, np.int64)
    # Repeated indexes: numpy assigns in order, the last one stays.
    last[codes] = np.arange(len(codes))
    return np.sort(last)


def _immediate(schema: TableSchema, changes: pa.Table) -> pa.Table:
    codes = codes_of([changes[name] for name in schema.key])
    ends = _one_of(changes["_op"], (DELETE, UPDATE_OLD))
    missing = missing_matrix(changes["_missing"].combine_chunks(), len(schema.columns))
    holey = missing.any(axis=1) & ~ends
    last = last_of(codes)
    if not holey.any():
        return _assemble(schema, changes, last, ends[last])
    slow = _marked(codes, holey)
    # A move with missing columns ties its old key to its new one.
    moves = holey & _one_of(changes["_op"], (UPDATE_NEW,))
    tied = _marked(codes, moves)
    tied[codes[np.maximum(np.flatnonzero(moves) - 1, 0)]] = True
    slow |= tied
    easy = last[~slow[codes[last]]]
    parts = [_assemble(schema, changes, easy, ends[easy])]
    patched = np.flatnonzero(slow[codes] & ~tied[codes])
    if len(patched):
        whole = ~ends & (~holey | _one_of(changes["_op"], (INSERT, READ)))
        followed = follow_patches(patched, codes, ends, whole, missing)
        parts.append(followed.assemble(schema, changes))
    if tied.any():
        scn, order = changes["_scn"].to_numpy(), changes["_ord"].to_numpy()
        ops = np.asarray(changes["_op"].to_numpy(zero_copy_only=False))
        chained = follow_chains(np.flatnonzero(tied[codes]), ops, codes, missing, scn, order)
        parts.append(chained.assemble(schema, changes))
    return pa.concat_tables(parts)


def _marked(codes: Indexes, rows: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Return, per code, whether one of the given rows has it."""
    marked = np.zeros(int(codes.max()) + 1, bool)
    marked[codes[rows]] = True
    return marked


def _one_of(column: pa.ChunkedArray, values: Sequence[str]) -> npt.NDArray[np.bool_]:
    """Return which cells are one of a few values."""
    cells = column.combine_chunks().dictionary_encode()
    known = np.array([value in values for value in cells.dictionary.to_pylist()], bool)
    return np.take(known, np.asarray(cells.indices))


def _assemble(
    schema: TableSchema, changes: pa.Table, rows: Indexes, dead: npt.NDArray[np.bool_]
) -> pa.Table:
    """Return ROW and DEAD effects whose cells all stand in one change row each."""
    taken = changes.take(pa.array(rows)) if len(rows) < changes.num_rows else changes
    form = folded_schema(schema)
    cells: dict[str, pa.Array | pa.ChunkedArray] = {
        "_effect": pa.array([ROW, DEAD], pa.string()).take(pa.array(dead.astype(np.int8))),
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
    rows, weight = _weighted(schema, changes)
    keys = codes_of([changes[name] for name in schema.key])
    scn = changes["_scn"].to_numpy()
    logged = np.flatnonzero(weight)
    # Per transaction and row: the images, summed; a row names its key.
    images = _groups(scn[logged], rows[logged])
    summed = np.zeros(images.max(initial=-1) + 1, np.int64)
    np.add.at(summed, images, weight[logged])
    last = np.zeros(len(summed), np.int64)
    last[images] = logged
    places, net = last[summed != 0], summed[summed != 0]
    # Per transaction and key: at most one row goes, at most one comes.
    groups = _groups(scn[places], keys[places])
    count = groups.max(initial=-1) + 1
    comes, goes = np.zeros((2, count), np.int64)
    np.add.at(comes, groups[net > 0], net[net > 0])
    np.add.at(goes, groups[net < 0], net[net < 0])
    bad = (comes > 1) | (goes < -1)
    if bad.any():
        at = scn[places[bad[groups]][0]]
        raise MalformedTransaction(
            f"{schema.table}: transaction at SCN {at} leaves {counted(int(bad.sum()), 'key')} with more than one row.",
            next_step="check that the table's replica identity is FULL; then request a dump of the table.",
        )
    shown = np.zeros(count, np.int64)
    shown[groups] = places
    shown[groups[net > 0]] = places[net > 0]
    read = np.flatnonzero(weight == 0)
    ends = np.concatenate([shown, read])
    dies = np.concatenate([comes == 0, np.zeros(len(read), bool)])
    order = np.argsort(scn[ends], kind="stable")
    ends, dies = ends[order], dies[order]
    decides = last_of(np.unique(keys[ends], return_inverse=True)[1])
    ends, dies = ends[decides], dies[decides]
    order = np.argsort(ends, kind="stable")
    return _assemble(schema, changes, ends[order], dies[order])


def _groups(scn: npt.NDArray[np.int64], codes: Indexes) -> Indexes:
    """Return small integers, equal exactly where SCN and code are."""
    transactions = np.unique(scn, return_inverse=True)[1]
    pairs = transactions.astype(np.int64) * (codes.max(initial=0) + 1) + codes
    return np.unique(pairs, return_inverse=True)[1].astype(np.int64)


def _multiset(schema: TableSchema, changes: pa.Table) -> pa.Table:
    rows, weight = _weighted(schema, changes)
    if not weight.all():
        raise ProtocolError(
            f"{schema.table} has no key, yet a row without weight came for it.",
            next_step="report this as a defect of the source adapter; the table was not changed.",
        )
    counts = np.zeros(rows.max(initial=-1) + 1, np.int64)
    np.add.at(counts, rows, weight)
    first = np.zeros(len(counts), np.int64)
    # Repeated indexes: the last assignment stays, which is that of the first row.
    first[rows[::-1]] = np.arange(len(rows))[::-1]
    places, counts = first[counts != 0], counts[counts != 0]
    taken = changes.take(pa.array(places))
    form = folded_schema(schema)
    cells: dict[str, pa.Array | pa.ChunkedArray] = {
        "_effect": pa.array([NET] * len(places), pa.string()),
        "_count": pa.array(counts, pa.int64()),
        "_hole": pa.array(np.zeros(len(places), bool)),
        **{name: taken[name] for name in schema.names},
    }
    return pa.table(
        [cells[f.name] if f.name in cells else pa.nulls(len(places), f.type) for f in form],
        schema=form,
    )


def _weighted(schema: TableSchema, changes: pa.Table) -> tuple[Indexes, npt.NDArray[np.int64]]:
    """Return row code and weight of each change; full images are required."""
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
    return codes_of([changes[name] for name in schema.names]), weight

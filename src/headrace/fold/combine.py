"""Combine the folded forms of two neighbouring stretches into that of both; associative.

Source: docs/paper_map.md, ``combine``.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.fold.form import ALL_DEAD, DEAD, NET, folded_schema, origin_name
from headrace.model.change import missing_matrix, pack_missing
from headrace.model.rowkey import encode_rows
from headrace.model.schema import KeyCheck, TableSchema

__all__ = ["combine"]


def combine(schema: TableSchema, first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the effect of ``first`` followed by ``second``.

    Both are folded forms of the same table version; ``second`` begins where ``first`` ends, at an end of a
    transaction when the key is deferred.
    """
    first, second = first.combine_chunks(), second.combine_chunks()
    wiped = _has_all_dead(second)
    if wiped or first.num_rows == 0:
        return second
    if second.num_rows == 0:
        return first
    if schema.key_check is KeyCheck.NONE:
        return _sum(schema, first, second)
    known = _key_places(schema, first)
    if second[origin_name(schema.key[0])].null_count < second.num_rows:
        second = _resolve(schema, first, second, known)
    names = set(_keys(second, schema.key).to_pylist())
    keep = [
        effect == ALL_DEAD or key not in names
        for effect, key in zip(
            first["_effect"].to_pylist(), _keys(first, schema.key).to_pylist(), strict=True
        )
    ]
    return pa.concat_tables([first.filter(pa.array(keep)), second])


def _has_all_dead(folded: pa.Table) -> bool:
    return bool(folded.num_rows and folded["_effect"][0].as_py() == ALL_DEAD)


def _keys(folded: pa.Table, names: tuple[str, ...] | list[str]) -> pa.Array:
    return encode_rows([folded[name] for name in names])


def _key_places(schema: TableSchema, folded: pa.Table) -> dict[bytes, int]:
    """Return where each key stands; the ALL_DEAD row is not a key."""
    keys = _keys(folded, schema.key).to_pylist()
    return {
        key: place
        for place, (key, effect) in enumerate(zip(keys, folded["_effect"].to_pylist(), strict=True))
        if effect != ALL_DEAD
    }


def _resolve(
    schema: TableSchema, first: pa.Table, second: pa.Table, known: dict[bytes, int]
) -> pa.Table:
    """Return ``second`` with its missing cells looked up in ``first``."""
    width = len(schema.columns)
    missing = missing_matrix(second["_missing"].combine_chunks(), width)
    hole = second["_hole"].to_numpy().copy()
    asks = np.asarray(second[origin_name(schema.key[0])].combine_chunks().is_valid())
    origins = _keys(second, [origin_name(name) for name in schema.key]).to_pylist()
    place = np.array(
        [known.get(key, -1) if ask else -1 for key, ask in zip(origins, asks, strict=True)],
        np.int64,
    )
    found = place >= 0
    dead = np.array([e == DEAD for e in first["_effect"].to_pylist()], bool)
    first_missing = missing_matrix(first["_missing"].combine_chunks(), width)
    first_hole = first["_hole"].to_numpy()
    falls = np.zeros(len(place), bool)
    falls[found] = dead[place[found]]
    falls |= asks & ~found & _has_all_dead(first)
    live = found & ~falls
    still = missing.copy()
    still[live] &= first_missing[place[live]]
    hole |= falls & still.any(axis=1)
    hole[live] |= first_hole[place[live]] & still[live].any(axis=1)
    return _rebuild(schema, first, second, place, live, falls, missing & ~still, still, hole)


def _rebuild(
    schema: TableSchema,
    first: pa.Table,
    second: pa.Table,
    place: npt.NDArray[np.int64],
    live: npt.NDArray[np.bool_],
    falls: npt.NDArray[np.bool_],
    filled: npt.NDArray[np.bool_],
    still: npt.NDArray[np.bool_],
    hole: npt.NDArray[np.bool_],
) -> pa.Table:
    """Return ``second`` with cells filled from ``first``, and with masks, holes and origins brought up to date."""
    form = folded_schema(schema)
    width = len(schema.columns)
    cells: dict[str, pa.Array | pa.ChunkedArray] = {
        "_missing": pa.array(
            [pack_missing(np.flatnonzero(row), width) for row in still], pa.binary()
        ),
        "_hole": pa.array(hole),
    }
    rows = np.arange(second.num_rows)
    for index, name in enumerate(schema.names):
        cells[name] = _choose(
            first[name], second[name], np.where(filled[:, index], place, -1), rows
        )
    for name in schema.key:
        origin = origin_name(name)
        chosen = _choose(first[origin], second[origin], np.where(live, place, -1), rows)
        cells[origin] = chosen.take(pa.array(rows, mask=falls | hole))
    return pa.table([cells.get(f.name, second[f.name]) for f in form], schema=form)


def _choose(
    first: pa.ChunkedArray,
    second: pa.ChunkedArray,
    place: npt.NDArray[np.int64],
    rows: npt.NDArray[np.int64],
) -> pa.ChunkedArray:
    """Return per row the cell of ``first`` at ``place``, or the own cell of ``second`` where it is negative."""
    both = pa.chunked_array([*first.chunks, *second.chunks], type=first.type)
    return both.take(pa.array(np.where(place >= 0, place, rows + len(first))))


def _sum(schema: TableSchema, first: pa.Table, second: pa.Table) -> pa.Table:
    """Return the summed counts of two multiset changes; an ALL_DEAD row of ``first`` stays in front."""
    both = pa.concat_tables([first, second]).combine_chunks()
    sums: dict[bytes, int] = {}
    where: dict[bytes, int] = {}
    head: list[int] = []
    keys = _keys(both, schema.names).to_pylist()
    for place, (key, effect, count) in enumerate(
        zip(keys, both["_effect"].to_pylist(), both["_count"].to_pylist(), strict=True)
    ):
        if effect == NET:
            sums[key] = sums.get(key, 0) + count
            where.setdefault(key, place)
        else:
            head.append(place)
    left = [key for key, count in sums.items() if count]
    taken = both.take(pa.array([*head, *(where[key] for key in left)], pa.int64()))
    counts = pa.array([*(None for _ in head), *(sums[key] for key in left)], pa.int64())
    return taken.set_column(
        taken.schema.get_field_index("_count"), taken.schema.field("_count"), counts
    )

"""Follow cells that the source left out through patches and key changes.

Only keys that such changes touch come here; everything else is decided by its last event. Works on row numbers, not on
values: a cell is the place of the change row that carries it, or one of two signs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import ProtocolError
from headrace.fold.form import DEAD, ROW, folded_schema, origin_name
from headrace.model.change import DELETE, INSERT, PATCH, READ, UPDATE_NEW, UPDATE_OLD, pack_missing
from headrace.model.schema import TableSchema

__all__ = ["Chains", "follow_chains"]

FROM_ORIGIN = -1
"""The cell is the one that the target holds at the row's origin key."""
ABSOLUTE = -1
"""The row does not depend on what the target held."""
HOLE = -2
"""The cell has nowhere to come from: the row it was in is dead."""


@dataclass(slots=True)
class _Row:
    """A live row: per column the place that carries it.

    ``origin`` is a place whose key columns name the row it grew out of, `ABSOLUTE` when one event carried it whole.
    """

    cells: npt.NDArray[np.int64]
    origin: int


@dataclass(slots=True)
class Chains:
    """Effects per key code; None is DEAD. ``last`` is a place that carries the key itself."""

    effects: dict[int, _Row | None] = field(default_factory=dict)
    last: dict[int, int] = field(default_factory=dict)

    def assemble(self, schema: TableSchema, changes: pa.Table) -> pa.Table:
        """Return the effects in the folded form."""
        form = folded_schema(schema)
        width = len(schema.columns)
        keys = schema.key_indexes
        rows = len(self.effects)
        places = np.full((rows, width), FROM_ORIGIN, np.int64)
        origins = np.full(rows, ABSOLUTE, np.int64)
        effects: list[str] = []
        masks: list[bytes | None] = []
        holes = np.zeros(rows, bool)
        for number, (code, row) in enumerate(self.effects.items()):
            effects.append(ROW if row else DEAD)
            if row is None:
                masks.append(None)
            else:
                places[number] = row.cells
                masks.append(pack_missing(np.flatnonzero(row.cells < 0), width))
                holes[number] = bool((row.cells == HOLE).any())
                origins[number] = row.origin
            places[number, keys] = self.last[code]
        cells = {
            "_effect": pa.array(effects, pa.string()),
            "_missing": pa.array(masks, pa.binary()),
            "_hole": pa.array(holes),
        }
        for name in schema.key:
            cells[origin_name(name)] = _take(changes[name], origins)
        for index, name in enumerate(schema.names):
            cells[name] = _take(changes[name], places[:, index])
        return pa.table(
            [cells[f.name] if f.name in cells else pa.nulls(rows, f.type) for f in form],
            schema=form,
        )


def _take(column: pa.ChunkedArray, places: npt.NDArray[np.int64]) -> pa.ChunkedArray:
    """Return the cells at the given places, null where the place is negative."""
    return column.take(pa.array(places, mask=places < 0))


def follow_chains(
    events: npt.NDArray[np.int64],
    ops: npt.NDArray[np.object_],
    codes: npt.NDArray[np.int64],
    missing: npt.NDArray[np.bool_],
    scn: npt.NDArray[np.int64],
    order: npt.NDArray[np.int32],
) -> Chains:
    """Return the effect of the given events on their keys.

    Args:
        events: places of the events to follow, ascending; both halves of every update whose new image
            has missing cells are among them.
        ops: operation code per place.
        codes: key code per place.
        missing: places × columns, true where not sent.
        scn: per place.
        order: per place.

    Source: docs/paper_map.md, immediate keys.
    """
    chains = Chains()
    effects = chains.effects
    moved = -1
    base_of_move: _Row | None = None
    for place in events.tolist():
        op, code, holes = ops[place], int(codes[place]), missing[place]
        if op == UPDATE_OLD:
            moved = place
            # The new image may belong to a key that needs no following; then this is a plain removal.
            base_of_move = effects.get(code, _unknown(missing.shape[1], place))
            effects[code] = None
        elif op == DELETE:
            effects[code] = None
        elif op in (INSERT, READ) or not holes.any():
            effects[code] = _Row(np.full(len(holes), place), ABSOLUTE)
        elif op == PATCH:
            base = effects.get(code, _unknown(len(holes), place))
            effects[code] = _patched(place, holes, base)
        elif op == UPDATE_NEW and _are_neighbours(moved, place, scn, order):
            carried = np.where(missing[moved], HOLE, moved)
            row = _patched(place, holes, base_of_move)
            sent_before = holes & (carried >= 0)
            row.cells[sent_before] = carried[sent_before]
            if (row.cells >= moved).all():
                row.origin = ABSOLUTE
            effects[code] = row
        else:
            raise ProtocolError(
                f"A change at SCN {scn[place]} leaves columns out and has no first half beside it.",
                next_step="report this as a defect of the source adapter; nothing was applied.",
            )
        chains.last[code] = place
    return chains


def _are_neighbours(
    old: int, new: int, scn: npt.NDArray[np.int64], order: npt.NDArray[np.int32]
) -> bool:
    """Whether two places are the halves of one update."""
    return old == new - 1 and old >= 0 and scn[old] == scn[new] and order[old] + 1 == order[new]


def _unknown(width: int, place: int) -> _Row:
    """Return the row that the target holds at the key of ``place``."""
    return _Row(np.full(width, FROM_ORIGIN, np.int64), place)


def _patched(place: int, holes: npt.NDArray[np.bool_], base: _Row | None) -> _Row:
    """Return ``base`` with the cells that ``place`` sent; a dead base leaves holes."""
    if base is None:
        return _Row(np.where(holes, HOLE, place), ABSOLUTE)
    return _Row(np.where(holes, base.cells, place), base.origin)

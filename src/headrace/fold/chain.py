"""Follow cells that the source left out through key changes.

Only keys come here that such a change ties to each other; where none does, `headrace.fold.patches` follows all at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.errors import ProtocolError
from headrace.fold.followed import ABSOLUTE, FROM_ORIGIN, HOLE, Followed
from headrace.model.change import DELETE, INSERT, PATCH, READ, UPDATE_NEW, UPDATE_OLD

__all__ = ["follow_chains"]


@dataclass(slots=True)
class _Row:
    """A live row: per column the place that carries it.

    ``origin`` is a place whose key columns name the row it grew out of, `ABSOLUTE` when one event carried it whole.
    """

    cells: npt.NDArray[np.int64]
    origin: int


def follow_chains(
    events: npt.NDArray[np.int64],
    ops: npt.NDArray[np.object_],
    codes: npt.NDArray[np.int64],
    missing: npt.NDArray[np.bool_],
    scn: npt.NDArray[np.int64],
    order: npt.NDArray[np.int32],
) -> Followed:
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
    effects: dict[int, _Row | None] = {}
    last: dict[int, int] = {}
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
        last[code] = place
    return _followed(effects, last, missing.shape[1])


def _followed(effects: dict[int, _Row | None], last: dict[int, int], width: int) -> Followed:
    rows = len(effects)
    cells = np.full((rows, width), FROM_ORIGIN, np.int64)
    origins = np.full(rows, ABSOLUTE, np.int64)
    dead = np.zeros(rows, bool)
    for number, row in enumerate(effects.values()):
        if row is None:
            dead[number] = True
        else:
            cells[number] = row.cells
            origins[number] = row.origin
    return Followed(cells, origins, dead, np.array([last[code] for code in effects], np.int64))


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

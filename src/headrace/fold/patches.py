"""Cells that the source left out, followed through the patches of one key.

Keys that moved while cells were missing are the business of `headrace.fold.chain`; here each key stands for itself, so
all are followed at once.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from headrace.fold.followed import ABSOLUTE, FROM_ORIGIN, HOLE, Followed, Places

__all__ = ["follow_patches"]

Flags = npt.NDArray[np.bool_]


def follow_patches(
    events: Places, codes: Places, ends: Flags, whole: Flags, missing: Flags
) -> Followed:
    """Return the effect of the given events on their keys.

    Args:
        events: places of all events of these keys, ascending; none is half of an update with missing cells.
        codes: key code per place.
        ends: whether the row is gone behind a place.
        whole: whether a place carries all of the row.
        missing: places × columns, true where not sent.

    Source: docs/paper_map.md, immediate keys.
    """
    places = events[np.argsort(codes[events], kind="stable")]
    changed = np.flatnonzero(codes[places][1:] != codes[places][:-1]) + 1
    first = np.concatenate([[0], changed])
    last = np.concatenate([changed, [len(places)]]) - 1
    # Of each key, the last event that says all there is to say; only what follows it counts.
    anchor = _latest(ends[places] | whole[places], last)
    anchored = anchor >= first
    begin = np.where(anchored, anchor, first)
    gone = anchored & ends[places[begin]]
    cells = np.empty((len(first), missing.shape[1]), np.int64)
    for column in range(missing.shape[1]):
        sent = whole[places] | ~(ends[places] | missing[places, column])
        latest = _latest(sent, last)
        nowhere = np.where(gone, HOLE, FROM_ORIGIN)
        cells[:, column] = np.where(latest >= begin, places[np.maximum(latest, 0)], nowhere)
    return Followed(
        cells,
        origins=np.where(anchored, ABSOLUTE, places[first]),
        dead=gone & (begin == last),
        last=places[last],
    )


def _latest(flags: Flags, upto: Places) -> Places:
    """Return the last index with a flag at or before each of some indexes, -1 where there is none."""
    found = np.where(flags, np.arange(len(flags)), -1)
    return np.maximum.accumulate(found)[upto]

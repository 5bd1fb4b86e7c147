"""Patches of keys that nothing ties to each other: all at once as one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.fold.chain import follow_chains
from headrace.fold.followed import ABSOLUTE, FROM_ORIGIN, HOLE, Followed
from headrace.fold.patches import follow_patches
from headrace.model.change import DELETE, INSERT, PATCH, READ, UPDATE_NEW, UPDATE_OLD
from tests.requirements import req

WIDTH = 3
ops = st.sampled_from([PATCH, PATCH, PATCH, INSERT, READ, DELETE, UPDATE_OLD, UPDATE_NEW])
events = st.lists(
    st.tuples(st.integers(0, 3), ops, st.tuples(*[st.booleans()] * WIDTH)), min_size=1, max_size=25
)


def both(history: list[tuple[int, str, tuple[bool, ...]]]) -> tuple[Followed, Followed]:
    codes = np.array([key for key, _, _ in history])
    kinds = np.array([op for _, op, _ in history], object)
    missing = np.array([absent for _, _, absent in history])
    # A new image with missing cells belongs to a move, which ties keys.
    missing[kinds == UPDATE_NEW] = False
    ends = np.isin(kinds, (DELETE, UPDATE_OLD))
    whole = ~ends & (~missing.any(axis=1) | np.isin(kinds, (INSERT, READ)))
    places = np.arange(len(history))
    at_once = follow_patches(places, codes, ends, whole, missing)
    # Neither SCN nor order matters where no two events are halves of one update.
    one_by_one = follow_chains(
        places, kinds, codes, missing, places.astype(np.int64), places.astype(np.int32)
    )
    return at_once, one_by_one


@given(events)
@req("T2", "C41")
def test_at_once_is_one_by_one(history: list[tuple[int, str, tuple[bool, ...]]]) -> None:
    at_once, one_by_one = both(history)
    shown = [
        {
            history[last][0]: (last, dead) if dead else (last, dead, tuple(cells), origin)
            for last, dead, cells, origin in zip(
                found.last.tolist(),
                found.dead.tolist(),
                found.cells.tolist(),
                found.origins.tolist(),
                strict=True,
            )
        }
        for found in (at_once, one_by_one)
    ]
    assert shown[0] == shown[1]
    assert len(at_once.last) == len({key for key, _, _ in history})


@pytest.mark.parametrize(
    ("history", "cells", "origin"),
    [
        ([(0, PATCH, (False, True, True))], [0, FROM_ORIGIN, FROM_ORIGIN], 0),
        (
            [(0, PATCH, (False, True, True)), (0, PATCH, (True, False, True))],
            [0, 1, FROM_ORIGIN],
            0,
        ),
        ([(0, INSERT, (False,) * 3), (0, PATCH, (True, False, True))], [0, 1, 0], ABSOLUTE),
        ([(0, DELETE, (True,) * 3), (0, PATCH, (True, False, True))], [HOLE, 1, HOLE], ABSOLUTE),
    ],
)
def test_where_cells_come_from(
    history: list[tuple[int, str, tuple[bool, ...]]], cells: list[int], origin: int
) -> None:
    for found in both(history):
        assert found.cells.tolist() == [cells]
        assert found.origins.tolist() == [origin]
        assert found.dead.tolist() == [False]

"""The plan of maintenance: bounded pieces, each of which leaves a table nearer to order."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.lake.data_writer import FILE_ROWS
from headrace.lake.pieces import FileFacts, Piece, Sizes, next_piece

SIZES = Sizes(target_bytes=64_000, small_bytes=16_000, deleted=0.2)


@st.composite
def files(draw: st.DrawFn) -> FileFacts:
    rows = draw(st.integers(1, 5_000))
    low = draw(st.integers(0, 1_000))
    bounds = (low, low + draw(st.integers(0, 300)))
    return FileFacts(
        draw(st.integers(500, 90_000)),
        rows,
        draw(st.one_of(st.just(0), st.integers(0, rows))),
        draw(st.sampled_from((bounds, bounds, bounds, None))),
    )


def after(facts: list[FileFacts], piece: Piece) -> list[FileFacts]:
    """Return what a table's files are like behind a piece of work."""
    chosen = [facts[place] for place in piece.files]
    left = [file for place, file in enumerate(facts) if place not in piece.files]
    size, rows = sum(file.living_bytes for file in chosen), sum(file.living for file in chosen)
    bounds = [file.bounds for file in chosen if file.bounds]
    low, high = (
        (min(b[0] for b in bounds), max(b[1] for b in bounds))
        if len(bounds) == len(chosen)
        else (0, 0)
    )
    for number in range(piece.count if rows else 0):
        ends = [low + (high - low) * n // piece.count for n in (number, number + 1)]
        known = (ends[0], ends[1]) if len(bounds) == len(chosen) else None
        part = -(-rows // piece.count)
        count = min(part, rows - part * number)
        if count > 0:
            left.append(FileFacts(int(size * count / rows), count, 0, known))
    return left


def check(facts: list[FileFacts], piece: Piece) -> None:
    chosen = [facts[place] for place in piece.files]
    assert len(set(piece.files)) == len(chosen)
    if len(chosen) > 1:
        assert sum(file.living_bytes for file in chosen) <= 2 * SIZES.target_bytes
        assert sum(file.living for file in chosen) <= 2 * FILE_ROWS
        assert piece.count <= len(chosen)
    known = [file.bounds for file in chosen if file.bounds]
    assert known == sorted(known)


@given(st.lists(files(), max_size=60))
def test_a_table_that_is_left_alone_is_in_order_after_a_while(facts: list[FileFacts]) -> None:
    pieces = 0
    while (piece := next_piece(facts, SIZES)) is not None:
        check(facts, piece)
        facts = after(facts, piece)
        pieces += 1
        assert pieces < 500
    small = [f for f in facts if f.living_bytes < SIZES.small_bytes]
    # What did not fit into one piece with three others is as large as a piece by itself.
    assert len(small) < 4 or sum(f.living_bytes for f in small) > SIZES.target_bytes
    for file in facts:
        worth = file.size - file.living_bytes >= SIZES.small_bytes / 16
        assert not worth or file.dead < SIZES.deleted * file.rows


def even(count: int, *, size: int = 40_000, dead: int = 0) -> list[FileFacts]:
    return [FileFacts(size, 1_000, dead, (place * 100, place * 100 + 99)) for place in range(count)]


def test_a_table_in_order_is_left_alone() -> None:
    assert next_piece([], SIZES) is None
    assert next_piece(even(100), SIZES) is None
    assert next_piece(even(3, size=100), SIZES) is None
    assert next_piece(even(100, dead=199), SIZES) is None
    # Half of next to nothing is not worth a file.
    assert next_piece([FileFacts(1_500, 10, 5, (0, 9))], SIZES) is None
    assert next_piece([FileFacts(3_000, 10, 5, (0, 9))], SIZES) is not None


def test_neighbours_are_merged_whatever_their_order_in_the_log() -> None:
    facts = even(12, size=12_000)
    random.Random(1).shuffle(facts)
    piece = next_piece(facts, SIZES)
    assert piece is not None
    assert (piece.reason, piece.count) == ("small", 2)
    lows = [facts[place].bounds[0] for place in piece.files]  # type: ignore[index]
    # As many as are one piece, side by side.
    assert lows == list(range(0, 1_000, 100))


def test_a_crowd_is_dispersed_by_its_smallest() -> None:
    wide = [FileFacts(20_000 + 1_000 * place, 1_000, 0, (0, 1_000)) for place in range(9)]
    piece = next_piece([*even(5), *wide], SIZES)
    assert piece is not None
    assert piece.reason == "crowded"
    assert sorted(piece.files) == [5, 6, 7, 8, 9]
    assert piece.count == 2


@pytest.mark.parametrize("bounds", [(7, 7), ("a", "a"), None])
def test_files_that_share_no_more_than_one_value_are_no_crowd(bounds: Any) -> None:
    """However often they were merged they would share it."""
    assert next_piece([FileFacts(40_000, 1_000, 0, bounds)] * 50, SIZES) is None
    ends = [FileFacts(40_000, 1_000, 0, (place // 5, place // 5 + 1)) for place in range(40)]
    assert next_piece(ends, SIZES) is None


def test_the_file_with_most_deleted_is_written_first() -> None:
    facts = even(10)
    facts[4] = FileFacts(40_000, 1_000, 500, (400, 499))
    facts[6] = FileFacts(40_000, 1_000, 900, (600, 699))
    assert next_piece(facts, SIZES) == Piece((6,), 1, "deleted")
    facts[6] = FileFacts(40_000, 1_000, 1_000, (600, 699))
    assert next_piece(facts, SIZES) == Piece((6,), 0, "deleted")


def test_a_file_beyond_all_bounds_is_left_alone() -> None:
    rows = 3 * FILE_ROWS
    assert next_piece([FileFacts(40_000, rows, rows // 4, (0, 9))], SIZES) is None


def test_a_small_file_is_at_most_half_a_full_one() -> None:
    with pytest.raises(ValueError, match="half"):
        Sizes(64_000, 40_000)

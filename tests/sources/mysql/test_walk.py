"""The walk through row images: both twins, on images made up and on bytes that are none."""

from __future__ import annotations

import random
from array import array

import pytest

from headrace.errors import ProtocolError
from headrace.sources.mysql import images
from headrace.sources.mysql.images import Layout
from headrace.sources.mysql.types import ColumnType, Kind
from headrace.sources.mysql.walker import ENGINES, Walk, make_walk

TYPES = (
    ColumnType(Kind.TINY),
    ColumnType(Kind.LONGLONG),
    ColumnType(Kind.DECIMAL, precision=10, scale=2),
    ColumnType(Kind.VARCHAR, length=80, charset="utf8mb4"),
    ColumnType(Kind.VARCHAR, length=800, charset="utf8mb4"),
    ColumnType(Kind.BLOB, length=1),
    ColumnType(Kind.BLOB, length=3),
    ColumnType(Kind.CHAR, length=5, charset="utf8mb4"),
    ColumnType(Kind.DATETIME, scale=3),
)

walks = pytest.mark.parametrize("walker", ENGINES.values(), ids=list(ENGINES))


def image(rng: random.Random, types: tuple[ColumnType, ...]) -> tuple[bytes, list[bytes | None]]:
    """Return an image and the values in it."""
    values: list[bytes | None] = []
    mask = bytearray((len(types) + 7) // 8)
    body = b""
    for place, type_ in enumerate(types):
        if rng.random() < 0.3:
            mask[place >> 3] |= 1 << (place & 7)
            values.append(None)
            continue
        width = type_.width
        size = rng.randint(0, 60) if width is None else width
        value = rng.randbytes(size)
        values.append(value)
        body += (b"" if width is not None else size.to_bytes(type_.prefix, "little")) + value
    return bytes(mask) + body, values


def some_types(rng: random.Random) -> tuple[ColumnType, ...]:
    return tuple(rng.choice(TYPES) for _ in range(rng.randint(1, 20)))


def cells(layout: Layout, data: bytes) -> list[list[bytes | None]]:
    """Return the values by image."""
    columns = [
        [
            data[a:b] if there else None
            for a, b, there in zip(c.starts, c.ends, c.valid, strict=True)
        ]
        for c in layout.cells()
    ]
    return [list(row) for row in zip(*columns, strict=True)]


@walks
@pytest.mark.parametrize("seed", range(40))
def test_every_value_is_found(walker: Walk, seed: int) -> None:
    rng = random.Random(seed)
    types = some_types(rng)
    rows = [image(rng, types) for _ in range(rng.randint(0, 60))]
    before, after = b"?" * rng.randint(0, 9), b"?" * rng.randint(0, 9)
    data = before + b"".join(raw for raw, _ in rows) + after
    layout = Layout(types)
    count = walker(data, len(before), len(data) - len(after), -len(before), layout, layout)
    assert count == layout.count == len(rows)
    assert cells(layout, data[len(before) :]) == [values for _, values in rows]


@walks
@pytest.mark.parametrize("seed", range(20))
def test_images_of_two_layouts_come_in_turn(walker: Walk, seed: int) -> None:
    rng = random.Random(seed)
    sides = [some_types(rng), some_types(rng)]
    rows = [image(rng, sides[n % 2]) for n in range(2 * rng.randint(1, 30))]
    data = b"".join(raw for raw, _ in rows)
    first, second = Layout(sides[0]), Layout(sides[1])
    assert walker(data, 0, len(data), 0, first, second) == len(rows)
    assert cells(first, data) == [values for _, values in rows[0::2]]
    assert cells(second, data) == [values for _, values in rows[1::2]]
    with pytest.raises(ProtocolError, match="no second image"):
        walker(data[: len(rows[0][0])], 0, len(rows[0][0]), 0, Layout(sides[0]), Layout(sides[1]))


@walks
def test_images_without_columns_do_not_go_on_for_ever(walker: Walk) -> None:
    none = Layout(())
    assert walker(b"", 0, 0, 0, none, none) == 0
    with pytest.raises(ProtocolError, match="without columns"):
        walker(b"x", 0, 1, 0, none, none)


def _outcome(
    walker: Walk, data: bytes, at: int, end: int, types: tuple[ColumnType, ...]
) -> tuple[object, ...]:
    layout = Layout(types)
    try:
        count = walker(data, at, end, 7, layout, layout)
    except ProtocolError as error:
        return (str(error),)
    return count, layout.count, array("q", layout.bounds).tolist(), bytes(layout.nulls)


def check_damaged(seed: int, rounds: int) -> None:
    """Damage images at random; both twins must see the same in them, or the same error."""
    rng = random.Random(seed)
    for _ in range(rounds):
        types = some_types(rng)
        data = bytearray(b"".join(image(rng, types)[0] for _ in range(rng.randint(1, 8))))
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(len(data))] = rng.getrandbits(8)
        at, end = 0, len(data)
        if rng.random() < 0.5:
            at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        found = {str(_outcome(walker, bytes(data), at, end, types)) for walker in ENGINES.values()}
        assert len(found) == 1


@pytest.mark.skipif(len(ENGINES) < 2, reason="no C compiler")
@pytest.mark.parametrize("seed", range(4))
def test_damaged_images_are_the_same_to_both_twins(seed: int) -> None:
    check_damaged(seed, rounds=400)


@pytest.mark.long
@pytest.mark.skipif(len(ENGINES) < 2, reason="no C compiler")
@pytest.mark.parametrize("seed", range(100, 104))
def test_a_million_damaged_images_are_the_same_to_both_twins(seed: int) -> None:
    check_damaged(seed, rounds=60_000)


def test_the_walk_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DECODER", "python")
    assert make_walk() is images.walk
    monkeypatch.delenv("HEADRACE_DECODER")
    assert make_walk() is next(iter(ENGINES.values()))

"""The walk through row images: both twins, on images made up and on bytes that are none."""

from __future__ import annotations

import datetime as dt
import random

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError
from headrace.model.rowkey import encode_rows
from headrace.sources.mysql.charsets import BINARY
from headrace.sources.mysql.engine import ENGINES, Engine, Images, make_engine
from headrace.sources.mysql.types import ColumnType, Kind

PLAIN = (
    ColumnType(Kind.TINY),
    ColumnType(Kind.LONGLONG),
    ColumnType(Kind.VARCHAR, length=80, charset=BINARY),
    ColumnType(Kind.VARCHAR, length=800, charset=BINARY),
    ColumnType(Kind.BLOB, length=1, charset=BINARY),
    ColumnType(Kind.BLOB, length=3, charset=BINARY),
)
"""Whose values can be anything."""

TYPES = (
    *PLAIN,
    ColumnType(Kind.SHORT, unsigned=True),
    ColumnType(Kind.INT24),
    ColumnType(Kind.INT24, unsigned=True),
    ColumnType(Kind.LONG),
    ColumnType(Kind.LONGLONG, unsigned=True),
    ColumnType(Kind.FLOAT),
    ColumnType(Kind.DOUBLE),
    ColumnType(Kind.YEAR),
    ColumnType(Kind.BIT, length=1),
    ColumnType(Kind.BIT, length=13),
    ColumnType(Kind.DECIMAL, precision=10, scale=2),
    ColumnType(Kind.DECIMAL, precision=3, scale=3),
    ColumnType(Kind.DECIMAL, precision=38, scale=19),
    ColumnType(Kind.DECIMAL, precision=50, scale=10),
    ColumnType(Kind.DATE),
    ColumnType(Kind.DATETIME),
    ColumnType(Kind.DATETIME, scale=3),
    ColumnType(Kind.DATETIME, scale=6),
    ColumnType(Kind.TIMESTAMP),
    ColumnType(Kind.TIMESTAMP, scale=2),
    ColumnType(Kind.TIME, scale=1),
    ColumnType(Kind.ENUM, length=1, labels=("a", "b")),
    ColumnType(Kind.SET, length=1, labels=("a", "b")),
    ColumnType(Kind.CHAR, length=5, charset="utf8mb4"),
)

twins = pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))


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


def some_types(rng: random.Random, among: tuple[ColumnType, ...]) -> tuple[ColumnType, ...]:
    return tuple(rng.choice(among) for _ in range(rng.randint(1, 20)))


def meant(type_: ColumnType, value: bytes | None) -> object:
    """Return what a value of `PLAIN` is."""
    if value is None or type_.width is None:
        return value
    return int.from_bytes(value, "little", signed=True)


def held(images: Images, types: tuple[ColumnType, ...]) -> list[object]:
    """Return the cells by column; of one that is refused, nothing."""
    found: list[object] = []
    for place in range(len(types)):
        try:
            array = images.column(place, "refuse")
        except (ValueError, pa.ArrowException):
            found.append(None)
        else:
            array.validate(full=True)
            assert len(array) == images.count
            # Not all of them are dates that Python has, or numbers that are equal to themselves.
            found.append(tuple(encode_rows([array]).to_pylist()))
    return found


@twins
@pytest.mark.parametrize("seed", range(40))
def test_every_value_is_found(engine: Engine, seed: int) -> None:
    rng = random.Random(seed)
    types = some_types(rng, PLAIN)
    images = engine.images(types)
    values: list[list[bytes | None]] = []
    for _ in range(rng.randint(0, 3)):
        rows = [image(rng, types) for _ in range(rng.randint(0, 40))]
        before, after = b"?" * rng.randint(0, 9), b"?" * rng.randint(0, 9)
        data = before + b"".join(raw for raw, _ in rows) + after
        count = engine.walk(data, len(before), len(data) - len(after), images, images)
        assert count == len(rows)
        values += [value for _, value in rows]
    assert images.count == len(values)
    for place, type_ in enumerate(types):
        column = images.column(place, "refuse")
        assert column.type == type_.arrow
        assert column.to_pylist() == [meant(type_, row[place]) for row in values]
    images.clear()
    assert images.count == 0
    assert len(images.column(0, "refuse")) == 0


@twins
@pytest.mark.parametrize("seed", range(20))
def test_images_of_two_layouts_come_in_turn(engine: Engine, seed: int) -> None:
    rng = random.Random(seed)
    sides = [some_types(rng, PLAIN), some_types(rng, PLAIN)]
    first, second = (engine.images(side) for side in sides)
    values: list[list[bytes | None]] = []
    for _ in range(2):
        rows = [image(rng, sides[n % 2]) for n in range(2 * rng.randint(1, 30))]
        data = b"".join(raw for raw, _ in rows)
        assert engine.walk(data, 0, len(data), first, second) == len(rows)
        values += [value for _, value in rows]
    for number, (images, types) in enumerate(zip((first, second), sides, strict=True)):
        for place, type_ in enumerate(types):
            found = images.column(place, "refuse").to_pylist()
            assert found == [meant(type_, row[place]) for row in values[number::2]]
    alone = rows[0][0]
    with pytest.raises(ProtocolError, match="no second image"):
        engine.walk(alone, 0, len(alone), engine.images(sides[0]), engine.images(sides[1]))


@twins
def test_images_without_columns_do_not_go_on_for_ever(engine: Engine) -> None:
    none = engine.images(())
    assert engine.walk(b"", 0, 0, none, none) == 0
    with pytest.raises(ProtocolError, match="without columns"):
        engine.walk(b"x", 0, 1, none, none)


@twins
def test_digits_beyond_their_place_are_refused(engine: Engine) -> None:
    images = engine.images([ColumnType(Kind.DECIMAL, precision=4, scale=2)])
    assert engine.walk(b"\xfe\x80\x63\xfe\x80\x64", 0, 6, images, images) == 2
    with pytest.raises(ValueError):
        images.column(0, "refuse")


@twins
def test_dates_that_are_no_days_are_refused_or_null(engine: Engine) -> None:
    # 29 February of 2024, of 2023, and of the year 0.
    days = [year << 9 | 2 << 5 | 29 for year in (2024, 2023, 0)]
    data = b"".join(b"\xfe" + day.to_bytes(3, "little") for day in days)
    images, refused = (engine.images([ColumnType(Kind.DATE)]) for _ in range(2))
    for one in (images, refused):
        engine.walk(data, 0, len(data), one, one)
    found = images.column(0, "null").to_pylist()
    assert found == [dt.date(2024, 2, 29), None, None]
    with pytest.raises(ValueError):
        refused.column(0, "refuse")


def _outcome(
    engine: Engine, data: bytes, at: int, end: int, types: tuple[ColumnType, ...]
) -> tuple[object, ...]:
    images = engine.images(types)
    try:
        count = engine.walk(data, at, end, images, images)
    except ProtocolError as error:
        return (str(error),)
    return count, images.count, *held(images, types)


def check_damaged(seed: int, rounds: int) -> None:
    """Damage images at random; both twins must see the same in them, or the same error."""
    rng = random.Random(seed)
    for _ in range(rounds):
        types = some_types(rng, TYPES)
        data = bytearray(b"".join(image(rng, types)[0] for _ in range(rng.randint(1, 8))))
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(len(data))] = rng.getrandbits(8)
        at, end = 0, len(data)
        if rng.random() < 0.5:
            at, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
        found = {_outcome(engine, bytes(data), at, end, types) for engine in ENGINES.values()}
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


def test_the_twin_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DECODER", "python")
    assert make_engine() is ENGINES["python"]
    monkeypatch.delenv("HEADRACE_DECODER")
    assert make_engine() is next(iter(ENGINES.values()))

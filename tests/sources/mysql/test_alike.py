"""Events that go on where another one ended are the same, taken at once or one by one."""

from __future__ import annotations

import random
import zlib

import pytest

from headrace.errors import ProtocolError
from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import table_schema
from headrace.sources.mysql.engine import ENGINES, Engine
from headrace.sources.mysql.events import Event, EventType, parse_event, parse_rows_header
from headrace.sources.mysql.rows import TableRows
from headrace.sources.mysql.types import ColumnType, Kind

TYPES = [ColumnType(Kind.LONG), ColumnType(Kind.VARCHAR, length=200, charset="utf8mb4")]
TABLE = TableId("d", "t")
WRITE, UPDATE, DELETE = (
    EventType.WRITE_ROWS_V1,
    EventType.UPDATE_ROWS_V1,
    EventType.DELETE_ROWS_V1,
)
MASKS = {"whole": b"\x03", "key": b"\x01"}


def event(
    type_: int, table: int, masks: list[bytes], rows: bytes, place: int, flags: int = 0
) -> bytes:
    """Return an event with rows, its checksum included."""
    body = (
        table.to_bytes(6, "little") + flags.to_bytes(2, "little") + b"\x02" + b"".join(masks) + rows
    )
    size = 19 + len(body) + 4
    head = (7).to_bytes(4, "little") + bytes([type_]) + (1).to_bytes(4, "little")
    head += size.to_bytes(4, "little") + place.to_bytes(4, "little") + b"\0\0"
    return head + body + zlib.crc32(head + body).to_bytes(4, "little")


def packet(payload: bytes) -> bytes:
    return (len(payload) + 1).to_bytes(3, "little") + b"\x09\0" + payload


def image(rng: random.Random, mask: bytes) -> bytes:
    number = rng.getrandbits(31).to_bytes(4, "little")
    if mask == MASKS["key"]:
        return b"\xfe" + number
    if rng.random() < 0.2:
        return b"\xfe" + number
    text = b"x" * rng.randint(0, 50)
    return b"\xfc" + number + bytes([len(text)]) + text


def some_events(rng: random.Random) -> list[bytes]:
    """Return events of one table's rows: mostly runs that are alike, of every kind."""
    found: list[bytes] = []
    while len(found) < 30:
        type_ = rng.choice([WRITE, UPDATE, DELETE])
        masks = [rng.choice(list(MASKS.values())) for _ in range(1 + (type_ == UPDATE))]
        if type_ == WRITE:
            masks = [MASKS["whole"]]
        for _ in range(rng.randint(1, 8)):
            rows = b"".join(image(rng, mask) for _ in range(rng.randint(0, 6)) for mask in masks)
            found.append(event(type_, 9, masks, rows, 100 + len(found), rng.randint(0, 1)))
    return found


def new_rows(engine: Engine) -> TableRows:
    columns = [("id", TYPES[0], True), ("v", TYPES[1], True)]
    return TableRows(table_schema(TABLE, columns, ("id",)), 1, TYPES, "refuse", engine)


def add(rows: TableRows, parsed: Event, ord_: int) -> tuple[int, bytes]:
    header = parse_rows_header(parsed)
    return rows.add(5, ord_, parsed.type, header), parsed.data[: header.start]


@pytest.mark.usefixtures("halves")
@pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))
@pytest.mark.parametrize("seed", range(20))
def test_they_are_the_same_taken_at_once_or_one_by_one(engine: Engine, seed: int) -> None:
    rng = random.Random(seed)
    events = some_events(rng)
    one_by_one, ord_ = new_rows(ENGINES["python"]), 0
    for data in events:
        ord_ += add(one_by_one, parse_event(data, checksum=True), ord_)[0]
    wanted, total = one_by_one.body().batch, ord_

    buffer = bytearray(b"".join(packet(data) for data in events))
    at_once, at, ord_, taken = new_rows(engine), 0, 0, 0
    while at < len(buffer):
        size = int.from_bytes(buffer[at : at + 3], "little")
        parsed = parse_event(bytes(buffer[at + 5 : at + 4 + size]), checksum=True)
        added, model = add(at_once, parsed, ord_)
        at, ord_ = at + 4 + size, ord_ + added
        if not added:
            continue
        # What has been read may end anywhere.
        end = rng.randint(at, len(buffer))
        found = at_once.add_alike(buffer, at, end, model, True, rng.choice([0, 5, 1000]))
        taken += found.images
        assert at <= found.at <= end
        assert found.end_pos or not found.images
        at, ord_ = found.at, ord_ + found.images
    assert ord_ == total
    assert at_once.body().batch.equals(wanted)
    assert taken or engine is ENGINES["python"]


@pytest.mark.skipif("native" not in ENGINES, reason="no C compiler")
@pytest.mark.parametrize(
    "change",
    ["table", "type", "mask", "checksum", "length", "artificial", "no place", "first byte", "cut"],
)
def test_what_is_not_alike_is_left(change: str) -> None:
    rng = random.Random(1)
    mask = MASKS["whole"]
    first, second = (event(WRITE, 9, [mask], image(rng, mask), place) for place in (50, 60))
    other = bytearray(second)
    if change == "table":
        other = bytearray(event(WRITE, 8, [mask], image(rng, mask), 60))
    elif change == "type":
        other = bytearray(event(DELETE, 9, [mask], image(rng, mask), 60))
    elif change == "mask":
        other = bytearray(event(WRITE, 9, [MASKS["key"]], image(rng, MASKS["key"]), 60))
    elif change == "no place":
        other = bytearray(event(WRITE, 9, [mask], image(rng, mask), 0))
    elif change == "checksum":
        other[-1] ^= 1
    elif change == "length":
        other[9] ^= 1
    elif change == "artificial":
        other[17] = 0x20
        other[-4:] = zlib.crc32(other[:-4]).to_bytes(4, "little")
    rows = new_rows(ENGINES["native"])
    _, model = add(rows, parse_event(first, checksum=True), 0)
    buffer = bytearray(packet(bytes(other)))
    if change == "first byte":
        buffer[4] = 0xFF
    end = len(buffer) - (change == "cut")
    assert rows.add_alike(buffer, 0, end, model, True, 1000)[:2] == (0, 0)
    alike = bytearray(packet(second))
    assert rows.add_alike(alike, 0, len(alike), model, True, 1000)[:2] == (len(alike), 1)


@pytest.mark.skipif("native" not in ENGINES, reason="no C compiler")
@pytest.mark.usefixtures("halves")
def test_images_that_are_broken_are_told_of() -> None:
    rng = random.Random(1)
    masks = [MASKS["whole"]] * 2
    good = image(rng, masks[0]) + image(rng, masks[1])
    rows = new_rows(ENGINES["native"])
    _, model = add(rows, parse_event(event(UPDATE, 9, masks, good, 50), checksum=True), 0)
    for broken, words in (
        (image(rng, masks[0]), "no second image"),
        (good[:-1] + b"", "beyond its event"),
        (good + b"\xfc\x01", "beyond its event"),
    ):
        events = [good, broken] if rng.random() < 0.5 else [broken, good]
        buffer = bytearray(b"".join(packet(event(UPDATE, 9, masks, e, 60)) for e in events))
        with pytest.raises(ProtocolError, match=words):
            rows.add_alike(buffer, 0, len(buffer), model, True, 1000)
        rows = new_rows(ENGINES["native"])
        add(rows, parse_event(event(UPDATE, 9, masks, good, 50), checksum=True), 0)

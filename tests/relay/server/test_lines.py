"""The stream as lines: every change exactly, in order, for people and scripts."""

from __future__ import annotations

import base64
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from headrace.model.block import Block, Body, transaction_index
from headrace.model.change import change_schema, pack_missing
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.wire.lines import block_lines
from headrace.wire.place import Place
from tests.changelog.windows import OTHER, TABLE, commit_us, coverage, seen, synced, window
from tests.relay.server.asking import ask, connected
from tests.requirements import req

ALL = TableSchema(
    TableId("public", "every"),
    tuple(
        Column(name, type_, "any")
        for name, type_ in (
            ("id", pa.int64()),
            ("money", pa.decimal128(12, 2)),
            ("raw", pa.binary()),
            ("on", pa.bool_()),
            ("real", pa.float64()),
            ("day", pa.date32()),
            ("at", pa.timestamp("us")),
            ("when", pa.timestamp("us", tz="UTC")),
            ("text", pa.string()),
            ("small", pa.int16()),
        )
    ),
    ("id",),
    KeyCheck.IMMEDIATE,
)


def lines_of(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(text) for text in data.decode().splitlines()]


def only(row: tuple[Any, ...], missing: bytes | None = None, op: str = "+I") -> dict[str, Any]:
    """Return the line of one row of `ALL`."""
    cells = [[7], [0], [op], [missing], *([cell] for cell in row)]
    batch = pa.record_batch(
        [pa.array(cell, field.type) for cell, field in zip(cells, change_schema(ALL), strict=True)],
        schema=change_schema(ALL),
    )
    block = Block(
        transaction_index([(7, 1, 1, 1, 0, 1)]), (Body(ALL.schema_id, ALL.table, batch),), (), 7
    )
    first, _ = lines_of(block_lines(block, Place(0), None))
    return first


@req("H15")
def test_what_json_cannot_hold_is_text_and_the_rest_is_itself():
    row = (
        2**53 + 1,
        Decimal("12.50"),
        b"\x00\xff",
        True,
        float("nan"),
        date(2026, 1, 2),
        datetime(2026, 1, 2, 3, 4, 5, 6),  # noqa: DTZ001 - the column has no zone
        datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        'Grüße "q"\n',
        -3,
    )
    assert only(row)["row"] == {
        "id": str(2**53 + 1),
        "money": "12.50",
        "raw": base64.b64encode(b"\x00\xff").decode(),
        "on": True,
        "real": "NaN",
        "day": "2026-01-02",
        "at": "2026-01-02T03:04:05.000006",
        "when": "2026-01-02T03:04:05.000006Z",
        "text": 'Grüße "q"\n',
        "small": -3,
    }


@pytest.mark.parametrize(
    ("cell", "shown"),
    [(float("inf"), "Infinity"), (float("-inf"), "-Infinity"), (0.1, 0.1), (None, None)],
)
def test_numbers_without_a_value_go_by_name(cell, shown):
    row = (2**53, None, None, None, cell, None, None, None, None, None)
    assert only(row)["row"]["real"] == shown
    assert only(row)["row"]["id"] == 2**53
    assert only((-(2**53) - 1, *row[1:]))["row"]["id"] == str(-(2**53) - 1)


@pytest.mark.parametrize(
    ("day", "micros", "date_", "time"),
    [
        (2_932_898, 253_402_387_200_000_000, "10000-01-02", "10000-01-02T00:00:00.000000"),
        (106_751_991, 2**63 - 2, "294247-01-10", "294247-01-10T04:00:54.775806"),
        (-2_440_588, -210_866_803_200_000_000, "-4713-11-24", "-4713-11-24T00:00:00.000000"),
        (2**31 - 1, 2**63 - 1, "infinity", "infinity"),
        (-(2**31), -(2**63), "-infinity", "-infinity"),
    ],
)
def test_a_time_that_python_does_not_know_is_shown_all_the_same(day, micros, date_, time):
    whole, exact = pa.array([day], pa.int32()), pa.array([micros], pa.int64())
    times = [exact.cast(pa.timestamp("us", tz=zone))[0] for zone in (None, "UTC")]
    row = (1, None, None, None, None, whole.cast(pa.date32())[0], *times, None, None)
    shown = only(row)["row"]
    assert shown["day"] == date_
    assert shown["at"] == time
    assert shown["when"] == time + ("" if "infinity" in time else "Z")


def test_columns_that_were_not_sent_are_named_and_not_shown_as_null():
    mask = pack_missing([1, 8], len(ALL.columns))
    said = only((1, None, None, None, None, None, None, None, None, 4), mask, "=U")
    assert said["missing"] == ["money", "text"]
    assert "money" not in said["row"]
    assert said["row"]["small"] == 4
    assert said["op"] == "=U"


@req("H15", "D41")
def test_lines_hold_every_change_in_order_and_end_each_transaction(writer, url):
    blocks = [
        window(1, 2, tables=(TABLE, OTHER), truncate=True),
        window(2, 3, last=False),
        window(2, 2, first=3),
    ]
    synced(writer, *blocks, coverage(9))
    answer = ask(url, "/stream", source="shop", after=0, mode="pull", format="ndjson")
    assert answer.headers["content-type"] == "application/x-ndjson"
    *lines, covered, last = lines_of(answer.body)
    assert (covered, last) == ({"covered_scn": 9}, {"note": "end", "reason": "drained"})
    changes = [line for line in lines if "ord" in line]
    told = [
        (line["scn"], line["ord"], "system" if "event" in line else line["table"])
        for line in changes
    ]
    assert sorted(told) == seen(blocks)
    assert [entry[:2] for entry in told] == sorted(entry[:2] for entry in told)
    ends = [line for line in lines if line.get("end")]
    assert [(end["scn"], end["commit_us"], end["origin"]) for end in ends] == [
        (scn, commit_us(scn), "log") for scn in (1, 2)
    ]
    assert lines.index(ends[0]) == lines.index(next(line for line in lines if line["scn"] == 2)) - 1
    (truncated,) = [line for line in lines if "event" in line]
    assert truncated == {
        "scn": 1,
        "event": "truncate",
        "ord": 9999,
        "table": "public.t",
        "payload": {},
    }


def test_lines_begin_behind_the_place_and_end_at_the_scn(writer, url):
    synced(writer, *(window(scn, 4) for scn in range(1, 6)))
    answer = ask(url, "/stream", source="shop", after="2:1", upto=4, format="ndjson")
    *lines, last = lines_of(answer.body)
    assert last == {"note": "end", "reason": "upto"}
    told = [(line["scn"], line.get("ord", "end")) for line in lines]
    assert told == [(2, 2), (2, 3), (2, "end")] + [
        (scn, ord_) for scn in (3, 4) for ord_ in (0, 1, 2, 3, "end")
    ]


def test_an_error_is_a_last_line(writer, folder, url):
    answer = ask(url, "/stream", source="shop", after=99, format="ndjson")
    assert (answer.status, answer.error["type"]) == (410, "ScnNotFound")


def test_lines_are_pushed_as_windows_come(writer, url):
    synced(writer, window(1))
    connection = connected(url)
    try:
        connection.request("GET", "/stream?source=shop&after=0&format=ndjson")
        answer = connection.getresponse()
        for scn in range(1, 20):
            if scn > 1:
                synced(writer, window(scn))
            while not (said := json.loads(answer.readline())).get("end"):
                assert said.get("note") == "heartbeat" or said["scn"] == scn
            assert said["scn"] == scn
        answer.close()
    finally:
        connection.close()

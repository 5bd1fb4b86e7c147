"""The decoder alone: every message there and back, and any bytes at all without a surprise."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.errors import ProtocolError
from headrace.sources.postgres.messages import (
    UNCHANGED,
    Begin,
    Cell,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Origin,
    Relation,
    RelationColumn,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    TypeName,
    Update,
)
from headrace.sources.postgres.pgoutput import decode
from tests.sources.postgres import wire

ROW: list[Cell] = [b"1", None, UNCHANGED, b"", "ä".encode()]
KEY: list[Cell] = [b"1", None, None, None, None]

PAIRS = [
    (
        wire.begin(0x1_0000_0010, 1_700_000_000_000_001, 7),
        Begin(0x1_0000_0010, 1_700_000_000_000_001, 7),
    ),
    (wire.commit(16, 32, 5), Commit(16, 32, 5)),
    (wire.origin(9, "other"), Origin(9, "other")),
    (
        wire.relation(
            5, "public", "täble", "d", [("id", True, 23, -1), ("v", False, 1700, 655366)]
        ),
        Relation(
            5,
            "public",
            "täble",
            "d",
            (RelationColumn("id", True, 23, -1), RelationColumn("v", False, 1700, 655366)),
        ),
    ),
    (wire.relation(5, "", "pg_x", "n", []), Relation(5, "pg_catalog", "pg_x", "n", ())),
    (wire.type_name(70000, "shop", "mood"), TypeName(70000, "shop", "mood")),
    (wire.insert(5, ROW), Insert(5, ROW)),
    (wire.update(5, ROW), Update(5, "", None, ROW)),
    (wire.update(5, ROW, "K", KEY), Update(5, "K", KEY, ROW)),
    (wire.update(5, ROW, "O", ROW), Update(5, "O", ROW, ROW)),
    (wire.delete(5, "K", KEY), Delete(5, "K", KEY)),
    (wire.delete(5, "O", ROW), Delete(5, "O", ROW)),
    (wire.truncate([5, 6], 3), Truncate((5, 6))),
    (wire.message(77, "headrace", b"low a b"), LogicalMessage(False, 77, "headrace", b"low a b")),
    (
        wire.message(77, "x", b"", transactional=True),
        LogicalMessage(True, 77, "x", b""),
    ),
    (wire.stream_start(7, first=True), StreamStart(7, True)),
    (wire.stream_start(7, first=False), StreamStart(7, False)),
    (wire.stream_stop(), StreamStop()),
    (wire.stream_commit(7, 16, 32, 5), StreamCommit(7, 16, 32, 5)),
    (wire.stream_abort(7, 9), StreamAbort(7, 9)),
]


@pytest.mark.parametrize(("data", "message"), PAIRS)
def test_every_message_is_read(data: bytes, message: object) -> None:
    assert decode(data) == message


@pytest.mark.parametrize(("data", "message"), PAIRS)
def test_every_cut_and_every_surplus_is_a_protocol_error(data: bytes, message: object) -> None:
    for size in range(len(data)):
        with pytest.raises(ProtocolError):
            decode(data[:size])
    with pytest.raises(ProtocolError):
        decode(data + b"\0")


@given(st.binary(max_size=200))
@settings(max_examples=500)
def test_any_bytes_are_a_message_or_a_protocol_error(data: bytes) -> None:
    _decode(data)


@given(
    st.sampled_from([data for data, _ in PAIRS]),
    st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=4),
)
@settings(max_examples=800)
def test_damaged_messages_are_a_message_or_a_protocol_error(
    data: bytes, damage: list[tuple[int, int]]
) -> None:
    damaged = bytearray(data)
    for place, value in damage:
        damaged[place % len(damaged)] = value
    _decode(bytes(damaged))


def _decode(data: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        decode(data)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"", "empty"),
        (b"Z" + b"\0" * 20, "unknown kind"),
        (b"S" + b"\0\0\0\7" + b"\2", "neither a first"),
        (wire.relation(5, "a", "b", "x", []), "replica identity"),
        (b"I" + b"\0\0\0\5" + b"K" + wire.cells([b"1"]), "no new row"),
        (b"D" + b"\0\0\0\5" + b"N" + wire.cells([b"1"]), "no old row"),
        (b"I" + b"\0\0\0\5" + b"N\0\1z\0\0\0\1x", "unknown kind"),
        (b"I" + b"\0\0\0\5" + b"N\xff\xff", "columns"),
        (b"I" + b"\0\0\0\5" + b"N\0\1t\xff\xff\xff\xff", "cut short"),
        (wire.begin(0, 946_684_800_000_000, 1), "out of range"),
        (wire.begin(1 << 63, 946_684_800_000_000, 1), "out of range"),
        (wire.relation(5, "a", "b", "d", []).replace(b"b\0", b"\xff\0"), "UTF-8"),
    ],
)
def test_what_is_wrong_is_said_without_the_bytes(data: bytes, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        decode(data)

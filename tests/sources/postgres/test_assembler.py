"""Messages to blocks, without a server: pieces, order, ids, marks, broken sequences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.errors import ProtocolError, WatermarkOutOfOrder
from headrace.model.block import SystemKind
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.sources.base import LogItem
from headrace.sources.postgres.assembler import Assembler, Event, TableVersion
from headrace.sources.postgres.ddl import DDL_PREFIX
from headrace.sources.postgres.decoder import ENGINES, make_decoder
from headrace.sources.postgres.frames import FrameBuffer
from headrace.sources.postgres.messages import UNCHANGED, Cell, Relation
from headrace.sources.postgres.spools import Spools
from tests.requirements import req
from tests.sources.postgres import wire

T = 5
MARKS = 6


def schema(check: KeyCheck = KeyCheck.IMMEDIATE) -> TableSchema:
    columns = (
        Column("id", pa.int32(), "integer", nullable=False),
        Column("v", pa.string(), "text"),
    )
    return TableSchema(TableId("public", "t"), columns, ("id",), check)


class Versions:
    """Knows one table and the watermark table."""

    def __init__(self, check: KeyCheck) -> None:
        self._schema = schema(check)

    def resolve(self, relation: Relation) -> TableVersion:
        if relation.name == "watermarks":
            return TableVersion(marks=True)
        if relation.name != "t":
            return TableVersion()
        return TableVersion(self._schema, 99)

    def misread(self, relation: Relation) -> frozenset[str]:
        return frozenset()

    def migrated(self, content: bytes) -> tuple[Event, ...]:
        return ((SystemKind.DROP_TABLE, TableId("public", content.decode()), {}),)


@pytest.fixture(scope="module", params=ENGINES, autouse=True)
def engine(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run everything with each decoder that this installation has."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADRACE_DECODER", request.param)
        yield


def bare(check: KeyCheck, xid: int, max_rows: int, max_bytes: int) -> Assembler:
    """Return an assembler that has seen nothing yet."""
    decoder = make_decoder(xid, max_rows, max_bytes)
    return Assembler(Versions(check), "headrace/s", decoder, Spools(), unexpected)


def unexpected(kind: bytes, data: bytes) -> None:
    raise AssertionError(f"a frame {kind!r} of {len(data)} bytes")


def assembler(
    *, max_rows: int = 1000, max_bytes: int = 1 << 20, xid: int = 100,
    check: KeyCheck = KeyCheck.IMMEDIATE,
) -> Assembler:  # fmt: skip
    made = bare(check, xid, max_rows, max_bytes)
    feed(made, wire.begin(10, 5, 1), relation(T, "t"), relation(MARKS, "watermarks"))
    feed(made, relation(7, "other"), wire.commit(10, 12, 5))
    return made


def relation(oid: int, name: str) -> bytes:
    return wire.relation(oid, "public", name, "d", [("id", True, 23, -1), ("v", False, 25, -1)])


def feed(into: Assembler, *messages: bytes) -> None:
    for message in messages:
        frames = FrameBuffer()
        frames.add(wire.frame(message))
        into.advance(frames)
        assert frames.start == frames.end


def rows(*items: LogItem) -> list[tuple[Any, ...]]:
    return [
        (r["_scn"], r["_ord"], r["_op"], r["id"], r["v"])
        for item in items
        for body in item.block.bodies
        for r in body.batch.to_pylist()
    ]


def test_an_empty_transaction_moves_coverage_and_leaves_no_entry() -> None:
    made = assembler()
    assert not made.has_output
    feed(made, wire.begin(20, 5, 2), wire.insert(7, [b"1", None]), wire.commit(20, 24, 5))
    assert not made.has_output
    item = made.quiet(0)
    assert item is not None
    assert (len(item.block.index), item.block.covered_scn, item.position) == (0, 20, "0/15")
    assert made.quiet(21) is None
    later = made.quiet(30)
    assert later is not None
    assert (later.block.covered_scn, later.position) == (29, "0/1E")


@req("T7")
def test_pieces_are_cut_by_rows_and_never_between_the_two_rows_of_an_update() -> None:
    made = assembler(max_rows=3)
    feed(made, wire.begin(20, 5, 2))
    items = []
    for number in range(6):
        old, new = str(number).encode(), str(number + 100).encode()
        feed(made, wire.update(T, [new, b"x"], "K", [old, None]))
        if made.full:
            items.append(made.take())
    feed(made, wire.commit(20, 24, 5))
    items.append(made.take())
    got = rows(*items)
    assert [r[1] for r in got] == list(range(12))
    for item in items:
        ops = [r[2] for r in rows(item)]
        assert ops == ["-U", "+U"] * (len(ops) // 2)
    entries = [tuple(item.block.index[0])[:6] for item in items]
    assert [e[5] for e in entries] == [0] * (len(items) - 1) + [1]
    assert sum(e[3] for e in entries) == 12
    assert [item.block.covered_scn for item in items] == [10] * (len(items) - 1) + [20]
    assert [item.position for item in items] == ["0/B"] * (len(items) - 1) + ["0/15"]


def test_pieces_are_cut_by_bytes() -> None:
    made = assembler(max_bytes=2000)
    feed(made, wire.begin(20, 5, 2), wire.insert(T, [b"1", b"x" * 1000]))
    full = [made.full]
    feed(made, wire.insert(T, [b"2", b"x" * 1000]))
    full.append(made.full)
    assert full == [False, True]
    piece = made.take()
    assert not piece.block.ends_complete


def test_whole_transactions_and_the_piece_of_an_open_one_share_a_block() -> None:
    made = assembler()
    feed(made, wire.begin(20, 5, 2), wire.insert(T, [b"1", None]), wire.commit(20, 24, 5))
    feed(made, wire.begin(30, 5, 3), wire.insert(T, [b"2", None]))
    item = made.take()
    assert [tuple(e)[:1] + tuple(e)[5:6] for e in item.block.index] == [(20, 1), (30, 0)]
    assert item.block.covered_scn == 20
    feed(made, wire.commit(30, 34, 5))
    last = made.take()
    assert [tuple(e)[:6] for e in last.block.index] == [(30, 5, 3, 0, 0, 1)]
    assert last.block.covered_scn == 30


def test_a_mark_ends_the_item_and_is_not_in_the_index() -> None:
    made = assembler()
    mark = Mark(MarkKind.HIGH, "tok", "run")
    feed(made, wire.begin(20, 5, 2), wire.insert(T, [b"1", None]), wire.commit(20, 24, 5))
    feed(made, wire.message(40, "headrace/s", mark.render().encode()))
    assert made.full
    item = made.take()
    assert item.mark is not None
    # The server names the end of the message's record, where the next commit's record may start.
    assert (item.mark.mark, item.mark.scn, item.mark.commit_us) == (mark, 39, 1234)
    assert (item.block.covered_scn, item.position) == (38, "0/28")
    assert [int(e["scn"]) for e in item.block.index] == [20]


def test_a_transactional_mark_has_the_commits_scn_and_time() -> None:
    made = assembler()
    content = Mark(MarkKind.LOW, "tok", "run").render().encode()
    feed(made, wire.begin(50, 7, 3), wire.message(45, "headrace/s", content, transactional=True))
    feed(made, wire.commit(50, 60, 7))
    item = made.take()
    assert item.mark is not None
    assert (item.mark.scn, item.mark.commit_us, item.block.covered_scn) == (50, 7, 49)
    assert item.position == "0/33"


def test_a_mark_among_data_is_out_of_order() -> None:
    made = assembler()
    content = Mark(MarkKind.LOW, "tok", "run").render().encode()
    feed(made, wire.begin(50, 7, 3), wire.insert(T, [b"1", None]))
    feed(made, wire.message(45, "headrace/s", content, transactional=True))
    with pytest.raises(WatermarkOutOfOrder):
        feed(made, wire.commit(50, 60, 7))


@given(st.integers(2**31, 2**40), st.integers(-(2**31) + 1, 2**31 - 1))
def test_ids_are_widened_to_the_nearest(epoch: int, distance: int) -> None:
    wide = epoch + distance
    made = bare(KeyCheck.IMMEDIATE, epoch, 10, 1 << 20)
    feed(made, wire.begin(10, 5, wide & 0xFFFFFFFF), relation(T, "t"))
    feed(made, wire.insert(T, [b"1", None]), wire.commit(10, 12, 5))
    assert int(made.take().block.index[0]["xid"]) == wide


def test_cells_that_were_not_sent_are_null_and_in_the_mask() -> None:
    made = assembler()
    row: list[Cell] = [b"1", UNCHANGED]
    feed(made, wire.begin(20, 5, 2), wire.update(T, row), wire.delete(T, "K", [b"1", None]))
    feed(made, wire.update(T, row, "O", [b"1", b"kept"]), wire.commit(20, 24, 5))
    item = made.take()
    got = [(r["_op"], r["_missing"], r["v"]) for r in item.block.bodies[0].batch.to_pylist()]
    assert got == [
        ("=U", b"\2", None),
        ("-D", b"\2", None),
        ("-U", None, "kept"),
        ("+U", None, "kept"),
    ]


@req("T2")
def test_a_key_that_the_new_image_leaves_out_is_that_of_the_old_one() -> None:
    """So the server sends a key that is stored out of line: both images though it has not changed, and one value."""
    made = assembler()
    feed(made, wire.begin(20, 5, 2))
    feed(made, wire.update(T, [UNCHANGED, b"x"], "K", [b"1", None]))
    feed(made, wire.update(T, [UNCHANGED, UNCHANGED], "K", [b"2", None]), wire.commit(20, 24, 5))
    (body,) = made.take().block.bodies
    assert [(r["_op"], r["_missing"], r["id"], r["v"]) for r in body.batch.to_pylist()] == [
        ("-U", b"\2", 1, None),
        ("+U", None, 1, "x"),
        ("-U", b"\2", 2, None),
        ("+U", b"\2", 2, None),
    ]


@pytest.mark.parametrize("check", [KeyCheck.DEFERRED, KeyCheck.NONE])
@pytest.mark.parametrize(
    "message", [wire.update(T, [b"1", b"a"]), wire.update(T, [b"1", b"a"], "K", [b"2", None]),
                wire.delete(T, "K", [b"1", None])],
)  # fmt: skip
def test_tables_that_need_whole_old_rows_never_go_on_without(
    check: KeyCheck, message: bytes
) -> None:
    made = assembler(check=check)
    feed(made, wire.begin(20, 5, 2))
    with pytest.raises(ProtocolError, match="whole old row"):
        feed(made, message)


@req("C30")
@pytest.mark.parametrize(
    "message", [wire.update(T, [b"1", b"a"], "K", [None, b"told"]), wire.delete(T, "K", [None, b"told"])]
)  # fmt: skip
def test_an_old_key_that_lacks_a_column_is_refused_by_name(message: bytes) -> None:
    made = assembler()
    feed(made, wire.begin(20, 5, 2))
    with pytest.raises(ProtocolError, match=r"public.t: an old key without id:") as error:
        feed(made, message)
    assert "told by another" in str(error.value)
    assert "headrace resync FILE" in error.value.next_step


ROW = [b"1", None]


@pytest.mark.parametrize(
    ("what", "messages"),
    [
        ("inside another", [wire.begin(20, 5, 2), wire.begin(30, 5, 3)]),
        ("not behind", [wire.begin(10, 5, 2)]),
        ("outside a transaction", [wire.insert(T, ROW)]),
        ("outside a transaction", [wire.commit(20, 24, 5)]),
        ("does not belong", [wire.begin(20, 5, 2), wire.commit(21, 24, 5)]),
        ("before its description", [wire.begin(20, 5, 2), wire.insert(8, ROW)]),
        ("before its description", [wire.begin(20, 5, 2), wire.truncate([8])]),
        ("3 cells for 2", [wire.begin(20, 5, 2), wire.insert(T, [*ROW, None])]),
        ("3 cells for 2", [wire.begin(20, 5, 2), wire.update(T, [*ROW, None], "O", ROW)]),
        ("inside a transaction", [wire.begin(20, 5, 2), wire.message(15, "x", b"")]),
        ("not behind", [wire.message(10, "x", b"")]),
    ],
)
def test_a_broken_sequence_stops_with_its_name(what: str, messages: list[bytes]) -> None:
    made = assembler()
    with pytest.raises(ProtocolError, match=what):
        feed(made, *messages)


@pytest.mark.parametrize("rolled_back", [True, False])
def test_migrations_beside_a_part_that_was_rolled_back_are_left_to_the_looks(
    rolled_back: bool,
) -> None:
    """The server names the transaction with what the event trigger says, and not the part of it."""
    made = assembler()
    told = wire.message(1, DDL_PREFIX, b"gone", transactional=True)
    parts = [relation(T, "t"), wire.insert(T, [b"1", b"x"]), told]
    feed(made, wire.stream_start(2, first=True), *(wire.in_stream(part, 2) for part in parts))
    feed(made, wire.stream_stop())
    if rolled_back:
        feed(made, wire.stream_abort(2, 3))
    feed(made, wire.stream_commit(2, 30, 34, 5))
    item = made.take()
    assert [row[2:] for row in rows(item)] == [("+I", 1, "x")]
    assert [event.table.name for event in item.block.system] == ([] if rolled_back else ["gone"])

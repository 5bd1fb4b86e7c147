"""A feed of changes in files: what is read, what is passed over, what is refused, and where a restart goes on."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.errors import (
    HeadraceError,
    IncompatibleSchemaChange,
    PreflightFailed,
    ProtocolError,
    SlotLost,
    SourceError,
    SourceUnavailable,
    UndecodableValue,
)
from headrace.model.block import SystemKind
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.sources.base import LogItem
from headrace.sources.files import FilesSource, lines
from headrace.sources.files.place import MARK_BITS, own_scn
from tests.requirements import req
from tests.sources.postgres.support import Collected

T = TableId("shop", "t")
SCHEMA = TableSchema(
    T,
    (Column("id", pa.int64(), "bigint", nullable=False), Column("v", pa.string(), "text")),
    ("id",),
    KeyCheck.IMMEDIATE,
)
WIDER = TableSchema(
    T, (*SCHEMA.columns, Column("w", pa.int32(), "int")), ("id",), KeyCheck.IMMEDIATE
)

Line = dict[str, Any]


class Feed:
    """A folder that a test writes, and a source that reads it."""

    def __init__(self, root: Path) -> None:
        self.folder, self.state = root / "feed", root / "state"
        self.folder.mkdir()
        self.describe(SCHEMA)
        self.source = FilesSource(self.folder, self.state, ("shop.*",), poll_s=0.01)
        self.registry = FileRegistry(root / "schemas")
        self.reader: Any = None

    def describe(self, *schemas: TableSchema, feed: str = "shop-1") -> None:
        value = {"feed": feed, "tables": [schema.to_json() for schema in schemas]}
        (self.folder / "tables.json").write_text(json.dumps(value))

    def write(self, name: str, *lines: Line | bytes) -> None:
        with (self.folder / name).open("ab") as file:
            for line in lines:
                file.write(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")

    def open(self) -> None:
        self.close()
        self.source.prepare()
        self.reader = self.source.open(self.registry)

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()

    def collect(self, *, acknowledge: bool = False) -> Collected:
        """Return everything that is there."""
        collected = Collected()
        while (item := self.reader.poll(0)) is not None:
            collected.items.append(item)
            if acknowledge:
                self.reader.acknowledge(item.position)
        return collected


@pytest.fixture
def feed(tmp_path: Path) -> Iterator[Feed]:
    made = Feed(tmp_path)
    yield made
    made.close()


def insert(scn: int, order: int, id_: int, v: str | None = "x", **more: Any) -> Line:
    row = {"id": id_, "v": v, **more}
    return {"scn": scn, "ord": order, "op": "+I", "table": "shop.t", "row": row}


def end(scn: int) -> Line:
    return {"scn": scn, "end": True, "commit_us": 1_000_000 * scn, "origin": "log"}


def event(scn: int, order: int, kind: str, **payload: Any) -> Line:
    return {"scn": scn, "ord": order, "event": kind, "table": "shop.t", "payload": payload}


def scns(collected: Collected) -> list[int]:
    return [row["scn"] >> MARK_BITS for row in collected.index if row["last_piece"]]


@req("D131", "N17")
def test_transactions_come_whole_in_the_order_of_the_files(feed: Feed) -> None:
    feed.write("a-2.ndjson", insert(9, 0, 4), end(9))
    feed.write("a-1.ndjson", insert(5, 0, 1), insert(5, 1, 2), end(5), insert(7, 0, 3), end(7))
    feed.open()
    found = feed.collect()
    assert found.changes("shop.t") == [("+I", n, "x") for n in (1, 2, 3, 4)]
    assert scns(found) == [5, 7, 9]
    assert found.items[-1].block.covered_scn == own_scn(9) == feed.source.end_scn()
    assert [row["commit_us"] for row in found.index] == [5_000_000, 7_000_000, 9_000_000]
    assert feed.collect().items == []
    feed.write("a-2.ndjson", insert(10, 0, 5), end(10))
    feed.write("a-3.ndjson", insert(11, 0, 6), end(11))
    assert [row[1] for row in feed.collect().changes("shop.t")] == [5, 6]


@req("D131")
def test_a_transaction_counts_when_its_end_is_there(feed: Feed) -> None:
    feed.write("a.ndjson", insert(1, 0, 1), end(1), insert(2, 0, 2))
    feed.open()
    assert scns(feed.collect()) == [1]
    half = json.dumps(end(2)).encode()
    feed.write("a.ndjson", half[:10])
    assert feed.collect().items == []
    feed.write("a.ndjson", half[10:])
    assert feed.collect().items == []
    assert feed.source.end_scn() == own_scn(1)
    feed.write("a.ndjson", b"\n")
    assert scns(feed.collect()) == [2]


@req("D131")
def test_every_kind_of_change(feed: Feed) -> None:
    change = {"scn": 1, "table": "shop.t"}
    feed.write(
        "a.ndjson",
        insert(1, 0, 1, "a"),
        {**change, "ord": 1, "op": "=U", "row": {"id": 1}, "missing": ["v"]},
        {**change, "ord": 3, "op": "+U", "row": {"id": 2, "v": "b"}, "before": {"id": 1}},
        {**change, "ord": 4, "op": "-D", "row": {"id": 2}, "missing": ["v"]},
        event(1, 5, "truncate"),
        insert(1, 6, 3, None),
        {**change, "ord": 7, "op": "+R", "row": {"id": 4, "v": ""}},
        end(1),
    )
    feed.open()
    found = feed.collect()
    assert found.changes("shop.t") == [
        ("+I", 1, "a"),
        ("=U", 1, "?"),
        ("-U", 1, "?"),
        ("+U", 2, "b"),
        ("-D", 2, "?"),
        ("+I", 3, None),
        ("+R", 4, ""),
    ]
    kinds = [(e.kind, e.ord) for e in found.events]
    assert kinds == [(SystemKind.SCHEMA, 0), (SystemKind.TRUNCATE, 6)]
    assert [row["_ord"] for row in found.rows("shop.t")] == [1, 2, 3, 4, 5, 7, 8]


@req("D131")
def test_values_of_every_type_as_our_own_output_writes_them(feed: Feed) -> None:
    from headrace.outputs.formats import Format

    values: dict[str, tuple[pa.DataType, Any]] = {
        "b": (pa.bool_(), True),
        "i2": (pa.int16(), -5),
        "i8": (pa.int64(), 2**62),
        "f4": (pa.float32(), 0.5),
        "f8": (pa.float64(), float("-inf")),
        "d": (pa.decimal128(38, 10), Decimal("12345678901234567890.1000000000")),
        "s": (pa.string(), 'é"\n\\'),
        "y": (pa.binary(), b"\x00\xff"),
        "day": (pa.date32(), date(2024, 2, 29)),
        "ts": (pa.timestamp("us"), datetime.fromisoformat("2024-02-29T01:02:03.000004")),
        "tz": (pa.timestamp("us", tz="UTC"), datetime(1969, 1, 1, 0, 0, 0, 1, tzinfo=UTC)),
    }
    columns = tuple(Column(name, type_, name) for name, (type_, _) in values.items())
    feed.describe(TableSchema(T, (SCHEMA.columns[0], *columns), ("id",), KeyCheck.IMMEDIATE))
    row = Format().plain({name: value for name, (_, value) in values.items()})
    nothing = dict.fromkeys(values)
    line = {"scn": 1, "op": "+I", "table": "shop.t"}
    feed.write(
        "a.ndjson",
        {**line, "ord": 0, "row": {"id": 1, **row}},
        {**line, "ord": 1, "row": {"id": 2, **nothing}},
        end(1),
    )
    feed.open()
    first, second = feed.collect().rows("shop.t")
    assert {name: first[name] for name in values} == {n: v for n, (_, v) in values.items()}
    assert {second[name] for name in values} == {None}


@req("D131")
@pytest.mark.parametrize(
    ("type_", "cell"),
    [
        (pa.bool_(), 1),
        (pa.int32(), True),
        (pa.int32(), 2**31),
        (pa.int64(), 1.5),
        (pa.float64(), "one"),
        (pa.decimal128(5, 2), 1.5),
        (pa.decimal128(5, 2), "1.234"),
        (pa.string(), 5),
        (pa.binary(), "?"),
        (pa.date32(), "29 February"),
        (pa.timestamp("us"), "2024-01-01T00:00:00+00:00"),
        (pa.timestamp("us", tz="UTC"), "2024-01-01T00:00:00"),
        (pa.timestamp("us"), "2024-01-01T00:00:00.1234567"),
        (pa.timestamp("us", tz="UTC"), "2024-01-01T00:00:00.0000001Z"),
    ],
)
def test_a_cell_that_is_not_exactly_a_value_is_refused(
    feed: Feed, type_: pa.DataType, cell: Any
) -> None:
    columns = (SCHEMA.columns[0], Column("secret", type_, "x"))
    feed.describe(TableSchema(T, columns, ("id",), KeyCheck.IMMEDIATE))
    row = {"id": 1, "secret": cell}
    feed.write("a.ndjson", {"scn": 1, "ord": 0, "op": "+I", "table": "shop.t", "row": row}, end(1))
    feed.open()
    with pytest.raises(UndecodableValue, match=r"shop\.t\.secret") as raised:
        feed.collect()
    assert str(cell) not in raised.value.message.replace("shop.t.secret", "")


@req("D131", "P42")
def test_a_column_that_has_a_name_of_ours_is_refused(feed: Feed) -> None:
    feed.write("a.ndjson", insert(1, 0, 1), end(1))
    feed.open()
    feed.collect()
    column = Column("_op", pa.int32(), "int")
    taken = TableSchema(T, (*SCHEMA.columns, column), ("id",), KeyCheck.IMMEDIATE)
    feed.describe(SCHEMA, taken)
    assert [finding.name for finding in feed.source.preflight()] == ["column-name-taken"]
    feed.write("a.ndjson", event(2, 0, "schema", schema_id=taken.schema_id), end(2))
    with pytest.raises(IncompatibleSchemaChange, match="_op"):
        feed.collect()


@req("D131")
def test_a_version_of_a_table_is_used_from_its_event_on(feed: Feed) -> None:
    feed.write("a.ndjson", insert(1, 0, 1), end(1))
    feed.open()
    feed.collect()
    feed.write(
        "a.ndjson",
        event(2, 0, "schema", schema_id=WIDER.schema_id),
        insert(2, 1, 2, w=5),
        end(2),
    )
    with pytest.raises(SourceError, match="does not describe"):
        feed.collect()
    # Whoever writes the feed describes the version first; the feed is opened again.
    feed.describe(SCHEMA, WIDER)
    feed.open()
    found = feed.collect()
    assert found.changes("shop.t") == [("+I", 1, "x"), ("+I", 2, "x", 5)]
    assert [schema.names for schema in feed.source.tables()] == [["id", "v", "w"]]


@req("D131")
@pytest.mark.parametrize(
    ("written", "error", "said"),
    [
        ([b"{not json\n", end(1)], ProtocolError, "line 1 is no object"),
        ([b"[]\n", end(1)], ProtocolError, "line 1 is no object"),
        ([{"ord": 0}, end(1)], ProtocolError, "has no scn"),
        ([{**insert(1, 0, 1), "ord": "first"}, end(1)], ProtocolError, "has no ord"),
        ([insert(1, 0, 1), insert(2, 0, 1), end(2)], ProtocolError, "transaction 1, and 2"),
        ([{**insert(1, 0, 1), "op": "upsert"}, end(1)], ProtocolError, "is no change"),
        ([insert(1, 0, 1, extra=1), end(1)], ProtocolError, "has columns that shop.t does not"),
        ([{**insert(1, 0, 1), "row": {"id": 1}}, end(1)], ProtocolError, "lacks columns"),
        ([event(1, 0, "explosion"), end(1)], ProtocolError, "is no event"),
        ([event(1, 0, "gap"), end(1)], SlotLost, "missing"),
        ([{**insert(1, 0, 1), "table": "shop.other"}, end(1)], SourceError, "shop.other"),
        ([insert(1, 0, 1), {"scn": 1, "end": True}], ProtocolError, "no commit_us"),
        ([insert(2**50, 0, 1), end(2**50)], SourceError, "numbers a transaction"),
        ([insert(0, 0, 1), end(0)], SourceError, "numbers a transaction 0"),
        ([insert(-5, 0, 1), end(-5)], SourceError, "numbers a transaction -5"),
        ([event(1, 0, "schema", schema_id="x"), end(1)], ProtocolError, "without its schema_id"),
        ([{**insert(1, 0, 1), "missing": 5}, end(1)], ProtocolError, "is no change"),
        (
            [{**insert(1, 0, 1), "row": {"id": None, "v": "x"}}, end(1)],
            ProtocolError,
            "no value of the key",
        ),
        ([insert(1, 0, 1), {**end(1), "commit_us": 10**30}], ProtocolError, "beyond 64 bits"),
    ],
)
def test_what_is_no_feed_is_named(
    feed: Feed, written: list[Line | bytes], error: type[HeadraceError], said: str
) -> None:
    feed.write("a.ndjson", *written)
    feed.open()
    with pytest.raises(error, match=said) as raised:
        feed.collect()
    assert raised.value.next_step


@req("D131")
def test_a_file_that_ends_amid_a_transaction_with_another_behind_it_is_broken(feed: Feed) -> None:
    feed.write("a.ndjson", insert(1, 0, 1))
    feed.write("b.ndjson", insert(1, 1, 2), end(1))
    feed.open()
    with pytest.raises(ProtocolError, match="does not end in its file"):
        feed.collect()


@req("D131")
def test_tables_that_are_not_wanted_are_passed_over(feed: Feed) -> None:
    other = {**insert(1, 0, 1), "table": "billing.x", "row": {"anything": 1}}
    feed.write("a.ndjson", other, end(1), {**insert(2, 0, 2), "extra": "field"}, end(2))
    feed.open()
    found = feed.collect()
    assert scns(found) == [2]
    assert found.items[-1].block.covered_scn == own_scn(2)


# -- again and again ------------------------------------------------------------------------------


@req("D131", "C33")
def test_what_was_not_acknowledged_comes_again_and_what_was_does_not(feed: Feed) -> None:
    feed.write("a-1.ndjson", insert(1, 0, 1), end(1))
    feed.write("a-2.ndjson", insert(2, 0, 2), end(2), insert(3, 0, 3), end(3))
    feed.open()
    first = feed.collect()
    feed.open()
    again = feed.collect()
    assert again.rows("shop.t") == first.rows("shop.t")
    feed.reader.acknowledge(str(own_scn(2)))
    feed.open()
    assert feed.source.acknowledged_scn() == own_scn(2)
    assert scns(feed.collect()) == [3]


@req("D131")
def test_lines_that_the_writer_wrote_twice_count_once(feed: Feed) -> None:
    """After a crash our own output may write the end of a window, or whole windows, again."""
    feed.write("a.ndjson", insert(1, 0, 1), end(1), insert(2, 0, 2), insert(2, 1, 3))
    feed.write("a.ndjson", insert(2, 0, 2), insert(2, 1, 3), insert(2, 2, 4), end(2))
    feed.write(
        "a.ndjson", insert(1, 0, 1), end(1), insert(2, 0, 2), end(2), insert(3, 0, 5), end(3)
    )
    feed.open()
    found = feed.collect()
    assert [row[1] for row in found.changes("shop.t")] == [1, 2, 3, 4, 5]
    assert scns(found) == [1, 2, 3]


@req("D131")
def test_a_file_that_gets_its_number_while_it_is_read_goes_on(feed: Feed) -> None:
    feed.write("changes.ndjson", insert(1, 0, 1), end(1))
    feed.open()
    assert scns(feed.collect()) == [1]
    feed.write("changes.ndjson", insert(2, 0, 2), end(2))
    (feed.folder / "changes.ndjson").rename(feed.folder / "changes-00002.ndjson")
    feed.write("changes.ndjson", insert(3, 0, 3), end(3))
    assert scns(feed.collect()) == [2, 3]


@req("D131")
def test_files_that_are_gone_are_a_loss_that_is_named(feed: Feed) -> None:
    for n in range(1, 4):
        feed.write(f"a-{n}.ndjson", insert(n, 0, n), end(n))
    feed.open()
    feed.collect(acknowledge=True)
    feed.close()
    # What was read may go, but for the file that holds the place.
    for n in (1, 2):
        os.unlink(feed.folder / f"a-{n}.ndjson")
    feed.write("a-4.ndjson", insert(4, 0, 4), end(4))
    feed.open()
    assert scns(feed.collect()) == [4]
    os.unlink(feed.folder / "a-3.ndjson")
    with pytest.raises(SlotLost, match="begins at SCN 4"):
        feed.open()
    os.unlink(feed.folder / "a-4.ndjson")
    with pytest.raises(SlotLost, match="is empty"):
        feed.open()


@req("D131")
def test_a_file_that_goes_while_it_is_read_is_named(feed: Feed) -> None:
    feed.write("a-1.ndjson", insert(1, 0, 1), end(1))
    feed.open()
    feed.collect()
    os.unlink(feed.folder / "a-1.ndjson")
    with pytest.raises(SlotLost, match="gone while it was read"):
        feed.collect()


@req("D131")
def test_a_large_transaction_comes_in_pieces(feed: Feed) -> None:
    object.__setattr__(feed.source.settings, "block_rows", 100)
    feed.write(
        "a.ndjson", *(insert(1, n, n) for n in range(1000)), end(1), insert(2, 0, -1), end(2)
    )
    feed.open()
    found = feed.collect()
    sizes = [row["changes"] for row in found.index]
    assert max(sizes) <= 101
    assert sum(sizes) == 1002
    assert [row["last_piece"] for row in found.index].count(1) == 2
    assert all(item.block.covered_scn < own_scn(1) for item in found.items[:-2])
    assert [row["_ord"] for row in found.rows("shop.t")][:1000] == list(range(1, 1001))


# -- marks ----------------------------------------------------------------------------------------


def marked(feed: Feed, token: str) -> LogItem:
    """Write a mark and return the item that it ends."""
    feed.source.watermarks().write(Mark(MarkKind.LOW, token, "run"))
    while True:
        item: LogItem | None = feed.reader.poll(0)
        assert item is not None
        if item.mark is not None:
            assert item.mark.mark.token == token
            return item


@req("D131")
def test_marks_stand_behind_what_the_feed_holds_and_never_twice_at_one_place(feed: Feed) -> None:
    feed.write("a.ndjson", insert(1, 0, 1), end(1))
    feed.open()
    seen = []
    for turn in range(3):
        item = marked(feed, f"a{turn}")
        assert item.mark is not None
        seen.append(item.mark.scn)
        assert item.block.covered_scn >= own_scn(1)
        feed.reader.acknowledge(item.position)
        feed.open()
    assert seen == sorted(set(seen))
    feed.write("a.ndjson", insert(2, 0, 2), end(2))
    item = marked(feed, "b")
    assert item.mark is not None
    # What was there when the mark was written is read before it.
    assert own_scn(2) < item.mark.scn < own_scn(3)
    assert [int(entry["scn"]) for entry in item.block.index] == [own_scn(2)]
    feed.write("a.ndjson", insert(3, 0, 3), end(3))
    assert scns(feed.collect()) == [3]


# -- the folder -----------------------------------------------------------------------------------


@req("D131")
@pytest.mark.parametrize(
    ("damage", "name"),
    [
        (lambda feed: (feed.folder / "tables.json").unlink(), "feed-unreadable"),
        (lambda feed: (feed.folder / "tables.json").write_text("{}"), "feed-unreadable"),
        (lambda feed: feed.describe(SCHEMA, feed=""), "feed-unreadable"),
        (lambda feed: feed.describe(), "no-tables"),
        (
            lambda feed: feed.describe(TableSchema(T, SCHEMA.columns, (), KeyCheck.NONE)),
            "no-key",
        ),
    ],
)
def test_what_stands_in_the_way_is_found_beforehand(
    feed: Feed, damage: Callable[[Feed], None], name: str
) -> None:
    assert feed.source.preflight() == []
    damage(feed)
    assert [finding.name for finding in feed.source.preflight()] == [name]
    with pytest.raises(PreflightFailed, match=name):
        feed.source.prepare()


@req("D131")
def test_another_feed_and_a_shorter_one_are_told(feed: Feed) -> None:
    feed.write("a.ndjson", insert(1, 0, 1), end(1), insert(2, 0, 2), end(2))
    feed.open()
    known = feed.source.incarnation()
    assert feed.source.departs(known, own_scn(2)) == ""
    assert "ends at 2" in feed.source.departs(known, own_scn(3))
    feed.describe(SCHEMA, feed="shop-2")
    assert "another feed" in feed.source.departs(known, own_scn(1))


def test_a_folder_that_is_away_is_tried_again(feed: Feed) -> None:
    feed.open()
    feed.folder.rename(feed.folder.with_name("elsewhere"))
    with pytest.raises(SourceUnavailable):
        feed.collect()
    feed.folder.with_name("elsewhere").rename(feed.folder)
    feed.write("a.ndjson", insert(1, 0, 1), end(1))
    feed.open()
    assert scns(feed.collect()) == [1]


def test_a_file_that_gets_another_name_while_it_is_looked_at_ends_nothing(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    feed.write("a.ndjson", insert(1, 0, 1), end(1))
    listed = [feed.folder / "a.ndjson", feed.folder / "b.ndjson"]
    monkeypatch.setattr(lines, "feed_files", lambda _: listed)
    kept = feed.source.log_watch().look(0)
    assert (kept.files, kept.retained_bytes) == (1, listed[0].stat().st_size)
    assert feed.source.written_bytes() == kept.retained_bytes
    with pytest.raises(SourceUnavailable, match=r"b\.ndjson"):
        feed.source.end_scn()


def test_a_damaged_place_is_named(feed: Feed) -> None:
    feed.open()
    (feed.state / "feed.json").write_text("{")
    with pytest.raises(SlotLost, match="does not read"):
        feed.source.acknowledged_scn()
    feed.source.drop()
    with pytest.raises(SlotLost, match="no place"):
        feed.source.acknowledged_scn()


def test_nothing_can_be_compared_with_a_feed(feed: Feed) -> None:
    with pytest.raises(SourceError, match="no table to compare"):
        feed.source.view([T])
    with pytest.raises(SourceError, match="cannot be read again"):
        feed.source.chunks().read_keys(T, [("1",)])
    assert feed.source.log_watch().look(0).files == 0
    (described,) = feed.source.described().tables
    assert (described.table, described.primary_key) == (T, ("id",))


@req("D131")
def test_the_guides_folder_is_a_feed(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "files.md").read_text()
    blocks: dict[str, str] = dict(re.findall(r"```(\w+)\n(.*?)```", page, re.DOTALL))
    folder = tmp_path / "feed"
    folder.mkdir()
    (folder / "tables.json").write_text(blocks["json"])
    (folder / "1.ndjson").write_text(blocks["text"])
    source = FilesSource(folder, tmp_path / "state", ("shop.*",))
    source.prepare()
    reader = source.open(FileRegistry(tmp_path / "schemas"))
    try:
        item = reader.poll(0)
    finally:
        reader.close()
    assert item is not None
    assert Collected([item]).changes("shop.orders") == [
        ("+I", 7, Decimal("12.50")),
        ("-D", 3, "?"),
    ]
    named = set(
        re.findall(r"`(\w+)`[,| ]", page.partition("| type | a cell")[2].partition("###")[0])
    )
    assert {"bool", "int16", "float64", "string", "binary", "date", "timestamptz"} <= named

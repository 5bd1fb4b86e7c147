"""Whole small transactions are the same, taken at once or event by event."""

from __future__ import annotations

import random
import uuid
import zlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from headrace.errors import ProtocolError
from headrace.model.schema import TableId
from headrace.sources.mysql.assembler import Assembler
from headrace.sources.mysql.catalog import table_schema
from headrace.sources.mysql.engine import ENGINES, Engine
from headrace.sources.mysql.events import Event, EventType, parse_event
from headrace.sources.mysql.gtids import DomainGtids, GtidSet
from headrace.sources.mysql.ports import Described
from headrace.sources.mysql.position import GONE, Place, Resume
from headrace.sources.mysql.prepared import HeldTransactions
from headrace.sources.mysql.rows import TableRows
from headrace.sources.mysql.table_map import table_map_id
from headrace.sources.mysql.types import ColumnType, Kind
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.fixtures_binlog import Sql
from tests.requirements import req
from tests.sources.mysql.test_alike import DELETE, MASKS, UPDATE, WRITE, image, packet
from tests.sources.mysql.test_stream import Log

TYPES = [ColumnType(Kind.LONG), ColumnType(Kind.VARCHAR, length=200, charset="utf8mb4")]
SERVERS = (uuid.UUID(int=1), uuid.UUID(int=2))


class Tables:
    """Knows every table by its name alone; one of them is not captured."""

    folds = False
    charsets: Mapping[int, str] = {}

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._rows: dict[int, TableRows] = {}

    def describe(self, event: Event, known: Mapping[str, int]) -> Described:
        _, table, _ = table_map_id(event)
        if not self.captures(table):
            return Described()
        schema = table_schema(table, [("id", TYPES[0], True), ("v", TYPES[1], True)], ("id",))
        schema_id = ord(table.name[0])
        rows = self._rows.setdefault(
            schema_id, TableRows(schema, schema_id, TYPES, "refuse", self._engine)
        )
        new = known.get(str(table)) != schema_id
        return Described(schema, schema_id, rows, {"schema_id": schema_id} if new else None)

    def captures(self, table: TableId) -> bool:
        return table.name != "foreign"

    def hides(self, table: TableId, *, surely: bool = False) -> bool:
        return surely

    def within(self, schema: str) -> set[TableId]:
        return set()

    def found(self, table: TableId, before: int = GONE) -> int:
        return GONE

    def told(self, version: int, before: int = GONE) -> dict[str, Any]:
        return {"schema_id": version}

    def rekeys(
        self, version: int, before: int, remade: Collection[str], unfit: Collection[str] = ()
    ) -> bool:
        return False


@dataclass
class Made:
    """A log that is made up, of either kind of server."""

    mysql: bool
    checksum: bool
    rng: random.Random
    place: int = 4
    events: list[bytes] = field(default_factory=list)

    def add(self, type_: int, body: bytes, flags: int = 0) -> None:
        size = 19 + len(body) + 4 * self.checksum
        self.place += size
        head = (7).to_bytes(4, "little") + bytes([type_]) + (1).to_bytes(4, "little")
        head += size.to_bytes(4, "little") + self.place.to_bytes(4, "little")
        data = head + flags.to_bytes(2, "little") + body
        self.events.append(
            data + (zlib.crc32(data).to_bytes(4, "little") if self.checksum else b"")
        )

    def drop(self, number: int, name: str) -> None:
        """Add a statement that is a transaction by itself: what comes behind it describes another table."""
        self.begin(number, flags=1)
        if self.mysql:
            self.events.pop()
        self.query(f"DROP TABLE {name}")

    def begin(self, number: int, flags: int = 0) -> None:
        count = number.to_bytes(8, "little")
        if not self.mysql:
            domain = self.rng.choice((0, 0, 0, 5)).to_bytes(4, "little")
            group = b"\x09" + bytes(7) if self.rng.random() < 0.3 else bytes(6)
            flags |= 0x0C | 2 * (len(group) == 8)
            self.add(EventType.GTID, count + domain + bytes([flags]) + group)
            return
        # The time lies behind the ids of transactions that may be applied beside it.
        body = (
            b"\0" + self.rng.choice((*SERVERS, SERVERS[0])).bytes + count + bytes([2]) + bytes(16)
        )
        self.add(
            EventType.SOURCE_GTID, body + (10**15 + number).to_bytes(7, "little") + b"\xfc\x10\x01"
        )
        self.query("BEGIN")

    def query(self, sql: str) -> None:
        status = bytes(self.rng.choice((0, 3, 40)))
        head = bytes(8) + b"\x01\0\0" + len(status).to_bytes(2, "little")
        self.add(EventType.QUERY, head + status + b"d\0" + sql.encode())

    def describe(self, name: str, number: int) -> None:
        body = number.to_bytes(6, "little") + b"\x01\0\x01d\0" + bytes([len(name)]) + name.encode()
        self.add(EventType.TABLE_MAP, body + b"\0the rest")

    def rows(
        self, type_: int, number: int, masks: list[bytes], most: int, last: bool = True
    ) -> None:
        images = (image(self.rng, mask) for _ in range(self.rng.randint(0, most)) for mask in masks)
        head = number.to_bytes(6, "little") + bytes([last, 0]) + b"\x02" + b"".join(masks)
        self.add(type_, head + b"".join(images))

    def transaction(
        self, number: int, name: str, table: int, type_: int, masks: list[bytes]
    ) -> None:
        """Add one, nearly always a plain one."""
        odd = self.rng.random()
        self.begin(number)
        if odd < 0.03:
            self.query("SAVEPOINT a")
        self.describe(name, table)
        for left in reversed(range(self.rng.choice((1, 1, 1, 2, 3)))):
            self.rows(type_, table, masks, 4, last=not left)
        if odd > 0.97:
            self.describe("other", 77)
            self.rows(DELETE, 77, [MASKS["key"]], 2)
        elif odd > 0.95:
            self.rows(DELETE, table, [MASKS["key"]], 2)
        if 0.03 < odd < 0.06:
            self.query("COMMIT")
        else:
            self.add(EventType.XID, number.to_bytes(8, "little"))

    def some(self, count: int) -> None:
        number = 0
        while number < count:
            name, table = self.rng.choice((("t", 9), ("t", 9), ("u", 10), ("foreign", 11)))
            type_ = self.rng.choice((WRITE, UPDATE, DELETE))
            masks = [self.rng.choice(list(MASKS.values())) for _ in range(1 + (type_ == UPDATE))]
            if type_ == WRITE:
                masks = [MASKS["whole"]]
            for _ in range(self.rng.randint(1, 9)):
                number += 1 + (self.rng.random() < 0.05)
                self.transaction(number, name, table, type_, masks)
                if self.rng.random() < 0.05:
                    number += 1
                    self.drop(number, name)
                    if self.rng.random() < 0.5:
                        number += 1
                        self.transaction(number, "foreign", 11, DELETE, [MASKS["key"]])


def resume_of(made: Made) -> Resume:
    place = Place.of("log.000001", 4)
    return Resume(place, place.scn, GtidSet() if made.mysql else DomainGtids(), {})


class Sink:
    """An assembler and everything that it gave."""

    def __init__(self, made: Made, engine: Engine, max_rows: int) -> None:
        number = (lambda gtid: gtid.number) if made.mysql else None
        held = HeldTransactions(Path("nothing is held"), lambda *_: pytest.fail("searched"))
        self.assembler = Assembler(
            Tables(engine), resume_of(made), "p", max_rows, 1 << 30, held, number
        )
        self.rows: dict[str, list[object]] = {}
        self.index: Counter[tuple[int, ...]] = Counter()
        self.system: list[object] = []
        self.last = ""

    def take(self) -> None:
        item = self.assembler.take()
        firsts = [
            (b.batch["_scn"][0].as_py(), b.batch["_ord"][0].as_py()) for b in item.block.bodies
        ]
        assert firsts == sorted(firsts)
        for body in item.block.bodies:
            body.batch.validate(full=True)
            self.rows.setdefault(str(body.table), []).extend(body.batch.to_pylist())
        for entry in item.block.index:
            key = tuple(int(entry[name]) for name in ("scn", "commit_us", "xid"))
            self.index[key] += int(entry["changes"])
        self.system += item.block.system
        self.last = item.position

    @property
    def all(self) -> tuple[object, ...]:
        return self.rows, self.index, self.system, self.last, self.assembler.covered


def one_by_one(made: Made, max_rows: int) -> Sink:
    sink = Sink(made, ENGINES["python"], max_rows)
    for data in made.events:
        sink.assembler.add(parse_event(data, checksum=made.checksum))
        if sink.assembler.full:
            sink.take()
    sink.take()
    return sink


def at_once(made: Made, engine: Engine, max_rows: int) -> tuple[Sink, int]:
    """Return what an assembler gave that may take what it can, and how many events it was not handed one by one."""
    sink, buffer = Sink(made, engine, max_rows), bytearray(b"".join(map(packet, made.events)))
    at, handed = 0, 0
    while at < len(buffer):
        size = int.from_bytes(buffer[at : at + 3], "little")
        sink.assembler.add(
            parse_event(bytes(buffer[at + 5 : at + 4 + size]), checksum=made.checksum)
        )
        at, handed = at + 4 + size, handed + 1
        if sink.assembler.expects_alike and not sink.assembler.full:
            # What has been read may end anywhere.
            end = made.rng.choice((len(buffer), made.rng.randint(at, len(buffer))))
            at = sink.assembler.add_alike(buffer, at, end, made.checksum)
        if sink.assembler.full:
            sink.take()
    sink.take()
    return sink, len(made.events) - handed


def check(seed: int, transactions: int) -> None:
    rng = random.Random(seed)
    made = Made(rng.random() < 0.5, rng.random() < 0.7, rng)
    made.some(transactions)
    max_rows = rng.choice((5, 40, 1 << 30))
    wanted = one_by_one(made, max_rows)
    for engine in ENGINES.values():
        found, _ = at_once(made, engine, max_rows)
        assert found.all == wanted.all


@req("D112")
@pytest.mark.usefixtures("halves")
@pytest.mark.parametrize("seed", range(30))
def test_transactions_are_the_same_taken_at_once_or_event_by_event(seed: int) -> None:
    check(seed, 60)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(1000, 1004))
def test_many_transactions_are_the_same(seed: int) -> None:
    for round_ in range(120):
        check(seed * 1000 + round_, 300)


@pytest.mark.skipif("native" not in ENGINES, reason="no C compiler")
@pytest.mark.parametrize("mysql", [False, True])
def test_of_transactions_that_are_alike_only_the_first_comes_event_by_event(mysql: bool) -> None:
    made = Made(mysql, True, random.Random(3))
    for number in range(1, 51):
        made.begin(number)
        made.describe("t", 9)
        made.rows(UPDATE, 9, [MASKS["whole"]] * 2, 4)
        made.add(EventType.XID, bytes(8))
    one = len(made.events) // 50
    made.rng.choice = lambda options: options[0]  # type: ignore[method-assign,assignment]
    _, taken = at_once(made, ENGINES["native"], 1 << 30)
    # The first one tells of the table's version, and so is no model.
    assert taken >= len(made.events) - 3 * one


def _transaction(made: Made, change: str, mysql: bool) -> None:
    """Add a plain transaction in which one thing is another."""
    made.begin(2, {"alone": 1, "prepared": 64, "completed": 128}.get(change, 0))
    if change == "statement" and mysql:
        made.events.pop()
        made.query("BEGIX")
    made.describe("u" if change == "table" else "t", 9)
    number = 8 if change == "number" else 9
    masks = [MASKS["key" if change == "mask" else "whole"]]
    if change != "no rows":
        made.rows(DELETE if change == "kind" else WRITE, number, masks, 4)
    made.add(EventType.QUERY if change == "end" else EventType.XID, bytes(8))
    if change == "checksum":
        made.events[-2] = made.events[-2][:-1] + bytes([made.events[-2][-1] ^ 1])
    elif change == "artificial":
        data = made.events[-1][:17] + b"\x20" + made.events[-1][18:-4]
        made.events[-1] = data + zlib.crc32(data).to_bytes(4, "little")


# What only the other kind of server writes.
ONLY = {**dict.fromkeys(("alone", "prepared", "completed"), (True,)), "statement": (False,)}
CHANGES = (
    "alone", "prepared", "completed", "statement", "table", "number", "mask", "kind", "no rows", "end", "checksum",
    "artificial", "cut",
)  # fmt: skip


@pytest.mark.skipif("native" not in ENGINES, reason="no C compiler")
@pytest.mark.parametrize(
    ("change", "mysql"),
    [
        (change, mysql)
        for change in CHANGES
        for mysql in (True, False)
        if mysql not in ONLY.get(change, ())
    ],
)
def test_a_transaction_that_is_not_alike_is_left(change: str, mysql: bool) -> None:
    rng = random.Random(1)
    rng.randint = lambda a, b: b  # type: ignore[method-assign]
    made = Made(mysql, True, rng)
    sink = Sink(made, ENGINES["native"], 1 << 30)
    for _ in range(2):
        _transaction(made, "", mysql)
    for data in made.events:
        sink.assembler.add(parse_event(data, checksum=True))
    assert sink.assembler.expects_alike
    made.events.clear()
    _transaction(made, change, mysql)
    buffer = bytearray(b"".join(map(packet, made.events)))
    end = len(buffer) - (change == "cut")
    assert sink.assembler.add_alike(buffer, 0, end, True) == 0
    made.events.clear()
    _transaction(made, "", mysql)
    buffer = bytearray(b"".join(map(packet, made.events)))
    assert sink.assembler.add_alike(buffer, 0, len(buffer), True) == len(buffer)


@pytest.mark.skipif("native" not in ENGINES, reason="no C compiler")
def test_images_of_a_transaction_that_are_broken_are_told_of() -> None:
    made = Made(False, True, random.Random(1))
    sink = Sink(made, ENGINES["native"], 1 << 30)
    for _ in range(2):
        _transaction(made, "", False)
    for data in made.events:
        sink.assembler.add(parse_event(data, checksum=True))
    made.events.clear()
    made.begin(9)
    made.describe("t", 9)
    made.add(WRITE, (9).to_bytes(6, "little") + b"\x01\0\x02\x03\xfc\x01")
    made.add(EventType.XID, bytes(8))
    buffer = bytearray(b"".join(map(packet, made.events)))
    with pytest.raises(ProtocolError, match="beyond its event"):
        sink.assembler.add_alike(buffer, 0, len(buffer), True)


@req("D112")
@pytest.mark.parametrize("name", ENGINES)
def test_small_transactions_of_a_server(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    tmp_path: Path,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_DECODER", name)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT seq, 0 FROM seq_1_to_60"
    )
    log = Log(server, database, tmp_path, rows=100)
    updates = [f"UPDATE t SET v = {n} WHERE id BETWEEN {n} AND {n + 2}" for n in range(1, 58)]
    sql(*updates, "DELETE FROM t WHERE id = 60", *updates)
    wanted, held = [], dict.fromkeys(range(1, 61), 0)

    def play() -> None:
        for n in range(1, 58):
            for id_ in range(n, n + 3):
                if held[id_] != n:
                    wanted.extend([("-U", id_, held[id_]), ("+U", id_, n)])
                    held[id_] = n

    play()
    wanted.append(("-D", 60, 0))
    play()
    found = log.changes(len(wanted))
    assert found == wanted
    log.close()

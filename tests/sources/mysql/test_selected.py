"""Rows of selects, packet by packet: both twins, on a real server and on bytes that are damaged."""

from __future__ import annotations

import random
import struct
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest

from headrace.errors import ProtocolError, SourceUnavailable
from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import TableFacts, facts_schema, read_collations, read_table
from headrace.sources.mysql.chunks import MysqlChunkReader
from headrace.sources.mysql.connection import QueryFailed, Session, connect
from headrace.sources.mysql.engine import ENGINES, Engine
from headrace.sources.mysql.results import select
from headrace.sources.mysql.selected import Stop
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.types import ColumnType, Kind
from headrace.sources.mysql.wire import Form, Wire, wire_of
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.fixtures_binlog import Sql
from tests.requirements import req
from tests.sources.mysql.support import settings

twins = pytest.mark.parametrize("engine", ENGINES.values(), ids=list(ENGINES))

SIGNED = {
    1: Wire(Form.SIGNED, 1),
    2: Wire(Form.SIGNED, 2),
    4: Wire(Form.SIGNED, 4),
    8: Wire(Form.SIGNED, 8),
}
UNSIGNED = {width: Wire(Form.UNSIGNED, width) for width in SIGNED}
COUNTED, MOMENT = Wire(Form.COUNTED, 0), Wire(Form.MOMENT, 0)
CELLS: tuple[tuple[ColumnType, Wire, tuple[bytes, ...]], ...] = (
    (ColumnType(Kind.TINY), SIGNED[1], (b"\x80", b"\x07")),
    (ColumnType(Kind.SHORT, unsigned=True), UNSIGNED[2], (b"\xff\xff", b"\0\0")),
    (ColumnType(Kind.INT24), SIGNED[4], (b"\xff\xff\x7f\0", b"\0\0\x80\xff")),
    (ColumnType(Kind.LONG), SIGNED[8], (b"\xff\xff\xff\x7f\0\0\0\0", b"\xf9" + b"\xff" * 7)),
    (ColumnType(Kind.LONG), UNSIGNED[4], (b"\xff\xff\xff\xff", b"\x01\0\0\0")),
    (ColumnType(Kind.LONGLONG), UNSIGNED[8], (b"\xff" * 8, b"\xff" * 7 + b"\x7f")),
    (ColumnType(Kind.LONGLONG, unsigned=True), UNSIGNED[8], (b"\xff" * 8, bytes(8))),
    (ColumnType(Kind.LONGLONG, unsigned=True), SIGNED[8], (b"\xff" * 8, bytes(8))),
    (ColumnType(Kind.YEAR), UNSIGNED[2], (b"\0\0", b"\x6b\x08")),
    (ColumnType(Kind.BIT, length=1), SIGNED[8], (bytes(8), b"\x01" + bytes(7))),
    (ColumnType(Kind.BIT, length=64), UNSIGNED[8], (b"\xff" * 8, bytes(8))),
    (
        ColumnType(Kind.DECIMAL, precision=8, scale=2),
        COUNTED,
        (b"\x06-12.50", b"\x060000.0", b"\x050000"),
    ),
    (
        ColumnType(Kind.FLOAT),
        Wire(Form.FLOAT, 8),
        (struct.pack("<d", 1.5e300), struct.pack("<d", -0.0)),
    ),
    (
        ColumnType(Kind.DOUBLE),
        Wire(Form.FLOAT, 4),
        (struct.pack("<f", 0.1), struct.pack("<f", -7e30)),
    ),
    (
        ColumnType(Kind.DOUBLE),
        Wire(Form.FLOAT, 8),
        (struct.pack("<d", 0.1), struct.pack("<d", 5e-324)),
    ),
    (ColumnType(Kind.DATE), MOMENT, (b"\x04\xe8\x07\x02\x1d", b"\0", b"\x04\xe7\x07\x02\x1d")),
    (
        ColumnType(Kind.DATETIME, scale=3),
        MOMENT,
        (
            b"\x0b\xe8\x07\x02\x1d\x17\x3b\x3b\x48\xe8\x01\0",
            b"\x07\x0f\x27\x0c\x1f\x17\x3b\x3b",
            b"\x04\x01\0\x01\x01",
            b"\0",
        ),
    ),
    (
        ColumnType(Kind.TIMESTAMP),
        MOMENT,
        (b"\x07\xb2\x07\x01\x01\0\0\x01", b"\x04\xb2\x07\x01\x01"),
    ),
    (
        ColumnType(Kind.VARCHAR, length=80, charset="utf8mb4"),
        COUNTED,
        (b"\x01x", b"\0", b"\x02\xc3\xa9"),
    ),
)
"""Types, how their cells lie, and some cells."""


def packet(payload: bytes, number: int = 1) -> bytes:
    return len(payload).to_bytes(3, "little") + bytes([number & 0xFF]) + payload


def row(cells: Sequence[bytes | None]) -> bytes:
    nulls = sum((cell is None) << place for place, cell in enumerate(cells, 2))
    mask = nulls.to_bytes((len(cells) + 9) // 8, "little")
    return b"\0" + mask + b"".join(cell for cell in cells if cell is not None)


def counted(text: bytes) -> bytes:
    return length(len(text)) + text


def length(size: int) -> bytes:
    if size < 0xFB:
        return bytes([size])
    return (
        b"\xfc" + size.to_bytes(2, "little")
        if size < 1 << 16
        else b"\xfd" + size.to_bytes(3, "little")
    )


END = packet(b"\xfe\0\0\x02\0")


@twins
def test_rows_are_taken_up_to_a_bound_and_packets_may_be_cut_anywhere(engine: Engine) -> None:
    rows = engine.rows(
        [ColumnType(Kind.LONG), ColumnType(Kind.VARCHAR, length=900, charset="utf8mb4")],
        [SIGNED[4], COUNTED],
    )
    texts = ["", "a", "b" * 250, "c" * 251, "d" * 70_000, None]
    packets = b"".join(
        packet(row([n.to_bytes(4, "little"), None if text is None else counted(text.encode())]))
        for n, text in enumerate(texts)
    )
    buffer, at = bytearray(), 0
    for byte in packets[:1500]:
        buffer.append(byte)
        at, why = rows.take(buffer, at, len(buffer), 1 << 30)
        assert why == Stop.MORE
    buffer += packets[1500:] + END
    at, why = rows.take(buffer, at, len(buffer), 1 << 30)
    assert (why, bytes(buffer[at:])) == (Stop.END, END)
    assert rows.count == 6
    assert rows.column(0, "refuse").to_pylist() == [0, 1, 2, 3, 4, 5]
    assert rows.column(1, "refuse").to_pylist() == texts
    rows.clear()
    at, why = rows.take(buffer, 0, len(buffer), 300)
    assert (why, rows.count) == (Stop.ENOUGH, 4)
    at, why = rows.take(bytearray(b"\xff\xff\xff\x01x"), 0, 5, 1 << 30)
    assert (at, why) == (0, Stop.LARGE)
    assert rows.take(bytearray(packet(b"\xff\x12\x05no")), 0, 9, 1 << 30) == (0, Stop.REFUSED)


Columns = Sequence[tuple[ColumnType, Wire, tuple[bytes, ...]]]


def outcome(engine: Engine, buffer: bytes, columns: Columns, zero_dates: ZeroDates) -> object:
    rows = engine.rows([type_ for type_, _, _ in columns], [wire for _, wire, _ in columns])
    try:
        found = rows.take(bytearray(buffer), 0, len(buffer), 1 << 30)
    except ProtocolError:
        return "broken"
    seen: list[object] = []
    for place in range(len(columns)):
        try:
            array = rows.column(place, zero_dates)
        except (ValueError, pa.ArrowException):
            seen.append(None)
        else:
            array.validate(full=True)
            seen.append(
                str(
                    array.cast(pa.int64())
                    if pa.types.is_temporal(array.type) and array.type != pa.date32()
                    else array
                )
            )
    return *found, rows.count, *seen


def check_damaged(seed: int, rounds: int) -> None:
    """Damage packets at random; both twins must see the same rows in them, or refuse the same columns."""
    rng = random.Random(seed)
    for _ in range(rounds):
        columns = [rng.choice(CELLS) for _ in range(rng.randint(1, 9))]
        data = bytearray()
        for _ in range(rng.randint(1, 6)):
            data += packet(row([rng.choice((*cells, None)) for *_, cells in columns]))
        data += END
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(len(data))] = rng.choice(
                (0, 0xFB, 0xFC, 0xFE, 0xFF, rng.getrandbits(8))
            )
        cut = rng.randint(0, len(data)) if rng.random() < 0.3 else len(data)
        zero_dates: ZeroDates = rng.choice(("refuse", "null"))
        found = [outcome(one, bytes(data[:cut]), columns, zero_dates) for one in ENGINES.values()]
        assert found[1:] == found[:1], (columns, bytes(data[:cut]))


@twins
def test_cells_that_are_not_their_columns_are_refused_by_name(engine: Engine) -> None:
    assert wire_of(11, 0) == MOMENT
    for type_, wire in (
        (ColumnType(Kind.TIME), MOMENT),
        (ColumnType(Kind.LONG), COUNTED),
        (ColumnType(Kind.VARCHAR, length=9, charset="utf8mb4"), SIGNED[4]),
        (ColumnType(Kind.DECIMAL, precision=4), Wire(Form.FLOAT, 8)),
        (ColumnType(Kind.DATETIME), COUNTED),
    ):
        with pytest.raises(ProtocolError, match=wire.form.name.lower()):
            engine.rows([type_], [wire])
    with pytest.raises(ProtocolError, match="other columns"):
        engine.rows([ColumnType(Kind.LONG)], [])


@pytest.mark.skipif(len(ENGINES) < 2, reason="no C compiler")
@pytest.mark.parametrize("seed", range(4))
def test_damaged_rows_are_the_same_to_both_twins(seed: int) -> None:
    check_damaged(seed, rounds=500)


@pytest.mark.long
@pytest.mark.skipif(len(ENGINES) < 2, reason="no C compiler")
@pytest.mark.parametrize("seed", range(100, 104))
def test_many_damaged_rows_are_the_same_to_both_twins(seed: int) -> None:
    check_damaged(seed, rounds=60_000)


@pytest.fixture
def session(server: MysqlProtocolServer, database: str) -> Iterator[Session]:
    with connect(settings(server)) as opened:
        opened.run(f"USE {database}")
        yield opened


def facts_of(session: Session, table: TableId) -> TableFacts:
    facts = read_table(session, table, read_collations(session))
    assert facts is not None
    return facts


@twins
def test_a_row_of_a_select_may_be_larger_than_a_packet(
    server: MysqlProtocolServer, database: str, sql: Sql, engine: Engine
) -> None:
    size = 17_000_000
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v longtext CHARACTER SET utf8mb4)",
        "SET GLOBAL max_allowed_packet = 1 << 30",
    )
    server.execute(f"INSERT INTO {database}.t VALUES (1, 'a'), (2, REPEAT('b', {size})), (3, 'c')")
    wanted = f"SELECT id, v FROM {database}.t ORDER BY 1"
    with connect(settings(server)) as session:
        facts = facts_of(session, TableId(database, "t"))
        schema = facts_schema(facts)
        found = list(select(session, wanted, engine, facts, schema, "refuse", 1 << 24))
    lengths = [len(text.as_py()) for batch, _ in found for text in batch.column("v")]
    assert lengths == [1, size, 1]
    assert [more for _, more in found] == [True, False]


@twins
def test_a_refusal_in_mid_rows_is_told_and_leaves_the_session_free(
    session: Session, database: str, sql: Sql, engine: Engine
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1), (2), (3), (4)")
    facts = facts_of(session, TableId(database, "t"))
    told = "SELECT IF(id = 3, (SELECT id FROM t), id) FROM t ORDER BY id"
    with pytest.raises(QueryFailed) as refused:
        list(select(session, told, engine, facts, facts_schema(facts), "refuse", 1))
    assert refused.value.code == 1242
    assert session.value("SELECT 7") == "7"


@twins
def test_rows_that_are_not_wanted_are_let_go(
    session: Session, database: str, sql: Sql, engine: Engine
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t SELECT seq FROM seq_1_to_50000")
    facts = facts_of(session, TableId(database, "t"))
    rows = select(session, "SELECT id FROM t", engine, facts, facts_schema(facts), "refuse", 64)
    batch, more = next(rows)
    assert batch.num_rows > 0
    assert more
    rows.close()
    assert session.value("SELECT 7") == "7"


def test_a_connection_that_is_cut_in_mid_rows_is_gone_by_name(
    session: Session, database: str, sql: Sql
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT seq, REPEAT('x', 60000) FROM seq_1_to_2000",
    )
    facts = facts_of(session, TableId(database, "t"))
    number = session.value("SELECT CONNECTION_ID()")
    engine = next(iter(ENGINES.values()))
    found = select(session, "SELECT id, v FROM t", engine, facts, facts_schema(facts), "refuse", 1)
    next(found)
    sql(f"KILL {number}")
    with pytest.raises(SourceUnavailable):
        list(found)


@req("D112")
@pytest.mark.parametrize("name", ENGINES)
def test_a_chunk_ends_at_its_bytes(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEADRACE_DECODER", name)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT seq, REPEAT('x', 1000) FROM seq_1_to_100",
    )
    table = TableId(database, "t")
    reader = MysqlChunkReader(settings(server), chunk_bytes=20_000)
    found, after, chunks = [], None, 0
    until = reader.upper_bound(table).key
    assert until is not None
    while after != until:
        chunk = reader.read(table, after, until, 64)
        found += chunk.rows.column("id").to_pylist()
        after, chunks = chunk.last_key, chunks + 1
    reader.close()
    assert found == list(range(1, 101))
    assert chunks in (5, 6)

"""Chunks of a real server: every row once in the index's order, and exact at the place of their snapshot."""

from __future__ import annotations

import contextlib
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pymysql
import pytest

from headrace.errors import ConfigError, SourceError, SourceUnavailable, UndecodableValue
from headrace.model.schema import TableId
from headrace.model.snapshot import NO, UNKNOWN, YES
from headrace.sources.base import Chunk
from headrace.sources.mysql import catalog, chunks, known
from headrace.sources.mysql.catalog import TableFacts
from headrace.sources.mysql.charsets import Collations
from headrace.sources.mysql.chunks import MysqlChunkReader
from headrace.sources.mysql.connection import Session, connect
from headrace.sources.mysql.digest import MysqlView
from headrace.sources.mysql.position import Place
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.snapshot import GtidSnapshot, PlaceSnapshot
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.binlog_servers import here, hold_commits, is_mysql, let_commits, make_user
from tests.fixtures_binlog import MARIADB, MYSQL, Sql
from tests.requirements import req
from tests.sources.mysql.support import settings
from tests.sources.mysql.test_stream import Log
from tests.waiting import until


@pytest.fixture
def reader(server: MysqlProtocolServer) -> Iterator[MysqlChunkReader]:
    found = MysqlChunkReader(settings(server))
    yield found
    found.close()


def walked(reader: MysqlChunkReader, table: TableId, limit: int) -> pa.Table:
    """Return a table by way of chunks, in the order they come."""
    until = reader.upper_bound(table).key
    assert until is not None
    after: tuple[str, ...] | None = None
    batches = []
    while True:
        chunk = reader.read(table, after, until, limit)
        batches.append(chunk.rows)
        if chunk.rows.num_rows < limit and not chunk.cut:
            return pa.Table.from_batches(batches)
        after = chunk.last_key


@req("A-11")
@pytest.mark.parametrize(
    ("change", "other"),
    [
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (k, id)", True),
        ("DROP PRIMARY KEY, ADD PRIMARY KEY (k)", True),
        ("MODIFY k varchar(20) COLLATE utf8mb4_bin NOT NULL", True),
        ("ADD c int", False),
    ],
)
def test_a_key_whose_order_changes_is_told_from_the_one_before(
    server: MysqlProtocolServer, database: str, sql: Sql, change: str, other: bool
) -> None:
    sql(
        "CREATE TABLE t (id int, k varchar(20) COLLATE utf8mb4_general_ci NOT NULL, PRIMARY KEY (id, k))"
    )
    sql("INSERT INTO t VALUES (1, 'a')")
    table = TableId(database, "t")
    with contextlib.closing(MysqlChunkReader(settings(server))) as reader:
        bound = reader.upper_bound(table)
        assert bound.key is not None
        assert bound.key_order
        assert reader.read(table, None, bound.key, 9).key_order == bound.key_order
        assert reader.read_keys(table, [bound.key]).key_order == bound.key_order
        assert reader.canonical_keys(table, [bound.key]).key_order == bound.key_order
        with MysqlView(settings(server), [table]) as view:
            assert view.key_order(table) == bound.key_order
        sql(f"ALTER TABLE t {change}")
        assert (reader.upper_bound(table).key_order != bound.key_order) is other
        with MysqlView(settings(server), [table]) as view:
            assert view.key_order(table) == reader.upper_bound(table).key_order


@req("A-14")
def test_a_key_with_too_few_or_too_many_columns_is_refused(
    database: str, sql: Sql, reader: MysqlChunkReader
) -> None:
    sql("CREATE TABLE t (id int, k varchar(20), PRIMARY KEY (id, k))")
    for wrong in (("1",), ("1", "a", "b")):
        with pytest.raises(ConfigError, match="a key has 2 columns"):
            reader.canonical_keys(TableId(database, "t"), [wrong])


ONLY_MARIADB = ("uuids", "addresses")

KEYS: dict[str, tuple[str, list[int] | list[str]]] = {
    "int": ("k int", [-5, 0, 7, 1, 2, 3, 2147483647]),
    "bigint unsigned": ("k bigint unsigned", [0, 1, 2**63, 2**64 - 1, 5]),
    "decimal": ("k decimal(30,10)", ["-0.5", "0", "99999999999999999999.9999999999", "1.1"]),
    "float": ("k float", ["0.1", "-1.5", "3.3333333", "1e20", "16777216"]),
    "double": ("k double", ["0.1", "1e-300", "-0.30000000000000004", "12345678901234567"]),
    # Kept as 1.2610000000000001 and 7.9350000000000005, and shown with three digits.
    "double of three digits": (
        "k double(10,3)",
        ["1.2613670881738115", "7.934708258477205", "-0.5"],
    ),
    # The largest that may be written is kept as 1000000.
    "float of four digits": ("k float(10,4)", ["999999.9999", "0.1", "-999999.9999"]),
    "text, case ignored": (
        "k varchar(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
        ["'a'", "'B'", "'c'", "'é9'", "'Z'", "'日'", "'a b'", "''", "'it''s'", r"'x\\y'"],
    ),
    "text of latin1": (
        "k varchar(20) CHARACTER SET latin1 COLLATE latin1_swedish_ci",
        ["'a'", "'É'", "'z'", "'ß'"],
    ),
    "bytes": ("k varbinary(9)", ["X''", "X'00'", "X'ff'", "X'0041'", "X'41'"]),
    "fixed bytes": ("k binary(4)", ["X'01'", "X'0100ff'", "X'ffffffff'"]),
    "labels": ("k enum('z', 'a', 'm')", ["'a'", "'m'", "'z'"]),
    "an empty label": ("k enum('z', '', 'm')", ["''", "'m'", "'z'"]),
    "labels of signs": (
        r"k enum('a\\b', 'c\nd', 'e''f', '\\', 'g\0h\ri', 'j''')",
        [r"'c\nd'", r"'\\'", "'e''f'", r"'a\\b'", r"'g\0h\ri'", "'j'''"],
    ),
    "sets of signs": (r"k set('a\\b', '\\', 'e''f')", [r"'\\,e''f'", r"'a\\b'", "'e''f'"]),
    "sets": ("k set('z', 'a', 'm')", ["'a'", "'m,z'", "'z'", "''", "'a,m'"]),
    "bits": ("k bit(64)", ["0", "1", "18446744073709551615"]),
    "dates": ("k date", ["'2024-01-01'", "'1969-12-31'", "'9999-12-31'"]),
    "datetimes": (
        "k datetime(3)",
        ["'2024-01-01 00:00:00.120'", "'2024-01-01'", "'1000-01-01 00:00:01'"],
    ),
    "timestamps": ("k timestamp(6)", ["'2024-01-01 00:00:00.000001'", "'1999-12-31'"]),
    "times": ("k time(2)", ["'-100:00:00.5'", "'00:00:00'", "'838:00:00'"]),
    "years": ("k year", ["0", "1901", "2155"]),
    "uuids": (
        "k uuid",
        ["'123e4567-e89b-12d3-a456-426655440000'", "'00000000-0000-0000-0000-000000000001'",
         "'f23e4567-e89b-42d3-a456-426655440000'"],
    ),
    "addresses": ("k inet6", ["'::1'", "'fe80::1'", "'2001:db8::'"]),
}  # fmt: skip


@req("T3")
@pytest.mark.parametrize(
    ("server", "name"),
    [
        pytest.param(*server.values, name, marks=server.marks, id=f"{server.id}-{name}")
        for server in (MARIADB, MYSQL)
        for name in KEYS
        if server is MARIADB or name not in ONLY_MARIADB
    ],
    indirect=["server"],
)
def test_every_row_is_read_once_in_the_order_of_the_index(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    reader: MysqlChunkReader,
    name: str,
) -> None:
    column, values = KEYS[name]
    rows = ", ".join(f"({value}, {n})" for n, value in enumerate(values))
    sql(
        "SET NAMES utf8mb4", "SET sql_mode = '', time_zone = '+00:00'",
        f"CREATE TABLE t ({column} NOT NULL PRIMARY KEY, n int)", f"INSERT INTO t VALUES {rows}",
    )  # fmt: skip
    order = [n for (n,) in server.query("SELECT n FROM t ORDER BY k", database)]
    table = TableId(database, "t")
    found = walked(reader, table, 2)
    assert found.column("n").to_pylist() == order
    # By its key each row is found again, and rendering is the way back.
    keys = reader.render_keys(reader.describe(table), found.combine_chunks().to_batches()[0])
    assert (
        reader.key_rows(reader.describe(table), keys)
        .column("k")
        .equals(found.column("k").combine_chunks())
    )
    again = reader.read_keys(table, keys).rows
    assert sorted(again.column("n").to_pylist()) == sorted(order)
    assert reader.canonical_keys(table, [*keys, keys[0]]).keys == tuple(keys)
    assert reader.upper_bound(table).key == keys[-1]


@req("A-14")
def test_keys_are_taken_as_their_rows_have_them(
    server: MysqlProtocolServer, database: str, sql: Sql, reader: MysqlChunkReader
) -> None:
    """What a collation does not tell apart was written otherwise, and is not told missing."""
    sql(
        "CREATE TABLE t (b varchar(9) COLLATE utf8mb4_general_ci, a int, PRIMARY KEY (a, b))",
        "INSERT INTO t VALUES ('Straße', 7), ('other', 7)",
    )
    table = TableId(database, "t")
    written = [(f"no {n}", "7") for n in range(120)]
    written[77:77] = [("STRAßE", "7"), ("straße  ", "07"), ("straße", "8")]
    keys = reader.canonical_keys(table, written).keys
    assert keys[76:80] == (("no 76", "7"), ("Straße", "7"), ("straße", "8"), ("no 77", "7"))
    assert len(keys) == len(written) - 1
    assert reader.render_keys(reader.describe(table), reader.read_keys(table, keys).rows) == [
        ("Straße", "7")
    ]


@req("T3")
@pytest.mark.parametrize("limit", [1, 3, 7, 1000])
def test_keys_of_several_columns_in_another_order_than_the_table(
    server: MysqlProtocolServer, database: str, sql: Sql, reader: MysqlChunkReader, limit: int
) -> None:
    sql(
        "CREATE TABLE t (a int, b varchar(9), v int, c int, PRIMARY KEY (c, a, b))",
        "INSERT INTO t SELECT x.seq, y.seq, 10000 * z.seq + 100 * x.seq + y.seq, z.seq "
        "FROM seq_1_to_3 x, seq_8_to_11 y, seq_1_to_4 z",
    )
    order = [v for (v,) in server.query("SELECT v FROM t ORDER BY c, a, b", database)]
    found = walked(reader, TableId(database, "t"), limit)
    assert found.column("v").to_pylist() == order
    assert len(order) == 48
    with pytest.raises(ConfigError, match=r"a key has 3 columns \(a, b, c\)"):
        reader.read(TableId(database, "t"), None, ("1",), 5)


def test_a_condition_and_a_bound_in_bytes_hold(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT seq, REPEAT('x', 200) FROM seq_1_to_20000",
    )
    table = TableId(database, "t")
    reader = MysqlChunkReader(settings(server), chunk_bytes=500_000)
    try:
        assert reader.upper_bound(table, "id < 50 -- so").key == ("49",)
        chunk = reader.read(table, None, ("30",), 100, "id % 10 = 0")
        assert chunk.rows.column("id").to_pylist() == [10, 20, 30]
        chunk = reader.read(table, None, ("20000",), 20_000)
        assert chunk.cut
        assert 2_000 < chunk.rows.num_rows < 10_000
        assert chunk.last_key == (str(chunk.rows.num_rows),)
        assert walked(reader, table, 20_000).column("id").to_pylist() == list(range(1, 20_001))
        with pytest.raises(SourceError, match=r"under the given condition"):
            reader.read(table, None, ("5",), 5, "nothing = 1")
        assert reader.estimate_rows(table) > 0
    finally:
        reader.close()


@req("T15")
@pytest.mark.parametrize("server", [MARIADB], indirect=True)
def test_a_table_without_a_key_is_read_whole_in_one_snapshot(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (v int)", "INSERT INTO t SELECT seq % 7 FROM seq_1_to_9000")
    table = TableId(database, "t")
    reader = MysqlChunkReader(MysqlSettings(server.url()), chunk_bytes=9_000)
    dump = reader.read_table(table)
    batches = [next(dump.batches)]
    sql("DELETE FROM t", "INSERT INTO t VALUES (99)")
    batches += dump.batches
    assert len(batches) > 1
    assert sorted(pa.Table.from_batches(batches).column("v").to_pylist()) == sorted(
        n % 7 for n in range(1, 9001)
    )
    with pytest.raises(ConfigError, match="no primary key"):
        reader.upper_bound(table)
    # Half of it is enough to go on with the next.
    half = reader.read_table(table)
    assert next(half.batches).column("v").to_pylist() == [99]
    half.batches.close()  # type: ignore[attr-defined]
    assert [b.num_rows for b in reader.read_table(table).batches] == [1]
    reader.close()


def test_what_is_not_there_or_does_not_fit_is_named(
    server: MysqlProtocolServer, database: str, sql: Sql, reader: MysqlChunkReader
) -> None:
    sql(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        "CREATE TABLE t (id int PRIMARY KEY, d date)",
        "INSERT INTO t VALUES (1, '0000-00-00')",
    )
    with pytest.raises(SourceError, match=rf"no table {database}\.none"):
        reader.describe(TableId(database, "none"))
    with pytest.raises(UndecodableValue, match=rf"{database}\.t\.d: "):
        reader.read(TableId(database, "t"), None, ("1",), 5)
    with pytest.raises(ConfigError, match=r"not a value of"):
        reader.read(TableId(database, "t"), None, ("1 OR 1",), 5)
    lenient = MysqlChunkReader(MysqlSettings(server.url(), zero_dates="null"))
    chunk = lenient.read(TableId(database, "t"), None, ("1",), 5)
    assert chunk.rows.column("d").to_pylist() == [None]
    lenient.close()


def test_a_server_that_went_away_is_asked_again(
    server: MysqlProtocolServer, database: str, sql: Sql, reader: MysqlChunkReader
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    assert reader.upper_bound(TableId(database, "t")).key == ("1",)
    server.restart()
    with pytest.raises(SourceUnavailable):
        reader.upper_bound(TableId(database, "t"))
    assert reader.upper_bound(TableId(database, "t")).key == ("1",)


def test_a_chunk_lacks_nothing_that_its_snapshot_has_seen(
    server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t SELECT seq, 0 FROM seq_1_to_6")
    log = Log(server, database, tmp_path)
    reader = log.source.chunks()
    stop = threading.Event()

    def write(id_: int) -> None:
        connection = server.connect(database)
        with connection.cursor() as cursor:
            while not stop.is_set():
                cursor.execute(f"UPDATE t SET v = v + 1 WHERE id = {id_}")
        connection.close()

    writers = [threading.Thread(target=write, args=(n,)) for n in range(1, 7)]
    for writer in writers:
        writer.start()
    table = TableId(database, "t")
    chunks: list[Chunk] = []

    def read() -> int:
        chunks.append(reader.read(table, None, ("6",), 10))
        return sum(chunks[-1].rows.column("v").to_pylist())

    try:
        # Chunks from before the first commit say nothing.
        amid = 0
        while amid < 60:
            amid += read() > 0
    finally:
        stop.set()
        for writer in writers:
            writer.join()
    total = read()
    items = log.until(lambda found: sum(i.block.index["last_piece"].sum() for i in found) >= total)
    log.close()
    reader.close()
    xids, ids, values = [], [], []
    for item in items:
        numbers = dict(zip(item.block.index["scn"].tolist(), item.block.index["xid"], strict=True))
        for body in item.block.bodies:
            new = body.batch.take(pa.array(range(1, body.batch.num_rows, 2)))
            xids += [numbers[scn] for scn in new.column("_scn").to_pylist()]
            ids += new.column("id").to_pylist()
            values += new.column("v").to_pylist()
    between = 0
    for chunk in chunks:
        seen = chunk.visibility.sees(np.array(xids), np.array(xids) + 5)
        least, most = dict.fromkeys(range(1, 7), 0), dict.fromkeys(range(1, 7), 0)
        for saw, id_, value in zip(seen, ids, values, strict=True):
            if saw == YES:
                least[id_] = value
            if saw != NO:
                most[id_] = value
        rows = zip(*(chunk.rows.column(n).to_pylist() for n in ("id", "v")), strict=True)
        assert all(least[id_] <= value <= most[id_] for id_, value in rows)
        # Only of MySQL's snapshots can nobody say what else they have seen.
        assert is_mysql(server) or least == most
        between += 0 < int((seen == YES).sum()) < len(seen)
    assert between > 30


def test_a_commit_that_is_held_is_in_the_log_and_not_in_the_chunk(
    server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 0)")
    log = Log(server, database, tmp_path)
    reader = log.source.chunks()
    table = TableId(database, "t")
    hold_commits(server)
    update = threading.Thread(target=sql, args=("UPDATE t SET v = 1 WHERE id = 1",))
    try:
        update.start()
        (item,) = log.until(lambda found: sum(len(i.block.index) for i in found) >= 1)[-1:]
        xid, scn = item.block.index["xid"][-1:], int(item.block.index["scn"][-1])
        # A low mark by position lies behind it already.
        assert Place.of(*here(server)).scn > scn
        chunk = reader.read(table, None, ("1",), 5)
        # The stream has the commit, no select has: what only looks at places of the log would keep the old row.
        assert chunk.rows.column("v").to_pylist() == [0]
        assert chunk.visibility.sees(xid, xid).tolist() == [UNKNOWN if is_mysql(server) else NO]
    finally:
        let_commits(server)
        update.join()
    chunk = reader.read(table, None, ("1",), 5)
    assert chunk.rows.column("v").to_pylist() == [1]
    assert chunk.visibility.sees(xid, xid).tolist() == [YES]
    log.close()
    reader.close()


@req("T9")
def test_a_chunk_takes_no_lock_and_waits_for_none(
    server: MysqlProtocolServer, database: str, sql: Sql, reader: MysqlChunkReader
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 0)")
    table = TableId(database, "t")
    writer = server.connect(database)
    with writer.cursor() as cursor:
        cursor.execute("BEGIN")
        cursor.execute("UPDATE t SET v = 5 WHERE id = 1")
        assert reader.read(table, None, ("1",), 5).rows.column("v").to_pylist() == [0]
        cursor.execute("COMMIT")
    assert reader.read(table, None, ("1",), 5).rows.column("v").to_pylist() == [5]
    if is_mysql(server):
        writer.close()
        with pytest.raises(SourceError, match="without a primary key"):
            reader.read_table(table)
        return
    dump = reader.read_table(table)
    with writer.cursor() as cursor:
        cursor.execute("SET innodb_lock_wait_timeout = 1")
        cursor.execute("UPDATE t SET v = 6 WHERE id = 1")
    assert [b.column("v").to_pylist() for b in dump.batches] == [[5]]
    writer.close()


def test_a_role_that_may_only_select_reads_chunks(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "INSERT INTO t VALUES (1)",
    )
    make_user(server, "looker", f"SELECT ON {database}.*")
    reader = MysqlChunkReader(MysqlSettings(server.url(user="looker")))
    try:
        chunk = reader.read(TableId(database, "t"), None, ("1",), 5)
        assert chunk.rows.num_rows == 1
        assert isinstance(chunk.visibility, PlaceSnapshot | GtidSnapshot)
    finally:
        reader.close()


def test_a_snapshot_has_a_text() -> None:
    seen = PlaceSnapshot(Place.of("binlog.000012", 345))
    assert PlaceSnapshot.parse(str(seen)) == seen
    xid = np.array([seen.place.scn - 1, seen.place.scn, seen.place.scn + 1])
    assert seen.sees(xid, xid).tolist() == [YES, YES, NO]


def test_names_and_keys_cannot_leave_their_place(
    server: MysqlProtocolServer, database: str, sql: Sql, reader: MysqlChunkReader
) -> None:
    name = "a`b'; -- \\"
    quoted = "`" + name.replace("`", "``") + "`"
    connection: pymysql.Connection = server.connect(database)
    with connection.cursor() as cursor:
        cursor.execute(f"CREATE TABLE {quoted} ({quoted} varchar(30) PRIMARY KEY)")
        cursor.execute(f"INSERT INTO {quoted} VALUES (%s)", (name,))
    connection.close()
    table = TableId(database, name)
    assert reader.upper_bound(table).key == (name,)
    assert reader.read_keys(table, [(name,)]).rows.num_rows == 1
    assert reader.read_keys(table, [("' OR '1'='1",)]).rows.num_rows == 0


@pytest.fixture
def catalog_reads(monkeypatch: pytest.MonkeyPatch) -> list[TableId]:
    """Collects the tables that are read from the catalog."""
    found: list[TableId] = []

    def read_table(session: Session, table: TableId, collations: Collations) -> TableFacts | None:
        found.append(table)
        return catalog.read_table(session, table, collations)

    monkeypatch.setattr(known, "read_table", read_table)
    return found


@req("T3")
def test_a_table_is_read_from_the_catalog_again_only_when_it_changed(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    reader: MysqlChunkReader,
    catalog_reads: list[TableId],
) -> None:
    sql(
        "CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, e enum('a', ' AUTO_INCREMENT=1') NOT NULL) "
        "COMMENT 'its AUTO_INCREMENT=1'",
        "INSERT INTO t (e) VALUES ('a'), ('a')",
    )
    table = TableId(database, "t")
    for _ in range(3):
        # The next number that the table gives is another one each time.
        sql("INSERT INTO t (e) VALUES ('a')")
        assert reader.read(table, None, ("9",), 9).rows.num_rows > 2
        assert reader.upper_bound(table).key is not None
    assert catalog_reads == [table]
    # A label alone, which looks like what is passed over.
    sql("ALTER TABLE t MODIFY e enum('a', ' AUTO_INCREMENT=2') NOT NULL")
    found = reader.read(table, None, ("9",), 9)
    assert found.schema.column("e").source_type.endswith("' AUTO_INCREMENT=2')")
    sql("ALTER TABLE t RENAME COLUMN e TO f")
    assert reader.read(table, None, ("9",), 9).schema.names == ["id", "f"]
    assert catalog_reads == [table] * 3
    sql("DROP TABLE t")
    with pytest.raises(SourceError, match="There is no table"):
        reader.read(table, None, ("9",), 9)


@req("T3")
def test_a_table_that_became_another_one_while_it_was_read_is_not_remembered(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    reader: MysqlChunkReader,
    catalog_reads: list[TableId],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    table = TableId(database, "t")

    def altered(session: Session, name: TableId, collations: Collations) -> TableFacts | None:
        if not catalog_reads:
            sql("ALTER TABLE t ADD COLUMN v int DEFAULT 7, ALGORITHM=INSTANT")
        catalog_reads.append(name)
        return catalog.read_table(session, name, collations)

    monkeypatch.setattr(known, "read_table", altered)
    # Of which of the two the catalog's own tables speak then differs between servers.
    assert reader.describe(table).names in (["id"], ["id", "v"])
    sql("ALTER TABLE t DROP COLUMN v, ALGORITHM=INSTANT")
    assert reader.describe(table).names == ["id"]


@req("T3")
@pytest.mark.parametrize(
    "statements",
    [
        ["ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN w TO v"],
        ["ALTER TABLE t RENAME COLUMN v TO s, RENAME COLUMN s TO v"],
        ["ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v varchar(3) DEFAULT 'x'"],
        ["RENAME TABLE t TO t_old, beside TO t"],
        ["RENAME TABLE t TO t_old, keyed TO t"],
    ],
    ids=["names", "names of two types", "a column", "the table", "a table with another key"],
)
def test_a_table_that_became_another_one_before_its_select_is_read_again(
    database: str,
    sql: Sql,
    reader: MysqlChunkReader,
    monkeypatch: pytest.MonkeyPatch,
    statements: list[str],
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int, w int, s varchar(9))",
        "CREATE TABLE beside (id int PRIMARY KEY, v text, w blob, s int)",
        "CREATE TABLE keyed (id int, v int PRIMARY KEY, w int, s varchar(9))",
        "INSERT INTO t VALUES (1, 10, 20, 'a')",
        "INSERT INTO beside VALUES (1, 'v', 'w', 3)",
        "INSERT INTO keyed VALUES (1, 1, 21, 'b')",
    )
    table, read, left = TableId(database, "t"), known.KnownTables.read, list(statements)

    def altered(of: known.KnownTables, session: Session, *named: Any) -> TableFacts | None:
        found = read(of, session, *named)
        while left:
            sql(left.pop(0))
        return found

    with monkeypatch.context() as patched:
        patched.setattr(known.KnownTables, "read", altered)
        chunk = reader.read(table, None, ("99",), 9)
    again = reader.read(table, None, ("99",), 9)
    assert not left
    assert (chunk.schema, chunk.key_order) == (again.schema, again.key_order)
    # A column that came after the snapshot was taken has its default there, as it has for all.
    assert chunk.rows.to_pylist() == again.rows.to_pylist()


@req("T3")
@pytest.mark.parametrize("server", [MARIADB], indirect=True)
def test_a_table_without_a_key_is_not_altered_between_its_description_and_its_select(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    reader: MysqlChunkReader,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sql("CREATE TABLE t (v int, w int)", "INSERT INTO t VALUES (10, 20)")
    table = TableId(database, "t")
    refusals: list[int] = []

    def altered(session: Session, name: TableId, collations: Collations) -> TableFacts | None:
        found = catalog.read_table(session, name, collations)
        try:
            sql(
                "SET SESSION lock_wait_timeout = 1",
                "ALTER TABLE t RENAME COLUMN v TO w, RENAME COLUMN w TO v",
            )
        except pymysql.err.OperationalError as error:
            refusals.append(error.args[0])
        return found

    monkeypatch.setattr(chunks, "read_table", altered)
    dump = reader.read_table(table)
    rows = [row for batch in dump.batches for row in batch.to_pylist()]
    assert (dump.schema.names, rows) == (["v", "w"], [{"v": 10, "w": 20}])
    # The writer waited, for as long as it would.
    assert refusals == [1205]


def test_a_table_whose_rows_are_refused_is_read_from_the_catalog_again(
    database: str, sql: Sql, reader: MysqlChunkReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 2)")
    table = TableId(database, "t")
    monkeypatch.setattr(known, "_described", lambda *_: "as ever")
    assert reader.read(table, None, ("1",), 1).schema.names == ["id", "v"]
    sql("ALTER TABLE t RENAME COLUMN v TO w")
    assert reader.read(table, None, ("1",), 1).schema.names == ["id", "w"]


def test_a_connection_of_rows_has_them_in_large_pieces(
    server: MysqlProtocolServer, reader: MysqlChunkReader, database: str, sql: Sql
) -> None:
    # What is written at once comes only behind the last row, which waits for a lock of ours.
    wanted = b"SELECT REPEAT('x', 60000) UNION ALL SELECT GET_LOCK('held', 60)"
    with connect(settings(server)) as holder, connect(settings(server)) as plain:
        holder.value("SELECT GET_LOCK('held', 0)")
        rows = connect(settings(server))
        rows.widen()
        asked = {rows: 0, plain: 16 << 10}
        for session in asked:
            session.socket().sendall(struct.pack("<IB", len(wanted) + 1, 3) + wanted)
        waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'"
        until(lambda: holder.value(waiting) == "2", "both wait")
        for session, least in asked.items():
            piece = bytearray(1 << 20)
            session.socket().setblocking(False)
            with contextlib.suppress(BlockingIOError):
                assert session.socket().recv_into(piece) > least > 0
            assert bool(piece[0]) == bool(least)
        rows.close()

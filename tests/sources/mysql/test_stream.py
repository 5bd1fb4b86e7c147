"""The log as blocks: transactions in order, places that rise, and what is acknowledged survives."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pymysql
import pytest

from headrace.errors import (
    ConfigError,
    IncompatibleSchemaChange,
    SlotLost,
    SourceError,
    SourceUnavailable,
)
from headrace.model.block import Block, SystemKind
from headrace.model.schema import TableId
from headrace.registry.file import FileRegistry
from headrace.sources.base import LogItem, Severity
from headrace.sources.mysql import MysqlSource
from headrace.sources.mysql.connection import connect
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.position import Place, Resume
from headrace.sources.mysql.stream import AcknowledgedPosition, MysqlLogReader
from headrace.sources.mysql.vendors import vendor_of
from headrace.testing.mariadb_server import MariadbServer
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.testing.ports import free_port
from tests.binlog_servers import hold_commits, is_mysql, let_commits, purge_log, reset_log
from tests.fixtures_binlog import MARIADB, MYSQL, Sql
from tests.requirements import req
from tests.sources.mysql.support import changes, here


class Log:
    """An open log and everything that it gave.

    Args:
        heartbeat_s: a server that says nothing for six times as long is taken for gone; one that stalls is not.
    """

    def __init__(
        self,
        server: MysqlProtocolServer,
        database: str,
        folder: Path,
        rows: int = 65_536,
        heartbeat_s: float = 2.0,
    ) -> None:
        self.source = MysqlSource(
            server.url(),
            folder,
            tables=(f"{database}.*",),
            name=database,
            block_rows=rows,
            heartbeat_s=heartbeat_s,
        )
        self.kept = AcknowledgedPosition(folder / "binlog.json")
        self.names = GtidNumbers(folder / "gtid_sources.json")
        self.schemas = FileRegistry(folder / "registry")
        self.items: list[LogItem] = []
        self.reader: MysqlLogReader | None = None
        self.at_its_end()
        self.open()

    def at_its_end(self) -> None:
        """Note that everything up to now is of no concern."""
        self.names.begin()
        with connect(self.source.settings) as session:
            self.kept.write(vendor_of(session).beginning(session).render())

    def open(self) -> None:
        """Open the log where it was last acknowledged."""
        self.reader = self.source.open(self.schemas)

    def close(self) -> None:
        if self.reader is not None:
            self.reader.close()
            self.reader = None

    def until(self, done: Callable[[list[LogItem]], bool]) -> list[LogItem]:
        """Return what comes until it is enough."""
        assert self.reader is not None
        found: list[LogItem] = []
        deadline = time.monotonic() + 60
        while not done(found):
            assert time.monotonic() < deadline, "the log does not bring it"
            item = self.reader.poll(0.2)
            if item is not None:
                found.append(item)
        self.items += found
        return found

    def changes(self, count: int) -> list[tuple[object, ...]]:
        """Return so many rows, in order."""
        return rows_of(self.until(lambda items: len(rows_of(items)) >= count))

    def blocks(self, transactions: int) -> list[Block]:
        """Return blocks with so many transactions that ended."""
        items = self.until(
            lambda items: sum(int(i.block.index["last_piece"].sum()) for i in items) >= transactions
        )
        return [item.block for item in items]


def rows_of(items: list[LogItem]) -> list[tuple[object, ...]]:
    found = []
    for item in items:
        placed = [
            ((scn, ord_), change)
            for body in item.block.bodies
            for scn, ord_, change in zip(
                body.batch.column("_scn").to_pylist(),
                body.batch.column("_ord").to_pylist(),
                changes(body.batch),
                strict=True,
            )
        ]
        found += [change for _, change in sorted(placed, key=lambda pair: pair[0])]
    return found


@pytest.fixture
def log(server: MysqlProtocolServer, database: str, tmp_path: Path) -> Iterator[Log]:
    opened = Log(server, database, tmp_path)
    yield opened
    opened.close()


@req("D119")
def test_transactions_come_whole_and_in_order(log: Log, sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int)",
        "CREATE TABLE u (id int PRIMARY KEY)",
        "BEGIN", "INSERT INTO t VALUES (1, 1)", "INSERT INTO u VALUES (5)", "UPDATE t SET v = 2", "COMMIT",
        "BEGIN", "INSERT INTO t VALUES (9, 9)", "ROLLBACK",
        "DELETE FROM t",
    )  # fmt: skip
    items = log.until(lambda found: len(rows_of(found)) >= 5)
    assert rows_of(items) == [
        ("+I", 1, 1),
        ("+I", 5),
        ("-U", 1, 1),
        ("+U", 1, 2),
        ("-D", 1, 2),
    ]
    index = [tuple(entry) for item in items for entry in item.block.index.tolist()]
    scns = [entry[0] for entry in index]
    assert scns == sorted(set(scns))
    # By its number each transaction is known, and none has another's.
    assert len({entry[2] for entry in index}) == len(scns)
    assert abs(index[-1][1] / 1e6 - time.time()) < 600
    for item in items:
        assert item.block.covered_scn >= item.block.last_scn
    told = [event for item in items for event in item.block.system]
    assert [event.kind for event in told] == [SystemKind.TRUNCATE, SystemKind.SCHEMA] * 2
    # Rows and events of a transaction have their ords together, without gaps.
    assert sum(entry[3] for entry in index) == 5 + 4


@req("D29", "C34")
def test_numbers_rise_over_files_and_restarts(
    log: Log, server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    for n in range(3):
        sql(
            f"INSERT INTO t VALUES ({3 * n})",
            "FLUSH BINARY LOGS",
            f"INSERT INTO t VALUES ({3 * n + 1})",
        )
    before = log.blocks(6)
    log.close()
    server.restart()
    server.kill()
    server.start()
    sql("INSERT INTO t VALUES (100)")
    log.kept.write(log.items[-1].position)
    log.open()
    after = log.blocks(1)
    indexes = [block.index for block in (*before, *after)]
    scns = [int(scn) for index in indexes for scn in index["scn"][index["last_piece"] == 1]]
    assert scns == sorted(set(scns))
    assert len(scns) == 7
    files = [scn >> 36 for scn in scns]
    assert files == sorted(files)
    assert files[-1] >= files[0] + 5


@req("D32", "C33")
@pytest.mark.mariadb
def test_a_mariadb_that_came_back_with_another_name_for_itself_goes_on(tmp_path: Path) -> None:
    """It makes its name of its port and of its network card, which a container has anew."""
    with MariadbServer() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)")
        log = Log(server, "d", tmp_path)
        before = log.source.incarnation()
        server.execute("INSERT INTO d.t VALUES (1)")
        (item,) = log.until(lambda found: len(rows_of(found)) >= 1)
        log.close()
        log.kept.write(item.position)
        server.stop()
        server.port = free_port()
        server.start()
        source = MysqlSource(server.url(), tmp_path, ("d.*",), name="d")
        assert source.incarnation() != before
        assert source.departs(before, item.block.covered_scn) == ""
        server.execute("SET GLOBAL server_id = 7")
        assert "another server" in source.departs(before, item.block.covered_scn)
        server.execute("SET GLOBAL server_id = 1", "RESET MASTER")
        assert "another server" in source.departs(before, item.block.covered_scn)


@pytest.mark.parametrize("server", [MYSQL], indirect=True)
def test_a_commit_that_waits_for_a_replica_is_no_loss_of_the_log(
    log: Log, server: MysqlProtocolServer, sql: Sql
) -> None:
    """It is in the log and was read, and is not yet executed, when the log is opened again."""
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log.changes(1)
    hold_commits(server)
    writer = threading.Thread(target=sql, args=("INSERT INTO t VALUES (2)",))
    writer.start()
    try:
        items = log.until(lambda found: len(rows_of(found)) >= 1)
        log.close()
        log.kept.write(items[-1].position)
        log.open()
    finally:
        let_commits(server)
        writer.join()
    sql("INSERT INTO t VALUES (3)")
    assert log.changes(1) == [("+I", 3)]


def test_what_was_not_acknowledged_comes_again_unchanged(log: Log, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql("INSERT INTO t VALUES (1, 'a')")
    first = log.until(lambda items: len(rows_of(items)) >= 1)
    assert log.reader is not None
    log.reader.acknowledge(first[-1].position)
    sql("INSERT INTO t VALUES (2, 'b')", "UPDATE t SET v = 'c' WHERE id = 1")
    second = log.until(lambda items: len(rows_of(items)) >= 3)
    log.close()
    log.open()
    again = log.until(lambda items: len(rows_of(items)) >= 3)
    assert rows_of(again) == rows_of(second)
    indexes = [
        [entry for item in items for entry in item.block.index.tolist()]
        for items in (second, again)
    ]
    assert indexes[0] == indexes[1]
    assert [e for i in again for e in i.block.system] == [e for i in second for e in i.block.system]


def test_a_large_transaction_leaves_in_pieces(
    server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path
) -> None:
    log = Log(server, database, tmp_path, rows=300)
    try:
        sql(
            "CREATE TABLE t (id int PRIMARY KEY, v int)",
            "INSERT INTO t SELECT seq, seq FROM seq_1_to_5000",
            "UPDATE t SET v = -v",
        )
        items = log.until(lambda found: len(rows_of(found)) >= 15_000)
        entries = [entry for item in items for entry in item.block.index.tolist()]
        assert len({entry[0] for entry in entries}) == 2
        assert [entry[5] for entry in entries].count(1) == 2
        assert len(entries) > 10
        assert max(item.block.rows for item in items) < 2_000
        found = rows_of(items)
        assert found[:5000] == [("+I", n, n) for n in range(1, 5001)]
        assert found[5000::2] == [("-U", n, n) for n in range(1, 5001)]
        assert found[5001::2] == [("+U", n, -n) for n in range(1, 5001)]
        for item in items:
            # A piece is not the whole: nobody may take it for covered, nor go on behind it.
            if not item.block.ends_complete:
                assert item.block.covered_scn < item.block.last_scn
        log.close()
        middle = [item for item in items if not item.block.ends_complete][-1]
        log.kept.write(middle.position)
        log.open()
        again = log.until(lambda found: len(rows_of(found)) >= 10_000)
        assert rows_of(again) == found[5000:]
    finally:
        log.close()


@req("P34")
def test_truncates_drops_and_new_shapes_are_told(log: Log, database: str, sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)",
        "TRUNCATE t", "INSERT INTO t VALUES (2)",
        f"TRUNCATE TABLE `{database}`.`t`", "INSERT INTO t VALUES (3)",
        "ALTER TABLE t ADD v int DEFAULT 7", "INSERT INTO t VALUES (4, 4)",
        "DROP TABLE t", "CREATE TABLE t (id int PRIMARY KEY, v int DEFAULT 7)", "INSERT INTO t VALUES (5, 5)",
    )  # fmt: skip
    items = log.until(lambda found: len(rows_of(found)) >= 5)
    told = [
        (event.kind.value, sorted(set(event.payload) - {"schema_id", "numbers", "was"}))
        for item in items
        for event in item.block.system
    ]
    assert told == [
        ("truncate", ["anew"]),
        ("schema", ["needs_dump"]),
        ("truncate", []),
        ("truncate", []),
        ("schema", ["needs_dump"]),
        ("drop_table", []),
        ("truncate", ["anew"]),
        ("schema", ["needs_dump"]),
    ]


@pytest.mark.mariadb
def test_names_in_statements_are_those_of_a_server_that_keeps_them_in_small_letters(
    tmp_path: Path,
) -> None:
    """Rows have the name that the server keeps, statements the one that somebody wrote."""
    with MariadbServer(settings={"lower_case_table_names": "1"}) as server:
        server.execute("CREATE DATABASE Shop", "CREATE TABLE Shop.Items (id int PRIMARY KEY)")
        log = Log(server, "shop", tmp_path)
        try:
            server.execute(
                "INSERT INTO SHOP.ITEMS VALUES (1)",
                "TRUNCATE TABLE SHOP.ITEMS",
                "RENAME TABLE SHOP.ITEMS TO SHOP.Others",
                "INSERT INTO SHOP.OTHERS VALUES (2)",
            )
            items = log.until(lambda found: len(rows_of(found)) >= 2)
        finally:
            log.close()
    told = [(event.kind.value, event.table.name) for item in items for event in item.block.system]
    assert told == [
        ("schema", "items"),
        ("truncate", "items"),
        ("rename_table", "items"),
        ("truncate", "others"),
        ("schema", "others"),
    ]


def test_a_quiet_table_is_not_emptied_by_whoever_sees_to_it_that_it_is_there(
    server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path
) -> None:
    create = "CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY)"
    sql(create, "INSERT INTO t VALUES (1)")
    log = Log(server, database, tmp_path)
    try:
        sql(create, "INSERT INTO t VALUES (2)", create, create.replace("t (", "u ("))
        sql("INSERT INTO u VALUES (3)")
        items = log.until(lambda found: len(rows_of(found)) >= 2)
    finally:
        log.close()
    told = [event for item in items for event in item.block.system]
    assert {(event.kind, event.table.name) for event in told} == {
        (SystemKind.SCHEMA, "t"),
        (SystemKind.SCHEMA, "u"),
    }
    assert [event.payload.get("needs_dump") for event in told if event.table.name == "u"] == [True]


ON_MARIADB = pytest.mark.parametrize("server", [MARIADB], indirect=True)


@ON_MARIADB
@pytest.mark.parametrize(
    "what",
    [
        "ADD UNIQUE KEY (a)",
        "ADD CHECK (id < 2)",
        "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (2))",
    ],
)
def test_rows_that_were_in_the_way_of_a_rule_are_gone(log: Log, sql: Sql, what: str) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 5), (2, 5)")
    log.changes(2)
    sql(f"ALTER IGNORE TABLE t {what}")
    items = log.until(lambda found: any(item.block.system for item in found))
    told = [event for item in items for event in item.block.system]
    assert [event.kind for event in told] == [SystemKind.TRUNCATE, SystemKind.SCHEMA]
    assert [event.payload.get("anew", event.payload.get("needs_dump")) for event in told] == [
        True
    ] * 2


@ON_MARIADB
def test_a_column_that_the_server_made_for_a_unique_key_is_no_column(log: Log, sql: Sql) -> None:
    """It is in the log, and nowhere else; one of that name that somebody made is a column."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text, UNIQUE (v))",
        "INSERT INTO t VALUES (1, 'a')",
        "SET SESSION binlog_row_image = 'MINIMAL'",
        "UPDATE t SET v = 'b'",
        "SET SESSION binlog_row_image = 'FULL'",
        "CREATE TABLE u (id int PRIMARY KEY, DB_ROW_HASH_1 int)",
        "INSERT INTO u VALUES (2, 3)",
        "ALTER TABLE t DROP KEY v",
        "DELETE FROM t",
    )
    assert log.changes(5) == [
        ("+I", 1, "a"),
        ("-U", 1, ...),
        ("+U", 1, "b"),
        ("+I", 2, 3),
        ("-D", 1, "b"),
    ]
    names = [body.batch.schema.names[4:] for item in log.items for body in item.block.bodies]
    assert sorted(map(tuple, names)) == [("id", "DB_ROW_HASH_1"), ("id", "v")]


ROLLED_BACK = ("BEGIN", "INSERT INTO t SELECT seq, 1 FROM seq_10_to_99", "UPDATE t SET v = 2",
    "CREATE TEMPORARY TABLE beside (id int)", "ROLLBACK", "DROP TEMPORARY TABLE beside")  # fmt: skip
"""MariaDB logs all of it, because a temporary table is not rolled back."""


@ON_MARIADB
def test_a_transaction_that_was_rolled_back_is_left_out_though_it_is_in_the_log(
    log: Log, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", *ROLLED_BACK)
    sql("INSERT INTO t VALUES (1, 1)", *ROLLED_BACK, "UPDATE t SET v = 3", *ROLLED_BACK)
    assert log.changes(3) == [("+I", 1, 1), ("-U", 1, 1), ("+U", 1, 3)]
    entries = [entry for item in log.items for entry in item.block.index]
    told = [event for item in log.items for event in item.block.system]
    assert [event.kind for event in told] == [SystemKind.TRUNCATE, SystemKind.SCHEMA]
    assert [int(entry["changes"]) for entry in entries] == [len(told), 1, 2]


@ON_MARIADB
@pytest.mark.parametrize("rows", [65_536, 20], ids=["whole", "in pieces"])
def test_what_was_rolled_back_to_a_savepoint_is_left_out_though_it_is_in_the_log(
    server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path, rows: int
) -> None:
    log = Log(server, database, tmp_path, rows)
    one = "INSERT INTO t VALUES ({})"
    try:
        sql(
            "CREATE TABLE t (id int PRIMARY KEY)",
            one.format(1),
            "BEGIN",
            "INSERT INTO t SELECT seq FROM seq_100_to_119",
            "CREATE TEMPORARY TABLE beside (id int)",
            "SAVEPOINT a",
            one.format(4),
            "SAVEPOINT B",
            *map(one.format, (5, 6)),
            "ROLLBACK TO SAVEPOINT b",
            one.format(7),
            "ROLLBACK TO b",
            one.format(8),
            "ROLLBACK WORK TO a",
            one.format(9),
            "SAVEPOINT a",
            one.format(10),
            "COMMIT",
            one.format(11),
        )
        assert log.changes(24) == [("+I", n) for n in (1, *range(100, 120), 9, 10, 11)]
    finally:
        log.close()
    entries = [entry for item in log.items for entry in item.block.index]
    events = sum(len(item.block.system) for item in log.items)
    assert sum(int(entry["changes"]) for entry in entries) == 24 + events


@ON_MARIADB
def test_a_large_transaction_that_was_rolled_back_stops_the_log_by_name(
    server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path
) -> None:
    log = Log(server, database, tmp_path, rows=20)
    try:
        sql("CREATE TABLE t (id int PRIMARY KEY, v int)", *ROLLED_BACK)
        with pytest.raises(SourceError, match="a part of it was rolled back"):
            log.until(lambda _: False)
    finally:
        log.close()


@ON_MARIADB
def test_a_sequence_is_no_table(log: Log, sql: Sql) -> None:
    sql(
        "CREATE SEQUENCE numbers",
        "CREATE TABLE t (id int PRIMARY KEY DEFAULT NEXTVAL(numbers))",
        "INSERT INTO t VALUES (), ()",
        "SELECT SETVAL(numbers, 2000)",
        "INSERT INTO t VALUES ()",
    )
    assert log.changes(3) == [("+I", 1), ("+I", 2), ("+I", 2001)]
    assert {e.table.name for item in log.items for e in item.block.system} == {"t"}


@ON_MARIADB
@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD SYSTEM VERSIONING",
        "CREATE TABLE t2 (id int PRIMARY KEY) WITH SYSTEM VERSIONING",
        "CREATE TABLE t2 LIKE elsewhere_h.t",
        "RENAME TABLE elsewhere_h.t TO t2",
    ],
)
def test_a_table_that_begins_to_keep_old_rows_stops_the_log_by_name(
    log: Log, sql: Sql, statement: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log.changes(1)
    try:
        sql(
            "CREATE DATABASE elsewhere_h",
            "CREATE TABLE elsewhere_h.t (id int PRIMARY KEY) WITH SYSTEM VERSIONING",
            statement,
            f"INSERT INTO {'t2' if 't2' in statement else 't'} VALUES (2)",
        )
        with pytest.raises(IncompatibleSchemaChange, match="keeps its own history"):
            log.until(lambda _: False)
    finally:
        sql("DROP DATABASE elsewhere_h")


@ON_MARIADB
def test_a_table_with_two_moments_is_one_like_others(log: Log, sql: Sql) -> None:
    sql(
        "SET time_zone = '+00:00'",
        "CREATE TABLE t (at timestamp(6) PRIMARY KEY, till timestamp(6) NOT NULL DEFAULT '2001-01-01')",
        "INSERT INTO t (at) VALUES ('2002-02-02')",
    )
    assert len(log.changes(1)) == 1


@ON_MARIADB
def test_bytes_that_became_a_type_which_looks_alike_in_the_log_are_of_that_type(
    log: Log, sql: Sql
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, u binary(16))",
        "INSERT INTO t VALUES (1, UNHEX('00112233445566778899aabbccddeeff'))",
    )
    log.changes(1)
    sql(
        "ALTER TABLE t MODIFY u uuid",
        "INSERT INTO t VALUES (2, '123e4567-e89b-12d3-a456-426655440000')",
    )
    assert log.changes(1) == [("+I", 2, "123e4567-e89b-12d3-a456-426655440000")]


FILLED = {
    "dropped and added": [
        "ALTER TABLE t DROP COLUMN b",
        "ALTER TABLE t ADD COLUMN b int DEFAULT 7",
    ],
    "at once": ["ALTER TABLE t DROP COLUMN b, ADD COLUMN b int DEFAULT 7"],
    "names changed places": ["ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a"],
    "there and back": ["ALTER TABLE t CHANGE b c int", "ALTER TABLE t CHANGE c b int"],
    "computed anew": ["ALTER TABLE t MODIFY g int AS (id * 3) STORED"],
    "behind a backslash": [
        r'ALTER TABLE t COMMENT "5\" x", DROP b, ADD b int DEFAULT 7 COMMENT "y"'
    ],
    "behind a backslash that is none": [
        "SET sql_mode = 'STRICT_ALL_TABLES,NO_BACKSLASH_ESCAPES'",
        r"ALTER TABLE t COMMENT 'c:\', DROP b, ADD b int DEFAULT 7 COMMENT 'y'",
    ],
    "a word that is no name elsewhere": [
        "ALTER TABLE t DROP period",
        "ALTER TABLE t ADD COLUMN period int DEFAULT 7",
    ],
    "made to fit": ["SET sql_mode = ''", "ALTER TABLE t MODIFY a int NOT NULL"],
    "letters lost": ["SET sql_mode = ''", "ALTER TABLE t CONVERT TO CHARACTER SET latin1"],
}
"""What gives rows other values, by its name; the table looks as before, or only its columns' order does not."""


ONLY_MYSQL = ("a word that is no name elsewhere",)


@req("P34", "A-11")
@pytest.mark.parametrize("name", FILLED)
def test_rows_that_an_alter_changed_are_dumped_though_the_table_looks_as_before(
    log: Log, server: MysqlProtocolServer, sql: Sql, name: str
) -> None:
    if name in ONLY_MYSQL and not is_mysql(server):
        pytest.skip("MariaDB wants the word in quotes")
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text, g int AS (id * 2) STORED, a int, b int, "
        "period int) CHARSET utf8mb4",
        "INSERT INTO t (id, v, b) VALUES (1, 'ę', 2)",
    )
    log.changes(1)
    sql(*FILLED[name], "INSERT INTO t (id, a) VALUES (2, 3)")
    items = log.until(lambda found: len(rows_of(found)) >= 1)
    told = [event.payload for item in items for event in item.block.system]
    assert any(payload.get("needs_dump") for payload in told)


REKEYED = {
    "fractions lost": ("datetime(3)", "'2024-01-01 00:00:00.7'", "MODIFY k datetime"),
    "spaces lost": ("varchar(9)", "'a '", "MODIFY k char(9)"),
    "zeros padded": ("binary(2)", "'a'", "MODIFY k binary(4)"),
    "another name": ("int", "1", "RENAME COLUMN k TO l"),
    "names changed places": ("int", "1", "CHANGE k n int, CHANGE n k int"),
    "zeros numbered": ("int", "0", "MODIFY k int AUTO_INCREMENT"),
    "dropped and added": (
        "int",
        "7",
        "DROP COLUMN k, DROP PRIMARY KEY, ADD k int AUTO_INCREMENT PRIMARY KEY",
    ),
    "another column": (
        "int",
        "7",
        "DROP PRIMARY KEY, ADD id int AUTO_INCREMENT PRIMARY KEY",
    ),
}
"""What gives rows other keys, by its name: the key's type, a value, and how it is altered."""


@req("P34", "A-11")
@pytest.mark.parametrize("quiet", [False, True], ids=["was written", "quiet"])
@pytest.mark.parametrize("name", REKEYED)
def test_rows_that_got_other_keys_begin_anew(
    server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path, name: str, quiet: bool
) -> None:
    """A dump brings them under those that they have; under the old ones they would stay for ever."""
    type_, value, change = REKEYED[name]
    sql(
        "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_AUTO_VALUE_ON_ZERO'",
        f"CREATE TABLE t (k {type_} NOT NULL, n int NOT NULL, PRIMARY KEY (k))",
    )
    insert = f"INSERT INTO t VALUES ({value}, 5)"
    if quiet:
        sql(insert)
    log = Log(server, database, tmp_path)
    try:
        if quiet:
            # As the first copy does.
            log.schemas.put(log.source.chunks().describe(TableId(database, "t")))
        else:
            sql(insert)
            log.changes(1)
        sql("SET SESSION sql_mode = 'STRICT_ALL_TABLES'", f"ALTER TABLE t {change}")
        items = log.until(lambda found: any(item.block.system for item in found))
    finally:
        log.close()
    told = [event for item in items for event in item.block.system]
    assert [event.kind for event in told] == [SystemKind.TRUNCATE, SystemKind.SCHEMA]
    assert [event.payload.get("anew", event.payload.get("needs_dump")) for event in told] == [
        True
    ] * 2


@req("P34", "A-11")
@pytest.mark.parametrize(
    ("mode", "change", "kinds"),
    [
        ("", "CONVERT TO CHARACTER SET latin1", ["truncate", "schema"]),
        ("", "MODIFY k varchar(9) CHARACTER SET latin1", ["truncate", "schema"]),
        ("", "MODIFY n bigint", ["schema"]),
        ("STRICT_ALL_TABLES", "MODIFY k varchar(9) CHARACTER SET ucs2", []),
    ],
)
def test_a_table_whose_keys_may_have_lost_letters_begins_anew(
    log: Log,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    mode: str,
    change: str,
    kinds: list[str],
) -> None:
    sql(
        "CREATE TABLE t (k varchar(9) CHARACTER SET utf8mb4 PRIMARY KEY, n int)",
        "INSERT INTO t VALUES ('ę', 1)",
    )
    log.changes(1)
    sql(
        f"SET SESSION sql_mode = '{mode}'",
        f"ALTER TABLE t {change}",
        "INSERT INTO t VALUES ('a', 2)",
    )
    kept = server.query("SELECT COUNT(*) FROM t WHERE CONVERT(k USING utf8mb4) = 'ę'", database)
    assert kept[0][0] == ("latin1" not in change)
    items = log.until(lambda found: len(rows_of(found)) >= 1)
    told = [event.kind.value for item in items for event in item.block.system]
    assert [kind for kind, _ in itertools.groupby(told)] == kinds


@ON_MARIADB
def test_a_table_that_kept_its_history_before_it_was_read_begins_anew_behind_that(
    log: Log, database: str, sql: Sql
) -> None:
    """The catalog does not know any more that rows of the log are history."""
    sql(
        "CREATE DATABASE elsewhere_h",
        "CREATE TABLE elsewhere_h.u (id int PRIMARY KEY, v int) WITH SYSTEM VERSIONING",
        "CREATE TABLE t LIKE elsewhere_h.u",
        "DROP DATABASE elsewhere_h",
        "INSERT INTO t VALUES (1, 1)",
        "UPDATE t SET v = 2",
        "ALTER TABLE t DROP SYSTEM VERSIONING",
        "INSERT INTO t VALUES (2, 2)",
    )
    items = log.until(lambda found: rows_of(found)[-1:] == [("+I", 2, 2)])
    told = [event for item in items for event in item.block.system]
    assert [event.kind.value for event in told[-2:]] == ["truncate", "schema"]
    assert told[-2].payload == {"anew": True}
    assert told[-1].payload["needs_dump"]
    assert log.schemas.get(told[-1].payload["schema_id"]).names == ["id", "v"]


@ON_MARIADB
def test_nulls_that_became_the_time_of_an_alter_are_dumped(log: Log, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, at timestamp NULL)", "INSERT INTO t VALUES (1, NULL)")
    log.changes(1)
    sql("ALTER TABLE t MODIFY at timestamp NOT NULL DEFAULT current_timestamp")
    items = log.until(lambda found: any(item.block.system for item in found))
    told = [event.payload for item in items for event in item.block.system]
    assert [payload.get("needs_dump") for payload in told] == [True]


@req("P34")
@pytest.mark.parametrize(
    "change",
    [
        "ALTER TABLE t DROP COLUMN b",
        "ALTER TABLE t MODIFY a int FIRST",
        "ALTER TABLE t MODIFY v varchar(9) COMMENT 'new'",
        "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4",
        "ALTER TABLE t ADD KEY (a), ALTER COLUMN a SET DEFAULT 4",
    ],
)
def test_an_alter_that_changes_no_row_asks_for_no_dump(log: Log, sql: Sql, change: str) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(9), a int, b int) CHARSET latin1",
        "INSERT INTO t (id, v) VALUES (1, 'é')",
    )
    log.changes(1)
    sql(change, "INSERT INTO t (id, a) VALUES (2, 3)")
    items = log.until(lambda found: len(rows_of(found)) >= 1)
    told = [event.payload for item in items for event in item.block.system]
    assert not any(payload.get("needs_dump") for payload in told)


@req("P34")
def test_text_is_read_in_the_character_set_that_its_column_had_when_it_was_written(
    log: Log, sql: Sql
) -> None:
    """Nothing that is told of the table differs, and all of it comes in one block."""
    change = "ALTER TABLE t MODIFY v varchar(100) CHARACTER SET {}"
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(100) CHARACTER SET latin1)",
        "INSERT INTO t VALUES (1, 'é')",
        change.format("utf8mb4"),
        "INSERT INTO t VALUES (2, 'ü€')",
        "UPDATE t SET v = 'ö' WHERE id = 1",
        change.format("utf16"),
        "DELETE FROM t WHERE id = 2",
        change.format("latin1"),
        "INSERT INTO t VALUES (3, 'ß')",
    )
    assert log.changes(6) == [
        ("+I", 1, "é"),
        ("+I", 2, "ü€"),
        ("-U", 1, "é"),
        ("+U", 1, "ö"),
        ("-D", 2, "ü€"),
        ("+I", 3, "ß"),
    ]


@req("P34", "F12")
def test_statements_of_a_client_with_another_character_set_name_the_tables_that_they_mean(
    log: Log, server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql("CREATE TABLE `tä` (id int PRIMARY KEY)", "INSERT INTO `tä` VALUES (1)")
    log.changes(1)
    with contextlib.closing(server.connect(database)) as client, client.cursor() as cursor:
        client.set_character_set("latin1")
        cursor.execute("TRUNCATE TABLE tä")
        cursor.execute("RENAME TABLE tä TO t")
        client.set_character_set("gbk")
        # The second byte of its name is a quote.
        cursor.execute("RENAME TABLE `t` TO `乣`")
    sql("DROP TABLE `乣`")
    items = log.until(lambda found: sum(len(i.block.system) for i in found) >= 8)
    told = [(event.kind.value, event.table.name) for i in items for event in i.block.system]
    assert told == [
        ("truncate", "tä"),
        *(("rename_table", "tä"), ("truncate", "t"), ("schema", "t")),
        *(("rename_table", "t"), ("truncate", "乣"), ("schema", "乣")),
        ("drop_table", "乣"),
    ]


@req("P34", "F12")
@pytest.mark.mariadb
@pytest.mark.parametrize("server", [MARIADB], indirect=True)
def test_a_statement_for_which_alone_something_is_set_is_that_statement(log: Log, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log.changes(1)
    sql(
        "SET STATEMENT lock_wait_timeout = 5, max_statement_time = (SELECT 9) FOR TRUNCATE TABLE t",
        "SET STATEMENT sql_mode = '' FOR ALTER TABLE t MODIFY id int",
    )
    items = log.until(lambda found: sum(len(i.block.system) for i in found) >= 2)
    told = [event for item in items for event in item.block.system]
    assert [event.kind for event in told] == [SystemKind.TRUNCATE, SystemKind.SCHEMA]
    assert told[1].payload["needs_dump"]


@req("P34", "F12")
@pytest.mark.mariadb
@pytest.mark.parametrize("server", [MARIADB], indirect=True)
def test_an_alter_that_is_logged_when_it_begins_counts_once_it_is_done(
    log: Log, server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 1)")
    log.changes(2)
    with contextlib.closing(server.connect(database)) as client, client.cursor() as cursor:
        cursor.execute("SET SESSION binlog_alter_two_phase = ON")
        with pytest.raises(pymysql.err.IntegrityError):
            cursor.execute("ALTER TABLE t ADD UNIQUE KEY (v), RENAME u, ALGORITHM = COPY")
        cursor.execute("ALTER TABLE t ADD KEY (v), RENAME w, ALGORITHM = COPY")
    logged = server.query(f"SHOW BINLOG EVENTS IN '{here(server)[0]}' LIMIT 1000000")
    assert {"START", "ROLLBACK", "COMMIT"} <= {
        word for row in logged if row[2] == "Gtid" for word in row[5].split()
    }
    items = log.until(lambda found: sum(len(i.block.system) for i in found) >= 3)
    told = [(event.kind.value, event.table.name) for i in items for event in i.block.system]
    assert told == [("rename_table", "t"), ("truncate", "w"), ("schema", "w")]


@req("P34", "F12")
def test_tables_that_come_go_and_change_places_are_told(log: Log, database: str, sql: Sql) -> None:
    def told(count: int) -> list[tuple[str, str, object]]:
        items = log.until(lambda found: sum(len(i.block.system) for i in found) >= count)
        return [
            (event.kind.value, event.table.name, event.payload.get("to", sorted(event.payload)))
            for item in items
            for event in item.block.system
        ]

    def came(name: str) -> list[tuple[str, str, object]]:
        payload = ["needs_dump", "numbers", "schema_id"]
        return [("truncate", name, ["anew"]), ("schema", name, payload)]

    sql("CREATE TABLE t (id int PRIMARY KEY)", "CREATE TABLE u LIKE t", "INSERT INTO u VALUES (1)")
    assert told(2) == came("u")
    # As tools do that change a table's shape beside it.
    sql("RENAME TABLE t TO t_old, u TO t")
    assert told(6) == [
        ("rename_table", "t", f"{database}.t_old"),
        *came("t_old"),
        ("rename_table", "u", f"{database}.t"),
        *came("t"),
    ]
    sql("ALTER TABLE t RENAME other", "TRUNCATE other")
    assert told(4) == [
        ("rename_table", "t", f"{database}.other"),
        *came("other"),
        ("truncate", "other", []),
    ]
    # Whoever only makes sure that a table is there makes none.
    sql("CREATE TABLE IF NOT EXISTS other (id int PRIMARY KEY)", "INSERT INTO other VALUES (2)")
    sql("CREATE EVENT e ON SCHEDULE EVERY 1 YEAR DISABLE DO SELECT 1")
    sql("ALTER EVENT e DO ALTER TABLE other RENAME TO t", "DROP TABLE t_old")
    assert told(1) == [("drop_table", "t_old", [])]
    sql(f"DROP DATABASE {database}", f"CREATE DATABASE {database}")
    assert told(1) == [("drop_table", "other", [])]


@req("P34", "F12")
def test_a_database_that_is_dropped_takes_tables_along_that_never_changed(
    log: Log, server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    def told(count: int) -> list[tuple[str, str]]:
        items = log.until(lambda found: sum(len(i.block.system) for i in found) >= count)
        return [(event.kind.value, event.table.name) for i in items for event in i.block.system]

    log.close()
    sql("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    log.at_its_end()
    log.open()
    sql("DROP TABLE b", f"DROP DATABASE {database}")
    assert told(2) == [("drop_table", "b"), ("drop_table", "a")]
    server.execute(f"CREATE DATABASE {database}")
    sql("CREATE TABLE c (id int PRIMARY KEY)")
    log.close()
    log.at_its_end()
    # As a dump does that has read it.
    log.schemas.put(next(schema for schema in log.source.tables() if schema.table.name == "c"))
    server.execute(f"DROP DATABASE {database}", f"CREATE DATABASE {database}")
    log.open()
    assert told(1) == [("drop_table", "c")]


def test_a_table_dropped_while_nobody_read_is_still_another_one(
    log: Log, database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)", "DROP TABLE t")
    sql("CREATE TABLE u (id int PRIMARY KEY)", "INSERT INTO u VALUES (1)")
    items = log.until(lambda found: len(rows_of(found)) >= 2)
    log.close()
    log.kept.write(items[-1].position)
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (2)")
    log.open()
    again = log.until(lambda found: len(rows_of(found)) >= 1)
    told = [event for item in again for event in item.block.system]
    assert [event.kind for event in told] == [SystemKind.TRUNCATE, SystemKind.SCHEMA]
    assert told[0].payload == {"anew": True}


def test_a_quiet_log_still_moves_on(log: Log, server: MysqlProtocolServer, sql: Sql) -> None:
    server.execute("CREATE DATABASE IF NOT EXISTS elsewhere")
    server.execute("CREATE TABLE IF NOT EXISTS elsewhere.x (id int PRIMARY KEY)")
    server.execute("REPLACE INTO elsewhere.x VALUES (1)")
    file, position = here(server)
    reached = Place.of(file, position).scn
    items = log.until(lambda found: bool(found) and found[-1].block.covered_scn >= reached)
    assert not any(len(item.block.index) for item in items)
    assert Resume.parse(items[-1].position).place.scn == reached


@req("P34", "F12")
@pytest.mark.parametrize(
    ("child", "statement"),
    [
        ("t", "ALTER TABLE t ADD FOREIGN KEY (p) REFERENCES q (id) ON DELETE CASCADE"),
        ("u", "CREATE TABLE u (id int PRIMARY KEY, p int, FOREIGN KEY (p) REFERENCES q (id) ON DELETE CASCADE)"),
        ("u", "CREATE TABLE u (id int PRIMARY KEY, p int REFERENCES q (id) ON DELETE CASCADE)"),
        ("u", "RENAME TABLE elsewhere_f.u TO u"),
    ],
    ids=["of a table", "of a new table", "behind a column", "of a table that came"],
)  # fmt: skip
def test_a_foreign_key_that_acts_stops_the_log_where_that_does_not_have_what_it_does(
    log: Log,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    child: str,
    statement: str,
) -> None:
    sql("CREATE TABLE q (id int PRIMARY KEY)", "CREATE TABLE t (id int PRIMARY KEY, p int)")
    sql(
        "CREATE DATABASE elsewhere_f",
        "CREATE TABLE elsewhere_f.u (id int PRIMARY KEY, p int, "
        f"FOREIGN KEY (p) REFERENCES {database}.q (id) ON DELETE CASCADE)",
        "INSERT INTO q VALUES (1)",
    )
    try:
        log.changes(1)
        sql(statement, f"INSERT INTO {child} VALUES (5, 1)", "DELETE FROM q")
        if is_mysql(server):
            assert sorted(log.changes(3)) == [("+I", 5, 1), ("-D", 1), ("-D", 5, 1)]
        else:
            with pytest.raises(IncompatibleSchemaChange, match="a foreign key that changes rows"):
                log.until(lambda _: False)
    finally:
        server.execute("DROP DATABASE elsewhere_f")


@pytest.mark.parametrize(
    ("statements", "error", "words"),
    [
        (
            ("SET SESSION binlog_format = 'STATEMENT'", "UPDATE t SET v = 2"),
            SourceError,
            r"as a statement \(UPDATE\)",
        ),
        (
            ("SET SESSION binlog_format = 'STATEMENT'", "CREATE TEMPORARY TABLE beside (id int)",
             "CREATE TEMPORARY TABLE t (id int)", "TRUNCATE t", "DROP TABLE t"),
            SourceError,
            r"\.t: a session whose statements are logged made a temporary table",
        ),
        (
            ("SET SESSION binlog_format = 'STATEMENT'", "CREATE TEMPORARY TABLE beside (id int)",
             "ALTER TABLE beside RENAME t", "TRUNCATE t"),
            SourceError,
            r"\.t: a session whose statements are logged made a temporary table",
        ),
        (
            ("CREATE TABLE p (id int PRIMARY KEY) PARTITION BY HASH (id) PARTITIONS 4",
             "ALTER TABLE p TRUNCATE PARTITION p1"),
            IncompatibleSchemaChange,
            r"\.p: rows came or went with a partition",
        ),
        (
            ("CREATE DATABASE elsewhere_p",
             "CREATE TABLE elsewhere_p.p LIKE t", "ALTER TABLE elsewhere_p.p PARTITION BY HASH (id) PARTITIONS 1",
             "ALTER TABLE elsewhere_p.p EXCHANGE PARTITION p0 WITH TABLE t", "DROP DATABASE elsewhere_p"),
            IncompatibleSchemaChange,
            r"\.t: rows came or went with a partition",
        ),
    ],
    ids=["a statement", "a temporary table", "a temporary table renamed", "a partition", "a table that was one"],
)  # fmt: skip
def test_what_cannot_be_carried_over_stops_the_log_by_name(
    log: Log, sql: Sql, statements: tuple[str, ...], error: type[Exception], words: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    log.changes(1)
    sql(*statements)
    with pytest.raises(error, match=words):
        log.until(lambda _: False)


def test_a_server_that_goes_away_is_a_loss_of_the_connection(
    log: Log, server: MysqlProtocolServer, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log.changes(1)
    server.kill()
    try:
        with pytest.raises(SourceUnavailable):
            log.until(lambda _: False)
    finally:
        server.start()
    log.close()
    log.kept.write(log.items[-1].position)
    log.open()
    sql("INSERT INTO t VALUES (2)")
    assert log.changes(1)[-1] == ("+I", 2)


def test_preflight_throws_no_reader_out(log: Log, sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log.changes(1)
    assert [f for f in log.source.preflight() if f.severity is Severity.ERROR] == []
    sql("INSERT INTO t VALUES (2)")
    assert log.changes(1) == [("+I", 2)]


def test_a_server_that_says_nothing_is_gone(
    server: MysqlProtocolServer, database: str, sql: Sql, tmp_path: Path
) -> None:
    log = Log(server, database, tmp_path, heartbeat_s=0.2)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        with pytest.raises(SourceUnavailable, match="has said nothing"):
            log.until(lambda _: False)
    finally:
        os.kill(server.pid, signal.SIGCONT)
        log.close()


def test_a_log_that_was_reset_is_lost_though_it_has_our_place_again(
    log: Log, server: MysqlProtocolServer, sql: Sql
) -> None:
    same = ("TRUNCATE t", "INSERT INTO t VALUES (1)")
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    log.close()
    sql(reset_log(server))
    log.at_its_end()
    log.open()
    sql(*same)
    log.changes(1)
    log.close()
    log.kept.write(log.items[-1].position)
    # Byte for byte as long as before, under other ids.
    other = (
        "SET SESSION gtid_next = 'AUTOMATIC:other'"
        if is_mysql(server)
        else "SET SESSION gtid_domain_id = 7"
    )
    sql(reset_log(server), other, *same, "INSERT INTO t VALUES (2)")
    with pytest.raises(
        SlotLost, match=r"is not the one that was read|lacks transactions that were"
    ):
        log.open()


@req("D29", "C34")
@pytest.mark.mariadb
def test_a_domain_that_the_server_was_made_to_forget_is_no_loss_of_the_log(tmp_path: Path) -> None:
    with MariadbServer() as server:
        server.execute("CREATE DATABASE d", "CREATE TABLE d.t (id int PRIMARY KEY)")
        log = Log(server, "d", tmp_path)
        try:
            server.execute("SET SESSION gtid_domain_id = 2", "INSERT INTO d.t VALUES (1)")
            purge_log(server)
            server.execute("FLUSH BINARY LOGS DELETE_DOMAIN_ID = (2)", "INSERT INTO d.t VALUES (2)")
            items = log.until(lambda found: len(rows_of(found)) >= 2)
            log.close()
            log.kept.write(items[-1].position)
            server.execute("INSERT INTO d.t VALUES (3)")
            log.open()
            assert log.changes(1) == [("+I", 3)]
        finally:
            log.close()


@pytest.mark.parametrize("server", [MYSQL], indirect=True)
def test_a_lost_list_of_names_is_named_and_never_made_anew(
    log: Log, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    log.changes(1)
    log.close()
    (tmp_path / "gtid_sources.json").unlink()
    with pytest.raises(ConfigError, match=r"gtid_sources\.json"):
        log.open()

"""Rows of a real log: what becomes of inserts, updates and deletes, and of images that lack columns."""

from __future__ import annotations

import json

import pytest

from headrace.errors import SourceError
from headrace.model.schema import KeyCheck, TableId
from headrace.sources.mysql.catalog import table_schema
from headrace.sources.mysql.engine import make_engine
from headrace.sources.mysql.events import ROWS, EventType, RowsHeader
from headrace.sources.mysql.rows import TableRows
from headrace.sources.mysql.types import ColumnType, Kind
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.fixtures_binlog import MARIADB, MYSQL, Sql
from tests.requirements import req
from tests.sources.mysql.support import changes, decoded, events, here

TABLE = "CREATE TABLE t (id int PRIMARY KEY, a int, b text, c varchar(9) NOT NULL DEFAULT 'x')"
ROW = "INSERT INTO t VALUES (1, 10, 'long', 'c'), (2, NULL, NULL, 'd')"


@req("D119")
def test_every_change_in_between_comes_in_its_order(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql(
        TABLE,
        ROW,
        "UPDATE t SET a = 11, b = NULL WHERE id = 1",
        "UPDATE t SET id = 3 WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
        "REPLACE INTO t VALUES (3, 7, 'r', 's')",
    )
    rows = decoded(server, TableId(database, "t"), start).rows
    assert changes(rows) == [
        ("+I", 1, 10, "long", "c"),
        ("+I", 2, None, None, "d"),
        ("-U", 1, 10, "long", "c"),
        ("+U", 1, 11, None, "c"),
        ("-U", 2, None, None, "d"),
        ("+U", 3, None, None, "d"),
        ("-D", 1, 11, None, "c"),
        ("-U", 3, None, None, "d"),
        ("+U", 3, 7, "r", "s"),
    ]
    assert rows.column("_ord").to_pylist() == list(range(9))


@pytest.mark.parametrize(
    ("image", "changed", "moved", "deleted"),
    [
        ("MINIMAL", (1, 11, ..., ...), (3, ..., ..., ...), (1, ..., ..., ...)),
        ("NOBLOB", (1, 11, ..., "c"), (3, None, ..., "d"), (1, 11, ..., "c")),
        ("FULL", (1, 11, "long", "c"), (3, None, None, "d"), (1, 11, "long", "c")),
    ],
)
def test_what_a_sessions_row_image_leaves_out_is_missing_and_not_null(
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    image: str,
    changed: tuple[object, ...],
    moved: tuple[object, ...],
    deleted: tuple[object, ...],
) -> None:
    start = here(server)
    sql(
        TABLE,
        ROW,
        f"SET SESSION binlog_row_image = {image}",
        "UPDATE t SET a = 11 WHERE id = 1",
        "UPDATE t SET id = 3 WHERE id = 2",
        "DELETE FROM t WHERE id = 1",
    )
    rows = changes(decoded(server, TableId(database, "t"), start).rows)
    assert [row[0] for row in rows] == ["+I", "+I", "-U", "+U", "-U", "+U", "-D"]
    assert rows[3][1:] == changed
    assert rows[5][1:] == moved
    assert rows[6][1:] == deleted
    assert rows[4][1] == 2


def test_images_of_all_forms_may_alternate_within_one_body(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    statements = [TABLE, ROW]
    for n, image in enumerate(("MINIMAL", "FULL", "NOBLOB", "MINIMAL", "FULL")):
        statements += [
            f"SET SESSION binlog_row_image = {image}",
            f"UPDATE t SET b = '{n}' WHERE id = 1",
            f"UPDATE t SET a = {n} WHERE id = 2",
        ]
    sql(*statements)
    rows = changes(decoded(server, TableId(database, "t"), start).rows)
    new = [row[1:] for row in rows if row[0] == "+U"]
    assert new == [
        (1, ..., "0", ...),
        (2, 0, ..., ...),
        (1, 10, "1", "c"),
        (2, 1, None, "d"),
        (1, 10, "2", "c"),
        (2, 2, ..., "d"),
        (1, ..., "3", ...),
        (2, 3, ..., ...),
        (1, 10, "4", "c"),
        (2, 4, None, "d"),
    ]


@pytest.mark.parametrize(
    ("table", "statement"),
    [
        ("id int PRIMARY KEY, a int DEFAULT 5", "INSERT INTO t (id) VALUES (1)"),
        ("id int, a int, b text", "UPDATE t SET a = 1"),
    ],
    ids=["an insert that leaves values out", "an update of a table without a key"],
)
def test_images_that_cannot_do_are_refused_by_name(
    server: MysqlProtocolServer, database: str, sql: Sql, table: str, statement: str
) -> None:
    start = here(server)
    sql(
        f"CREATE TABLE t ({table})",
        "INSERT INTO t (id, a) VALUES (7, 8)",
        f"SET SESSION binlog_row_image = {'MINIMAL' if 'PRIMARY' in table else 'FULL'}",
        statement,
    )
    if "PRIMARY" in table:
        with pytest.raises(SourceError, match=rf"{database}\.t: a row in the log lacks columns"):
            decoded(server, TableId(database, "t"), start)
    else:
        rows = decoded(server, TableId(database, "t"), start).rows
        assert changes(rows)[1:] == [("-U", 7, 8, None), ("+U", 7, 1, None)]


def test_a_table_without_a_key_needs_whole_images() -> None:
    types = [ColumnType(Kind.LONG), ColumnType(Kind.LONG)]
    table = TableId("d", "t")
    schema = table_schema(table, [("a", types[0], True), ("b", types[1], True)], ())
    assert schema.key_check is KeyCheck.NONE
    rows = TableRows(schema, 1, types, "refuse", make_engine())
    image = b"\xfe\x01\0\0\0"
    header = RowsHeader(1, 2, b"\x01", b"\x01", image, 0, len(image))
    rows.add(1, 0, EventType.DELETE_ROWS_V1, header)
    with pytest.raises(SourceError, match=r"binlog_row_image=FULL"):
        rows.body()


@pytest.mark.parametrize("server", [MARIADB], indirect=True)
def test_compressed_events_hold_the_same(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    table = TableId(database, "t")
    sql(TABLE, "SET GLOBAL log_bin_compress = ON")
    try:
        text = "long " * 500
        sql(
            f"INSERT INTO t VALUES (1, 1, '{text}', 'c')",
            f"UPDATE t SET b = '{text}x' WHERE id = 1",
            "DELETE FROM t WHERE id = 1",
        )
    finally:
        sql("SET GLOBAL log_bin_compress = OFF")
    kinds = {event.type for event in events(server, start)}
    assert {
        EventType.WRITE_ROWS_COMPRESSED,
        EventType.UPDATE_ROWS_COMPRESSED,
        EventType.DELETE_ROWS_COMPRESSED,
    } <= kinds
    assert changes(decoded(server, table, start).rows) == [
        ("+I", 1, 1, text, "c"),
        ("-U", 1, 1, text, "c"),
        ("+U", 1, 1, text + "x", "c"),
        ("-D", 1, 1, text + "x", "c"),
    ]


@pytest.mark.parametrize("server", [MYSQL], indirect=True)
@pytest.mark.parametrize("rows", [1, 30_000])
def test_a_transaction_that_is_compressed_as_one_holds_the_same(
    server: MysqlProtocolServer, database: str, sql: Sql, rows: int
) -> None:
    start, table = here(server), TableId(database, "t")
    text = "long " * 50
    statements = (
        f"INSERT INTO t SELECT seq, 1, '{text}', 'c' FROM seq_1_to_{rows}",
        f"UPDATE t SET b = '{text}x' WHERE id = 1",
        "DELETE FROM t WHERE id = 1",
    )
    sql(TABLE, "SET SESSION binlog_transaction_compression = ON", "BEGIN", *statements, "COMMIT")
    sent = list(events(server, start))
    # All of it lies at one place, behind its id.
    places = {e.end_pos for e in sent if e.type in ROWS}
    assert len(places) == 1
    assert changes(decoded(server, table, start).rows) == [
        *(("+I", n, 1, text, "c") for n in range(1, rows + 1)),
        ("-U", 1, 1, text, "c"),
        ("+U", 1, 1, text + "x", "c"),
        ("-D", 1, 1, text + "x", "c"),
    ]


DOCUMENTS = [
    "JSON_SET(j, '$.a', 2)",
    "JSON_SET(j, '$.new', CAST('{\"x\": [1]}' AS JSON))",
    "JSON_REMOVE(j, '$.list[1]', '$.a')",
    "JSON_REPLACE(j, '$.list[0].deep', 'é\"')",
    "JSON_ARRAY_INSERT(j, '$.list[1]', 1.5)",
    "JSON_SET(j, '$.\"a b\"', CAST(1.50 AS DECIMAL(5,2)))",
    "JSON_SET(JSON_REMOVE(j, '$.list'), '$.a', DATE'2020-01-02')",
    "j",
]


@pytest.mark.parametrize("server", [MYSQL], indirect=True)
@pytest.mark.parametrize("image", ["FULL", "NOBLOB"])
@pytest.mark.parametrize("change", DOCUMENTS)
def test_a_document_of_which_the_log_has_only_the_change_comes_whole(
    server: MysqlProtocolServer, database: str, sql: Sql, image: str, change: str
) -> None:
    start = here(server)
    document = json.dumps({
        "a": 1, "list": [{"deep": "x" * 40}, 7, None], "zz": "y" * 300, "a b": 0, "b": {}
    })  # fmt: skip
    sql(
        "SET NAMES utf8mb4",
        "CREATE TABLE t (id int PRIMARY KEY, j json, n int, k json, v varchar(9))",
        f"INSERT INTO t VALUES (1, '{document}', 0, '[]', 'v'), (2, '{document}', 0, NULL, NULL)",
        "INSERT INTO t VALUES (3, NULL, 0, '1', '')",
        f"SET SESSION binlog_row_image = {image}, binlog_row_value_options = PARTIAL_JSON",
        f"UPDATE t SET n = n + 1, j = {change}, k = JSON_SET(k, '$[0]', 1)",
        f"UPDATE t SET n = n + 1, j = {change}",
        "UPDATE t SET id = id + 10",
    )
    kinds = [event.type for event in events(server, start)]
    assert kinds.count(EventType.PARTIAL_UPDATE_ROWS) == 3
    rows = decoded(server, TableId(database, "t"), start).rows
    now = server.query("SELECT * FROM t ORDER BY id", database)
    last = [row[1:] for row in changes(rows) if row[0] == "+U"][-3:]
    assert last == [tuple(row) for row in now]


@pytest.mark.parametrize("server", [MYSQL], indirect=True)
def test_a_change_of_a_document_that_is_not_in_the_log_is_refused_by_name(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, j json)",
        f"INSERT INTO t VALUES (1, '{json.dumps({'a': 'x' * 99, 'b': 'y' * 99})}')",
        "SET SESSION binlog_row_image = MINIMAL, binlog_row_value_options = PARTIAL_JSON",
        "UPDATE t SET j = JSON_SET(j, '$.a', 'z')",
    )
    with pytest.raises(
        SourceError, match=rf"{database}\.t: the log has what changed in a document"
    ):
        decoded(server, TableId(database, "t"), start)


def test_a_row_may_be_larger_than_a_packet(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v longblob)", "SET GLOBAL max_allowed_packet = 1 << 30"
    )
    sizes = [(1 << 24) - 100, (1 << 24) + 3, 40 << 20, 5]
    for n, size in enumerate(sizes):
        server.execute(f"INSERT INTO {database}.t SELECT {n}, REPEAT('x', {size})")
    (batch,) = decoded(server, TableId(database, "t"), start).batches
    assert [len(cell) for cell in batch.column("v").to_pylist()] == sizes


def test_generated_and_invisible_columns_are_columns_like_others(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v int AS (id * 2) VIRTUAL, s int AS (id * 3) STORED, "
        "i int INVISIBLE DEFAULT 9)",
        "INSERT INTO t (id) VALUES (1)",
    )
    found = decoded(server, TableId(database, "t"), start)
    assert changes(found.rows) == [("+I", 1, 2, 3, 9)]


@req("P33", "P34")
def test_each_row_has_the_shape_that_its_table_had_then(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    start = here(server)
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, a int)",
        "INSERT INTO t VALUES (1, 2)",
        "ALTER TABLE t ADD b varchar(5) DEFAULT 'new' FIRST, DROP a",
        "INSERT INTO t (id) VALUES (2)",
        "ALTER TABLE t CHANGE b c varchar(50)",
        "INSERT INTO t VALUES ('x', 3)",
    )
    batches = decoded(server, TableId(database, "t"), start).batches
    assert [batch.schema.names[4:] for batch in batches] == [["id", "a"], ["b", "id"], ["c", "id"]]
    assert [changes(batch) for batch in batches] == [
        [("+I", 1, 2)],
        [("+I", "new", 2)],
        [("+I", "x", 3)],
    ]

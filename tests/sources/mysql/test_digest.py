"""The server's hashes are those of the rows that the log and a select give, for every type of the table of types."""

from __future__ import annotations

import pytest

from headrace.errors import SourceError
from headrace.lake.digest import RangeSums, digest_rows
from headrace.model.schema import TableId
from headrace.sources.mysql import MysqlSource
from headrace.sources.mysql.chunks import MysqlChunkReader
from headrace.sources.mysql.digest import MysqlView
from headrace.sources.mysql.kept import seen_from
from headrace.sources.mysql.position import Place
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.fixtures_binlog import Sql
from tests.requirements import req
from tests.sources.mysql.kinds import Kind, on_servers
from tests.sources.mysql.support import decoded, here, settings
from tests.sources.mysql.test_types import KINDS, create, fill


def pairs(keys: object, rows: object) -> list[bytes]:
    return [k.tobytes() + r.tobytes() for k, r in zip(keys, rows, strict=True)]  # type: ignore[call-overload]


@req("D112")
@pytest.mark.parametrize(("server", "kind"), on_servers(KINDS), indirect=["server"])
def test_the_server_hashes_what_the_log_gives(
    server: MysqlProtocolServer, database: str, sql: Sql, kind: Kind
) -> None:
    table, start = TableId(database, "t"), here(server)
    sql("SET NAMES utf8mb4", "SET sql_mode = 'ALLOW_INVALID_DATES', time_zone = '+00:00'")
    sql(create(kind), fill(kind, made=60))
    logged = decoded(server, table, start).rows
    with MysqlView(settings(server), [table]) as view:
        schema = view.schemas[table]
        ours = digest_rows(schema, logged.select(list(schema.names)), view.form)
        wanted = sorted(pairs(ours.keys, ours.rows))
        found = [view.row_digests(table, range(256))]
        assert sorted(p for part in found for k, r in part for p in pairs(k, r)) == wanted
        sums = RangeSums()
        sums.add(ours)
        theirs = RangeSums()
        for number, count, total in view.range_sums(table):
            theirs.counts[number], theirs.sums[number] = count, total
        assert theirs.differing(sums) == []
        some = [ours.keys[place].tobytes() for place in (0, 1)]
        assert sorted(view.keys(table, some)) == [("0",), ("1",)]


@pytest.mark.parametrize(
    ("declared", "values"),
    [
        ("int zerofill", "(1), (20)"),
        ("decimal(8,3) zerofill", "(1.5), (0)"),
        ("decimal(60,3) zerofill", "(1.5), (0)"),
        ("bigint unsigned zerofill", "(18446744073709551615), (1)"),
        ("varchar(20) CHARACTER SET latin1", "('é'), ('')"),
        ("varchar(20) CHARACTER SET utf16", "('é'), ('😀')"),
        ("float", "(3.4028234e38), (1e-45)"),
    ],
)
def test_what_the_server_pads_or_encodes_otherwise_is_hashed_alike(
    server: MysqlProtocolServer, database: str, sql: Sql, declared: str, values: str
) -> None:
    sql(
        f"CREATE TABLE t (id int AUTO_INCREMENT PRIMARY KEY, v {declared})",
        f"INSERT INTO t (v) VALUES {values}, (NULL)",
    )
    table = TableId(database, "t")
    reader = MysqlChunkReader(settings(server))
    rows = reader.read(table, None, ("3",), 5).rows
    reader.close()
    with MysqlView(settings(server), [table]) as view:
        ours = digest_rows(view.schemas[table], rows, view.form)
        theirs = [p for k, r in view.row_digests(table, range(256)) for p in pairs(k, r)]
        assert sorted(theirs) == sorted(pairs(ours.keys, ours.rows))


@pytest.mark.parametrize("declared", ["date", "datetime(3)", "timestamp NULL"])
def test_a_date_that_is_no_day_is_hashed_as_the_null_of_its_copy(
    server: MysqlProtocolServer, database: str, sql: Sql, declared: str
) -> None:
    days = ["0000-00-00"]
    if not declared.startswith("timestamp"):
        days += ["2024-00-10", "2024-02-31", "2024-02-00", "0000-01-01"]
    rows = ", ".join(f"('{day}')" for day in days)
    sql(
        "SET sql_mode = 'ALLOW_INVALID_DATES'",
        f"CREATE TABLE t (v {declared})",
        f"INSERT INTO t VALUES {rows}, ('2024-02-29')",
    )
    sql(
        f"CREATE TABLE n (v {declared})",
        "INSERT INTO n VALUES " + ", ".join(["(NULL)"] * len(days)),
    )
    sql("INSERT INTO n VALUES ('2024-02-29')")
    both = [TableId(database, name) for name in ("t", "n")]
    with MysqlView(settings(server), both) as view:
        found = [
            sorted(r.tobytes() for _, rows in view.row_digests(t, range(256)) for r in rows)
            for t in both
        ]
    assert found[0] == found[1]


def test_a_view_shows_nothing_that_came_later(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    table = TableId(database, "t")
    source = MysqlSource(server.url(), server.folder, [f"{database}.*"])
    with source.view([table]) as view:
        before = source.end_scn()
        sql("INSERT INTO t VALUES (3, 3)")
        assert sum(count for _, count, _ in view.range_sums(table)) == 2
        assert view.end_scn == before < source.end_scn()
        assert source.scn_of(view.snapshot_text) == view.end_scn


def test_columns_that_are_left_out_are_not_hashed(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1)")
    table = TableId(database, "t")
    with MysqlView(settings(server), [table]) as view:
        whole = list(view.range_sums(table))
        schema = view.schemas[table]
        narrow = type(schema)(table, schema.columns[:1], schema.key, schema.key_check)
        view.narrow(table, narrow)
        assert view.left_out(table) == ("v",)
        assert list(view.range_sums(table)) != whole


def test_a_row_that_the_server_cannot_hash_is_named(
    server: MysqlProtocolServer, database: str, sql: Sql
) -> None:
    # Twice its length in hexadecimal digits, which is beyond what one value may have.
    sql("CREATE TABLE t (id int PRIMARY KEY, v longblob)")
    sql("INSERT INTO t VALUES (1, REPEAT('x', @@max_allowed_packet * 6 DIV 10))")
    table = TableId(database, "t")
    with (
        MysqlView(settings(server), [table]) as view,
        pytest.raises(SourceError, match=r"1 row .* is larger .* max_allowed_packet"),
    ):
        list(view.range_sums(table))


@pytest.mark.parametrize(
    ("ours", "status", "unread"),
    [
        (Place.of("b.000003", 30), "kept", 0),
        (Place.of("b.000003", 10), "kept", 20),
        (Place.of("b.000002", 15), "next", 35),
        (Place.of("b.000001", 15), "lost", 50),
    ],
)
def test_the_log_that_is_kept_is_told_from_our_place(ours: Place, status: str, unread: int) -> None:
    files = [Place.of("b.000002", 20), Place.of("b.000003", 30)]
    found = seen_from(files, ours)
    assert (found.status, found.unread_bytes, found.retained_bytes) == (status, unread, 50)
    assert bool(found.warning) == (status != "kept")

"""The log of a real server: what each kind of change becomes."""

from __future__ import annotations

import time
from pathlib import Path
from typing import LiteralString

import numpy as np
import psycopg
import pytest

from headrace.model.block import SystemKind
from headrace.model.schema import KeyCheck
from headrace.sources.postgres.decoder import ENGINES
from headrace.sources.postgres.intake import Intake
from headrace.sources.postgres.transport import SocketTransport
from headrace.testing.postgres_server import PostgresServer
from tests.fixtures_postgres import Sql, name_of
from tests.requirements import req
from tests.sources.postgres.support import Opened, opened

pytestmark = pytest.mark.postgres

PATIENT_MS = 60_000
"""For how long a server may say nothing while its socket is emptied beside, where a test looks at just that: one that
stalls for some hundredths of a second would end it."""
WIDE = "repeat(md5('a'), 400)"  # 12,800 bytes, stored out of line


@req("P21", "H12")
def test_inserts_updates_and_deletes_carry_their_images(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with opened(database, tmp_path) as log:
        sql(
            "INSERT INTO t VALUES (1, 'a'), (2, NULL)",
            "UPDATE t SET v = 'b' WHERE id = 1",
            "DELETE FROM t WHERE id = 2",
        )
        assert log.collect().changes("t") == [
            ("+I", 1, "a"),
            ("+I", 2, None),
            ("=U", 1, "b"),
            ("-D", 2, "?"),
        ]


@req("P20", "P22", "P24", "N01")
def test_each_change_keeps_its_values_and_positions_rise_in_commit_order(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 0)")
    with opened(database, tmp_path) as log:
        sql(*(f"UPDATE t SET v = {n} WHERE id = 1" for n in range(1, 21)))
        got = log.collect()
        assert [row["v"] for row in got.rows("t")] == list(range(1, 21))
        scns = [entry["scn"] for entry in got.index]
        assert scns == sorted(set(scns))
        assert all(0 < scn < 1 << 63 for scn in scns)
        assert [row["_scn"] for row in got.rows("t")] == scns
        assert got.items[-1].block.covered_scn == got.marks[-1].scn - 1 >= scns[-1]


@req("T2")
def test_a_key_change_is_two_neighbours_and_the_old_one_is_key_only(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    with opened(database, tmp_path) as log:
        sql("UPDATE t SET id = 10 WHERE id = 1")
        got = log.collect()
        assert got.changes("t") == [("-U", 1, "?"), ("+U", 10, "a")]
        first, second = got.rows("t")
        assert second["_ord"] == first["_ord"] + 1


def test_a_column_that_was_not_sent_is_missing_and_never_null(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        f"INSERT INTO t VALUES (1, 1, {WIDE})",
    )
    with opened(database, tmp_path) as log:
        sql("UPDATE t SET n = 2", "UPDATE t SET big = NULL", f"UPDATE t SET big = {WIDE}, id = 5")
        sql("UPDATE t SET id = 6")
        changes = log.collect().changes("t")
        assert changes[:2] == [("=U", 1, 2, "?"), ("=U", 1, 2, None)]
        assert [c[:2] for c in changes[2:]] == [("-U", 1), ("+U", 5), ("-U", 5), ("+U", 6)]
        assert len(changes[3][3]) == 12_800
        assert changes[5][3] == "?"


@req("T2")
def test_a_key_that_is_stored_out_of_line_keeps_its_value(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    key = "(SELECT string_agg(md5(n::text), '') FROM generate_series(1, 70) n)"
    sql(
        "CREATE TABLE t (id text PRIMARY KEY, n int, big text)",
        "ALTER TABLE t ALTER id SET STORAGE EXTERNAL, ALTER big SET STORAGE EXTERNAL",
        f"INSERT INTO t VALUES ({key}, 1, {WIDE})",
    )
    with opened(database, tmp_path) as log:
        sql("UPDATE t SET n = 2")
        (_, key, *_), (op, again, n, big) = log.collect().changes("t")
        assert (op, again, n, big) == ("+U", key, 2, "?")
        assert len(key) == 70 * 32


def test_full_identity_sends_whole_old_rows_and_fills_what_the_new_one_left_out(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        f"INSERT INTO t VALUES (1, 1, {WIDE})",
    )
    with opened(database, tmp_path) as log:
        sql("UPDATE t SET n = 2", "DELETE FROM t")
        got = log.collect()
        assert [(c[:3], len(c[3])) for c in got.changes("t")] == [
            (("-U", 1, 1), 12_800),
            (("+U", 1, 2), 12_800),
            (("-D", 1, 2), 12_800),
        ]
        (body,) = got.bodies
        assert log.schema(body.schema_id).key == ("id",)
        assert log.schema(body.schema_id).key_check is KeyCheck.IMMEDIATE


def test_a_table_without_key_is_a_multiset_with_whole_old_rows(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (a int, b text)", "ALTER TABLE t REPLICA IDENTITY FULL")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1, 'x'), (1, 'x')", "UPDATE t SET a = 2", "DELETE FROM t")
        got = log.collect()
        assert got.changes("t") == [
            *[("+I", 1, "x")] * 2,
            *[("-U", 1, "x"), ("+U", 2, "x")] * 2,
            *[("-D", 2, "x")] * 2,
        ]
        schema = log.schema(got.bodies[0].schema_id)
        assert (schema.key, schema.key_check) == ((), KeyCheck.NONE)


def test_a_deferrable_key_is_known_as_such_and_shifts_arrive_with_full_images(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY DEFERRABLE, v text)",
        "ALTER TABLE t REPLICA IDENTITY FULL",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
    )
    with opened(database, tmp_path) as log:
        sql("UPDATE t SET id = id + 1")
        got = log.collect()
        assert got.changes("t") == [("-U", 1, "a"), ("+U", 2, "a"), ("-U", 2, "b"), ("+U", 3, "b")]
        schema = log.schema(got.bodies[0].schema_id)
        assert (schema.key, schema.key_check) == (("id",), KeyCheck.DEFERRED)


def test_an_index_as_identity_is_the_key(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, code text NOT NULL, v int)",
        "CREATE UNIQUE INDEX by_code ON t (code)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX by_code",
        "INSERT INTO t VALUES (1, 'a', 1)",
    )
    with opened(database, tmp_path) as log:
        sql("UPDATE t SET id = 2", "UPDATE t SET code = 'b'", "DELETE FROM t")
        got = log.collect()
        assert got.changes("t") == [
            ("=U", 2, "a", 1),
            ("-U", "?", "a", "?"),
            ("+U", 2, "b", 1),
            ("-D", "?", "b", "?"),
        ]
        assert log.schema(got.bodies[0].schema_id).key == ("code",)


def test_truncate_is_an_event_of_each_table_at_its_place(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql("BEGIN; INSERT INTO a VALUES (1); TRUNCATE a, b; INSERT INTO a VALUES (2); COMMIT")
        got = log.collect()
        truncates = [e for e in got.events if e.kind is SystemKind.TRUNCATE]
        assert sorted(e.table.name for e in truncates) == ["a", "b"]
        before, after = got.rows("a")
        assert all(before["_ord"] < e.ord < after["_ord"] for e in truncates)
        assert {e.scn for e in truncates} == {before["_scn"]} == {after["_scn"]}


def test_one_transaction_over_several_tables_is_one_entry_with_dense_ordinals(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE a (id int PRIMARY KEY)", "CREATE TABLE b (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO a VALUES (0)", "INSERT INTO b VALUES (0)")
        log.collect()
        sql("BEGIN; INSERT INTO a VALUES (1); INSERT INTO b VALUES (1); DELETE FROM a; COMMIT")
        got = log.collect()
        (entry,) = got.index
        assert entry["changes"] == 4
        assert entry["last_piece"] == 1
        assert [r["_ord"] for r in got.rows("a")] == [0, 2, 3]
        assert [r["_ord"] for r in got.rows("b")] == [1]


def test_transaction_ids_are_those_of_the_snapshots(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, xid xid8)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1, pg_current_xact_id())")
        got = log.collect()
        assert got.index[0]["xid"] == int(got.rows("t")[0]["xid"])
        seen = log.source.chunks().snapshot()
        xids = np.array([got.index[0]["xid"]], np.int64)
        assert seen.sees(xids, xids).tolist() == [1]


@req("T7")
def test_a_huge_transaction_leaves_in_bounded_pieces_and_ends_once(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t SELECT n, repeat('x', 200) FROM generate_series(1, 150000) n")
        got = log.collect()
        assert len(got.index) > 3
        assert len({e["scn"] for e in got.index}) == 1
        assert [e["last_piece"] for e in got.index] == [0] * (len(got.index) - 1) + [1]
        assert all(block.rows <= 65_538 and block.nbytes < 24 << 20 for block in got.blocks)
        rows = got.rows("t")
        assert [r["_ord"] for r in rows] == list(range(1, 150_001))
        open_blocks = [b for b in got.blocks if not b.ends_complete]
        assert all(b.covered_scn < b.last_scn for b in open_blocks)


@req("P33", "P34")
def test_a_new_column_in_mid_stream_starts_a_new_body_and_is_announced(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1)", "ALTER TABLE t ADD v int", "INSERT INTO t VALUES (2, 5)")
        got = log.collect()
        bodies = [body for block in got.blocks for body in block.bodies]
        assert [log.schema(b.schema_id).names for b in bodies] == [["id"], ["id", "v"]]
        events = [e for e in got.events if e.kind is SystemKind.SCHEMA]
        assert [e.payload["schema_id"] for e in events] == [b.schema_id for b in bodies]
        assert events[1].scn == got.rows("t")[1]["_scn"]
        assert events[1].ord < got.rows("t")[1]["_ord"]


@pytest.mark.parametrize(
    ("change", "dump"),
    [
        ("ADD v int", False),
        ("ADD v int DEFAULT 7", True),
        ("ADD v uuid DEFAULT gen_random_uuid()", True),
        ("ADD v serial", True),
        ("ALTER n TYPE bigint USING n * 2", True),
        ("ALTER s TYPE varchar(20)", False),
        ("ALTER s TYPE text", False),
        ("ALTER s TYPE varchar(9) USING upper(s)", True),
        ("DROP n", False),
    ],
)
def test_rows_that_a_migration_changed_without_the_log_ask_for_a_dump(
    database: str, sql: Sql, tmp_path: Path, change: str, dump: bool
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, s varchar(10))",
        "INSERT INTO t VALUES (1, 1, 'a')",
    )
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (2, 2, 'b')")
        log.collect()
        sql(f"ALTER TABLE t {change}", "INSERT INTO t (id) VALUES (3)")
        (event,) = [e for e in log.collect().events if e.kind is SystemKind.SCHEMA]
        assert event.payload.get("needs_dump", False) is dump


def test_an_equal_description_sent_again_announces_nothing(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)")
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (1)")
        log.collect()
        # ANALYZE and a new index make the server describe the table again.
        sql("CREATE INDEX ON t (v)", "INSERT INTO t VALUES (2)")
        got = log.collect()
        assert got.events == []
        assert got.changes("t") == [("+I", 2, None)]


def test_tables_outside_the_patterns_do_not_appear(database: str, sql: Sql, tmp_path: Path) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE TABLE secret (id int PRIMARY KEY)",
        "CREATE PUBLICATION everything FOR ALL TABLES",
    )
    arguments = {"publication": "everything", "exclude": ("public.secret",)}
    with opened(database, tmp_path, **arguments) as log:
        sql("INSERT INTO secret VALUES (1)", "TRUNCATE secret", "INSERT INTO t VALUES (1)")
        got = log.collect()
        assert got.changes("t") == [("+I", 1)]
        assert got.changes("secret") == []
        assert {e.table.name for e in got.events} == {"t"}
        assert len(got.index) == 1


def test_partitions_travel_under_the_name_of_their_root(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE p (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
        "CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)",
    )
    with opened(database, tmp_path) as log:
        assert [str(s.table) for s in log.source.tables()] == ["public.p"]
        sql("INSERT INTO p VALUES (1, 'a'), (11, 'b')", "UPDATE p SET id = 12 WHERE id = 1")
        got = log.collect()
        assert {body.table.name for block in got.blocks for body in block.bodies} == {"p"}
        # The row moved between partitions: to the log a delete and an insert.
        assert got.changes("p") == [
            ("+I", 1, "a"),
            ("+I", 11, "b"),
            ("-D", 1, "?"),
            ("+I", 12, "a"),
        ]


def test_a_rolled_back_transaction_leaves_no_trace(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        sql("BEGIN; INSERT INTO t VALUES (1); ROLLBACK")
        sql("BEGIN; INSERT INTO t VALUES (2); SAVEPOINT s; INSERT INTO t VALUES (3); "
            "ROLLBACK TO s; COMMIT")  # fmt: skip
        got = log.collect()
        assert got.changes("t") == [("+I", 2)]
        assert len(got.index) == 1


def test_opened_is_what_the_port_promises(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        assert isinstance(log, Opened)
        assert log.reader.poll(0.0) is None or not log.reader.poll(0.0)


@pytest.mark.skipif(ENGINES[0] != "native", reason="installed without the C parts")
def test_a_wait_whose_time_has_passed_returns_at_once_also_while_the_socket_is_emptied_beside(
    database: str,
    sql: Sql,
    tmp_path: Path,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headrace.sources.postgres.intake._QUIET_MS", PATIENT_MS)
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    # Debian's server would encrypt what comes by TCP.
    with opened(postgres_server.socket_url(name_of(database)), tmp_path) as log:
        stream = log.reader._stream
        assert isinstance(stream, SocketTransport)
        # It has been since the stream began: what waited for us comes so.
        assert _intake(log).running
        stream.wait(-0.05)
        _intake(log)._ring.leave()
        sql("INSERT INTO t VALUES (1)")
        assert [row["id"] for row in log.collect().rows("t")] == [1]


@pytest.mark.skipif(ENGINES[0] != "native", reason="installed without the C parts")
def test_what_waited_for_a_stream_is_taken_in_before_anybody_asks_for_it(
    database: str,
    sql: Sql,
    tmp_path: Path,
    postgres_server: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    # A Unix socket holds some 280 messages: the server would wait behind them.
    url = postgres_server.socket_url(name_of(database))
    with opened(url, tmp_path) as log:
        # One transaction each, as of a single one the server says only at its end how far it is.
        sql(*(f"INSERT INTO t VALUES ({id_}, repeat('x', 100))" for id_ in range(2_000)))
        monkeypatch.setattr("headrace.sources.postgres.intake._QUIET_MS", PATIENT_MS)
        log.reopen()
        with psycopg.connect(url, autocommit=True) as connection:
            written = _number(connection, "SELECT pg_current_wal_flush_lsn() - '0/0'")
            sent = "SELECT coalesce(max(sent_lsn - '0/0'), 0) FROM pg_stat_replication"
            deadline = time.monotonic() + 30
            while _number(connection, sent) < written:
                assert time.monotonic() < deadline, "the server waits for whoever decodes"
        _intake(log)._ring.leave()
        assert len(log.collect().rows("t")) == 2_000


def _intake(log: Opened) -> Intake:
    """Return what empties the socket beside; once it is to leave, the next bytes that come end it."""
    stream = log.reader._stream
    assert isinstance(stream, SocketTransport)
    assert stream._intake is not None
    return stream._intake


def _number(connection: psycopg.Connection, query: LiteralString) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0])

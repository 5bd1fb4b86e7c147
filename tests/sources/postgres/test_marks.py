"""Watermarks through a real log: each is read back once, foreign writes stop the capture."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psycopg
import pytest

from headrace.errors import SourceUnavailable, WatermarkOutOfOrder
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import TableId
from headrace.model.snapshot import NO, YES
from headrace.sources.postgres.marks import from_message, from_row
from headrace.testing.postgres import EmbeddedPostgres
from tests.fixtures_postgres import Sql
from tests.integration.hung_commits import HungCommit
from tests.requirements import req
from tests.sources.postgres.support import DEADLINE_S, opened
from tests.waiting import until

pytestmark = pytest.mark.postgres

T = TableId("public", "t")
KINDS = ("message", "table")
MARK_BY_HAND = "UPDATE headrace.watermarks SET kind = 'low', token = 'a', run_id = 'b'"


@pytest.fixture(params=["newest", "16"])
def any_database(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run on a server that flushes messages (17 and later) and on one that cannot."""
    name = "postgres_server" if request.param == "newest" else "older_server"
    server: EmbeddedPostgres = request.getfixturevalue(name)
    yield server.create_database("marks")
    server.drop_database("marks")


@pytest.mark.parametrize("kind", KINDS)
@req("P40", "P54", "T6")
def test_each_mark_comes_back_once_in_order_and_never_as_data(
    any_database: str, tmp_path: Path, kind: str
) -> None:
    with psycopg.connect(any_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with opened(any_database, tmp_path, watermark=kind) as log:
            written = []
            for number in range(6):
                connection.execute("INSERT INTO t VALUES (%s)", [number])
                mark = Mark(list(MarkKind)[number % 3], f"window-{number}", "run")
                log.writer.write(mark)
                written.append(mark)
            got = log.until(lambda item: item.mark is not None and item.mark.mark == written[-1])
            assert [received.mark for received in got.marks] == written
            assert [change[1] for change in got.changes("t")] == list(range(6))
            tables = {body.table for block in got.blocks for body in block.bodies}
            assert tables == {T}
            assert {event.table for event in got.events} == {T}


@pytest.mark.parametrize("kind", KINDS)
def test_a_mark_lies_between_the_transactions_around_it_and_leaves_room_for_its_window(
    any_database: str, tmp_path: Path, kind: str
) -> None:
    with psycopg.connect(any_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with opened(any_database, tmp_path, watermark=kind) as log:
            connection.execute("INSERT INTO t VALUES (1)")
            before = log.collect()
            connection.execute("INSERT INTO t VALUES (2)")
            after = log.collect()
            (mark,) = before.marks
            item = before.items[-1]
            assert item.mark == mark
            assert before.index[-1]["scn"] < mark.scn < after.index[0]["scn"]
            # A block of rows at the mark's own SCN still comes, so nothing is complete up to it yet.
            assert item.block.covered_scn == mark.scn - 1
            assert 0 < mark.commit_us - before.index[-1]["commit_us"] < 60_000_000


@pytest.mark.parametrize("kind", KINDS)
def test_marks_that_were_not_acknowledged_come_again_and_others_do_not(
    any_database: str, tmp_path: Path, kind: str
) -> None:
    with psycopg.connect(any_database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY)")
        with opened(any_database, tmp_path, watermark=kind) as log:
            connection.execute("INSERT INTO t VALUES (1)")
            acknowledged = log.collect()
            again = log.collect(acknowledge=False)
            log.reopen()
            got = log.collect()
            assert got.marks[0] == again.marks[0] or kind == "message"
            assert got.marks[0].scn == again.marks[0].scn
            assert acknowledged.marks[0].scn not in {m.scn for m in got.marks}


@pytest.mark.parametrize("kind", KINDS)
def test_a_hung_commit_is_streamed_and_the_snapshot_says_it_was_not_seen(
    database: str, sql: Sql, tmp_path: Path, kind: str
) -> None:
    """The visibility gap: a commit that waits for an absent standby is in the log and not visible."""
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'old')")
    with opened(database, tmp_path, watermark=kind) as log:
        log.collect()
        reader = log.source.chunks()
        hung = HungCommit(database, "UPDATE t SET v = 'new' WHERE id = 1")
        try:
            got = log.until(lambda item: len(item.block.index) > 0)
            assert got.changes("t") == [("=U", 1, "new")]
            xid, scn = (np.array([got.index[0][name]], np.int64) for name in ("xid", "scn"))
            chunk = reader.read(T, None, ("9",), 10)
            assert chunk.rows.to_pylist() == [{"id": 1, "v": "old"}]
            assert chunk.visibility.sees(xid, scn).tolist() == [NO]
            # Marks do not wait for the standby.
            assert log.collect().marks[0].scn > int(scn[0])
            assert reader.snapshot().sees(xid, scn).tolist() == [NO]
        finally:
            hung.let_go()
        until(
            lambda: reader.snapshot().sees(xid, scn).tolist() == [YES],
            "the commit is visible",
            DEADLINE_S,
        )
        assert reader.read(T, None, ("9",), 10).rows.to_pylist() == [{"id": 1, "v": "new"}]
        reader.close()


@pytest.mark.parametrize(
    "write",
    [
        "UPDATE headrace.watermarks SET kind = 'other', token = 'a', run_id = 'b'",
        "UPDATE headrace.watermarks SET kind = NULL, token = 'a', run_id = 'b'",
        "INSERT INTO headrace.watermarks VALUES (2, 'low', 'a', 'b')",
        "DELETE FROM headrace.watermarks",
        "TRUNCATE headrace.watermarks",
        "UPDATE headrace.watermarks SET id = 7, kind = 'low', token = 'a', run_id = 'b'",
        f"BEGIN; INSERT INTO t VALUES (1); {MARK_BY_HAND}; COMMIT",
        f"BEGIN; {MARK_BY_HAND}; {MARK_BY_HAND}; COMMIT",
    ],
)
def test_a_foreign_write_to_the_watermark_table_stops_the_capture(
    database: str, sql: Sql, tmp_path: Path, write: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path, watermark="table") as log:
        sql(write)
        with pytest.raises(WatermarkOutOfOrder, match="watermark"):
            log.until(lambda item: item.mark is not None)


@pytest.mark.parametrize("transactional", ["true", "false"])
def test_a_foreign_message_under_our_prefix_stops_the_capture_and_others_are_ignored(
    database: str, sql: Sql, tmp_path: Path, transactional: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path) as log:
        prefix = log.source.settings.mark_prefix
        sql(f"SELECT pg_logical_emit_message({transactional}, 'headrace/other', 'low a b')")
        sql(
            f"SELECT pg_logical_emit_message({transactional}, 'app', 'x')",
            "INSERT INTO t VALUES (1)",
        )
        got = log.collect()
        assert len(got.marks) == 1
        assert got.changes("t") == [("+I", 1)]
        sql(f"SELECT pg_logical_emit_message({transactional}, '{prefix}', 'nonsense')")
        with pytest.raises(WatermarkOutOfOrder, match="no watermark"):
            log.collect()


def test_a_removed_row_is_told_to_the_writer(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    with opened(database, tmp_path, watermark="table") as log:
        sql("ALTER TABLE headrace.watermarks RENAME TO gone")
        with pytest.raises(SourceUnavailable, match="watermark cannot be written"):
            log.writer.write(Mark(MarkKind.LOW, "a", "b"))
        sql("ALTER TABLE headrace.gone RENAME TO watermarks", "DELETE FROM headrace.watermarks")
        with pytest.raises(WatermarkOutOfOrder, match="removed the row"):
            log.writer.write(Mark(MarkKind.LOW, "a", "b"))


@pytest.mark.parametrize(
    "text", [b"", b"low", b"low a", b"low a b c", b"LOW a b", b"\xff", b"low  b"]
)
def test_what_is_no_mark_is_refused(text: bytes) -> None:
    with pytest.raises(WatermarkOutOfOrder):
        from_message(text)


def test_a_row_becomes_the_mark_it_was_written_from() -> None:
    mark = Mark(MarkKind.HIGH, "t", "r")
    assert from_message(mark.render().encode()) == mark
    assert from_row(("id", "kind", "token", "run_id"), [b"1", b"high", b"t", b"r"]) == mark

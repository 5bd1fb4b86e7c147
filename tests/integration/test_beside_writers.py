"""Dumps and writers beside each other on a real server: neither waits for the other, and nothing pauses.

The paper pauses the log from the low mark to the high one; here the log flows and keys of the window are remembered
until the chunk arrives (docs/paper_map.md). A select that takes as long as a test likes shows it.
"""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.connection import Session
from headrace.state.records import Scope
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.holding import held
from tests.integration.running import Running, running_capture
from tests.integration.selected import rows_by_origin
from tests.observe.taps import ListTap
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

T = TableId("public", "t")
ROWS = 200
SLOW, SLOW_S = 4, 3_600.0
"""Which window is written slowly, and how slowly by the capture's clock: no machine is that slow by itself."""


@pytest.fixture
def table(sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL)",
        f"INSERT INTO t SELECT n, 'old' FROM generate_series(1, {ROWS}) n",
        "ANALYZE t",
    )


def arrived(running: Running, *values: str) -> bool:
    """Whether the change log can be read as far as all of these values."""
    assert running.error is None, running.error
    log, _ = rows_by_origin(running.folder)
    return set(values) <= {str(row[-1]) for _, _, row in log}


@req("P11", "P41", "P73", "H06", "H30")
@pytest.mark.parametrize("place", ["window.after_low", "window.after_select"])
def test_a_select_that_never_ends_holds_no_event_back(
    table: None, database: str, sql: Sql, tmp_path: Path, place: str
) -> None:
    """Whatever is committed between low and high mark can be read before the select has ended."""
    source = PostgresSource(database)
    with (
        held(place) as read,
        running_capture(source, tmp_path, DumpSettings(chunk_rows=500)) as running,
    ):
        assert read.there.wait(60)
        for number in range(20):
            sql(f"UPDATE t SET v = 'inside {number}' WHERE id = {number + 1}")
        until(lambda: arrived(running, *(f"inside {n}" for n in range(20))), "every event")
        _, selected = rows_by_origin(tmp_path)
        assert not selected, "a chunk's rows wait for the high mark"
        read.let_go()
        until(running.dumped, "the dump")
        # Keys of the window were kept until the chunk arrived: those that it had not seen are struck out.
        _, selected = rows_by_origin(tmp_path)
        late = 20 if place == "window.after_select" else 0
        assert selected.total() == ROWS - late
        assert running.content(T).total() == ROWS
        assert sum(v.startswith("inside") for _, v in running.content(T)) == 20


@req("P52", "P44", "P47", "T7")
def test_a_window_with_a_transaction_of_a_hundred_thousand_rows_ends_exact(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    many = 100_000
    dump = DumpSettings(chunk_rows=500, memory_bytes=16 << 20)
    with (
        held("window.after_select") as read,
        running_capture(PostgresSource(database), tmp_path, dump) as running,
    ):
        assert read.there.wait(60)
        sql(
            f"BEGIN; UPDATE t SET v = 'new' WHERE id <= {ROWS // 2}; DELETE FROM t WHERE id = {ROWS};"
            f"INSERT INTO t SELECT n, 'more' FROM generate_series({ROWS + 1}, {ROWS + many}) n;"
            "INSERT INTO t VALUES (-1, 'the last of them'); COMMIT"
        )
        until(lambda: arrived(running, "the last of them"), "the transaction in the change log")
        read.let_go()
        until(running.dumped, "the dump")
    log, selected = rows_by_origin(tmp_path)
    assert log.total() == ROWS // 2 + 1 + many + 1
    assert selected.total() == ROWS - ROWS // 2 - 1
    content = running.content(T)
    assert content.total() == ROWS - 1 + many + 1
    assert sum(v == "new" for _, v in content) == ROWS // 2
    assert content[(ROWS, "old")] == 0


@req("P12", "P58")
def test_a_log_that_never_rests_does_not_keep_a_dump_from_its_end(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    stop = threading.Event()
    commits = [0, 0]

    def write(writer: int) -> None:
        with psycopg.connect(database, autocommit=True) as session:
            session.execute("SET synchronous_commit = off")
            while not stop.is_set():
                number = commits[writer]
                session.execute(
                    "UPDATE t SET v = %s WHERE id = %s",
                    (f"{writer} {number}", (number * 2 + writer) % ROWS + 1),
                )
                commits[writer] += 1

    writers = [threading.Thread(target=write, args=(number,)) for number in range(2)]
    dump = DumpSettings(chunk_rows=10, request_interval_s=0.05)
    with running_capture(PostgresSource(database), tmp_path, dump) as running:
        until(running.dumped, "the first copy")
        for thread in writers:
            thread.start()
        try:
            until(lambda: min(commits) > 20, "the load")
            begun = list(commits)
            request = running.state.submit(Scope.TABLE, T)
            rates: list[float] = []

            def is_over() -> bool:
                assert running.error is None, running.error
                rates.extend(copy.rows_per_s for copy in running.state.progress(request))
                return running.dumped()

            until(is_over, "the dump, while nobody rests")
            assert min(c - b for c, b in zip(commits, begun, strict=True)) > 0
        finally:
            stop.set()
            for thread in writers:
                thread.join(30)
        (progress,) = running.state.progress(request)
        assert progress.chunks >= ROWS // dump.chunk_rows  # type: ignore[operator]
        assert max(rates) > 0, "its rate is measured"
        sql("INSERT INTO t VALUES (0, 'the end')")
        until(lambda: arrived(running, "the end"), "the end of the load")
        with psycopg.connect(database) as session:
            rows = session.execute("SELECT id, v FROM t").fetchall()
        assert set(running.content(T)) == set(rows)


@req("P48", "N09")
def test_the_log_stands_still_only_while_a_windows_rows_are_written_and_the_tap_says_how_long(
    table: None, database: str, tmp_path: Path
) -> None:
    tap, windows, ahead_s = ListTap(), itertools.count(1), 0.0

    def clock() -> float:
        return time.monotonic() + ahead_s

    def write_one_slowly() -> None:
        nonlocal ahead_s
        if next(windows) == SLOW:
            ahead_s = SLOW_S

    failpoints.arm("window.before_emit", write_one_slowly)
    try:
        with running_capture(
            PostgresSource(database), tmp_path, DumpSettings(chunk_rows=20), tap, clock=clock
        ) as running:
            until(running.dumped, "the dump")
    finally:
        failpoints.disarm("window.before_emit")
    held_ms = [e["held_ms"] for e in tap.events if e["kind"] == "chunk.completed"]
    assert len(held_ms) >= ROWS // 20
    slow = held_ms.pop(SLOW - 1)
    assert slow >= SLOW_S * 1000
    assert max(held_ms) < SLOW_S * 1000 / 2, held_ms


@req("P14", "H27", "N27", "H30")
def test_no_writer_waits_for_us_and_we_wait_for_no_writer(
    table: None, database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before each of our transactions ends, every lock that a writer takes is to be had at once."""
    sql(
        "CREATE TABLE bag (v int)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag SELECT generate_series(1, 5)",
    )
    found: set[tuple[str, str]] = set()
    original = Session.result

    def result(session: Session, statement: str, *parameters: str | None, **more: Any) -> object:
        if statement == "COMMIT":
            found.update(locks_of_ours(database))
        return original(session, statement, *parameters, **more)

    monkeypatch.setattr(Session, "result", result)
    dump = DumpSettings(chunk_rows=50, request_interval_s=0.05)
    with running_capture(PostgresSource(database), tmp_path, dump) as running:
        until(running.dumped, "the first copy")
        # Every row is locked by somebody who does not end, and is dumped all the same, as it was.
        with psycopg.connect(database) as writer:
            writer.execute("UPDATE t SET v = 'held'")
            writer.execute("DELETE FROM bag")
            running.state.submit(Scope.ALL_TABLES)
            until(running.dumped, "the dump beside the writer")
            writer.commit()
        until(lambda: arrived(running, "held"), "the writer's rows")
        assert running.content(T) == {(n, "held"): 1 for n in range(1, ROWS + 1)}
    assert found == {("t", "AccessShareLock"), ("bag", "AccessShareLock")}


def locks_of_ours(database: str) -> set[tuple[str, str]]:
    """Return our locks on the tables; fail when a writer's own could not be had beside them."""
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE t, bag IN ROW EXCLUSIVE MODE NOWAIT")
        return set(
            other.execute(
                "SELECT relation::regclass::text, mode FROM pg_locks JOIN pg_stat_activity USING (pid)"
                " WHERE locktype = 'relation' AND application_name LIKE 'headrace%'"
                " AND relation IN ('t'::regclass, 'bag'::regclass)"
            ).fetchall()
        )

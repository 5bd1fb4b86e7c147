"""A capture by triggers of a real PostgreSQL: dumps among changes, restarts, and what the change log amounts to."""

from __future__ import annotations

import random
import shutil
import subprocess
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.errors import SlotLost, SourceReplaced
from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.trigger.postgres import PostgresTriggerSource
from headrace.state.records import Scope
from headrace.testing.postgres import EmbeddedPostgres
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import at_work, copied, failure_of, follows, named
from tests.fixtures_postgres import Sql
from tests.integration.running import Running, running_capture
from tests.integration.traffic import traffic
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")


def in_source(url: str, table: TableId = T) -> Counter[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        return Counter(connection.execute(f"SELECT * FROM {table}".encode()).fetchall())


def caught_up(running: Running, source: PostgresTriggerSource) -> None:
    """Return when every dump is done and the change log has all that is committed by now."""
    end = source.end_scn()
    until(lambda: running.dumped() and running.reader.tail().covered_scn >= end, "all of the log")


@req("D117")
def test_a_dump_among_changes_leaves_the_sources_table(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, 'first' FROM generate_series(1, 240) g",
    )
    source = PostgresTriggerSource(database)
    with running_capture(source, tmp_path, DumpSettings(chunk_rows=7)) as running:
        with traffic(database, 240) as writers:
            until(running.dumped, "the dump of all tables")
            writers.goes_on()
        caught_up(running, source)
        assert running.content(T) == in_source(database)


@contextmanager
def overlapping(url: str, count: int) -> Iterator[None]:
    """Let sessions write whose transactions overlap, wait for each other's rows, and are sometimes rolled back."""
    stop = threading.Event()
    errors: list[BaseException] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        try:
            with psycopg.connect(url) as session:
                while not stop.is_set():
                    for key in sorted(rng.sample(range(1, 31), rng.randint(1, 4))):
                        session.execute(
                            "INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = t.v || 'x'",
                            (key, f"{seed}"),
                        )
                        if rng.random() < 0.3:
                            session.execute("DELETE FROM t WHERE id = %s", (key,))
                        stop.wait(rng.random() / 200)
                    if rng.random() < 0.8:
                        session.commit()
                    else:
                        session.rollback()
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            errors.append(error)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join(30)
        assert errors == []


@req("D117")
def test_eight_overlapping_writers_beside_dumps_end_exact(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Everybody writes the same thirty rows, each waiting for the others' commits."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, '' FROM generate_series(1, 30) g",
    )
    source = PostgresTriggerSource(database, poll_s=0.01)
    with running_capture(source, tmp_path, DumpSettings(chunk_rows=3)) as running:
        with overlapping(database, 8):
            for _ in range(8):
                until(running.dumped, "a dump")
                running.state.submit(Scope.TABLE, T)
            until(running.dumped, "the last dump")
        caught_up(running, source)
        assert running.content(T) == in_source(database)


@req("D117")
def test_a_chunk_does_not_undo_what_commits_behind_its_select(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """The writer began before the dump, and commits between a chunk's select and its high mark."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT g, 'old' FROM generate_series(1, 4) g",
    )
    source = PostgresTriggerSource(database)
    with psycopg.connect(database) as writer:
        source.prepare()
        writer.execute("UPDATE t SET v = 'new' WHERE id < 4")
        writer.execute("DELETE FROM t WHERE id = 1")
        done = threading.Event()

        def commit() -> None:
            failpoints.disarm("window.after_select")
            writer.commit()
            done.set()

        failpoints.arm("window.after_select", commit)
        with running_capture(source, tmp_path, DumpSettings(chunk_rows=100)) as running:
            until(running.dumped, "the dump")
            assert done.is_set()
            caught_up(running, source)
            assert running.content(T) == in_source(database)
            assert set(in_source(database)) == {(2, "new"), (3, "new"), (4, "old")}


@req("D117", "H14", "D32")
def test_a_capture_goes_on_where_it_was_over_restarts_of_both_sides(tmp_path: Path) -> None:
    with EmbeddedPostgres() as server:
        url = server.url()
        server.execute(
            "CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')"
        )
        source = PostgresTriggerSource(url)
        with running_capture(source, tmp_path) as running:
            caught_up(running, source)
        server.execute("INSERT INTO t VALUES (2, 'b')", "UPDATE t SET v = 'c'")
        with running_capture(PostgresTriggerSource(url), tmp_path) as running:
            caught_up(running, source)
            with traffic(url, 100) as writers:
                writers.goes_on()
            server.kill()
            server.start()
            server.execute(
                "DELETE FROM t WHERE id = 1",
                "INSERT INTO t VALUES (-1, 'd') ON CONFLICT DO NOTHING",
            )
            caught_up(running, source)
            assert running.content(T) == in_source(url)


@req("T15")
def test_a_table_without_a_key_is_copied_row_for_row(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (v int, b text)",
        "INSERT INTO t SELECT g % 3, 'x' FROM generate_series(1, 20) g",
    )
    source = PostgresTriggerSource(database)
    with running_capture(source, tmp_path) as running:
        sql("INSERT INTO t VALUES (1, 'x'), (7, NULL)", "DELETE FROM t WHERE v = 2")
        caught_up(running, source)
        assert running.content(T) == in_source(database)


@req("D38")
def test_a_capture_may_begin_at_the_oldest_change_that_is_kept(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    PostgresTriggerSource(database, name="first").prepare()
    sql(
        "INSERT INTO t VALUES (1, 'a'), (2, 'b')",
        "UPDATE t SET v = 'c' WHERE id = 1",
        "DELETE FROM t WHERE id = 2",
    )
    source = PostgresTriggerSource(database, name="late", start="oldest")
    with running_capture(source, tmp_path) as running:
        caught_up(running, source)
        ops = [
            row["_op"]
            for block in running.reader.blocks(0)
            for body in block.bodies
            for row in body.batch.to_pylist()
        ]
        assert Counter(ops) == Counter({"+I": 2, "-U": 1, "+U": 1, "-D": 1, "+R": 1})
        assert running.content(T) == in_source(database)


# -- tables that come and go ----------------------------------------------------------------------


@req("D114")
def test_tables_join_while_they_are_written_to(database: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    fresh = TableId("public", "fresh")
    with at_work(PostgresTriggerSource(database), tmp_path) as running:
        until(running.dumped, "the first copy")
        with psycopg.connect(database) as early:
            sql(
                "CREATE TABLE fresh (id int PRIMARY KEY, v text)",
                "INSERT INTO fresh VALUES (1, 'before')",
            )
            early.execute("INSERT INTO fresh VALUES (2, 'open while it joins')")
            early.commit()
        follows(running, database, fresh)
        sql("UPDATE fresh SET v = 'after'", "INSERT INTO fresh VALUES (3, 'after')")
        follows(running, database, fresh)
        sql("DROP TABLE t")
        until(
            lambda: any(
                e.kind is SystemKind.DROP_TABLE and e.table == T
                for block in running.reader.blocks(0)
                for e in block.system
            ),
            "the drop is told",
        )


@req("D117")
def test_a_table_whose_writer_does_not_end_joins_later_and_holds_nobody_up(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    copied(PostgresTriggerSource(database), tmp_path)
    fresh = TableId("public", "fresh")
    sql("CREATE TABLE fresh (id int PRIMARY KEY, v text)")
    with (
        psycopg.connect(database) as early,
        at_work(PostgresTriggerSource(database), tmp_path) as running,
    ):
        early.execute("INSERT INTO fresh VALUES (1, 'before the triggers')")
        sql("INSERT INTO t VALUES (1, 'on its way')")
        follows(running, database)
        until(lambda: waits(database), "the triggers wait for the writer", pause_s=0.005)
        # Who waited behind them for as long as they may would not end at all.
        sql("SET lock_timeout = '30s'", "INSERT INTO fresh VALUES (2, 'nor this one')")
        early.execute("INSERT INTO fresh VALUES (3, 'still before')")
        early.commit()
        follows(running, database, fresh)
        sql("UPDATE fresh SET v = 'after'")
        follows(running, database, fresh)


def waits(url: str) -> bool:
    """Whether somebody waits for the table to be free of writers."""
    with psycopg.connect(url) as connection:
        row = connection.execute(
            "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'fresh'::regclass"
        ).fetchone()
    return bool(row and row[0])


@req("D114")
def test_a_table_that_is_written_anew_is_dumped_again(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """No trigger fires for what ALTER TABLE computes."""
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (1, 1), (2, 2)")
    with at_work(PostgresTriggerSource(database), tmp_path) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        sql("ALTER TABLE t ADD COLUMN w int DEFAULT 5")
        follows(running, database)
        sql(
            "ALTER TABLE t ALTER COLUMN v TYPE bigint USING v * 10",
            "INSERT INTO t VALUES (3, 3, 3)",
        )
        follows(running, database)


@req("D117")
def test_triggers_that_go_while_their_table_is_captured_stop_the_capture(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresTriggerSource(database)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql('ALTER TABLE t DISABLE TRIGGER "0_headrace_row"')
        named(failure_of(running), SlotLost, "public.t")


# -- another source -------------------------------------------------------------------------------


def kept_as(folder: Path, copy: Path) -> None:
    """Copy a data folder, which has an owner of its own."""
    subprocess.run(["cp", "-a", str(folder), str(copy)], check=True)


@req("H14")
def test_an_older_state_of_the_source_is_not_followed(tmp_path: Path) -> None:
    with EmbeddedPostgres() as server:
        url = server.url()
        server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        source = PostgresTriggerSource(url)
        copied(source, tmp_path / "state")
        server.stop()
        kept_as(server.data, tmp_path / "backup")
        server.start()
        server.execute("INSERT INTO t VALUES (1, 'lost')")
        with at_work(source, tmp_path / "state") as running:
            follows(running, url)
        assert source.departs(source.incarnation(), source.end_scn()) == ""
        captured = source.end_scn()
        server.stop()
        shutil.rmtree(server.data)
        kept_as(tmp_path / "backup", server.data)
        server.start()
        assert "an older state was restored" in source.departs(source.incarnation(), captured)
        with at_work(source, tmp_path / "state") as running:
            named(failure_of(running), SourceReplaced, "headrace")
        # Further than before, by other transactions: told by those that come again.
        server.execute("INSERT INTO t VALUES (1, 'other')", "INSERT INTO t VALUES (2, 'more')")
        assert source.end_scn() > captured
        with at_work(source, tmp_path / "state") as running:
            named(failure_of(running), SourceReplaced, "headrace")


@req("H14")
def test_another_database_and_another_clock_are_other_lives(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY)")
    source = PostgresTriggerSource(database)
    source.prepare()
    first = source.incarnation()
    source.drop()
    source.prepare()
    assert source.incarnation() != first
    assert "numbered anew" in source.departs(first, 1)

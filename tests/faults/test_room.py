"""No room: the change log, its budget, the place where tables without a key wait."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogSettings
from headrace.changelog.jobs import register_job
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.state.store import RequestState
from tests.faults import disks
from tests.faults.faulty import AtWork, at_work, committed_behind, confirmed, follows, position
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

SLOT = "headrace_room"
BARE = TableId("public", "bare")


@pytest.fixture
def source(database: str, sql: Sql) -> PostgresSource:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    return PostgresSource(database, name="room")


@contextmanager
def files_at_most(size: int) -> Iterator[None]:
    """Let the system refuse bytes of files beyond a size, as a full disk does."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    with disks.small_disk(tmp_path / "disk", 8 << 20) as disk:
        yield disk


FILL = "INSERT INTO t SELECT n, repeat(md5(n::text), 30) FROM generate_series({0}, {0} + 999) n"


@req("C60")
def test_a_full_disk_is_waited_out_and_nothing_is_acknowledged_meanwhile(
    source: PostgresSource, database: str, sql: Sql, small_disk: Path
) -> None:
    settings = ChangeLogSettings(segment_bytes=128 * 1024)
    ballast = small_disk / "ballast"
    with at_work(source, small_disk, settings) as running:
        until(running.dumped, "the first copy")
        free = os.statvfs(small_disk)
        ballast.write_bytes(b"x" * (free.f_bavail * free.f_bsize - 64 * 1024))
        before = committed_behind(database, FILL.format(1000))
        until(
            lambda: running.error is not None or running.said("waiting for room"),
            "it waits for room",
        )
        assert running.error is None
        assert any(
            "change log" in s.detail for s in running.statuses if s.state == "waiting for room"
        )
        assert confirmed(database, SLOT) <= before
        ballast.unlink()
        sql("DELETE FROM t WHERE id >= 1500")
        follows(running, database)
    assert running.error is None


@req("C60")
def test_a_limit_on_the_size_of_files_is_waited_out(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        with files_at_most(4096):
            before = committed_behind(database, FILL.format(1000))
            until(
                lambda: running.error is not None or running.said("waiting for room"),
                "it waits for room",
            )
            assert confirmed(database, SLOT) <= before
        follows(running, database)
    assert running.error is None


@req("C60", "C77", "P29")
def test_a_log_at_its_budget_is_waited_out_until_the_job_has_caught_up(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    """The log is the bounded queue: what a slow job has not taken is neither dropped nor grows beyond the budget."""
    budget = 4 << 20
    settings = ChangeLogSettings(segment_bytes=64 * 1024, budget_bytes=budget, retain_bytes=0)
    with at_work(source, tmp_path, settings) as running:
        until(running.dumped, "the first copy")
        taken = running.reader.tail().complete_scn
        register_job(tmp_path / "changelog", "slow", taken)
        for n in range(5):
            sql(FILL.format(1000 + 1000 * n))
        until(
            lambda: running.error is not None or running.said("waiting for room", "may hold"),
            "it waits for the job",
        )
        assert running.error is None
        assert confirmed(database, SLOT) < position(database)
        held = sum(file.stat().st_size for file in (tmp_path / "changelog").glob("*.seg"))
        assert held <= budget
        end = position(database)
        sql("INSERT INTO t VALUES (9, 'after')")
        keys: list[int] = []

        def catches_up() -> bool:
            nonlocal taken
            if running.error is not None:
                raise running.error
            for block in running.reader.blocks(taken):
                keys.extend(k for body in block.bodies for k in body.batch["id"].to_pylist())
                taken = block.last_scn
            register_job(tmp_path / "changelog", "slow", taken)
            return running.reader.tail().covered_scn > end and keys[-1:] == [9]

        until(catches_up, "it goes on")
        assert keys == [*range(1000, 6000), 9]
    assert running.error is None


@pytest.fixture
def bare(sql: Sql) -> None:
    sql(
        "CREATE TABLE bare (v text)",
        "ALTER TABLE bare REPLICA IDENTITY FULL",
        "INSERT INTO bare SELECT repeat('x', 1000) FROM generate_series(1, 3000)",
    )


@req("C60")
def test_a_spool_that_cannot_be_made_fails_its_request_and_the_rest_goes_on(
    source: PostgresSource, bare: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    spool = tmp_path / "spool"
    spool.write_text("in the way")
    with at_work(source, tmp_path) as running:
        until(lambda: ends(running, RequestState.FAILED, 1), "the first copy fails")
        assert "spool" in running.state.requests()[0].reason
        sql("INSERT INTO t VALUES (4, 'd')")
        follows(running, database)
        spool.unlink()
        running.state.submit("TABLE", BARE)
        until(lambda: ends(running, RequestState.COMPLETED, 1), "the copy after the repair")
        follows(running, database, BARE)
    assert running.error is None


@req("C60")
def test_a_spool_without_room_is_tried_again_until_there_is_some(
    source: PostgresSource, bare: None, database: str, sql: Sql, small_disk: Path, tmp_path: Path
) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "spool").symlink_to(small_disk)
    ballast = small_disk / "ballast"
    ballast.write_bytes(b"x" * (7 << 20))
    with at_work(source, tmp_path / "state") as running:
        until(
            lambda: any(p.table == BARE and p.state == "copying" for p in running.state.progress()),
            "it began",
        )
        sql("INSERT INTO t VALUES (4, 'd')")
        end = position(database)
        sql("INSERT INTO t VALUES (5, 'e')")
        running.wait_for_scn(end)  # the log goes on meanwhile
        assert not ends(running, RequestState.COMPLETED, 1)
        ballast.unlink()
        until(running.dumped, "the copy once there is room")
        follows(running, database, BARE)
    assert running.error is None


def ends(running: AtWork, state: RequestState, count: int) -> bool:
    """Whether so many requests ended in a state."""
    if running.error is not None:
        raise running.error
    return sum(r.state is state for r in running.state.requests()) >= count

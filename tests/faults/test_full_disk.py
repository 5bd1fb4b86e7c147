"""The whole state folder without room, as it lies by default: log, progress, reports and locks on one full disk."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.client import FileCheckpoints
from headrace.client.errors import CheckpointUnusable
from headrace.errors import Retry, StateFull
from headrace.observe.status import ProcessState, ProcessStatus, StatusFile
from headrace.replicator import lock
from headrace.replicator.worker import EXIT_RETRY
from headrace.sources.postgres import PostgresSource
from headrace.state.store import StateStore
from headrace.wire.place import Place
from tests.faults.disks import full, small_disk
from tests.faults.faulty import PUBLIC_T, at_work, failure_of, follows, named, position
from tests.fixtures_postgres import Sql
from tests.integration.holding import held
from tests.requirements import req
from tests.waiting import until


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with small_disk(tmp_path / "disk", 16 << 20) as folder:
        yield folder


@contextmanager
def capture(file: Path, output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a capture as the supervisor starts it."""
    with output.open("ab") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.replicator.capture_process", str(file)],
            stdout=said,
            stderr=said,
        )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.postgres
@req("C60")
def test_a_capture_process_waits_for_room_on_the_disk_of_its_whole_state(
    database: str, sql: Sql, tmp_path: Path, disk: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    file, output = tmp_path / "shop.yaml", tmp_path / "said"
    file.write_text(
        f"name: shop\nsource: {{type: postgres, url: {json.dumps(database)}, tables: ['public.*']}}\n"
        f"target: {{type: delta, path: ./lake}}\nstate: {{dir: {disk}}}\n"
    )
    reader = ChangeLogReader(disk / "changelog")

    def follows_on(*ends: int) -> None:
        sql("INSERT INTO t SELECT coalesce(max(id), 0) + 1, repeat('x', 5000) FROM t")
        end = position(database)
        until(lambda: process.poll() is not None or reader.tail().covered_scn >= end, "it goes on")
        assert process.poll() in (None, *ends)

    with capture(file, output) as process:
        follows_on()
        with full(disk):
            sql("INSERT INTO t SELECT coalesce(max(id), 0) + 1, repeat('x', 5000) FROM t")
            until(
                lambda: process.poll() is not None or b"waiting for room" in output.read_bytes(),
                "it waits",
            )
        # Where progress was to be written just then, it ends to be started again.
        follows_on(EXIT_RETRY)
    with full(disk), capture(file, output) as process:
        assert process.wait(60) == EXIT_RETRY
    with capture(file, output) as process:
        follows_on()
    assert b"Traceback" not in output.read_bytes()


@pytest.mark.postgres
@req("C60", "C63")
def test_progress_without_room_ends_the_capture_which_finds_everything_when_started_again(
    database: str, sql: Sql, tmp_path: Path, disk: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    source = PostgresSource(database, name="room")
    # The log has room: only progress has none.
    (tmp_path / "log").mkdir()
    (disk / "changelog").symlink_to(tmp_path / "log")
    with at_work(source, disk) as running:
        until(running.dumped, "the first copy")
        # Held until there is no room: else its progress may be written before.
        with held("window.after_select") as read:
            running.state.submit("TABLE", PUBLIC_T)
            assert read.there.wait(60)
            with full(disk):
                read.let_go()
                error = failure_of(running)
        named(error, StateFull, "state.db")
        assert StateFull.retry is Retry.TIMED
    with at_work(source, disk) as running:
        sql("INSERT INTO t VALUES (3, 'c')")
        until(running.dumped, "the request is carried out")
        follows(running, database)
    assert running.error is None


def test_a_request_without_room_is_refused_by_name(disk: Path) -> None:
    state = StateStore(disk / "state.db")

    def ask() -> None:
        for _ in range(1000):
            state.submit("ALL_TABLES")

    with full(disk), pytest.raises(StateFull) as caught:
        ask()
    named(caught.value, StateFull, "state.db")
    held = state.requests()
    state.submit("ALL_TABLES")
    assert len(state.requests()) == len(held) + 1
    state.close()


def test_a_report_without_room_leaves_the_one_before(disk: Path) -> None:
    status = StatusFile(disk / "capture.json", "capture")
    status.write(ProcessState.RUNNING, {"rows": 1})
    with full(disk):
        status.write(ProcessState.RUNNING, {"rows": 2}, force=True)
    found = ProcessStatus.read(disk / "capture.json")
    assert found is not None
    assert found.detail == {"rows": 1}
    assert [path.name for path in disk.iterdir()] == ["capture.json"]
    status.write(ProcessState.RUNNING, {"rows": 3}, force=True)
    found = ProcessStatus.read(disk / "capture.json")
    assert found is not None
    assert found.detail == {"rows": 3}


def test_a_lock_is_taken_on_a_full_disk_too(disk: Path) -> None:
    with full(disk), lock.held(disk / "capture.lock", "capture"):
        assert (disk / "capture.lock").read_text() == ""


def test_a_checkpoint_without_room_says_so_and_the_one_before_stays(disk: Path) -> None:
    checkpoints = FileCheckpoints(disk / "place.json")
    checkpoints.store(Place(7))
    with full(disk), pytest.raises(CheckpointUnusable) as caught:
        checkpoints.store(Place(8))
    named(caught.value, CheckpointUnusable, "place.json", "No space left")
    # Whoever removed it, as where it is damaged, would begin from nothing.
    assert "room" in caught.value.next_step
    assert "remove" not in caught.value.next_step
    assert checkpoints.load() == Place(7)
    checkpoints.store(Place(8))
    assert checkpoints.load() == Place(8)

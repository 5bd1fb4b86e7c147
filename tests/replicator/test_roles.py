"""What processes said last is told as what it is: the last word of some that are there, and of some that are not."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from headrace.observe.status import ProcessState, ProcessStatus
from headrace.relay.follow import WAITING_FOR_UPSTREAM, FollowStatus
from headrace.relay.status import CaptureStatus
from headrace.replicator import lock
from headrace.replicator.paths import StatePaths
from headrace.replicator.roles import held_up, read_role, unheard
from headrace.replicator.runner import _capture_detail
from headrace.spark.status import ApplyStatus
from tests.requirements import req
from tests.waiting import until

NOW_US = 1_800_000_000_000_000
HOUR_US = 3_600_000_000

PROCESS = """
import sys, threading
from pathlib import Path
from headrace.observe.status import ProcessState, StatusFile
from headrace.replicator import lock
from headrace.replicator.paths import StatePaths

paths = StatePaths(Path(sys.argv[1]))
with lock.held(paths.lock("capture"), "capture"):
    StatusFile(paths.status("capture"), "capture").write(ProcessState.RUNNING, {"doing": "streaming"})
    threading.Event().wait()
"""


@contextmanager
def a_capture(folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that holds the lock of a capture and has said that it runs."""
    process = subprocess.Popen([sys.executable, "-c", PROCESS, str(folder)])
    try:
        until(StatePaths(folder).status("capture").exists, "its report")
        yield process
    finally:
        process.kill()
        process.wait()


def test_who_only_looks_keeps_nobody_from_starting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a look does at that moment: whoever has to wait for it waits, though asked not to."""
    path = tmp_path / "apply.lock"
    look = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(look, fcntl.LOCK_SH)

    def sleep(_seconds: float) -> None:
        os.close(look)

    monkeypatch.setattr(lock, "time", SimpleNamespace(monotonic=time.monotonic, sleep=sleep))
    with lock.held(path, "apply"):
        assert lock.is_held(path)


@req("C78")
def test_a_process_that_was_killed_is_gone_and_one_that_lives_is_not(tmp_path: Path) -> None:
    paths = StatePaths(tmp_path)
    assert read_role(paths, "capture") is None
    with a_capture(tmp_path) as process:
        said = read_role(paths, "capture")
        assert said is not None
        assert (said.state, said.pid) == (ProcessState.RUNNING, process.pid)
        assert unheard(said, said.updated_us) == ""
    left = read_role(paths, "capture")
    assert left is not None
    assert left.state is ProcessState.GONE
    assert left.updated_us == said.updated_us
    told = unheard(left, left.updated_us + HOUR_US)
    assert told == "capture is not running: it ended without a word, and spoke last 60 min ago"


@req("C78")
def test_who_asks_whether_a_process_lives_does_not_keep_its_successor_out(tmp_path: Path) -> None:
    with a_capture(tmp_path):
        pass
    for _ in range(3):
        read_role(StatePaths(tmp_path), "capture")
    with a_capture(tmp_path) as process:
        found = until(
            lambda: (
                (said := read_role(StatePaths(tmp_path), "capture")) and said.pid == process.pid
            ),
            "the successor's own report",
        )
        assert found


@req("C78")
@pytest.mark.parametrize(
    ("state", "detail", "ago_us", "told"),
    [
        (ProcessState.RUNNING, {"doing": "streaming"}, 30_000_000, ""),
        (ProcessState.RUNNING, {"doing": "log paused"}, 0, ""),
        (ProcessState.RUNNING, {}, 0, ""),
        (ProcessState.RUNNING, {"doing": "streaming"}, HOUR_US, "runs, and spoke last 60 min ago"),
        (
            ProcessState.RUNNING,
            _capture_detail(
                CaptureStatus("waiting for source", "no route", 0, 0, 0, 0, [], 0),
            ),
            0,
            "capture is waiting for source: no route",
        ),
        (
            ProcessState.RUNNING,
            asdict(FollowStatus(WAITING_FOR_UPSTREAM, "no relay", 0, 0, 0)),
            0,
            "capture is waiting for upstream: no relay",
        ),
        (ProcessState.STARTING, {}, 0, "capture is starting"),
        (ProcessState.STOPPED, {}, 3 * HOUR_US, "not running: it was stopped 3 h ago"),
        (ProcessState.FAILED, {}, 72 * HOUR_US, "not running: it failed 3 days ago"),
    ],
)
def test_why_the_log_may_lack_something_is_said(
    state: ProcessState, detail: dict[str, Any], ago_us: int, told: str
) -> None:
    said = unheard(ProcessStatus("capture", 7, state, NOW_US - ago_us, detail), NOW_US)
    assert said.endswith(told) if told else not said


def test_of_one_that_never_captured_nothing_is_said() -> None:
    assert unheard(None, NOW_US) == ""


@pytest.mark.parametrize(
    ("numbers", "ago_us", "told"),
    [
        ({}, 30_000_000, ""),
        ({"batch_s": 500.0, "silent_s": 10.0}, 0, ""),
        ({"batch_s": 7_200.0}, 0, "the batch at work began 2 h ago"),
        ({"batch_s": 7_200.0, "silent_s": 130.0}, 0, "Spark has answered nothing for 2 min;"),
        ({"batch_s": 5.0}, HOUR_US, "apply runs, and spoke last 60 min ago"),
    ],
)
def test_what_apply_waits_for_is_said(numbers: dict[str, float], ago_us: int, told: str) -> None:
    detail = {**ApplyStatus().to_json(), **numbers}
    apply = ProcessStatus("apply", 7, ProcessState.RUNNING, NOW_US - ago_us, detail)
    said = held_up(apply, NOW_US)
    assert said.startswith(told) if told else not said


def test_of_an_apply_that_does_not_run_nothing_is_said() -> None:
    assert held_up(None, NOW_US) == ""
    ended = ProcessStatus("apply", 7, ProcessState.STOPPED, NOW_US - HOUR_US, {"batch_s": 9_000.0})
    assert held_up(ended, NOW_US) == ""

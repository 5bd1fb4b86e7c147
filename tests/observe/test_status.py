"""The report of a process: the last word of it gets there, however close it came behind the one before."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from headrace.observe.status import ProcessState, ProcessStatus, StatusFile
from tests.waiting import until

RUNNING, STOPPED, FAILED = ProcessState.RUNNING, ProcessState.STOPPED, ProcessState.FAILED


class Clock:
    """Monotonic seconds that stand still until they are set."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "apply.json"


def said(path: Path) -> tuple[ProcessState, dict[str, Any]]:
    found = ProcessStatus.read(path)
    assert found is not None
    return found.state, found.detail


def threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "status"]


def held_back(path: Path, clock: Clock) -> StatusFile:
    """Return a file in which the first of two reports stands."""
    file = StatusFile(path, "apply", clock=clock)
    file.write(RUNNING, {"scn": 10})
    file.write(RUNNING, {"scn": 20})
    assert said(path) == (RUNNING, {"scn": 10})
    return file


def test_the_last_of_two_close_reports_is_written_though_nobody_reports_again(path: Path) -> None:
    file = StatusFile(path, "apply")
    file.write(RUNNING, {"scn": 10})
    file.write(RUNNING, {"scn": 20})
    until(lambda: said(path) == (RUNNING, {"scn": 20}), "the second report", 20)
    until(lambda: not threads(), "the end of the thread that wrote it", 20)
    file.write(RUNNING, {"scn": 30})
    file.write(RUNNING, {"scn": 40})
    until(lambda: said(path) == (RUNNING, {"scn": 40}), "the next one that is held back", 20)
    file.close()


def test_the_report_of_a_thread_that_has_ended_is_written(path: Path) -> None:
    file = StatusFile(path, "apply")
    file.write(RUNNING, {"scn": 10})
    reporter = threading.Thread(target=file.write, args=(RUNNING, {"scn": 20}))
    reporter.start()
    reporter.join()
    until(lambda: said(path) == (RUNNING, {"scn": 20}), "its report", 20)
    file.close()


def test_a_report_is_held_back_until_its_time_has_come(path: Path) -> None:
    clock = Clock()
    file = held_back(path, clock)
    clock.now_s += 0.3
    file.write(RUNNING, {"scn": 30}, force=True)
    file.write(RUNNING, {"scn": 40})
    clock.now_s += 0.49
    file.write(RUNNING, {"scn": 50})
    assert said(path) == (RUNNING, {"scn": 30})
    clock.now_s += 0.02
    until(lambda: said(path) == (RUNNING, {"scn": 50}), "the newest one", 20)
    until(lambda: not threads(), "the end of the thread", 20)
    file.close()


def test_closing_writes_what_is_held_back_and_nothing_after(path: Path) -> None:
    clock = Clock()
    file = held_back(path, clock)
    file.close()
    assert said(path) == (RUNNING, {"scn": 20})
    assert not threads()
    clock.now_s += 10.0
    file.write(RUNNING, {"scn": 30}, force=True)
    file.end(STOPPED)
    file.close()
    assert said(path) == (RUNNING, {"scn": 20})
    assert not threads()


def test_closing_writes_nothing_where_nothing_was_said(path: Path) -> None:
    StatusFile(path, "apply").close()
    assert not path.exists()


@pytest.mark.parametrize("state", [STOPPED, FAILED])
def test_no_older_report_is_written_over_the_end(path: Path, state: ProcessState) -> None:
    clock = Clock()
    file = held_back(path, clock)
    error = {"name": "SlotLost"} if state is FAILED else None
    file.end(state, {"scn": 30}, error=error)
    assert not threads(), "nobody is left who could write"
    clock.now_s += 10.0
    file.write(RUNNING, {"scn": 20})
    file.end(STOPPED)
    file.close()
    found = ProcessStatus.read(path)
    assert found is not None
    assert (found.state, found.detail, found.error) == (state, {"scn": 30}, error)


@pytest.mark.parametrize(("state", "force"), [(RUNNING, True), (FAILED, False)])
def test_a_report_that_is_written_at_once_takes_the_place_of_what_was_held_back(
    path: Path, state: ProcessState, force: bool
) -> None:
    clock = Clock()
    file = held_back(path, clock)
    file.write(state, {"scn": 30}, force=force)
    assert said(path) == (state, {"scn": 30})
    clock.now_s += 10.0
    until(lambda: not threads(), "the end of the thread", 20)
    file.close()
    assert said(path) == (state, {"scn": 30})


def test_a_report_says_what_held_when_it_was_made(path: Path) -> None:
    clock, detail = Clock(), {"scn": 20}
    file = StatusFile(path, "apply", clock=clock)
    file.write(RUNNING, {"scn": 10})
    file.write(RUNNING, detail)
    detail["scn"] = 30
    file.close()
    assert said(path) == (RUNNING, {"scn": 20})


def test_many_reports_cost_one_thread_and_one_write(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[str] = []
    file = StatusFile(path, "apply", clock=Clock())
    monkeypatch.setattr(file, "_replace", written.append)
    for scn in range(1000):
        file.write(RUNNING, {"scn": scn})
    assert len(written) == len(threads()) == 1
    file.close()
    assert len(written) == 2
    assert '"scn": 999' in written[1]


def test_a_system_without_room_for_a_thread_gets_the_report_at_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    file = StatusFile(path, "apply", clock=Clock())
    file.write(RUNNING, {"scn": 10})
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        file.write(RUNNING, {"scn": 20})
    assert said(path) == (RUNNING, {"scn": 20})
    file.write(RUNNING, {"scn": 30})
    assert len(threads()) == 1, "the next one gets its thread"
    file.close()
    assert said(path) == (RUNNING, {"scn": 30})


@pytest.mark.parametrize("end", ["", "raise KeyboardInterrupt"])
def test_a_process_that_ends_without_closing_loses_nothing(path: Path, end: str) -> None:
    code = (
        "from pathlib import Path\n"
        "from headrace.observe.status import ProcessState, StatusFile\n"
        f"file = StatusFile(Path({str(path)!r}), 'apply')\n"
        "for scn in (10, 20):\n    file.write(ProcessState.RUNNING, {'scn': scn})\n"
        f"{end}"
    )
    subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, timeout=60, check=False)
    assert said(path) == (RUNNING, {"scn": 20})

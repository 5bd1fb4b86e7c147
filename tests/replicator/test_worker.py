"""The frame around every child process: exit codes, status, stopping, its lock, its parent."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import pytest

from headrace.observe.status import ProcessState, ProcessStatus
from headrace.replicator import orphans
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.replicator.worker import EXIT_CRASHED, EXIT_OK, EXIT_RETRY, EXIT_STOP
from tests.faults.disks import FULL, on_a_full_disk
from tests.requirements import req
from tests.waiting import until

Started = list[subprocess.Popen[str]]
WAIT = "report({'rows': 7}); stop.wait()"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(
        "name: shop\n"
        "source: {type: postgres, tables: ['public.*'],\n"
        "  url: 'postgresql://user:swordfish@127.0.0.1:1/db?connect_timeout=2'}\n"
        "target: {type: delta, path: ./lake}\n"
    )
    return path


@pytest.fixture
def started() -> Iterator[Started]:
    """Collect processes; whatever a failed test left running is ended."""
    processes: Started = []
    yield processes
    for process in processes:
        process.kill()
        process.wait()


def worker(file: Path, body: str, stderr: IO[str] | int = subprocess.PIPE) -> subprocess.Popen[str]:
    code = (
        "import sys\n"
        "from headrace import errors\n"
        "from headrace.replicator.worker import run_worker\n"
        f"def body(config, paths, stop, report):\n    {body}\n"
        f"sys.exit(run_worker('capture', [{str(file)!r}], body))"
    )
    return subprocess.Popen([sys.executable, "-c", code], stderr=stderr, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    _, said = process.communicate(timeout=60)
    return process.returncode, said


def status(file: Path) -> ProcessStatus | None:
    return ProcessStatus.read(StatePaths.of(load(file)).status("capture"))


def running(file: Path) -> bool:
    found = status(file)
    return found is not None and found.state is ProcessState.RUNNING


def test_work_that_ends_by_itself_is_a_clean_stop(file: Path) -> None:
    assert ended(worker(file, "report({'rows': 7})")) == (EXIT_OK, "")
    found = status(file)
    assert found is not None
    assert (found.state, found.detail) == (ProcessState.STOPPED, {"rows": 7})


@pytest.mark.parametrize(
    ("error", "code", "retry"),
    [
        ("SourceUnavailable", EXIT_RETRY, "timed"),
        ("SlotLost", EXIT_STOP, "manual"),
        ("LeaseLost", EXIT_STOP, "never"),
    ],
)
def test_an_error_becomes_one_line_a_status_and_an_exit_code(
    file: Path, error: str, code: int, retry: str
) -> None:
    body = f"raise errors.{error}('the object broke.', next_step='mend it.')"

    found_code, said = ended(worker(file, body))

    assert found_code == code
    assert said == f"capture: {error}: the object broke. Next step: mend it.\n"
    found = status(file)
    assert found is not None
    assert found.state is ProcessState.FAILED
    assert found.error == {
        "name": error,
        "message": "the object broke.",
        "next_step": "mend it.",
        "retry": retry,
    }


@on_a_full_disk
@pytest.mark.parametrize(
    ("error", "code"),
    [
        ("errors.SourceUnavailable('away.')", EXIT_RETRY),
        ("errors.SlotLost('gone.')", EXIT_STOP),
        ("RuntimeError()", EXIT_CRASHED),
    ],
)
def test_a_log_without_room_changes_nothing_of_how_the_process_ends(
    file: Path, error: str, code: int
) -> None:
    with FULL.open("w", encoding="utf-8") as full:
        assert worker(file, f"raise {error}", full).wait(60) == code


@req("C70")
def test_an_unforeseen_error_keeps_its_text_out_of_the_status(file: Path) -> None:
    code, said = ended(worker(file, "raise RuntimeError('swordfish')"))

    assert code == EXIT_CRASHED
    assert "Traceback" in said
    found = status(file)
    assert found is not None
    assert "swordfish" not in str(found)


def test_the_last_of_two_close_reports_is_shown_while_the_work_goes_on(
    file: Path, started: Started
) -> None:
    process = worker(file, "report({'rows': 1}); report({'rows': 2, 'tables': 3}); stop.wait()")
    started.append(process)

    def shown() -> bool:
        found = status(file)
        return found is not None and found.detail == {"rows": 2, "tables": 3}

    until(shown, "the second report", 30)

    process.terminate()
    assert ended(process) == (EXIT_OK, "")


def test_a_thread_that_reports_behind_the_end_changes_nothing(file: Path) -> None:
    late = "import atexit; atexit.register(report, {'rows': 9}); report({'rows': 7})"

    assert ended(worker(file, late)) == (EXIT_OK, "")

    found = status(file)
    assert found is not None
    assert (found.state, found.detail["rows"]) == (ProcessState.STOPPED, 7)


def test_work_that_leaves_without_an_end_is_shown_as_it_was_last(file: Path) -> None:
    body = "report({'rows': 1}); report({'rows': 2}); raise SystemExit(3)"

    assert ended(worker(file, body)) == (3, "")

    found = status(file)
    assert found is not None
    assert (found.state, found.detail) == (ProcessState.RUNNING, {"rows": 2})


def test_sigterm_ends_the_work_cleanly(file: Path, started: Started) -> None:
    process = worker(file, WAIT)
    started.append(process)
    until(lambda: running(file), "the work")

    process.terminate()

    assert ended(process) == (EXIT_OK, "")
    found = status(file)
    assert found is not None
    assert found.state is ProcessState.STOPPED


def test_ctrl_c_is_the_supervisors_business(file: Path, started: Started) -> None:
    process = worker(file, WAIT)
    started.append(process)
    until(lambda: running(file), "the work")

    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)

    process.terminate()
    assert ended(process)[0] == EXIT_OK


@req("A-19")
def test_a_second_process_for_the_same_work_is_refused(file: Path, started: Started) -> None:
    first = worker(file, WAIT)
    started.append(first)
    until(lambda: running(file), "the work")
    code = (
        "import sys\n"
        "from headrace.replicator import worker\n"
        "worker._LOCK_WAIT_S = 0.1\n"
        f"sys.exit(worker.run_worker('capture', [{str(file)!r}], None))"
    )
    second = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)

    refused, said = ended(second)

    assert refused == EXIT_STOP
    assert "already runs" in said
    assert str(first.pid) in said
    found = status(file)
    assert found is not None
    assert found.pid == first.pid, "the refused process wrote over the owner's status"
    first.terminate()
    assert ended(first)[0] == EXIT_OK


def test_the_kernel_takes_a_worker_along_with_its_supervisor(file: Path, tmp_path: Path) -> None:
    told = tmp_path / "pid"
    body = f"open({str(told)!r}, 'w').write(str(__import__('os').getpid())); stop.wait()"
    inner = (
        "import sys\nfrom headrace.replicator.worker import run_worker\n"
        f"def body(config, paths, stop, report):\n    {body}\n"
        f"sys.exit(run_worker('capture', [{str(file)!r}], body))"
    )
    outer = (
        "import os, subprocess, sys, time\n"
        f"os.environ[{orphans.PARENT!r}] = str(os.getpid())\n"
        f"subprocess.Popen([sys.executable, '-c', {inner!r}])\n"
        "time.sleep(600)"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", outer])
    pid = int(until(lambda: told.exists() and told.read_text(), "the worker"))

    supervisor.kill()
    supervisor.wait()

    def gone() -> bool:
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except FileNotFoundError:
            return True

    until(gone, "the worker to die")


@req("C70", "C61")
def test_a_real_capture_names_the_missing_server_and_hides_the_password(file: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "headrace.replicator.capture_process", str(file)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HEADRACE_DEBUG": ""},
    )

    assert done.returncode == EXIT_RETRY, "the supervisor tries again until the server answers"
    assert "SourceUnavailable" in done.stderr
    kept = "".join(p.read_text() for p in StatePaths.of(load(file)).root.rglob("*.json"))
    assert "swordfish" not in done.stdout + done.stderr + kept

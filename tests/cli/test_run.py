"""``headrace run``: how it ends, and that it outlasts what it cannot say."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.cli.relay import relay
from headrace.cli.run import run
from headrace.cli.serve import serve
from headrace.observe import logs
from headrace.observe.status import ProcessState, ProcessStatus
from headrace.relay.server import workers
from headrace.replicator import config_file, lean, runner
from headrace.replicator import run as run_module
from headrace.replicator.api import serve as api_serve
from headrace.replicator.paths import StatePaths
from headrace.replicator.picture import Picture
from headrace.replicator.run import Run, note_end
from headrace.sources.base import Finding, Severity
from tests.faults.disks import FULL, on_a_full_disk


class Turning:
    """A run that goes on for some turns."""

    def __init__(self, *_: object, **__: object) -> None:
        self.picture = Picture((), 0, 0, 0, 0, None, 0, 0, {})
        self.note = "apply is started again: away. " + "x" * 10_000
        self.left = 3
        self.is_done = False

    def __enter__(self) -> Turning:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def end_on_signals(self) -> None:
        pass

    def turn(self) -> bool:
        self.left -= 1
        return self.left > 0


@contextmanager
def full_output() -> Iterator[None]:
    with FULL.open("w", encoding="utf-8") as out, FULL.open("w", encoding="utf-8") as err:
        with redirect_stdout(out), redirect_stderr(err):
            yield
        # What lies in them would be an error when they are closed.
        for file in (out, err):
            with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
                os.dup2(nowhere.fileno(), file.fileno())


@on_a_full_disk
def test_a_run_goes_on_where_there_is_no_room_for_what_it_says(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turning = Turning()
    said = [Finding("wal-size", "The log is short.", "Make it longer.", severity=Severity.WARNING)]
    monkeypatch.setattr(runner, "preflight", lambda _config: said)
    monkeypatch.setattr(run_module, "Run", lambda *_, **__: turning)
    with full_output():
        run(file)
    assert turning.left == 0


def once(file: Path, monkeypatch: pytest.MonkeyPatch, *, is_done: bool) -> Result:
    turning = Turning()
    turning.is_done = is_done
    monkeypatch.setattr(runner, "preflight", lambda _config: [])
    monkeypatch.setattr(run_module, "Run", lambda *_, **__: turning)
    return CliRunner().invoke(app, ["run", str(file), "--once"])


def test_a_run_that_was_ended_before_its_goal_is_not_called_done(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended = once(file, monkeypatch, is_done=False)
    assert ended.exit_code == 130
    assert "done" not in ended.stdout
    assert "ended before all was there" in ended.stderr
    reached = once(file, monkeypatch, is_done=True)
    assert reached.exit_code == 0
    assert "done: up to SCN 0" in reached.stdout


@pytest.mark.parametrize("reached", [True, False])
def test_a_turn_that_is_the_last_because_somebody_asked_for_it_is_no_goal(
    file: Path, monkeypatch: pytest.MonkeyPatch, reached: bool
) -> None:
    running = Run(file, config_file.load(file), once=True)
    idle = SimpleNamespace(poll=lambda: None, restarts={}, waiting={})
    monkeypatch.setattr(running, "supervisor", idle)
    monkeypatch.setattr(running, "reached", lambda: reached)
    if not reached:
        running.end()
    assert not running.turn()
    assert running.is_done is reached


def test_a_report_that_was_held_back_is_not_written_over_how_the_run_ended(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = config_file.load(file)
    path = StatePaths.of(config).status("run")
    seen: list[ProcessStatus | None] = []

    def leave(*_: object) -> None:
        seen.append(ProcessStatus.read(path))

    running = Run(file, config)
    idle = SimpleNamespace(poll=lambda: None, restarts={}, waiting={}, __exit__=leave)
    monkeypatch.setattr(running, "supervisor", idle)
    running.end()
    running.turn()
    idle.restarts = {"apply": 1}
    running.turn()

    running.__exit__(None, None, None)
    note_end(config)

    (held,) = seen
    assert held is not None
    assert held.detail["restarts"] == {"apply": 1}, "written while the folder was still its own"
    assert "status" not in {thread.name for thread in threading.enumerate()}
    found = ProcessStatus.read(path)
    assert found is not None
    assert found.state is ProcessState.STOPPED


@on_a_full_disk
def test_servers_serve_where_there_is_no_room_for_what_they_say(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = []

    def serving_changes(_settings: Any, _stop: Any, tell: Callable[[str, Any], None]) -> None:
        tell("http://127.0.0.1:7070", {})
        served.append("relay")

    def answering(*given: Any) -> None:
        given[-1]()
        served.append("control plane")

    monkeypatch.setattr(lean, "begin_lean", lambda: None)
    monkeypatch.setattr(logs, "begin_logging", lambda: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr(api_serve, "serve", answering)
    monkeypatch.setattr(workers, "run_relay", serving_changes)
    with full_output():
        relay([file])
    with full_output():
        serve("127.0.0.1:0", tmp_path / "serve", None, None, 1.0)
    assert served == ["relay", "control plane"]

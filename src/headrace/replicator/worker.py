"""What every child process of a replicator does around its work.

Reads the configuration, takes its lock, turns SIGTERM into a stop request, reports into its status
file, and translates the way it ended into an exit code that the supervisor understands.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from headrace.errors import ConfigError, HeadraceError, Retry
from headrace.observe.logs import begin_logging
from headrace.observe.spans import begin_tracing, end_tracing
from headrace.observe.status import ProcessState, StatusFile, describe_error
from headrace.replicator import config_file, lock, orphans
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths

__all__ = ["EXIT_CRASHED", "EXIT_OK", "EXIT_RETRY", "EXIT_STOP", "Body", "Report", "run_worker"]

EXIT_OK = 0
EXIT_CRASHED = 70
"""An error nobody foresaw (sysexits EX_SOFTWARE)."""
EXIT_RETRY = 75
"""Start again after a while (sysexits EX_TEMPFAIL)."""
EXIT_STOP = 78
"""A person must act first (sysexits EX_CONFIG)."""

Report = Callable[[dict[str, Any]], None]
"""Takes the numbers that the role shows; cheap, may be called often and from any thread."""
Body = Callable[[Config, StatePaths, threading.Event, Report], None]
"""The work; returns soon after the event is set."""

# A predecessor that was told to end may still be flushing.
_LOCK_WAIT_S = 20.0
# After SIGTERM the work has this long; a frozen one must not hold a restart up for ever.
_STOP_LIMIT_S = 25.0


def run_worker(name: str, arguments: list[str], body: Body) -> int:
    """Run one role and return the process's exit code."""
    orphans.die_with_parent()
    begin_logging()
    # It reports every connection between Python and the JVM.
    logging.getLogger("py4j").setLevel(logging.WARNING)
    stop = threading.Event()
    _stop_on_signals(stop)
    try:
        config = config_file.load(_file(name, arguments))
    except ConfigError as error:
        _say(f"{name}: {error}")
        return EXIT_STOP
    begin_tracing(name, config.name)
    paths = StatePaths.of(config)
    paths.create()
    status = StatusFile(paths.status(name), name)
    try:
        with lock.held(paths.lock(name), name, wait_s=_LOCK_WAIT_S):
            return _guarded(name, config, paths, stop, status, body)
    except HeadraceError as error:
        # Another process owns the work; its status file is not ours to write.
        _say(f"{name}: {error}")
        return EXIT_STOP
    finally:
        end_tracing()


def _guarded(
    name: str,
    config: Config,
    paths: StatePaths,
    stop: threading.Event,
    status: StatusFile,
    body: Body,
) -> int:
    detail: dict[str, Any] = {}

    def report(numbers: dict[str, Any]) -> None:
        detail.update(numbers)
        status.write(ProcessState.RUNNING, detail)

    status.write(ProcessState.STARTING, force=True)
    try:
        body(config, paths, stop, report)
    except Exception as error:  # noqa: BLE001 - the top of the process
        described = describe_error(error)
        status.end(ProcessState.FAILED, detail, error=described)
        if not isinstance(error, HeadraceError) or os.environ.get("HEADRACE_DEBUG"):
            _say(traceback.format_exc().rstrip("\n"))
        _say(f"{name}: {described['name']}: {_one_line(error)}")
        return _exit_code(error)
    else:
        status.end(ProcessState.STOPPED, detail)
        return EXIT_OK
    finally:
        # Before the lock is let go: then the file is another process's.
        status.close()


def _say(text: str) -> None:
    """Write a line to the log; a disk without room for it changes nothing of how the process ends."""
    with contextlib.suppress(OSError):
        print(text, file=sys.stderr)  # noqa: T201 - where nothing else may be set up yet


def _exit_code(error: Exception) -> int:
    if not isinstance(error, HeadraceError):
        return EXIT_CRASHED
    return EXIT_RETRY if error.retry is Retry.TIMED else EXIT_STOP


def _one_line(error: Exception) -> str:
    if isinstance(error, HeadraceError):
        return " ".join(str(error).split())
    return "unexpected, see the traceback above"


def _file(name: str, arguments: list[str]) -> Path:
    if len(arguments) != 1:
        raise ConfigError(
            f"{name}: takes one argument, the configuration file, and got {len(arguments)}.",
            next_step=f"write: python -m headrace.replicator.{name}_process FILE",
        )
    return Path(arguments[0])


def _stop_on_signals(stop: threading.Event) -> None:
    def ask(_signal: int, _frame: object) -> None:
        stop.set()
        threading.Thread(target=_end_late, name="stop-limit", daemon=True).start()

    signal.signal(signal.SIGTERM, ask)
    # Ctrl-C reaches the whole terminal group; the supervisor alone decides what happens then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_late() -> None:
    time.sleep(_STOP_LIMIT_S)
    os._exit(EXIT_CRASHED)

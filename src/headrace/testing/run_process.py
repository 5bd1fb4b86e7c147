"""Behaves like ``headrace run FILE`` without a source or Spark: for tests of whoever starts such processes.

In: a configuration file in a replicator's folder. Out: its lock held, its status told, a line in ``journal`` of the
state folder when it begins and when it ends; ended by SIGTERM. ``spark.conf`` of the file may hold
``headrace.simulate``, which asks for something else: ``crash``, ``deaf`` (SIGTERM is not heard), ``mute`` (never
ready), ``fail`` and ``retry`` (an error that a person, or time, must heal).
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

from headrace.errors import HeadraceError, LeaseLost, SlotLost, SourceUnavailable
from headrace.observe.status import ProcessState, StatusFile, describe_error
from headrace.replicator import lock

__all__ = ["journal", "main"]

_BEAT_S = 0.1


def journal(state: Path) -> list[tuple[str, int, str]]:
    """Return what processes wrote when they began and ended: the word, the process id, the revision of the file."""
    try:
        lines = (state / "journal").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return []
    split = (line.split() for line in lines)
    return [(word, int(pid), revision) for word, pid, revision in split]


def main(arguments: list[str]) -> int:
    """Run until asked to end, and return the exit code."""
    file = Path(arguments[0])
    state = Path(json.loads(file.read_text(encoding="utf-8"))["state"]["dir"])
    status = StatusFile(state / "status" / "run.json", "run")
    stop = threading.Event()
    fault = _fault(file)
    if fault != "deaf":
        signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    else:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        with lock.held(state / "locks" / "run.lock", "headrace run"):
            _note(state, "began", file)
            _misbehave(fault)
            while not stop.wait(_BEAT_S):
                if fault != "mute":
                    status.write(ProcessState.RUNNING, {"at": time.time()})
            _note(state, "ended", file)
    except LeaseLost as error:
        print(error, file=sys.stderr)  # noqa: T201
        return 2
    except HeadraceError as error:
        status.end(ProcessState.FAILED, error=describe_error(error))
        return 2
    status.end(ProcessState.STOPPED)
    return 0


def _fault(file: Path) -> str:
    document = json.loads(file.read_text(encoding="utf-8"))
    return str(document.get("spark", {}).get("conf", {}).get("headrace.simulate", ""))


def _misbehave(fault: str) -> None:
    if fault == "crash":
        print("simulated: the last words", file=sys.stderr)  # noqa: T201
        os._exit(70)
    if fault == "fail":
        raise SlotLost("simulated: the slot is gone.", next_step="resync.")
    if fault == "retry":
        raise SourceUnavailable("simulated: the server is away.", next_step="start it.")


def _note(state: Path, word: str, file: Path) -> None:
    state.mkdir(parents=True, exist_ok=True)
    line = f"{word} {os.getpid()} {file.stem.rpartition('-')[2]}\n"
    with (state / "journal").open("a", encoding="utf-8") as lines:
        lines.write(line)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

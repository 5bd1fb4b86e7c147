"""Finds what a killed supervisor left behind.

Every process below a supervisor carries the state folder in its environment. The kernel kills the
direct children together with the supervisor; a Spark JVM or a Python worker below them may outlive
it for a moment. The next supervisor ends them before it starts its own, so that no two
of them ever write at the same time. Linux only; elsewhere nothing is found.
"""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path

from headrace.errors import StateError

__all__ = ["MARKER", "PARENT", "birth_of", "die_with_parent", "end_orphans", "lives"]

MARKER = "HEADRACE_STATE_DIR"
"""Environment variable with the state folder, inherited by everything below a supervisor."""
PARENT = "HEADRACE_SUPERVISOR"
"""Environment variable with the supervisor's process id."""

_PR_SET_PDEATHSIG = 1
_DEADLINE_S = 15.0


def die_with_parent() -> None:
    """Have the kernel kill this process when the supervisor that started it dies."""
    parent = os.environ.get(PARENT)
    if parent is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != int(parent):
        # The supervisor died before the call above; no signal will come.
        os._exit(1)


def end_orphans(state: Path) -> int:
    """Kill every process that carries ``state`` in its environment and wait until it is gone.

    Returns:
        how many there were.

    Raises:
        StateError: when one of them does not go.
    """
    deadline = time.monotonic() + _DEADLINE_S
    ended: dict[int, str] = {}
    # One that is on its way out carries nothing any more, and still holds its files and the locks on them.
    while found := {*_carriers(state), *(pid for pid, birth in ended.items() if lives(pid, birth))}:
        for pid in found:
            ended.setdefault(pid, birth_of(pid))
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        if time.monotonic() > deadline:
            raise StateError(
                f"{state}: processes {sorted(found)} of an earlier run do not end.",
                next_step="end them by hand, then start again.",
            )
        time.sleep(0.05)
    return len(ended)


def birth_of(pid: int) -> str:
    """Return when a process was born, in the kernel's count; empty when there is none, or it is dead and not buried."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        # It is gone; whatever else goes wrong says nothing about it.
        return ""
    fields = text.rpartition(")")[2].split()
    return "" if fields[0] in ("Z", "X") else fields[19]


def lives(pid: int, birth: str) -> bool:
    """Whether a process is still the one that was born then."""
    return birth_of(pid) == birth != ""


def _carriers(state: Path) -> list[int]:
    wanted = f"{MARKER}={state}".encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        pid = int(entry.name)
        if pid == os.getpid():
            continue
        try:
            # A zombie's environment reads as empty, so only living processes are found.
            if wanted in (entry / "environ").read_bytes().split(b"\0"):
                found.append(pid)
        except OSError:
            continue
    return found

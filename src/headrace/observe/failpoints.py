"""Named places where a test may end the process or raise.

Each place is one call, ``failpoint("capture.after_sync")``, that costs a dictionary look-up. In a child
process ``HEADRACE_FAILPOINT=name`` (or ``name:n`` for the n-th pass, counted from 1) kills it with SIGKILL
there; inside a test `arm` installs a function instead.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

__all__ = ["FAILPOINTS", "arm", "disarm", "failpoint"]

FAILPOINTS = (
    "capture.after_poll",
    "capture.after_append",
    "capture.after_sync",
    "capture.after_progress",
    "capture.after_acknowledge",
    "xa.held",
    "xa.recalled",
    "window.after_low",
    "window.after_select",
    "window.after_high",
    "window.before_emit",
    "window.after_emit",
    "dump.before_complete",
    "dump.after_complete",
    "log.before_sync",
    "log.after_sync",
    "apply.before_commit",
    "apply.files_written",
    "apply.staged",
    "apply.merged",
    "apply.after_commit",
    "apply.before_manifest",
    "apply.after_manifest",
    "letters.rows_written",
    "letters.put",
    "rewind.noted",
    "rewind.table_restored",
    "rewind.table_removed",
    "rewind.frontiers_removed",
    "maintenance.files_written",
    "maintenance.after_commit",
    "adopt.files_written",
    "adopt.after_commit",
    "adopt.after_request",
    "control.before_commit",
    "control.after_commit",
    "control.before_start",
    "control.rendered",
    "control.started",
    "control.delivered",
    "control.terminated",
    "control.ended",
    "control.source_released",
    "control.target_dropped",
    "control.folder_removed",
)
"""Every failpoint in the code, in data-flow order; a test kills a process once at each."""

_armed: dict[str, Callable[[], None]] = {}


def failpoint(name: str) -> None:
    """Do nothing, unless somebody armed ``name``."""
    if _armed and (action := _armed.get(name)):
        action()


def arm(name: str, action: Callable[[], None]) -> None:
    """Call ``action`` at each pass of ``name`` from now on.

    Raises:
        ValueError: when no such failpoint exists.
    """
    if name not in FAILPOINTS:
        raise ValueError(f"no failpoint is called {name!r}")
    _armed[name] = action


def disarm(name: str | None = None) -> None:
    """Remove the action of one failpoint, or of all."""
    if name is None:
        _armed.clear()
    else:
        _armed.pop(name, None)


def _arm_from_environment() -> None:
    """Arm the kill that the environment names, once, at import."""
    setting = os.environ.get("HEADRACE_FAILPOINT", "")
    if not setting:
        return
    name, _, passes = setting.partition(":")
    left = int(passes or 1)

    def kill() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    arm(name, kill)


_arm_from_environment()

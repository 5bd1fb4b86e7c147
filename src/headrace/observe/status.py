"""What a process says about itself, in a small file that anybody may read at any time.

In: a state, numbers, and at the end perhaps an error. Out: a JSON file that is replaced atomically,
so a reader sees the old or the new text and never half of one. The supervisor, ``headrace
status`` and the tests read it; nothing is ever decided from it that must survive a crash, and no work
ends because it cannot be written.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from headrace import errors
from headrace.errors import HeadraceError

__all__ = ["ProcessState", "ProcessStatus", "StatusFile", "describe_error", "restore_error"]

_SHORTEST_INTERVAL_S = 0.5


class ProcessState(Enum):
    """Where a process is in its life."""

    STARTING = "starting"
    """It loads and connects."""
    RUNNING = "running"
    """It does its work."""
    STOPPED = "stopped"
    """It ended because it was asked to."""
    FAILED = "failed"
    """It ended with the error in ``error``."""
    GONE = "gone"
    """It ended without a word, killed for one: no process writes this, readers find that nobody does its work."""


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One report.

    Attributes:
        process: name of the role, such as ``capture``.
        pid: of the process that wrote this.
        state: where it is.
        updated_us: when, microseconds since 1970 UTC.
        detail: numbers and names of the role; the role defines them.
        error: what `describe_error` gave, when the state is FAILED.
    """

    process: str
    pid: int
    state: ProcessState
    updated_us: int
    detail: dict[str, Any] = field(default_factory=dict)
    error: dict[str, str] | None = None

    @classmethod
    def read(cls, path: Path) -> ProcessStatus | None:
        """Return the last report in ``path``; None when there is none that can be read."""
        try:
            value = json.loads(path.read_text(encoding="utf-8"))
            return cls(**{**value, "state": ProcessState(value["state"])})
        except (OSError, ValueError, KeyError, TypeError):
            return None


class StatusFile:
    """Writes the reports of one process; may be called from several threads, but from no handler of a signal.

    A report that comes too soon after another is held back, and the newest of those is written when its time has come,
    whether or not anybody reports again. The thread that sees to it lives for no longer than that.

    Args:
        path: of the file.
        process: name of the role.
        clock: monotonic seconds.
    """

    def __init__(
        self, path: Path, process: str, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._process = process
        self._clock = clock
        # Its lock is the lock of all below; notified when nothing is left to wait for.
        self._changed = threading.Condition()
        self._written_at = float("-inf")
        self._state: ProcessState | None = None
        self._held: ProcessStatus | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def write(
        self,
        state: ProcessState,
        detail: dict[str, Any] | None = None,
        *,
        error: dict[str, str] | None = None,
        force: bool = False,
    ) -> None:
        """Replace the report: at once if the state is new or ``force``, else when half a second lies between two.

        Where it cannot be written, on a full disk above all, the one before stays. After the end nothing is written.
        """
        with self._changed:
            if self._closed:
                return
            told = self._told(state, detail, error)
            if force or state is not self._state or self._wait_s() <= 0:
                self._put(told)
            else:
                self._hold(told)

    def end(
        self,
        state: ProcessState,
        detail: dict[str, Any] | None = None,
        *,
        error: dict[str, str] | None = None,
    ) -> None:
        """Write the last report of the process; what a thread of it says later is not written."""
        with self._changed:
            if not self._closed:
                self._put(self._told(state, detail, error))
            # In the same breath, so that no other thread's report comes between.
            self._closed = True
        self.close()

    def close(self) -> None:
        """Write what is held back, and nothing more."""
        with self._changed:
            self._closed = True
            self._put_held()
            self._changed.notify_all()
            thread = self._thread
        if thread is not None and thread.is_alive():
            thread.join()

    def _told(
        self, state: ProcessState, detail: dict[str, Any] | None, error: dict[str, str] | None
    ) -> ProcessStatus:
        # A copy: whoever reports may go on with its own while this one waits.
        return ProcessStatus(
            self._process, os.getpid(), state, time.time_ns() // 1000, dict(detail or {}), error
        )

    def _wait_s(self) -> float:
        return self._written_at + _SHORTEST_INTERVAL_S - self._clock()

    def _hold(self, told: ProcessStatus) -> None:
        self._held = told
        # One that is there and not alive was lost in a fork.
        if self._thread is not None and self._thread.is_alive():
            return
        # No daemon: a process that ends without closing waits for it, and its last word is not lost.
        self._thread = threading.Thread(target=self._write_held, name="status", daemon=False)
        try:
            self._thread.start()
        except RuntimeError:
            # The system gives no thread, or the interpreter is about to end.
            self._put_held()

    def _write_held(self) -> None:
        with self._changed:
            # Another report that was written meanwhile puts off what was held back after it.
            while self._held is not None and (wait_s := self._wait_s()) > 0:
                self._changed.wait(wait_s)
            # In this order: whoever holds a report back from now on needs another thread.
            self._thread = None
            self._put_held()

    def _put_held(self) -> None:
        if self._held is not None:
            self._put(self._held)

    def _put(self, told: ProcessStatus) -> None:
        # Whatever is held back is older, or this.
        self._held = None
        self._state = told.state
        self._written_at = self._clock()
        value = {**asdict(told), "state": told.state.value}
        with contextlib.suppress(OSError):
            self._replace(json.dumps(value, default=str))

    def _replace(self, text: str) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        draft = self._path.with_suffix(f".{os.getpid()}.tmp")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._path)
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def describe_error(error: BaseException) -> dict[str, str]:
    """Return name, message, next step and retry of an error as text.

    An error that headrace did not raise on purpose is described by its type alone: its message may
    hold anything.
    """
    if isinstance(error, HeadraceError):
        return {
            "name": type(error).__name__,
            "message": error.message,
            "next_step": error.next_step,
            "retry": error.retry.value,
        }
    return {
        "name": type(error).__name__,
        "message": f"an unexpected {type(error).__name__}",
        "next_step": "see the process's log file; the traceback there belongs into a bug report",
        "retry": "manual",
    }


def restore_error(description: dict[str, str]) -> HeadraceError:
    """Return an error like the one that `describe_error` described."""
    kind = getattr(errors, description["name"], None)
    message, next_step = description["message"], description["next_step"]
    if isinstance(kind, type) and issubclass(kind, HeadraceError):
        # Some classes build their message from other arguments; the text is already made here.
        error = kind.__new__(kind)
        HeadraceError.__init__(error, message, next_step=next_step)
        return error
    return HeadraceError(f"{description['name']}: {message}", next_step=next_step)

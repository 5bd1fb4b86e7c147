"""Looks at a subscription from beside it: says state and lag, passes named windows, ends what is suspended."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from headrace.cli.output import notes
from headrace.client import State, Status, Subscription
from headrace.errors import HeadraceError
from headrace.plural import counted

__all__ = ["Watch", "line_of"]

_LOOK_S = 0.1


class Watch:
    """Runs in a thread of its own while a ``with`` block lasts.

    Args:
        subscription: watched; waits when it is suspended.
        newest: asks a relay for the newest SCN.
        every_s: time between two lines about lag.
        skip: SCNs of windows that may be put aside when they suspend it, each once.

    Attributes:
        suspended: why the subscription was ended; None while it was not.
        failed_scn: of the window that was in the way; None when it was none.
    """

    def __init__(
        self,
        subscription: Subscription,
        newest: Callable[[], int],
        every_s: float,
        skip: Iterable[int],
    ) -> None:
        self._subscription = subscription
        self._newest = newest
        self._every_s = every_s
        self._skip = set(skip)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._state = State.INIT
        self._passed: Exception | None = None
        self.suspended: Exception | None = None
        self.failed_scn: int | None = None

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        said_at = time.monotonic()
        while not self._ended.wait(_LOOK_S):
            status = self._subscription.status
            if status.state is not self._state:
                self._state = status.state
                # Of a suspension more is to be said: which window was put aside, or why the command ends.
                if status.state is not State.SUSPENDED_ON_ERROR:
                    _say(line_of(status))
            if status.state is State.SUSPENDED_ON_ERROR and status.error is not self._passed:
                self._resolve(status)
            if time.monotonic() - said_at >= self._every_s:
                said_at = time.monotonic()
                _say(f"{line_of(status)} · {self._lag(status)}")

    def _resolve(self, status: Status) -> None:
        # It may take a moment until the state is another one; the same error is not looked at twice.
        self._passed = status.error
        if status.failed_scn in self._skip:
            self._skip.remove(status.failed_scn)
            _say(f"window {status.failed_scn} is put aside")
            self._subscription.skip_window()
            return
        self.suspended, self.failed_scn = status.error, status.failed_scn
        self._subscription.stop()

    def _lag(self, status: Status) -> str:
        try:
            newest = self._newest()
        except HeadraceError as error:
            return f"no relay answers ({type(error).__name__})"
        if status.place is not None and status.place.after_scn >= newest:
            return f"up to date with SCN {newest}"
        if not status.last_commit_us:
            return f"behind SCN {newest}"
        behind = max(0.0, time.time() - status.last_commit_us / 1e6)
        return f"behind SCN {newest}, {behind:,.1f} s"


def line_of(status: Status) -> str:
    """Return what a subscription does, on one line."""
    at = "" if status.place is None else f" · at {status.place}"
    stored = "" if status.stored is None else f", checkpoint {status.stored}"
    again = f" · {counted(status.rollbacks, 'rollback')}" if status.rollbacks else ""
    told = f"{counted(status.windows, 'window')}, {counted(status.rows, 'row')}"
    return f"{status.state.value}{at}{stored} · {told}{again}"


def _say(line: str) -> None:
    notes.print(line, soft_wrap=True)

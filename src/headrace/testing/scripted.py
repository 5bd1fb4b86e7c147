"""A capture over a scripted source, in one thread: the same script gives the same change log."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

from headrace.model.schema import TableId
from headrace.observe.tap import NO_TAP, Tap
from headrace.registry.file import FileRegistry
from headrace.relay.capture import Capture
from headrace.relay.log import Log
from headrace.relay.settings import CaptureSettings
from headrace.sources.scripted import ScriptedSource
from headrace.state.store import StateStore
from headrace.watermark.settings import DumpSettings

__all__ = ["ROUNDS", "InlineExecutor", "run_dry", "scripted_capture"]

ROUNDS = 3_000
"""More than any script needs; one that needs more is stuck."""


class InlineExecutor(Executor):
    """Runs each call at once in the caller's thread: the same seed gives the same run."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn`` now; what it raises goes into the future, a crash goes through."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)
        return future


def scripted_capture(
    source: ScriptedSource,
    folder: Path,
    log: Log,
    state: StateStore,
    dump: DumpSettings,
    capture_type: type[Capture] = Capture,
    *,
    clock: Callable[[], float] = time.monotonic,
    tap: Tap = NO_TAP,
    adopted: Callable[[TableId], bool] = lambda _table: False,
) -> Capture:
    """Return a capture of all tables of a scripted source, ready to be started.

    Args:
        source: what is captured.
        folder: holds the table versions in ``schemas``, and what waits for its window to close in ``spool``.
        log: the change log, open for writing.
        state: the state database.
        dump: how dumps are paced.
        capture_type: a subclass with a fault switched on, in mutation tests.
        clock: monotonic seconds.
        tap: told every step.
        adopted: whether a table's first copy is a dump made elsewhere.
    """
    settings = CaptureSettings(dump, spool_folder=folder / "spool", adopted=adopted)
    return capture_type(
        source=source,
        log=log,
        registry=FileRegistry(folder / "schemas"),
        state=state,
        settings=settings,
        tables=source.tables(),
        executor=InlineExecutor(),
        clock=clock,
        tap=tap,
    )


def run_dry(capture: Capture, state: StateStore) -> bool:
    """Let a capture work until its log gives nothing and no request is left; return False when it never ends."""
    return any(
        not capture.step(0.0)
        and capture.doing != "log paused"
        and capture.is_idle
        and state.next_request() is None
        for _ in range(ROUNDS)
    )

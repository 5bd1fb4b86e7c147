"""Ctrl-C and SIGTERM as a wish to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["ending_on_signals"]


@contextmanager
def ending_on_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` when somebody wants the command to end, from a thread: it may take locks that we hold now.

    Who asks again ends it at once: what it waits for, a reader of its output or a consumer, may never come.
    """

    def ask(_number: int, _frame: FrameType | None) -> None:
        restore()
        threading.Thread(target=stop, daemon=True).start()

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    before: dict[signal.Signals, Any] = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, ask)
    try:
        yield
    finally:
        restore()

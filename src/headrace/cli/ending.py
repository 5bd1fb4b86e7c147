"""Ctrl-C and SIGTERM as a wish to end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["ending_on_signals"]


@contextmanager
def ending_on_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Call ``stop`` when somebody wants the command to end, from a thread: it may take locks that we hold now."""

    def ask(_number: int, _frame: FrameType | None) -> None:
        threading.Thread(target=stop, daemon=True).start()

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(number, ask) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)

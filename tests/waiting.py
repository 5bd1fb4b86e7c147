"""Waiting for a condition with a deadline: tests never sleep for a guessed time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

__all__ = ["until"]

T = TypeVar("T")


def until(
    condition: Callable[[], T], what: str, timeout_s: float = 120.0, pause_s: float = 0.02
) -> T:
    """Return the first true value of ``condition``, which is asked with pauses in between.

    Raises:
        AssertionError: there is none in time; it names ``what``.
    """
    deadline = time.monotonic() + timeout_s
    pause = threading.Event()
    while not (value := condition()):
        assert time.monotonic() < deadline, f"not within {timeout_s:.0f} s: {what}"
        pause.wait(pause_s)
    return value

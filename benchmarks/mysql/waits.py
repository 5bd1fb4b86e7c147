"""How long a reader waits for its server, which is not its own time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["Waits"]


class Waits:
    """Seconds in calls that wait for the server, without what they compute."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._inside = False

    def watch(self, owner: type, name: str) -> None:
        """Count the calls of a method; one inside another counts once."""
        call: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **named: Any) -> Any:
            if self._inside:
                return call(*args, **named)
            self._inside = True
            wall, cpu = time.perf_counter(), time.thread_time()
            try:
                return call(*args, **named)
            finally:
                self.seconds += time.perf_counter() - wall - (time.thread_time() - cpu)
                self._inside = False

        setattr(owner, name, watched)

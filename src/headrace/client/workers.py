"""Threads that take events side by side, those of one key in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from queue import SimpleQueue
from typing import Any

__all__ = ["Workers"]

_WAITING = 1000
"""Events of one worker that wait at most, so that a slow consumer holds no more than that."""

_Task = tuple[Callable[[Any], None], Any]


class Workers:
    """A number of threads, each with a queue of its own. Used from one thread.

    Args:
        count: of threads.
    """

    def __init__(self, count: int) -> None:
        self._queues: list[SimpleQueue[_Task | None]] = [SimpleQueue() for _ in range(count)]
        self._room = [threading.Semaphore(_WAITING) for _ in range(count)]
        self._changed = threading.Condition()
        self._busy = 0
        self._error: BaseException | None = None
        self._threads = [
            threading.Thread(target=self._work, args=(i,), name=f"headrace-worker-{i}", daemon=True)
            for i in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, key: Hashable, work: Callable[[Any], None], what: Any) -> None:
        """Have something done, behind everything that was submitted with an equal key.

        Raises:
            BaseException: what an earlier one raised.
        """
        if self._error is not None:
            self.settle()
        at = hash(key) % len(self._queues)
        self._room[at].acquire()
        with self._changed:
            self._busy += 1
        self._queues[at].put((work, what))

    def settle(self) -> None:
        """Wait until everything is done.

        Raises:
            BaseException: what the first one that failed raised; what waited behind it was not done.
        """
        error = self._idle()
        if error is not None:
            raise error

    def drop(self) -> None:
        """Wait until nothing is being done; what failed is forgotten."""
        self._idle()

    def close(self) -> None:
        """End the threads once everything is done."""
        self._idle()
        for queue in self._queues:
            queue.put(None)
        for thread in self._threads:
            thread.join()

    def _idle(self) -> BaseException | None:
        with self._changed:
            while self._busy:
                self._changed.wait()
            error, self._error = self._error, None
        return error

    def _work(self, at: int) -> None:
        while (task := self._queues[at].get()) is not None:
            work, what = task
            try:
                if self._error is None:
                    work(what)
            except BaseException as error:  # noqa: BLE001 - whoever settles raises it, a SystemExit too
                with self._changed:
                    self._error = self._error or error
            finally:
                self._room[at].release()
                with self._changed:
                    self._busy -= 1
                    if not self._busy:
                        self._changed.notify_all()

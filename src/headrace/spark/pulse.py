"""Whether Spark's process still answers, asked while it starts and beside the batches, however long these take.

In: a question that takes no time, and what ends the process. Out: for how long the question has been open, told every
now and then; past a limit the process is ended, and whoever waits for it hears of that.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from pyspark import SparkContext
from pyspark.sql import SparkSession

from headrace.errors import ApplyInterrupted
from headrace.spark.session import is_remote

__all__ = ["Pulse", "pulse_of", "pulse_of_start"]

_LOOKS = 30
"""Looks at an open question before the limit is reached."""
_TURN_S = 0.1
"""Between two looks whether a process that starts can be asked."""
_STARTED_BY_SPARK = b"_PYSPARK_DRIVER_CONN_INFO_PATH="
"""What PySpark gives its JVM, and nothing else that this process starts, into its environment."""


class Pulse:
    """Asks and looks, each on a thread of its own, inside a ``with`` block.

    An error that leaves the block of a process that was ended becomes `ApplyInterrupted`.

    Args:
        ask: asks the question, and returns when it is answered.
        end: ends the process.
        tell: told at each look for how many seconds the question has been open, 0 when it is not.
        limit_s: that a question may be open. What passes while this process itself stands still, as in a machine that
            sleeps, does not count.
    """

    def __init__(
        self,
        ask: Callable[[], object],
        end: Callable[[], None],
        tell: Callable[[float], None],
        limit_s: float,
    ) -> None:
        self._ask = ask
        self._end = end
        self._tell = tell
        self._limit_s = limit_s
        self._look_s = limit_s / _LOOKS
        self._closed = threading.Event()
        self._asked = self._answered = 0
        self._ended = False
        # A question that is never answered holds up no end of the process.
        self._asker = threading.Thread(target=self._go_on_asking, name="pulse-ask", daemon=True)
        self._looker = threading.Thread(target=self._look, name="pulse-look", daemon=True)

    def __enter__(self) -> Self:
        self._asker.start()
        self._looker.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._closed.set()
        self._looker.join()
        if self._ended and isinstance(error, Exception):
            raise ApplyInterrupted(
                f"Spark's process answered nothing for {self._limit_s:g} s, and was ended.",
                next_step="nothing is lost, it is started again; if it happens often, give the machine room and "
                "Spark more memory (spark.driver_memory).",
            ) from error

    def _go_on_asking(self) -> None:
        while not self._closed.wait(self._look_s):
            self._asked += 1
            try:
                self._ask()
            except Exception:  # noqa: BLE001 - that it is gone is heard by whoever needs it
                return
            finally:
                self._answered = self._asked

    def _look(self) -> None:
        open_s, number = 0.0, 0
        while not self._closed.wait(self._look_s):
            asked, answered = self._asked, self._answered
            open_s = open_s + self._look_s if answered < asked == number else 0.0
            number = asked
            self._tell(open_s)
            if open_s >= self._limit_s:
                self._ended = True
                self._end()
                return


def pulse_of(session: SparkSession, tell: Callable[[float], None], limit_s: float) -> Pulse:
    """Return the pulse of a session's Spark.

    A server of Spark Connect is not asked: its connection has limits of its own. A process that this one did not start
    is asked, and not ended.
    """
    if is_remote(session):
        return Pulse(_nothing, _nothing, tell, limit_s)
    java: Any = session._jvm
    process = getattr(session.sparkContext._gateway, "proc", None)
    return Pulse(
        java.java.lang.System.currentTimeMillis,
        process.kill if process else _nothing,
        tell,
        limit_s,
    )


@contextlib.contextmanager
def pulse_of_start(limit_s: float) -> Iterator[None]:
    """Look after Spark's process while the block starts it, which is asked as soon as it can be.

    What the process waits for by itself, as for its place in a cluster, may take longer.
    """
    over = threading.Event()

    def ask() -> None:
        while (gateway := SparkContext._gateway) is None:
            if over.wait(_TURN_S):
                return
        java: Any = gateway.jvm
        java.java.lang.System.currentTimeMillis()

    try:
        with Pulse(ask, _end_what_starts, lambda _open_s: None, limit_s):
            yield
    finally:
        over.set()


def _end_what_starts() -> None:
    """End the JVM that this process started, or starts; that is found on Linux only."""
    gateway = SparkContext._gateway
    if gateway is not None:
        if (process := getattr(gateway, "proc", None)) is not None:
            process.kill()
        return
    for children in Path("/proc/self/task").glob("*/children"):
        for pid in children.read_text(encoding="ascii").split():
            with contextlib.suppress(OSError):
                if _STARTED_BY_SPARK in Path(f"/proc/{pid}/environ").read_bytes():
                    os.kill(int(pid), signal.SIGKILL)


def _nothing() -> None:
    pass

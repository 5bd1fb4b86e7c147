"""The open log: one blocking thread reads, decodes, and keeps where it has got to in a file of ours.

A server of this kind keeps no place for us. So what is acknowledged is written here, and a log that the server has
removed in between is lost by name.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from headrace.durable import replace_file
from headrace.errors import SourceUnavailable
from headrace.sources.base import LogItem
from headrace.sources.mysql.assembler import Assembler
from headrace.sources.mysql.dump import Dump
from headrace.sources.mysql.position import Resume
from headrace.sources.mysql.prepared import HeldTransactions

__all__ = ["AcknowledgedPosition", "MysqlLogReader"]

# An idle log moves its covered SCN at most this often.
_QUIET_S = 0.5
_HAND_OVER_S = 0.05
"""For how long a log is read on that never rests, perhaps in changes of tables that nobody keeps."""


class AcknowledgedPosition:
    """The place up to which everything is durable here, in a file that outlives a power cut.

    Args:
        path: of the file; its folder must exist.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> Resume | None:
        """Return the place, None when nothing was ever acknowledged.

        Raises:
            ConfigError: the file does not read.
        """
        try:
            text = self._path.read_text()
        except FileNotFoundError:
            return None
        return Resume.parse(text)

    def forget(self) -> None:
        """Remove the file, as if nothing had ever been acknowledged."""
        self._path.unlink(missing_ok=True)

    def write(self, position: str) -> None:
        """Keep a place; durable when it returns."""
        replace_file(self._path, position.encode())


class MysqlLogReader:
    """An open binary log. Used from one thread.

    Args:
        dump: the log, from the acknowledged place on; becomes ours.
        assembler: begins there, too.
        acknowledged: where that place is kept.
        held: what distributed transactions changed; durable before a place behind it is written.
        silence_s: a server that says nothing for so long while we wait, not even that it is there, is gone.
        interval_s: least time between two writes of it; what is not written yet comes again after a crash.
    """

    def __init__(
        self,
        dump: Dump,
        assembler: Assembler,
        acknowledged: AcknowledgedPosition,
        held: HeldTransactions,
        silence_s: float,
        interval_s: float = 0.2,
    ) -> None:
        self._dump = dump
        self._assembler = assembler
        self._acknowledged = acknowledged
        self._held = held
        self._silence_s = silence_s
        self._silent_s = 0.0
        self._interval_s = interval_s
        self._pending: str | None = None
        self._next_write = 0.0
        self._next_quiet = 0.0
        # Its thread begins with its first work.
        self._beside = ThreadPoolExecutor(1, "headrace-binlog")

    def poll(self, timeout_s: float) -> LogItem | None:
        """Return what has arrived; see `headrace.sources.base.LogReader`."""
        deadline = time.monotonic() + timeout_s
        assembler = self._assembler
        while True:
            self.keep_alive()
            enough = time.monotonic() + _HAND_OVER_S
            while not assembler.full:
                if assembler.recalls:
                    assembler.recall()
                    continue
                now = time.monotonic()
                due = assembler.has_output and not assembler.open
                if now >= enough and (due or now >= deadline):
                    break
                wait = 0.0 if due else min(deadline, self._next_wake(now)) - now
                if not self._dump.ready(wait):
                    # A machine that stood still says nothing of the server: no more than was waited for.
                    self._heard_nothing(min(wait, time.monotonic() - now))
                    break
                self._silent_s = 0.0
                # Also where the bytes before ended inside a packet: what has come since may still be alike.
                if assembler.expects_alike and (
                    self._dump.hand(assembler.add_alike)
                    # Of a transaction that has not come whole, the rest may be there by now: taken at once, it costs a
                    # quarter of what it does event by event.
                    or (self._dump.more() and self._dump.hand(assembler.add_alike))
                ):
                    continue
                event = self._dump.next(0.0)
                if event is None:
                    break
                assembler.add(event)
            if assembler.has_output and (assembler.full or not assembler.open):
                return self._taken()
            now = time.monotonic()
            if now >= self._next_quiet and (item := assembler.quiet()) is not None:
                self._next_quiet = now + _QUIET_S
                return item
            if now >= deadline:
                return assembler.take() if assembler.has_output else None

    def acknowledge(self, position: str) -> None:
        """Keep that everything up to ``position`` is durable; written at once, or soon."""
        self._pending = position
        self.keep_alive()

    def keep_alive(self) -> None:
        """Write down what was acknowledged, when that is due."""
        if self._pending is not None and time.monotonic() >= self._next_write:
            self._write()

    def close(self) -> None:
        """Release the connection; what was acknowledged is written."""
        if self._pending is not None:
            self._write()
        self._beside.shutdown()
        self._dump.close()

    def _taken(self) -> LogItem:
        """Return everything so far; amid much that is alike, the next bytes are received meanwhile."""
        assembler = self._assembler
        if not (assembler.full and assembler.expects_alike):
            return assembler.take()
        received = self._beside.submit(self._dump.more)
        try:
            return assembler.take()
        finally:
            # Waits; what was wrong with the connection is found again by whoever reads next.
            received.exception()

    def _heard_nothing(self, waited_s: float) -> None:
        self._silent_s += waited_s
        if self._silent_s > self._silence_s:
            raise SourceUnavailable(
                f"The server has said nothing for {self._silent_s:.0f} s.",
                next_step="nothing: the log is opened again.",
            )

    def _write(self) -> None:
        assert self._pending is not None
        resume = Resume.parse(self._pending)
        self._held.sync(resume)
        self._acknowledged.write(self._pending)
        self._held.settle(resume)
        self._pending = None
        self._next_write = time.monotonic() + self._interval_s

    def _next_wake(self, now: float) -> float:
        """Return when something is to be done although nothing comes."""
        wake = now + _QUIET_S
        return wake if self._pending is None else min(wake, self._next_write)

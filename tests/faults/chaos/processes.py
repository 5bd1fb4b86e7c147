"""Processes that are killed and frozen, and a keeper that starts those again that a supervisor would."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self

from headrace.replicator.worker import EXIT_RETRY
from tests.waiting import until

__all__ = ["Keeper", "Running", "lasting_port"]

ROOT = Path(__file__).parents[3]
_LOOK_S = 0.05
_AGAIN_S = 0.2
_END_S = 30.0


class Running:
    """One process, which is started again when it was killed.

    Args:
        name: of it.
        role: what it is for; several processes may have the same.
        words: of its command, behind ``python -m``.
        output: file of everything that it says.

    Attributes:
        kills: how often it was killed here.
        again: how often it ended because it wanted to be started again.
        wrong: how it ended by itself otherwise.
    """

    def __init__(self, name: str, role: str, words: tuple[str, ...], output: Path) -> None:
        self.name, self.role, self.output = name, role, output
        self._argv = [sys.executable, "-m", *words]
        self._lock = threading.Lock()
        self._again_at = 0.0
        self.kills = self.again = 0
        self.wrong = ""
        self._start()

    @property
    def pid(self) -> int:
        """Of the process that runs now, or ran last."""
        return self._process.pid

    def kill(self) -> bool:
        """Kill it, start it again, and return whether it was the kill that ended it."""
        with self._lock:
            self._process.kill()
            killed = self._process.wait() == -signal.SIGKILL
            self.kills += killed
            self._start()
            return killed

    @contextmanager
    def frozen(self) -> Iterator[bool]:
        """Stop it inside the block; tells whether the kernel says so of every thread."""
        with self._lock:
            self._process.send_signal(signal.SIGSTOP)
            try:
                yield self._stands_still()
            finally:
                self._process.send_signal(signal.SIGCONT)

    def look(self) -> None:
        """Start it again if it ended and asked for that; remember any other end."""
        with self._lock:
            code = self._process.poll()
            if code is None or self.wrong:
                return
            if code != EXIT_RETRY:
                self.wrong = f"{self.name} ended with {code}: {self.last_words()}"
            elif not self._again_at:
                self._again_at = time.monotonic() + _AGAIN_S
            elif time.monotonic() >= self._again_at:
                self.again += 1
                self._start()

    def end(self) -> None:
        """Ask it to end, and kill it when it does not."""
        self._process.send_signal(signal.SIGCONT)
        self._process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        self._process.kill()
        self._process.wait()

    def said(self, *words: bytes) -> int:
        """Return how often it has said one of some words."""
        text = self.output.read_bytes()
        return sum(text.count(word) for word in words)

    def last_words(self) -> str:
        """Return the end of its output."""
        return self.output.read_text(errors="replace")[-2000:]

    def _start(self) -> None:
        self._again_at = 0.0
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=ROOT,
                env=os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            )

    def _stands_still(self) -> bool:
        """Wait until every thread is stopped; False when the process has ended instead."""
        tasks = Path(f"/proc/{self.pid}/task")

        def states() -> set[str]:
            # The name of a program may hold anything, blanks and brackets too; the state stands behind it.
            return {
                (task / "stat").read_text().rpartition(")")[2].split()[0]
                for task in tasks.iterdir()
            }

        with suppress(OSError):
            until(lambda: states() <= {"T", "Z"}, f"{self.name} is stopped")
            return "T" in states()
        return False


class Keeper:
    """Looks after processes from a thread of its own, and ends them together with the block."""

    def __init__(self) -> None:
        self.processes: list[Running] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look_after, name="keeper")

    def start(self, process: Running) -> Running:
        """Take a process over."""
        self.processes.append(process)
        return process

    def of(self, role: str) -> list[Running]:
        """Return the processes of a role."""
        return [process for process in self.processes if process.role == role]

    def check(self) -> None:
        """Raise when a process ended that neither was killed nor asked to be started again.

        Raises:
            AssertionError: one did; it says what that one said last.
        """
        wrong = [process.wrong for process in self.processes if process.wrong]
        assert not wrong, "\n".join(wrong)

    def kills(self) -> Counter[str]:
        """Return how often each process was killed."""
        return Counter({process.name: process.kills for process in self.processes})

    def end(self) -> None:
        """End every process; they stay ended."""
        self._stop.set()
        self._thread.join()
        for process in reversed(self.processes):
            process.end()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def _look_after(self) -> None:
        while not self._stop.wait(_LOOK_S):
            for process in self.processes:
                process.look()


def lasting_port(rng: random.Random) -> int:
    """Return a free port that no outgoing connection is given while its server is away."""
    dynamic = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text()
    below = int(dynamic.split()[0])
    while True:
        port = rng.randrange(max(1024, below - 10_000), below)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port

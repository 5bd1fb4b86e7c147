"""Several processes that share a relay's port over the same files.

They are started, started again when they die, and ended together. The kernel spreads connections over them. A worker
hears of its parent's end by the end of its standard input, so none is left behind.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import HeadraceError, RelayUnavailable
from headrace.relay.server.serve import bound, check_tls, serve
from headrace.relay.server.settings import RelaySettings

__all__ = ["run_relay"]

_POLL_S = 0.1
_AGAIN_S = 0.2
_LONGEST_S = 5.0
_HEALTHY_S = 10.0
_MOST_DEATHS = 8
_GRACE_S = 15.0
_EXIT_SHUT_DOWN = 3
_SWITCH_S = 0.0005
"""The look-out thread waits no longer than this for the loop's; Python's own 5 ms would be seen as latency."""

Told = Callable[[str, dict[int, int]], None]
"""Hears the relay's URL, and the process id of each worker."""


def run_relay(
    settings: RelaySettings, stop: threading.Event, told: Told = lambda _url, _pids: None
) -> None:
    """Serve until ``stop`` is set or the command ``shutdown`` comes.

    Raises:
        ConfigError: the settings cannot be used.
        RelayUnavailable: the address is taken, or workers die as soon as they start.
    """
    settings.validate()
    check_tls(settings)
    listening = bound(settings)
    host, port = settings.host, listening.getsockname()[1]
    url = f"{'https' if settings.certificate else 'http'}://{host}:{port}"
    if settings.workers == 1:
        sys.setswitchinterval(_SWITCH_S)
        serve(settings, listening, stop, started=lambda: told(url, {}))
        return
    # Bound but not listening: the port stays ours while workers come and go.
    with (
        listening,
        tempfile.TemporaryDirectory(prefix="headrace-relay-", ignore_cleanup_errors=True) as counts,
    ):
        workers = [_Worker(number, Path(counts)) for number in range(settings.workers)]
        _look_after(workers, settings, port, stop, url, told)


@dataclass(slots=True)
class _Worker:
    """One process.

    Attributes:
        number: of it, from 0.
        counts: folder in which the workers tell each other what they count.
        process: None while there is none.
        started_at: monotonic seconds.
        again_at: when to start it.
        deaths: in a row.
    """

    number: int
    counts: Path
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    again_at: float = 0.0
    deaths: int = 0

    def start(self, settings: RelaySettings, port: int) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(self.number), str(port), str(self.counts)],
            stdin=subprocess.PIPE,
        )
        self.started_at = time.monotonic()
        if self.process.stdin is not None:
            # Not as an argument: everybody on the machine reads those, and tokens are secrets.
            pickle.dump(settings, self.process.stdin)
            self.process.stdin.flush()

    def has_died(self) -> int | None:
        """Return the exit code of a process that has ended since the last look."""
        if self.process is None or (code := self.process.poll()) is None:
            return None
        self.process = None
        now = time.monotonic()
        self.deaths = 1 if now - self.started_at > _HEALTHY_S else self.deaths + 1
        self.again_at = now + min(_AGAIN_S * 2 ** (self.deaths - 1), _LONGEST_S)
        return code


def _look_after(
    workers: list[_Worker],
    settings: RelaySettings,
    port: int,
    stop: threading.Event,
    url: str,
    told: Told,
) -> None:
    try:
        while not stop.is_set():
            for worker in workers:
                if worker.has_died() == _EXIT_SHUT_DOWN:
                    return
                if worker.deaths >= _MOST_DEATHS:
                    raise RelayUnavailable(
                        f"Worker {worker.number} of the relay ended {worker.deaths} times in a row.",
                        next_step="see what it said above.",
                    )
                if worker.process is None and time.monotonic() >= worker.again_at:
                    worker.start(settings, port)
            told(url, {w.number: w.process.pid for w in workers if w.process is not None})
            stop.wait(_POLL_S)
    finally:
        _end(workers)


def _end(workers: list[_Worker]) -> None:
    """Ask every worker to end, and kill what does not."""
    living = [worker.process for worker in workers if worker.process is not None]
    for process in living:
        process.terminate()
    deadline = time.monotonic() + _GRACE_S
    for process in living:
        try:
            process.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _work(number: int, port: int, counts: Path) -> int:
    """Be one worker, and return its exit code."""
    # The terminal's Ctrl-C reaches all of the group; the parent alone decides what happens then.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda _number, _frame: stop.set())
    settings: RelaySettings = pickle.load(sys.stdin.buffer)
    threading.Thread(target=_end_with_parent, args=(stop,), daemon=True).start()
    sys.setswitchinterval(_SWITCH_S)
    shut_down = threading.Event()

    def end_all() -> None:
        shut_down.set()
        stop.set()

    try:
        listening = bound(settings, port)
        serve(settings, listening, stop, worker=number, shut_down=end_all, counts=counts)
    except HeadraceError as error:
        print(f"relay worker {number}: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return _EXIT_SHUT_DOWN if shut_down.is_set() else 0


def _end_with_parent(stop: threading.Event) -> None:
    # Past Python's buffer, whose lock this thread would still hold when the process ends.
    while os.read(sys.stdin.fileno(), 1):
        pass
    stop.set()


if __name__ == "__main__":
    sys.exit(_work(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])))

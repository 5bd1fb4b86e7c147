"""Starts the processes of a replicator, restarts what dies, and stops them together.

In: the commands to run and the state folder. Out: running children in their own process groups, log
files that stay small, or the error of a child that needs a person. It has no thread: the
caller polls it between whatever else it does (drawing, waiting for the end of a dump).
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from headrace.errors import HeadraceError, StateError
from headrace.observe.status import ProcessStatus, restore_error
from headrace.replicator import lock, orphans
from headrace.replicator.paths import StatePaths
from headrace.replicator.retries import RestartPolicy, Streak, worked_s
from headrace.replicator.worker import EXIT_OK, EXIT_RETRY, EXIT_STOP

__all__ = ["ChildSpec", "Supervisor", "all_lines", "last_lines", "shorten"]

_LOG_LIMIT_BYTES = 4 * 2**20
_LOG_KEPT_BYTES = 2**20


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to keep running: its role and its command."""

    name: str
    argv: tuple[str, ...]


@dataclass(slots=True)
class _Child:
    spec: ChildSpec
    process: subprocess.Popen[bytes] | None = None
    started_at: float = 0.0
    start_again_at: float = 0.0
    streak: Streak = field(default_factory=Streak)
    restarts: int = 0
    last_error: str = field(default="")


class Supervisor:
    """Owns the children of one state folder; use it in a ``with`` block.

    Entering takes the folder's lock and ends what an earlier run left behind; leaving stops all.

    Raises:
        LeaseLost: on entering, when another supervisor runs on the folder.
    """

    def __init__(
        self,
        paths: StatePaths,
        specs: Sequence[ChildSpec],
        *,
        policy: RestartPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._paths = paths
        self._policy = policy or RestartPolicy()
        self._clock = clock
        self._children = [_Child(spec) for spec in specs]
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Supervisor:
        self._paths.create()
        self._stack.enter_context(lock.held(self._paths.lock("run"), "headrace run"))
        try:
            orphans.end_orphans(self._paths.root)
            for child in self._children:
                # What a dead process said last would be taken for the new one's word.
                self._paths.status(child.spec.name).unlink(missing_ok=True)
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            self.stop()
        finally:
            self._stack.close()

    @property
    def restarts(self) -> dict[str, int]:
        """How often each child was started again."""
        return {child.spec.name: child.restarts for child in self._children}

    @property
    def pids(self) -> dict[str, int]:
        """Process ids of the children that live."""
        return {c.spec.name: c.process.pid for c in self._children if c.process is not None}

    @property
    def waiting(self) -> dict[str, str]:
        """Children that wait for a restart, with the error they died of."""
        return {
            c.spec.name: c.last_error
            for c in self._children
            if c.process is None and c.streak.deaths
        }

    def poll(self) -> None:
        """Look after the children once; call it a few times a second.

        Raises:
            HeadraceError: the error of a child that a person must look at.
        """
        for child in self._children:
            if child.process is None:
                if self._clock() >= child.start_again_at:
                    self._start(child)
            elif (code := child.process.poll()) is not None:
                self._buried(child, code)
            shorten(self._paths.log(child.spec.name))

    def stop(self, timeout_s: float = 20.0) -> None:
        """Ask every child to end, and kill what does not in time."""
        living = [c for c in self._children if c.process is not None]
        for child in living:
            # Only the leader: it ends what is below it in the right order.
            if child.process is not None:
                child.process.terminate()
        deadline = time.monotonic() + timeout_s
        for child in living:
            process = child.process
            if process is None:
                continue
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.1, deadline - time.monotonic()))
            # The leader may be gone while a JVM or worker of its group is not.
            _signal_group(process, signal.SIGKILL)
            process.wait()
            child.process = None
        orphans.end_orphans(self._paths.root)

    def last_lines(self, name: str, count: int = 15) -> list[str]:
        """Return the end of a child's output."""
        return last_lines(self._paths.log(name), count)

    def _start(self, child: _Child) -> None:
        environment = {
            **os.environ,
            orphans.MARKER: str(self._paths.root),
            orphans.PARENT: str(os.getpid()),
            "PYTHONUNBUFFERED": "1",
        }
        try:
            with self._paths.log(child.spec.name).open("ab") as log:
                child.process = subprocess.Popen(
                    child.spec.argv,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
        except OSError as error:
            raise StateError(
                f"{child.spec.name}: its command cannot be started ({error.strerror}).",
                next_step="check that the state folder can be written; else pip install headrace again.",
            ) from error
        child.started_at = self._clock()
        child.restarts += 1 if child.streak.deaths else 0

    def _buried(self, child: _Child, code: int) -> None:
        process, child.process = child.process, None
        # Nothing of the dead child's group may go on writing beside its successor.
        _signal_group(process, signal.SIGKILL)
        said = ProcessStatus.read(self._paths.status(child.spec.name))
        said = said if said and process and said.pid == process.pid else None
        error = self._error_of(child, said, code)
        if code == EXIT_STOP:
            raise error
        now, streak, policy = self._clock(), child.streak, self._policy
        worked = worked_s(said, now - child.started_at)
        foreseen = code in (EXIT_RETRY, EXIT_OK)
        streak.died(child.started_at, worked, policy, foreseen=foreseen)
        child.last_error = error.message
        if streak.crashes >= policy.crashes:
            raise HeadraceError(
                f"{child.spec.name}: ended {streak.crashes} times in a row; last: {error.message}",
                next_step=error.next_step,
            )
        streak.check(child.spec.name, now, policy, error)
        child.start_again_at = now + policy.delay_s(streak.deaths)

    def _error_of(self, child: _Child, said: ProcessStatus | None, code: int) -> HeadraceError:
        if said and said.error:
            return restore_error(said.error)
        how = f"by signal {-code}" if code < 0 else f"with exit code {code}"
        last = next((line for line in reversed(self.last_lines(child.spec.name)) if line), "")
        return HeadraceError(
            f"{child.spec.name}: the process ended {how}." + (f" It said: {last}" if last else ""),
            next_step=f"see {self._paths.log(child.spec.name)}",
        )


def shorten(log: Path) -> None:
    """Keep the end of a long log; who writes it appends, so cutting under them is safe."""
    try:
        if log.stat().st_size <= _LOG_LIMIT_BYTES:
            return
        with log.open("rb+") as file:
            file.seek(-_LOG_KEPT_BYTES, os.SEEK_END)
            kept = file.read()
            file.seek(0)
            file.write(kept[kept.find(b"\n") + 1 :])
            file.truncate()
    except FileNotFoundError:
        return


def last_lines(log: Path, count: int) -> list[str]:
    """Return the end of a log, nothing where there is none."""
    try:
        with log.open("rb") as file:
            file.seek(-min(_LOG_KEPT_BYTES, log.stat().st_size), os.SEEK_END)
            text = file.read().decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-count:] if count else []


def all_lines(log: Path) -> list[str]:
    """Return all that is kept of a log, nothing where there is none."""
    try:
        return log.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return []


def _signal_group(process: subprocess.Popen[bytes] | None, number: signal.Signals) -> None:
    """Signal a child and everything below it; the child leads its own group."""
    if process is None:
        return
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)

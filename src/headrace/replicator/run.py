"""A running replicator on one host: the supervisor, the picture, and when to end.

The caller turns it: each turn looks after the children, takes a picture and says whether to go on.
``headrace run`` draws between turns, the demo does its own things, tests wait for conditions.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import TracebackType

from headrace.errors import HeadraceError, LeaseLost
from headrace.observe.status import ProcessState, StatusFile, describe_error
from headrace.replicator import runner
from headrace.replicator.config import Config
from headrace.replicator.goal import Goal
from headrace.replicator.paths import StatePaths
from headrace.replicator.picture import ROLES, Observer, Picture
from headrace.replicator.retries import RestartPolicy
from headrace.replicator.supervisor import ChildSpec, Supervisor
from headrace.replicator.watching import Watching

__all__ = ["Run", "child_specs", "failure_noted", "note_end"]

_TURN_S = 0.25


def child_specs(file: Path, config: Config) -> list[ChildSpec]:
    """Return the processes of the replicator that ``file`` describes; a relay only where it has that section."""
    return [
        ChildSpec(
            role,
            (sys.executable, "-m", f"headrace.replicator.{role}_process", str(file.absolute())),
        )
        for role in ROLES
        if role != "relay" or config.relay is not None
    ]


def note_end(config: Config, error: HeadraceError | None = None) -> None:
    """Note in the run's status how it ended; a control plane that did not start it learns it there."""
    paths = StatePaths.of(config)
    # As of the status itself: what cannot be noted does not hide why the run ended.
    with contextlib.suppress(OSError):
        paths.create()
    status = StatusFile(paths.status("run"), "run")
    if error is None:
        status.write(ProcessState.STOPPED, force=True)
    else:
        status.write(ProcessState.FAILED, error=describe_error(error), force=True)


@contextlib.contextmanager
def failure_noted(config: Config) -> Iterator[None]:
    """Note the error that ends the block, unless that is another run, whose status it is then."""
    try:
        yield
    except LeaseLost:
        raise
    except HeadraceError as error:
        note_end(config, error)
        raise


class Run:
    """One run; use it in a ``with`` block.

    Args:
        file: the configuration; the children read it again.
        config: what it holds.
        once: end as soon as the tables show everything that was committed when the run began, and no request waits.
        policy: how dead children come back, before what the file says of it.

    Attributes:
        picture: the newest one.
        is_done: whether it has reached what it was to end with.
    """

    def __init__(
        self, file: Path, config: Config, *, once: bool = False, policy: RestartPolicy | None = None
    ) -> None:
        self._config = config
        self._once = once
        self._stop = threading.Event()
        self._observer = Observer(config)
        paths = StatePaths.of(config)
        policy = config.retry.policy(policy or RestartPolicy())
        self.supervisor = Supervisor(paths, child_specs(file, config), policy=policy)
        self._status = StatusFile(paths.status("run"), "run")
        self._goal: Goal | None = None
        self.is_done = False
        self.picture: Picture = self._observer.look()
        self._watching = Watching(config, lambda: self.picture)

    def __enter__(self) -> Run:
        # First: whoever does not get the folder must not speak for the run that has it.
        self.supervisor.__enter__()
        try:
            self._watching.__enter__()
        except BaseException:
            self.supervisor.__exit__(None, None, None)
            raise
        try:
            if self._once:
                self._goal = Goal.of(*runner.goal(self._config), self._observer.requests())
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with contextlib.closing(self._observer), contextlib.ExitStack() as stack:
            stack.push(self._watching)
            # Before the folder is let go, and before the end is noted: it must not be written over.
            self._status.close()
            if error is not None:
                self._watching.fail(error)
            self.supervisor.__exit__(kind, error, trace)
            if kind is None:
                # What the last batch brought belongs to its own minute.
                self._watching.take(self._observer.look())

    @property
    def note(self) -> str:
        """Children that are about to be started again, and why."""
        return "; ".join(
            f"{name} is started again: {why}" for name, why in self.supervisor.waiting.items()
        )

    def end_on_signals(self) -> None:
        """Make Ctrl-C and SIGTERM end the run at its next turn."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda _number, _frame: self._stop.set())

    def end(self) -> None:
        """Make the next turn the last."""
        self._stop.set()

    def turn(self) -> bool:
        """Look after everything once; false when the run is over.

        Raises:
            HeadraceError: a child needs a person, or a request that the run waits for failed.
        """
        self.supervisor.poll()
        self._status.write(
            ProcessState.RUNNING,
            {"restarts": self.supervisor.restarts, "waiting": self.supervisor.waiting},
        )
        self.picture = self._observer.look()
        self._watching.take(self.picture)
        if self._stop.is_set():
            return False
        self.is_done = self.reached()
        if self.is_done:
            return False
        self._stop.wait(_TURN_S)
        return True

    def reached(self) -> bool:
        """Whether a run with a goal may end."""
        if self._goal is None:
            return False
        seen, capture = self._observer, self.picture.roles.get("capture")
        goal = replace(self._goal, scn=self._goal.scn + seen.offset())
        progress, requests = seen.progress(), seen.requests()
        # In this order: whatever those that have ended read is told.
        reached = goal.is_reached(self.picture, progress, requests, seen.read_scn())
        # Before the log was opened, a restored source may look as if nothing were to be done.
        opened = capture is not None and "covered_scn" in capture.detail
        return reached and opened and not self.picture.resync

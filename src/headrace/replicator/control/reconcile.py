"""Brings what runs nearer to what is wanted, one small step per replicator and turn.

In: the replicators as they are noted, and the processes that there are. Out: processes started, ended, adopted, and
where each replicator is by now. Nothing is remembered here that must outlive the process: whoever is killed between two
steps, or in the middle of one, is followed by one that looks at the same two things and goes on. A step that was done
already changes nothing.
"""

from __future__ import annotations

import contextlib
import logging
import signal
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from headrace.errors import ConfigError, HeadraceError, LeaseLost, Retry, StateError
from headrace.observe.failpoints import failpoint
from headrace.observe.status import ProcessState, ProcessStatus, describe_error, restore_error
from headrace.replicator import orphans
from headrace.replicator.control import processes
from headrace.replicator.control.folders import Folders, ReplicatorFolder
from headrace.replicator.control.lifecycle import Desired, Running, State, Step, next_step
from headrace.replicator.control.processes import RunProcess
from headrace.replicator.control.records import Deployed, Lease
from headrace.replicator.control.references import names_in, redacted
from headrace.replicator.control.removal import remove
from headrace.replicator.control.store import ControlStore
from headrace.replicator.retries import RestartPolicy, RetryConfig, Streak
from headrace.replicator.roles import read_role
from headrace.replicator.supervisor import last_lines, shorten
from headrace.state.store import StateStore

__all__ = ["Care", "Launch", "Limits", "Reconciler"]

Launch = Callable[[Path], Sequence[str]]
"""Returns the command that runs the replicator of a configuration file."""

_log = logging.getLogger(__name__)

_SCAN_S = 5.0
_LOADS_S = 120.0
_REMOVALS = 4


@dataclass(frozen=True, slots=True)
class Limits:
    """What processes may take.

    Attributes:
        restarts: how soon and how often a dead one comes back.
        stop_s: how long one has to end before it is killed.
        starting: how many may load at the same time; the others wait for their turn, two minutes at most for each.
    """

    restarts: RestartPolicy = field(default_factory=RestartPolicy)
    stop_s: float = 60.0
    starting: int = 4


@dataclass(slots=True)
class Care:
    """What is remembered of one replicator between turns; all of it may be lost.

    Attributes:
        process: that runs, or ran when it was last looked at.
        started_at: when it was started or adopted, on the clock of the turns.
        ready_at: when it was last seen to do its work.
        kill_at: when it is killed unless it has ended; None while it may live.
        streak: ends in a row that nobody asked for, and steps that failed.
        again_at: when the next step may be tried.
        removal: the work of removing it, under way.
        removes: the replicator as it was noted when that began.
    """

    process: RunProcess | None = None
    started_at: float = 0.0
    ready_at: float = 0.0
    kill_at: float | None = None
    streak: Streak = field(default_factory=Streak)
    again_at: float = 0.0
    removal: Future[None] | None = field(default=None, repr=False)
    removes: Deployed | None = None

    def backed_off(self, now: float, policy: RestartPolicy) -> None:
        """Count one more step that failed, and wait longer than after the one before."""
        self.streak.died(now, 0.0, policy, foreseen=True)
        self.again_at = now + policy.delay_s(self.streak.deaths)


class Reconciler:
    """Looks after the replicators of one control plane; used from one thread.

    Args:
        store: where they are noted.
        folders: where they live.
        launch: gives the command of each.
        environment: of their processes.
        limits: what they may take.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: ControlStore,
        folders: Folders,
        launch: Launch,
        environment: Mapping[str, str],
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._folders = folders
        self._launch = launch
        self._environment = environment
        self._limits = limits
        self._clock = clock
        self._cares: dict[int, Care] = {}
        self._strays: dict[int, tuple[RunProcess, float]] = {}
        self._foreign: set[Path] = set()
        self._scan_at = 0.0
        self._loading = 0
        self._removing = ThreadPoolExecutor(_REMOVALS, thread_name_prefix="remove")

    def turn(self, lease: Lease) -> list[Deployed]:
        """Look after everything once, and return the replicators as they were noted before.

        Raises:
            LeaseLost: another control plane has taken over; nothing more was touched.
            StateError: the database does not answer.
        """
        noted = self._store.replicators()
        if self._clock() >= self._scan_at:
            self._scan(noted)
            self._scan_at = self._clock() + _SCAN_S
        self._loading = sum(map(self._loads, noted))
        for row in noted:
            self._look_after(lease, row)
        for number in self._cares.keys() - {row.number for row in noted}:
            del self._cares[number]
        self._end_strays()
        return noted

    def processes(self) -> dict[int, int]:
        """Return the process ids of those that live, by number of their replicator."""
        # A copy: whoever asks is another thread.
        return {
            number: care.process.pid
            for number, care in list(self._cares.items())
            if care.process is not None
        }

    def forget(self) -> None:
        """Forget every process, which goes on; the next turn adopts what it finds.

        What is being removed goes on too, and is not begun a second time beside that.
        """
        self._cares = {
            number: Care(removal=care.removal, removes=care.removes)
            for number, care in self._cares.items()
            if care.removal is not None
        }
        self._scan_at = 0.0

    def close(self) -> None:
        """Wait for what is being removed."""
        self._removing.shutdown()

    # -- processes --------------------------------------------------------------------------------

    def _care(self, row: Deployed) -> Care:
        return self._cares.setdefault(row.number, Care())

    def _loads(self, row: Deployed) -> bool:
        """Whether a process loads; one that takes too long to do so holds no other up."""
        care = self._care(row)
        begun = self._clock() - care.started_at < _LOADS_S
        return care.process is not None and row.state is State.STARTING and begun

    def _scan(self, noted: Sequence[Deployed]) -> None:
        """Find every process that is ours; adopt one per replicator, and let the rest end.

        Of a name that is not noted at all another database may tell: such a process is left alone.
        """
        found = processes.find(self._folders.replicators)
        wanted = {self._folders.of(row).root: row for row in noted}
        names = {folder.parent for folder in wanted}
        for folder, running in found.items():
            row = wanted.get(folder)
            if folder.parent not in names:
                if folder not in self._foreign:
                    _log.warning("%s: runs, and this database does not know it", folder)
                self._foreign.add(folder)
                continue
            care = self._care(row) if row else None
            for process in sorted(running, key=lambda one: int(one.birth)):
                if care is not None and care.process is None:
                    care.process, care.started_at, care.kill_at = process, self._clock(), None
                elif care is None or care.process is None or care.process.pid != process.pid:
                    self._strays.setdefault(process.pid, (process, 0.0))

    def _end_strays(self) -> None:
        """End processes of replicators that are gone, and second ones, which wait for a lock and do nothing."""
        for pid, (process, kill_at) in list(self._strays.items()):
            if not process.lives():
                del self._strays[pid]
            elif not kill_at:
                process.signal(signal.SIGTERM)
                self._strays[pid] = (process, self._clock() + self._limits.stop_s)
            elif self._clock() >= kill_at:
                process.signal(signal.SIGKILL)

    # -- one replicator ---------------------------------------------------------------------------

    def _look_after(self, lease: Lease, row: Deployed) -> None:
        care, folder = self._care(row), self._folders.of(row)
        try:
            row = self._buried(lease, row, care, folder) or row
            step = next_step(row.desired, row.revision, row.state, self._running(care, folder))
            self._carry_out(step, lease, row, care, folder)
            if row.reason and step is Step.NONE and row.state in (State.RUNNING, State.PAUSED):
                # What was in the way is no more.
                self._moved(lease, row, row.state)
        except LeaseLost:
            raise
        except HeadraceError as error:
            # Where it is the database that fails, so does the note, and the turn ends.
            care.backed_off(self._clock(), self._limits.restarts)
            self._moved(lease, row, row.state, str(error))
        except OSError as error:
            care.backed_off(self._clock(), self._limits.restarts)
            self._moved(lease, row, row.state, f"Its folder cannot be used ({error.strerror}).")
        except Exception as error:  # noqa: BLE001 - the others are looked after all the same
            care.backed_off(self._clock(), self._limits.restarts)
            frames = "".join(traceback.format_tb(error.__traceback__))
            _log.error("%s: %s\n%s", row.full_name, type(error).__name__, frames)
            self._moved(lease, row, row.state, describe_error(error)["message"])

    def _running(self, care: Care, folder: ReplicatorFolder) -> Running | None:
        if care.process is None:
            return None
        said = ProcessStatus.read(folder.state.status("run"))
        mine = said is not None and said.pid == care.process.pid
        ready = mine and said is not None and said.state is ProcessState.RUNNING
        if ready:
            care.ready_at = self._clock()
            if care.ready_at - care.started_at >= self._limits.restarts.healthy_s:
                care.streak = Streak()
        return Running(care.process.revision, ready)

    def _carry_out(
        self, step: Step, lease: Lease, row: Deployed, care: Care, folder: ReplicatorFolder
    ) -> None:
        if step is Step.START:
            self._start(lease, row, care, folder)
        elif step is Step.END:
            self._end(lease, care)
        elif step is Step.DELIVER:
            # Who was frozen for long tells nobody what was wanted then.
            if not self._moved(lease, row, row.state, row.reason):
                return
            paused = row.desired is Desired.PAUSED
            _deliver(folder, paused=paused)
            failpoint("control.delivered")
            # Who waits for the pause waits until nothing comes any more.
            if not (paused and _still_streams(folder)):
                self._moved(lease, row, State.PAUSED if paused else State.RUNNING)
        elif step is Step.REST:
            # Whoever starts it again does not wait for an attempt of before.
            care.streak, care.again_at = Streak(), 0.0
            self._moved(lease, row, State.STOPPED)
        elif step is Step.REMOVE:
            self._remove(lease, row, care, folder)
        if care.process is not None:
            shorten(folder.log)

    def _start(self, lease: Lease, row: Deployed, care: Care, folder: ReplicatorFolder) -> None:
        if self._clock() < care.again_at or self._loading >= self._limits.starting:
            return
        # Also where nothing changes: who was frozen for long is shut out here, and starts nothing.
        if not self._moved(lease, row, State.STARTING, row.reason):
            return
        failpoint("control.before_start")
        file = folder.write(row)
        failpoint("control.rendered")
        _deliver(folder, paused=row.desired is Desired.PAUSED)
        care.process = processes.start(
            self._launch(file), folder.root, row.revision, folder.log, self._environment
        )
        care.started_at, care.kill_at = self._clock(), None
        self._loading += 1
        failpoint("control.started")

    def _end(self, lease: Lease, care: Care) -> None:
        if care.process is None:
            return
        if care.kill_at is None:
            # Nobody's process is ended by who has lost the lease.
            self._check(lease)
            care.process.signal(signal.SIGTERM)
            failpoint("control.terminated")
            care.kill_at = self._clock() + self._limits.stop_s
        elif self._clock() >= care.kill_at:
            care.process.signal(signal.SIGKILL)

    def _buried(
        self, lease: Lease, row: Deployed, care: Care, folder: ReplicatorFolder
    ) -> Deployed | None:
        """See to a process that has ended; return the replicator as it is noted then, None where nothing changed."""
        process = care.process
        if process is None or process.lives():
            return None
        self._check(lease)
        # What is below it goes with it, so that nothing writes beside a successor.
        orphans.end_orphans(folder.state.root)
        asked, care.process, care.kill_at = care.kill_at is not None, None, None
        failpoint("control.ended")
        if asked or row.desired in (Desired.STOPPED, Desired.DELETED):
            care.streak, care.again_at = Streak(), 0.0
            return None
        error, foreseen = _how_it_ended(process, folder)
        now, streak = self._clock(), care.streak
        policy = _retry(row, folder).policy(self._limits.restarts)
        worked = max(0.0, care.ready_at - care.started_at)
        streak.died(care.started_at, worked, policy, foreseen=foreseen)
        care.again_at = now + policy.delay_s(streak.deaths)
        try:
            if foreseen and error.retry is not Retry.TIMED:
                raise error
            streak.check("Its process", now, policy, error)
        except HeadraceError as last:
            self._failed(lease, row, str(last))
        else:
            if streak.crashes >= policy.crashes:
                self._failed(lease, row, f"It ended {streak.crashes} times in a row; last: {error}")
            else:
                self._moved(lease, row, State.STARTING, f"It is started again: {error}")
        return self._store.replicator(row.namespace, row.name)

    def _failed(self, lease: Lease, row: Deployed, reason: str) -> None:
        care = self._care(row)
        care.streak, care.again_at = Streak(), 0.0
        with self._store.writing(lease) as writer:
            writer.moved(row, State.FAILED, self._redacted(row, reason), Desired.STOPPED)

    def _remove(self, lease: Lease, row: Deployed, care: Care, folder: ReplicatorFolder) -> None:
        if care.removal is None:
            if self._clock() < care.again_at:
                return
            self._check(lease)
            check = partial(self._check, lease)
            care.removes, care.removal = row, self._removing.submit(_removed, row, folder, check)
        if not care.removal.done():
            return
        done, care.removal = care.removal, None
        try:
            done.result()
        except LeaseLost:
            # That with which it was begun; with this one it is begun anew.
            return
        assert care.removes is not None
        with self._store.writing(lease) as writer:
            # As it was noted then: people may have asked for more meanwhile, which is done next.
            writer.forget(care.removes)

    def _check(self, lease: Lease) -> None:
        """Do nothing for who may write, and stop everybody else from what follows.

        Raises:
            LeaseLost: another control plane has taken over.
        """
        with self._store.writing(lease):
            pass

    def _moved(self, lease: Lease, row: Deployed, state: State, reason: str = "") -> bool:
        """Note where a replicator is; false when people have asked for something else meanwhile."""
        reason = self._redacted(row, reason)
        with self._store.writing(lease) as writer:
            if row.state is state and row.reason == reason:
                return writer.unchanged(row)
            return writer.moved(row, state, reason)

    def _redacted(self, row: Deployed, reason: str) -> str:
        return redacted(reason, names_in(row.config), self._environment)


def _deliver(folder: ReplicatorFolder, *, paused: bool) -> None:
    """Have a process take changes, or none; one that does not run finds it when it starts."""
    database = folder.state.database
    if not database.exists() and not paused:
        return
    with contextlib.closing(StateStore(database)) as state:
        if state.pace().log_paused is not paused:
            state.set_pace(log_paused=paused)


def _still_streams(folder: ReplicatorFolder) -> bool:
    """Whether a capture that is there takes changes, as it said last: it has not heard yet that it is not to."""
    said = read_role(folder.state, "capture")
    if said is None or said.state is not ProcessState.RUNNING:
        return False
    return said.detail.get("doing") == "streaming"


def _removed(row: Deployed, folder: ReplicatorFolder, check: Callable[[], None]) -> None:
    orphans.end_orphans(folder.state.root)
    leave = row.leave_source or not _has_begun(folder)
    config = None
    if row.drop_target or not leave:
        try:
            config = folder.config(row)
        except ConfigError as error:
            raise ConfigError(
                f"What it has at source and target cannot be reached: {error.message}",
                next_step=f"{error.next_step} Or delete it again, with its target kept and its source left.",
            ) from error
    remove(folder, config, drop_target=row.drop_target, leave_source=leave, check=check)


def _has_begun(folder: ReplicatorFolder) -> bool:
    """Whether something of a replicator may be at its source."""
    # Capture makes its change log before it makes anything there.
    if folder.state.changelog.exists():
        return True
    if not folder.state.database.exists():
        return False
    # Made by whoever asks for requests, too; or the change log was taken away.
    with (
        contextlib.suppress(StateError),
        contextlib.closing(StateStore(folder.state.database)) as state,
    ):
        return state.get("incarnation") is not None
    return True


def _retry(row: Deployed, folder: ReplicatorFolder) -> RetryConfig:
    """Return how long a replicator is tried; as by default where its configuration does not hold any more."""
    try:
        return folder.config(row).retry
    except ConfigError:
        return RetryConfig()


def _how_it_ended(process: RunProcess, folder: ReplicatorFolder) -> tuple[HeadraceError, bool]:
    """Return the error that a process died of, and whether it was one that it knew."""
    said = ProcessStatus.read(folder.state.status("run"))
    if said is not None and said.pid == process.pid:
        if said.error:
            return restore_error(said.error), True
        if said.state is ProcessState.STOPPED:
            return _Ended("Its process was asked to end by somebody else."), True
    code = process.exit_code()
    how = (
        "ended"
        if code is None
        else f"ended with exit code {code}"
        if code >= 0
        else f"was killed by signal {-code}"
    )
    last = next((line for line in reversed(last_lines(folder.log, 15)) if line.strip()), "")
    said_last = f" It said last: {last.strip()}" if last else ""
    return HeadraceError(f"Its process {how}.{said_last}", next_step="see its log."), False


class _Ended(HeadraceError):
    """A process ended in good order, and was not to."""

    retry = Retry.TIMED

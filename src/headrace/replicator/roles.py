"""What the processes of a replicator said last, and whether they are still there to say anything else.

In: their status files and locks. Out: reports in which a process that was killed is *gone*, however well it was when
it spoke last; why the change log may lack what the source did since; and what apply waits for.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.observe.status import ProcessState, ProcessStatus
from headrace.replicator import lock
from headrace.replicator.paths import StatePaths
from headrace.state.pace import Pace

__all__ = ["held_up", "is_run", "read_role", "reads", "unheard"]

_ALIVE = (ProcessState.STARTING, ProcessState.RUNNING)
_SILENT_S = 60.0
"""A capture that works speaks twice a second; not while it waits for a disk, or writes a table without a key. An apply
job speaks every ten seconds, whatever it does."""
_OPEN_S = 20.0
"""A Spark that works answers within milliseconds, and seldom takes seconds to bring its memory into order."""
_LONG_S = 600.0
"""Age from which a batch is worth a word."""


def is_run(paths: StatePaths) -> bool:
    """Return whether somebody runs a replicator, as far as anybody can tell.

    A capture that has died is started again by its run.
    """
    return any(lock.is_held(paths.lock(name)) for name in ("run", "capture"))


def read_role(paths: StatePaths, name: str) -> ProcessStatus | None:
    """Return the last report of a process, None where there is none."""
    said = ProcessStatus.read(paths.status(name))
    if said is None or said.state not in _ALIVE or lock.is_held(paths.lock(name)):
        return said
    # It may have ended in good order between the two looks.
    said = ProcessStatus.read(paths.status(name)) or said
    return replace(said, state=ProcessState.GONE) if said.state in _ALIVE else said


def reads(capture: ProcessStatus | None, pace: Pace) -> bool:
    """Return whether tables can be read now: a rate that was measured before says nothing else.

    Args:
        capture: its last report, as `read_role` gives it.
        pace: as it was set.
    """
    return capture is not None and capture.state is ProcessState.RUNNING and not pace.log_paused


def unheard(capture: ProcessStatus | None, now_us: int) -> str:
    """Return why the change log may lack what the source did since; empty while a capture follows it, or never did.

    Args:
        capture: its last report, as `read_role` gives it.
        now_us: microseconds since 1970 UTC.
    """
    if capture is None:
        return ""
    silent_s = max(0.0, (now_us - capture.updated_us) / 1e6)
    ago = f"{_rough(silent_s)} ago"
    if capture.state is ProcessState.GONE:
        return f"capture is not running: it ended without a word, and spoke last {ago}"
    if capture.state is ProcessState.STOPPED:
        return f"capture is not running: it was stopped {ago}"
    if capture.state is ProcessState.FAILED:
        return f"capture is not running: it failed {ago}"
    if capture.state is ProcessState.STARTING:
        return "capture is starting"
    if silent_s > _SILENT_S:
        return f"capture runs, and spoke last {ago}"
    # One that follows other relays tells it by other names.
    for doing, why in (("doing", "waits_for"), ("state", "detail")):
        if str(capture.detail.get(doing, "")).startswith("waiting"):
            return f"capture is {capture.detail[doing]}: {capture.detail.get(why, '')}"
    return ""


def held_up(apply: ProcessStatus | None, now_us: int) -> str:
    """Return what an apply job that runs has been waiting for, or busy with, for long; empty while nothing is amiss.

    Args:
        apply: its last report, as `read_role` gives it.
        now_us: microseconds since 1970 UTC.
    """
    if apply is None or apply.state is not ProcessState.RUNNING:
        return ""
    silent_s = (now_us - apply.updated_us) / 1e6
    open_s, batch_s = (float(apply.detail.get(name, 0)) for name in ("silent_s", "batch_s"))
    if silent_s > _SILENT_S:
        return f"apply runs, and spoke last {_rough(silent_s)} ago"
    if open_s >= _OPEN_S:
        return f"Spark has answered nothing for {_rough(open_s)}; apply waits for it, and starts it again"
    if batch_s >= _LONG_S:
        return f"the batch at work began {_rough(batch_s)} ago"
    return ""


def _rough(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

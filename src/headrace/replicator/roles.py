"""What the processes of a replicator said last, and whether they are still there to say anything else.

In: their status files and locks. Out: reports in which a process that was killed is *gone*, however well it was when
it spoke last; and why the change log may lack what the source did since.
"""

from __future__ import annotations

from dataclasses import replace

from headrace.observe.status import ProcessState, ProcessStatus
from headrace.replicator import lock
from headrace.replicator.paths import StatePaths

__all__ = ["is_run", "read_role", "unheard"]

_ALIVE = (ProcessState.STARTING, ProcessState.RUNNING)
_SILENT_S = 60.0
"""A capture that works speaks twice a second; not while it waits for a disk, or writes a table without a key."""


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


def _rough(seconds: float) -> str:
    for size, unit in ((86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"

"""What the parts of a replicator leave on disk, without their running."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

from headrace.lake import FrontierStore, Manifest, TableEntry
from headrace.observe.status import ProcessState, StatusFile
from headrace.replicator import lock
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.state.store import StateStore

__all__ = ["capturing", "standing"]


@contextlib.contextmanager
def capturing(config: Config) -> Iterator[None]:
    """Let a replicator look as if its capture ran, for as long as the block does; it ends without a word."""
    paths = StatePaths.of(config)
    paths.create()
    with lock.held(paths.lock("capture"), "capture"):
        StatusFile(paths.status("capture"), "capture").write(ProcessState.RUNNING)
        yield


def standing(config: Config, states: dict[str, str] | None = None) -> None:
    """Let a replicator have a frontier with tables in some states, and an error for each that fails."""
    chosen = states or {"items": "copying", "notes": "live", "orders": "failing"}
    paths = StatePaths.of(config)
    paths.create()
    paths.changelog.mkdir(exist_ok=True)
    entries = {
        f"public.{name}": TableEntry(3, 81, 40 if state != "copying" else None, state)  # type: ignore[arg-type]
        for name, state in chosen.items()
    }
    error = {"name": "MissingBase", "message": "a change left out note."}
    failing = {
        f"public.{name}": {"error": error} for name, state in chosen.items() if state == "failing"
    }
    status = StatusFile(paths.status("apply"), "apply")
    status.write(ProcessState.RUNNING, {"tables": failing})
    with contextlib.closing(StateStore(paths.database)):
        pass
    # Last: a control plane may look at any moment, and the frontier is what its pictures are waited for by.
    now_us = time.time_ns() // 1000
    FrontierStore(config.lake, config.name).write(Manifest(81, now_us, entries, now_us, 7))

"""Control planes over simulated replicators: real processes that hold locks and tell their status, without a source."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from headrace.replicator.control import processes
from headrace.replicator.control.lifecycle import Command, State
from headrace.replicator.control.plane import ControlPlane, PlaneSettings
from headrace.replicator.control.reconcile import Limits
from headrace.replicator.control.records import Deployed
from headrace.replicator.orphans import birth_of
from headrace.replicator.retries import RestartPolicy
from headrace.testing.run_process import journal
from tests.waiting import until

FAST = Limits(RestartPolicy(first_s=0.05, longest_s=0.2, crashes=3))


def simulated(file: Path) -> tuple[str, ...]:
    """Return the command of a process that behaves like ``headrace run``."""
    return sys.executable, "-m", "headrace.testing.run_process", str(file)


def config_of(fault: str = "", **sections: Any) -> dict[str, Any]:
    """Return a configuration whose process does what ``fault`` says."""
    document: dict[str, Any] = {
        "source": {
            "type": "postgres",
            "url": "postgresql://reader:${env:SHOP_PASSWORD}@db.internal/shop",
            "tables": ["public.*"],
        },
        "target": {"type": "delta", "path": "./lake"},
        **sections,
    }
    if fault:
        document["spark"] = {"conf": {"headrace.simulate": fault}}
    return document


def settings_of(folder: Path, url: str | None = None, **also: Any) -> PlaneSettings:
    """Return settings with simulated replicators."""
    given: dict[str, Any] = {"limits": FAST, "launch": simulated, "base": folder, **also}
    return PlaneSettings(folder / "state", url, **given)


class Hand:
    """Does what people do, and waits for what follows."""

    def __init__(self, plane: ControlPlane) -> None:
        self.plane = plane

    def deploy(self, name: str = "shop", fault: str = "", **sections: Any) -> Deployed:
        with self.plane.writing() as writer:
            return writer.deploy("default", name, config_of(fault, **sections), "/")[0]

    def command(self, command: Command, name: str = "shop", **also: bool) -> None:
        with self.plane.writing() as writer:
            writer.command("default", name, command, **also)

    def row(self, name: str = "shop") -> Deployed:
        return self.plane.store.replicator("default", name)

    def reaches(self, state: State, name: str = "shop", timeout_s: float = 30) -> Deployed:
        def look() -> Deployed | None:
            row = self.row(name)
            return row if row.state is state else None

        found = until(look, f"{name} {state.value}", timeout_s)
        assert found is not None
        return found

    def started(self, name: str = "shop", fault: str = "") -> int:
        """Deploy and start one, and return its process id."""
        self.deploy(name, fault)
        self.command(Command.START, name)
        self.reaches(State.RUNNING, name)
        return self.pid(name)

    def pid(self, name: str = "shop") -> int:
        return self.plane.reconciler.processes().get(self.row(name).number, 0)

    def gone(self, name: str = "shop") -> bool:
        return all(row.name != name for row in self.plane.store.replicators())

    def state(self, name: str = "shop") -> Path:
        return self.plane.folders.of(self.row(name)).state.root

    def journal(self, name: str = "shop") -> list[tuple[str, int, str]]:
        return journal(self.state(name))


@contextmanager
def running(folder: Path, url: str | None = None, **also: Any) -> Iterator[Hand]:
    """Run a control plane inside the block."""
    with ControlPlane(settings_of(folder, url, **also), environment()) as plane:
        yield Hand(plane)


def environment() -> dict[str, str]:
    """Return the environment of simulated replicators."""
    return {**os.environ, "SHOP_PASSWORD": "swordfish-of-the-shop"}


def alive(pid: int) -> bool:
    return bool(birth_of(pid))


def end_everything(folder: Path) -> None:
    """Kill every simulated replicator below a folder, whatever looked after it."""
    for found in processes.find(folder / "state" / "replicators").values():
        for process in found:
            process.signal(signal.SIGKILL)


def overlapping(entries: list[tuple[str, int, str]]) -> bool:
    """Whether two processes worked at the same time, by the order in which they said that they began and ended.

    One that was killed says nothing of its end; whoever begins behind it holds the lock that it had.
    """
    working: set[int] = set()
    for word, pid, _ in entries:
        working = {one for one in working if alive(one)}
        if word == "began":
            if working - {pid}:
                return True
            working.add(pid)
        else:
            working.discard(pid)
    return False

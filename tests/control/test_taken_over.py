"""Who has lost the lease in the middle of a turn, or of what a turn has begun, does nothing more to anybody."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from headrace.errors import LeaseLost
from headrace.observe import failpoints
from headrace.replicator import orphans
from headrace.replicator.control import leases
from headrace.replicator.control.database import Database
from headrace.replicator.control.folders import Folders
from headrace.replicator.control.lifecycle import Command, State
from headrace.replicator.control.reconcile import Reconciler
from headrace.replicator.control.records import Deployed, Lease
from headrace.replicator.control.store import ControlStore
from headrace.state.store import StateStore
from headrace.testing.standing import standing
from tests.control.planes import (
    FAST,
    alive,
    config_of,
    end_everything,
    environment,
    running,
    simulated,
)
from tests.waiting import until


class Stale:
    """A control plane without threads of its own, whose turns a test takes."""

    def __init__(self, folder: Path) -> None:
        self.database = Database(f"sqlite:///{folder / 'state' / 'control.db'}")
        self.store = ControlStore(self.database)
        self.folders = Folders(folder / "state")
        self.lease = self.takes("first")
        self.reconciler = Reconciler(self.store, self.folders, simulated, environment(), FAST)

    def takes(self, who: str) -> Lease:
        """Let somebody take the lease, as behind the end of that of before."""
        with self.database.begin() as connection:
            held = leases.read(connection)
        if held is not None:
            leases.release(self.database, held)
        taken = leases.take(self.database, who, 600)
        assert taken is not None
        return taken

    def turn(self) -> None:
        self.reconciler.turn(self.lease)

    def row(self) -> Deployed:
        return self.store.replicator("default", "shop")

    def does(self, command: Command, **also: bool) -> None:
        with self.store.writing(self.lease) as writer:
            writer.command("default", "shop", command, **also)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    yield tmp_path
    end_everything(tmp_path)


@contextmanager
def stale(folder: Path) -> Iterator[Stale]:
    found = Stale(folder)
    try:
        yield found
    finally:
        failpoints.disarm()
        found.reconciler.close()
        found.database.close()


@contextmanager
def held_at(place: str) -> Iterator[threading.Event]:
    """Hold up the first who comes to a failpoint until the block ends; give what tells that somebody has."""
    come, go = threading.Event(), threading.Event()

    def hold() -> None:
        if not come.is_set():
            come.set()
            go.wait(60)

    failpoints.arm(place, hold)
    try:
        yield come
    finally:
        go.set()


def test_it_tells_no_process_what_was_wanted_then(folder: Path) -> None:
    with running(folder) as hand:
        hand.started()
        pace = StateStore(hand.state() / "state.db")
    with stale(folder) as one:
        one.does(Command.PAUSE)
        one.takes("second")
        with pytest.raises(LeaseLost):
            one.turn()
    assert not pace.pace().log_paused


def test_it_ends_nothing_below_the_process_that_came_after_its_own(folder: Path) -> None:
    with running(folder) as hand:
        pid, state = hand.started(), hand.state()
    with stale(folder) as one:
        one.turn()
        assert one.reconciler.processes() == {one.row().number: pid}
        one.takes("second")
        below = subprocess.Popen(
            [sys.executable, "-c", "input()"],
            stdin=subprocess.PIPE,
            env={**environment(), orphans.MARKER: str(state)},
        )
        try:
            end_everything(folder)
            until(lambda: not alive(pid), "the end of its process")
            with pytest.raises(LeaseLost):
                one.turn()
            assert below.poll() is None
        finally:
            below.send_signal(signal.SIGKILL)
            below.wait()


@pytest.mark.postgres
def test_it_removes_no_tables_of_the_one_that_was_deployed_anew(
    folder: Path, database: str
) -> None:
    """It was held up behind the slot for so long that another one has done the rest."""
    source = {"type": "postgres", "url": database, "tables": ["public.*"]}
    config = config_of(source=source, target={"type": "delta", "path": str(folder / "lake")})
    with running(folder) as hand, hand.plane.writing() as writer:
        writer.deploy("default", "shop", config, "/")
    with stale(folder) as one:
        row = one.row()
        one.folders.of(row).state.changelog.mkdir(parents=True)
        with held_at("control.source_released") as come:
            one.does(Command.DELETE, drop_target=True)
            one.turn()
            assert come.wait(30)
            one.takes("second")
            standing(one.folders.of(row).config(row))
        one.reconciler.close()
    assert (folder / "lake" / "_headrace" / "shop").exists()


def test_what_is_asked_for_while_it_is_removed_is_done_too(folder: Path) -> None:
    with running(folder) as hand:
        with hand.plane.writing() as writer:
            target = {"type": "delta", "path": str(folder / "lake")}
            row, _ = writer.deploy("default", "shop", config_of(target=target), "/")
        standing(hand.plane.folders.of(row).config(row))
        tables = folder / "lake" / "_headrace" / "shop"
        assert tables.exists()
        with held_at("control.folder_removed") as come:
            hand.command(Command.DELETE, leave_source=True)
            assert come.wait(30)
            hand.command(Command.DELETE, leave_source=True, drop_target=True)
            assert hand.row().state is State.DELETING
        until(hand.gone, "its end")
        failpoints.disarm()
    assert not tables.exists()

"""The control plane is killed at every step: afterwards things stand as before or as after, and nothing runs twice."""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.replicator import config_file
from headrace.replicator.control.folders import ReplicatorFolder
from headrace.replicator.control.processes import find
from headrace.testing.ports import free_port
from headrace.testing.run_process import journal
from headrace.testing.standing import standing
from tests.control.asking import Asking
from tests.control.planes import alive, config_of, end_everything, environment, overlapping
from tests.requirements import req
from tests.waiting import until

NS = "/v1/contexts/default"
SHOP = f"{NS}/replicators/shop"
SOURCE_AWAY = "?source=leave"


class Serving:
    """A control plane's process, killed and started again on the same folder."""

    def __init__(self, folder: Path, url: str | None = None, lease_s: float = 30) -> None:
        self.folder, self.url, self.lease_s = folder, url, lease_s
        self.address = f"127.0.0.1:{free_port()}"
        self.ask = Asking(f"http://{self.address}")
        self.process: subprocess.Popen[bytes] | None = None
        self.log = folder / f"serve-{self.address.rpartition(':')[2]}.log"

    def start(self, failpoint: str = "") -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "tests.control.serving_process", str(self.folder)),
                    *(self.url or "-", self.address, str(self.lease_s)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**environment(), "HEADRACE_FAILPOINT": failpoint},
            )
        until(lambda: self.answers() or self.dead(), f"the control plane: {self.said()}")

    def answers(self) -> bool:
        try:
            return self.ask("GET", "/healthz").status == 200
        except OSError:
            return False

    def role(self) -> str:
        return str(self.ask.one("/healthz")["role"])

    def dead(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def said(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]

    def killed(self) -> None:
        """Wait until its failpoint has killed it."""
        until(self.dead, f"the kill: {self.said()}")
        assert self.process is not None
        assert self.process.returncode == -signal.SIGKILL, self.said()

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def end(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def try_to(self, method: str, path: str, body: Any = None) -> None:
        """Ask for something that may kill it before it has answered."""
        # It may have sent the head of its answer, and no body.
        with contextlib.suppress(OSError, http.client.HTTPException):
            self.ask(method, path, body)

    def journals(self) -> list[tuple[str, int, str]]:
        root = self.folder / "state" / "replicators" / "default" / "shop"
        return [entry for path in sorted(root.glob("*/state")) for entry in journal(path)]

    def running(self) -> list[int]:
        found = find(self.folder / "state" / "replicators")
        return [process.pid for each in found.values() for process in each if process.lives()]


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    made = Serving(tmp_path)
    yield made
    made.end()
    end_everything(tmp_path)


def deployed(serving: Serving) -> None:
    serving.ask.does("PUT", SHOP, {"config": config_of()}, 201)


def started(serving: Serving) -> None:
    deployed(serving)
    serving.ask.does("POST", f"{SHOP}/start")
    serving.ask.reaches("RUNNING")


def paused(serving: Serving) -> None:
    started(serving)
    serving.ask.does("POST", f"{SHOP}/pause")
    serving.ask.reaches("PAUSED")


def nothing(serving: Serving) -> None:
    pass


CASES: list[
    tuple[
        str,
        Callable[[Serving], None],
        tuple[str, str, Any],
        tuple[str, ...],
        tuple[str, ...],
        str,
        str,
    ]
] = [
    (
        "deploy",
        nothing,
        ("PUT", SHOP, {"config": config_of()}),
        ("before_commit",),
        ("after_commit",),
        "",
        "DEPLOYED",
    ),
    (
        "start",
        deployed,
        ("POST", f"{SHOP}/start", None),
        ("before_start", "rendered", "started"),
        ("before_commit", "after_commit", "delivered"),
        "DEPLOYED",
        "RUNNING",
    ),
    (
        "pause",
        started,
        ("POST", f"{SHOP}/pause", None),
        ("delivered",),
        ("before_commit", "after_commit"),
        "RUNNING",
        "PAUSED",
    ),
    (
        "resume",
        paused,
        ("POST", f"{SHOP}/resume", None),
        ("after_commit",),
        ("before_commit", "delivered"),
        "PAUSED",
        "RUNNING",
    ),
    (
        "stop",
        started,
        ("POST", f"{SHOP}/stop", None),
        ("terminated",),
        ("before_commit", "after_commit", "ended"),
        "RUNNING",
        "STOPPED",
    ),
    (
        "edit",
        started,
        ("PUT", SHOP, {"config": config_of(apply={"trigger_s": 2})}),
        ("after_commit", "ended"),
        ("before_commit", "terminated", "rendered", "started"),
        "RUNNING",
        "RUNNING",
    ),
    (
        "delete",
        started,
        ("DELETE", f"{SHOP}{SOURCE_AWAY}", None),
        ("folder_removed",),
        ("before_commit", "after_commit", "terminated", "ended"),
        "RUNNING",
        "",
    ),
]
"""What is asked for, and where it is killed: each command and each step once, and the others in the long run; how
things stand before, and after."""


@pytest.mark.parametrize(
    ("before", "command", "failpoint", "old", "new"),
    [
        pytest.param(
            *(before, command, f"control.{failpoint}", old, new),
            id=f"{name}-{failpoint}",
            marks=() if failpoint in always else pytest.mark.long,
        )
        for name, before, command, always, others, old, new in CASES
        for failpoint in (*always, *others)
    ],
)
def test_killed_at_any_step_things_stand_as_before_or_as_after(
    serving: Serving,
    before: Callable[[Serving], None],
    command: tuple[str, str, Any],
    failpoint: str,
    old: str,
    new: str,
) -> None:
    serving.start()
    before(serving)
    pids = serving.running()
    # What was there before is adopted by the one that will be killed, too.
    serving.kill()
    serving.start(failpoint)
    if pids:
        until(lambda: serving.ask.one(SHOP)["pid"] in pids, "the adoption")
    serving.try_to(*command)
    serving.killed()

    serving.start()
    stands = old if failpoint == "control.before_commit" else new
    if stands:
        shown = serving.ask.reaches(stands)
    else:
        until(lambda: serving.ask("GET", SHOP).status == 404, "that it is not there")
        shown = {"pid": None}
    if stands in ("RUNNING", "PAUSED"):
        until(lambda: len(serving.running()) == 1, "one process")
        assert serving.running() == [shown["pid"]] or serving.ask.one(SHOP)["pid"]
        assert shown["log_paused"] is (stands == "PAUSED")
    else:
        until(lambda: not serving.running(), "no process")
    edited = command[0] == "PUT" and old == "RUNNING" and stands == new
    if edited and failpoint != "control.before_commit":
        until(lambda: serving.journals()[-1][2] == "2", "the new configuration")
    assert not overlapping(serving.journals())
    if pids and stands in ("RUNNING", "PAUSED") and not edited:
        assert serving.running() == pids, "it was started anew, and not adopted"


def test_replicators_outlive_a_killed_control_plane_and_are_adopted(serving: Serving) -> None:
    serving.start()
    for name in ("a", "b", "c"):
        body = {"config": config_of(), "start": True}
        serving.ask.does("PUT", f"{NS}/replicators/{name}", body, 201)
    pids = {name: serving.ask.reaches("RUNNING", name)["pid"] for name in ("a", "b", "c")}
    serving.kill()
    os.kill(pids["b"], signal.SIGKILL)
    serving.start()

    def pid(name: str) -> Any:
        return serving.ask.reaches("RUNNING", name)["pid"]

    until(lambda: (pid("a"), pid("c")) == (pids["a"], pids["c"]), "the adoption")
    until(lambda: pid("b") not in (None, pids["b"]), "the restart")
    assert alive(pid("b"))
    assert len(serving.running()) == 3


def test_a_control_plane_that_is_asked_to_end_leaves_replicators_running(serving: Serving) -> None:
    serving.start()
    started(serving)
    pids = serving.running()
    serving.end()
    assert serving.process is not None
    assert serving.process.returncode == 0
    assert serving.running() == pids


@pytest.mark.postgres
@req("N18", "F8", "T16", "P62")
def test_of_two_control_planes_one_is_active_and_the_other_takes_over(
    tmp_path: Path, database: str
) -> None:
    # Long enough to be renewed by a slow machine; it ends when the test says so.
    one, two = (Serving(tmp_path, database, lease_s=20) for _ in range(2))
    try:
        one.start()
        until(lambda: one.role() == "active", "the first")
        two.start()
        assert two.role() == "standby"
        refused = two.ask("PUT", SHOP, {"config": config_of()})
        assert (refused.status, refused.error["type"]) == (503, "ControlStandby")
        started(one)
        pids = one.running()
        assert two.ask.one(SHOP)["state"] == "RUNNING"

        # Frozen, it neither renews nor notices.
        assert one.process is not None
        one.process.send_signal(signal.SIGSTOP)
        with psycopg.connect(database) as connection:
            connection.execute(b"UPDATE leases SET until_s = 0")
        until(lambda: two.role() == "active", "the second")
        until(lambda: two.ask.one(SHOP)["pid"] == pids[0], "the adoption")
        two.ask.does("POST", f"{SHOP}/stop")
        two.ask.reaches("STOPPED")
        one.process.send_signal(signal.SIGCONT)
        late = one.ask("POST", f"{SHOP}/start")
        assert (late.status, late.error["type"]) == (503, "ControlStandby")
        until(lambda: one.role() == "standby", "that the first has noticed")
        assert two.ask.one(SHOP)["state"] == "STOPPED"
        assert two.running() == []
        assert not overlapping(two.journals())

        two.ask.does("POST", f"{SHOP}/start")
        two.ask.reaches("RUNNING")
        two.kill()
        until(lambda: one.role() == "active", "the first again")
        until(lambda: one.ask.one(SHOP)["pid"] == one.running()[0], "the adoption")
        assert len(one.running()) == 1
        assert not overlapping(one.journals())
    finally:
        for serving in (one, two):
            if serving.process is not None:
                serving.process.send_signal(signal.SIGCONT)
            serving.end()
        end_everything(tmp_path)


@pytest.mark.postgres
@pytest.mark.parametrize(
    "failpoint", ["control.source_released", "control.target_dropped", "control.folder_removed"]
)
def test_killed_while_it_removes_what_a_replicator_has_the_next_one_removes_the_rest(
    serving: Serving, database: str, sql: Callable[..., None], failpoint: str
) -> None:
    """Slot, publication, tables, folder: each is gone in the end, and so is the replicator."""
    lake = serving.folder / "lake"
    source = {"type": "postgres", "url": database, "tables": ["public.*"]}
    config = config_of(source=source, target={"type": "delta", "path": str(lake)})
    serving.start()
    serving.ask.does("PUT", SHOP, {"config": config, "start": True}, 201)
    serving.ask.reaches("RUNNING")
    folder = ReplicatorFolder(serving.folder / "state/replicators/default/shop/1")
    standing(config_file.load(folder.file(1)))
    for name in ("items", "notes", "orders"):
        (lake / "public" / name / "_delta_log").mkdir(parents=True)
    (lake / "public" / "foreign").mkdir()
    sql(
        "SELECT pg_create_logical_replication_slot('headrace_shop', 'pgoutput')",
        "CREATE PUBLICATION headrace_shop",
    )
    serving.kill()
    serving.start(failpoint)
    serving.try_to("DELETE", f"{SHOP}?target=drop")
    serving.killed()
    serving.start()
    serving.ask.gone()

    assert not folder.root.exists()
    assert sorted(path.name for path in (lake / "public").iterdir()) == ["foreign"]
    assert not (lake / "_headrace" / "shop").exists()
    with psycopg.connect(database) as connection:
        for query in ("SELECT FROM pg_replication_slots", "SELECT FROM pg_publication"):
            assert connection.execute(query.encode()).fetchall() == []
    assert serving.running() == []

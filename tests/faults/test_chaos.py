"""Capture, two relays in a chain and three consumers as processes: killed, frozen, cut off, without room."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.testing.line_faults import FaultyLine
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

KINDS = ("callbacks", "iterator", "ndjson")
FAULTS = ("kill", "freeze", "cut", "disk full")


class Running:
    """A process that is started again when it was killed."""

    def __init__(self, name: str, argv: list[str], folder: Path) -> None:
        self.name, self._argv = name, argv
        self.output = folder / f"{name}.log"
        self.kills = 0
        self.start()

    def start(self) -> None:
        with self.output.open("ab") as output:
            self.process = subprocess.Popen(self._argv, stdout=output, stderr=output)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.kills += 1
        self.start()

    def freeze(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        try:
            threading.Event().wait(seconds)
        finally:
            self.process.send_signal(signal.SIGCONT)

    def lives(self) -> bool:
        return self.process.poll() is None

    def end(self) -> None:
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(20)
        self.process.kill()
        self.process.wait()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a small file system."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def writes(url: str, rng: random.Random) -> Iterator[None]:
    """Change random rows of the source until the block ends."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with psycopg.connect(url) as connection:
                while not stop.wait(0.01):
                    for _ in range(rng.choice([1, 2, 5, 40])):
                        connection.execute(*_change(rng))
                    connection.rollback() if rng.random() < 0.1 else connection.commit()
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
            failed.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def _change(rng: random.Random) -> tuple[bytes, tuple[int, ...]]:
    key, value, kind = rng.randrange(200), rng.randrange(10**6), rng.random()
    if kind < 0.6:
        upsert = b"INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
        return upsert, (key, value)
    if kind < 0.8:
        return b"DELETE FROM t WHERE id = %s", (key,)
    # The key moves where its new place is free.
    other = rng.randrange(200)
    moved = b"UPDATE t SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM t WHERE id = %s)"
    return moved, (other, key, other)


def source_rows(url: str) -> dict[int, int]:
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT id, v FROM t").fetchall())


class Told:
    """Everything that one consumer was told, every delivery in its order."""

    def __init__(self, path: Path) -> None:
        self.events: list[dict[str, Any]] = []
        self.wrong: list[str] = []
        for line in path.read_bytes().splitlines() if path.exists() else ():
            try:
                said = json.loads(line)
            except ValueError:
                # A kill left it unfinished; its window comes again.
                continue
            if "grammar" in said:
                self.wrong.append(said["grammar"])
            elif "op" in said:
                self.events.append(said)

    @property
    def places(self) -> list[tuple[int, int]]:
        return [(event["scn"], event["ord"]) for event in self.events]

    @property
    def steps_back(self) -> int:
        """How often an event came that does not lie behind the one before."""
        places = self.places
        return sum(after <= before for before, after in pairwise(places))

    @property
    def duplicates(self) -> int:
        return len(self.events) - len(set(self.places))

    def rows(self) -> dict[int, int]:
        """Return the rows that the events amount to in the order in which they came."""
        rows: dict[int, int] = {}
        for event in self.events:
            if (before := event.get("before")) is not None:
                rows.pop(before["id"], None)
            if event["op"] == "-D":
                rows.pop(event["row"]["id"], None)
            else:
                rows[event["row"]["id"]] = event["row"]["v"]
        return rows


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


@req("D44", "D49")
@pytest.mark.long
@pytest.mark.parametrize(("seconds", "least"), [(20.0, 1), (1800.0, 5)], ids=["short", "long"])
def test_whatever_breaks_every_consumer_ends_with_the_state_of_the_source(
    database: str, tmp_path: Path, small_disk: Path, seconds: float, least: int
) -> None:
    rng = random.Random(64)
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)")
        connection.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 150) n")
    ports = free_port(), free_port()
    python, counts = sys.executable, Counter[str]()
    leads, follows = tmp_path / "leads.yaml", tmp_path / "follows.yaml"
    leads.write_text(
        f"name: chaos\nsource: {{type: postgres, url: {json.dumps(database)}, tables: ['public.*']}}\n"
        "target: {type: delta, path: ./lake}\n"
        f"relay: {{listen: '127.0.0.1:{ports[0]}', heartbeat_s: 0.5}}\n"
    )
    with ExitStack() as stack:
        lines = [
            stack.enter_context(FaultyLine(f"http://127.0.0.1:{port}"))
            for port in (ports[0], *ports)
        ]
        follows.write_text(
            f"name: chaos\nchangelog: {{segment: 1MiB}}\nstate: {{dir: {small_disk}}}\n"
            f"relay: {{listen: '127.0.0.1:{ports[1]}', heartbeat_s: 0.5, "
            f"upstream: {{urls: ['{lines[0].url}'], read_timeout_s: 3}}}}\n"
        )

        def run(name: str, *words: str) -> Running:
            found = Running(name, [python, "-m", *words], tmp_path)
            stack.callback(found.end)
            return found

        capture = run("capture", "headrace.replicator.capture_process", str(leads))
        leader = run("leader", "headrace.cli.main", "relay", str(leads))
        follower = run("follower", "headrace.cli.main", "relay", str(follows))
        urls = [line.url for line in lines[1:]]
        consumers = {
            kind: run(
                kind,
                "tests.faults.chaos_consumer",
                kind,
                str(tmp_path),
                *urls[:: 1 - 2 * (i % 2)],
            )
            for i, kind in enumerate(KINDS)
        }
        processes = [capture, leader, follower, *consumers.values()]

        def told(kind: str) -> Told:
            return Told(tmp_path / f"{kind}.lines")

        def began(kind: str) -> bool:
            return bool(told(kind).events)

        def agrees(kind: str) -> bool:
            return told(kind).rows() == wanted

        for kind in KINDS:
            until(partial(began, kind), f"first events of {kind}", 120)

        def cut() -> None:
            # All of them: who reads from where changes with each failure.
            before = sum(line.connections for line in lines)
            for line in lines:
                line.cut()
            until(lambda: sum(line.connections for line in lines) > before, "connected again")

        faults: dict[str, Callable[[], None]] = {
            "kill": lambda: rng.choice(processes).kill(),
            "freeze": lambda: rng.choice(processes).freeze(rng.uniform(0.2, 2.0)),
            "cut": cut,
            "disk full": lambda: filled(small_disk, follower),
        }
        ends_at = time.monotonic() + seconds
        with writes(database, rng):
            # A round has each kind once, in any order.
            while time.monotonic() < ends_at or min(counts[name] for name in FAULTS) < least:
                for name in rng.sample(FAULTS, len(FAULTS)):
                    faults[name]()
                    counts[name] += 1
                    threading.Event().wait(rng.uniform(0.2, 1.0))
            for process in processes:
                until(process.lives, f"{process.name} lives")
        wanted = source_rows(database)
        for kind in KINDS:
            until(partial(agrees, kind), f"the state at {kind}", 180, 0.5)
        for process in processes:
            assert process.lives(), process.output.read_text()[-2000:]
    found = {kind: told(kind) for kind in KINDS}
    print("faults", dict(counts))
    print("kills", {process.name: process.kills for process in processes})
    for kind, one in found.items():
        print(kind, len(one.events), "deliveries,", one.duplicates, "duplicates")
        assert one.wrong == []
        # Each run of a consumer goes up; only a new one begins again behind its checkpoint.
        assert one.steps_back <= consumers[kind].kills
        assert set(one.places) == set(found["callbacks"].places)
    assert min(counts[name] for name in FAULTS) >= least
    # Everything of ours is stopped.
    with psycopg.connect(database) as connection:
        connection.execute("INSERT INTO t VALUES (1000, 1)")
    assert source_rows(database) == wanted | {1000: 1}


def filled(disk: Path, follower: Running) -> None:
    """Fill the follower's disk until it says so, and make room again."""
    before = follower.output.read_bytes().count(b"waiting for room")
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(64 * 1024))
        with ballast.open("ab", buffering=0) as file, suppress(OSError):
            while True:
                file.write(bytes(512))
        until(
            lambda: follower.output.read_bytes().count(b"waiting for room") > before, "no room", 60
        )
    finally:
        ballast.unlink()

"""A capture that people steer through the command line, on a real server; no Spark takes part."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from typer.testing import CliRunner

from headrace.changelog import ChangeLogReader
from headrace.cli.main import app
from headrace.observe.status import ProcessStatus
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.replicator.requests import Requests
from headrace.replicator.retries import RestartPolicy
from headrace.replicator.supervisor import ChildSpec, Supervisor
from headrace.state.records import OPEN, RequestState
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

ROWS = 1_200


class Steered:
    """A capture process that a supervisor looks after, and the commands that people type."""

    def __init__(self, file: Path, supervisor: Supervisor) -> None:
        self.file = file
        config = load(file)
        self.paths = StatePaths.of(config)
        self.supervisor = supervisor
        self.api = Requests(config)

    def type(self, command: str, *words: str) -> str:
        """Run one command in this process, and return what it printed."""
        done = CliRunner().invoke(app, [*command.split(), str(self.file), *words])
        assert done.exit_code == 0, done.output
        return done.stdout

    def until(self, condition: Callable[[], Any], what: str) -> Any:
        """Wait for a condition while the capture is looked after."""

        def look() -> Any:
            self.supervisor.poll()
            return condition()

        # A look costs more than a moment: the log is read from its beginning.
        return until(look, what, 60, pause_s=0.1)

    def copied(self) -> None:
        """Wait for the first copy, at full speed."""
        self.type("dump pace", "--chunk-rows", "1000", "--delay", "0")

        def is_complete() -> bool:
            return [s.request.state for s in self.api.all()] == [RequestState.COMPLETED]

        self.until(is_complete, "the first copy")

    def show(self, request: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.type("dump show", request, "--json"))
        return found

    def ask(self, *words: str) -> str:
        return self.type("dump start", *words).removeprefix("queued: request ").strip()

    def ended(self, request: str) -> dict[str, Any]:
        self.until(
            lambda: self.api.show(request).request.state not in OPEN, f"the end of {request}"
        )
        return self.show(request)

    def doing(self) -> str:
        status = ProcessStatus.read(self.paths.status("capture"))
        return str(status.detail.get("doing", "")) if status else ""

    def changes(self) -> Counter[tuple[str, int]]:
        """Return how often each operation came for each key of the change log."""
        found: Counter[tuple[str, int]] = Counter()
        for block in ChangeLogReader(self.paths.changelog).blocks(0):
            for body in block.bodies:
                ops = body.batch.column("_op").to_pylist()
                found.update(zip(ops, body.batch.column("id").to_pylist(), strict=True))
        return found

    def kill(self) -> None:
        """Kill the capture, and return when another one streams."""
        dead = self.supervisor.pids["capture"]
        os.kill(dead, signal.SIGKILL)

        def again() -> bool:
            status = ProcessStatus.read(self.paths.status("capture"))
            return status is not None and status.pid != dead and bool(self.doing())

        self.until(again, "another capture")


@pytest.fixture
def steered(url: str, tmp_path: Path) -> Iterator[Steered]:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE big (id bigint PRIMARY KEY, v text NOT NULL)")
        connection.execute(
            f"INSERT INTO big SELECT i, 'v' || i % 7 FROM generate_series(1, {ROWS}) i"
        )
        connection.execute("ANALYZE big")
    file = tmp_path / "big.yaml"
    file.write_text(
        "name: steered\n"
        f'source: {{type: postgres, url: {json.dumps(url)}, tables: ["public.big"]}}\n'
        "target: {type: delta, path: ./lake}\n"
        # A dump takes two minutes: nobody who comes late finds that it has ended.
        "dump: {chunk_rows: 50, delay_s: 5, load: 1}\n"
    )
    argv = (sys.executable, "-m", "headrace.replicator.capture_process", str(file))
    paths = StatePaths.of(load(file))
    policy = RestartPolicy(first_s=0.05)
    with Supervisor(paths, [ChildSpec("capture", argv)], policy=policy) as supervisor:
        steered = Steered(file, supervisor)
        with steered.api:
            yield steered


def insert(url: str, first: int, count: int = 1) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        for key in range(first, first + count):
            connection.execute(f"INSERT INTO big VALUES ({key}, 'fresh')")


@req("F7", "P07", "P08", "N04", "N05", "N06", "N08", "P19", "P57")
def test_a_dump_is_paused_killed_resumed_and_hurried(steered: Steered, url: str) -> None:
    request = steered.until(
        lambda: next((s for s in steered.api.all() if s.rows_read), None), "its first rows"
    ).request.request_id
    begun = steered.show(request)
    assert begun["cause"] == "FIRST_COPY"
    assert begun["rows_estimated"] == ROWS
    assert begun["seconds_left"] > 0

    steered.type("dump pause", request)
    rested = steered.show(request)
    # It has been heard. From now on no chunk is read, in a time in which three would be; the log goes on.
    steered.type("dump pace", "--delay", "0.4")
    asked_at = time.monotonic()
    insert(url, 9_001)
    steered.until(lambda: steered.changes()[("+I", 9_001)], "a fresh row")
    steered.until(lambda: time.monotonic() > asked_at + 2.0, "the time of three chunks")
    assert steered.show(request)["tables"] == rested["tables"]
    assert rested["state"] == "PAUSED"
    assert rested["seconds_left"] is None
    steered.kill()
    insert(url, 9_002)
    steered.until(lambda: steered.changes()[("+I", 9_002)], "another fresh row")
    assert steered.show(request)["tables"] == rested["tables"]

    steered.type("dump pace", "--chunk-rows", "300", "--delay", "0")
    steered.type("dump resume", request)
    done = steered.ended(request)
    assert done["state"] == "COMPLETED"
    # Nothing was read twice, the rest in chunks of the new size.
    assert done["rows_read"] == ROWS
    assert done["tables"][0]["chunks"] - rested["tables"][0]["chunks"] <= ROWS // 300 + 1
    found = steered.changes()
    assert all(found[("+R", key)] == 1 for key in range(1, ROWS + 1))

    steered.type("dump pace", "--reset")
    second = steered.ask("--table", "public.big")
    steered.until(lambda: steered.api.show(second).rows_read, "its first rows")
    steered.type("dump cancel", second)
    read = steered.show(second)["rows_read"]
    steered.type("dump pace", "--delay", "0.4")
    urgent = steered.ask("--table", "public.big", "--keys", "3", "--wait").splitlines()[0]
    assert steered.show(urgent)["state"] == "COMPLETED"
    # It is heard within a second, in which three chunks are read at this pace.
    assert steered.show(second)["rows_read"] <= read + 3 * 50 < ROWS
    assert steered.show(second)["tables"][0]["state"] == "cancelled"
    assert steered.api.incomplete() == []


@req("N07", "N08", "P08", "F7")
def test_log_delivery_is_paused_and_throttled(steered: Steered, url: str) -> None:
    steered.copied()
    steered.type("log pause")
    steered.until(lambda: steered.doing() == "log paused", "the pause")
    insert(url, 10_001, 20)
    request = steered.ask("--table", "public.big", "--keys", "1")
    asked_at = time.monotonic()
    steered.until(lambda: time.monotonic() > asked_at + 1.0, "a second")
    assert steered.changes()[("+I", 10_001)] == 0
    # Its window could not close: it was not opened.
    assert steered.show(request)["state"] == "QUEUED"

    steered.type("log pace", "--rows-per-second", "5")
    # Before it is said: what waited may come before the command has returned.
    begun = time.monotonic()
    steered.type("log resume")
    steered.until(lambda: steered.changes()[("+I", 10_020)], "what waited")
    insert(url, 10_021)
    # What waited comes together, and the twenty rows' four seconds are made up for by a pause.
    steered.until(lambda: steered.changes()[("+I", 10_021)], "what came behind")
    assert time.monotonic() - begun >= 3.9
    assert [steered.changes()[("+I", key)] for key in range(10_001, 10_022)] == [1] * 21
    steered.type("log pace", "--rows-per-second", "0")
    assert steered.ended(request)["state"] == "COMPLETED"


@req("P05", "P06", "C60", "H09")
def test_parts_of_a_table_are_read_and_lost_rows_deleted(steered: Steered, url: str) -> None:
    steered.copied()
    before = steered.changes()
    bad = steered.ask("--table", "public.big", "--where", "nope > 1")
    part = steered.ask("--table", "public.big", "--where", "v = 'v3' -- one in seven")
    keyed = steered.ask(
        "--table", "public.big", "--keys", "{id=007}", "--keys", "999", "--keys", "77777",
        "--delete-missing",
    )  # fmt: skip
    assert 'column "nope" does not exist' in steered.ended(bad)["reason"]
    assert steered.ended(part)["rows_read"] == sum(key % 7 == 3 for key in range(1, ROWS + 1))
    done = steered.ended(keyed)
    assert done["missing"] == [["77777"]]
    fresh = steered.changes() - before
    assert fresh[("-D", 77_777)] == 1
    assert {key for (op, key), _ in fresh.items() if op == "+R"} == {
        7,
        999,
        *(key for key in range(1, ROWS + 1) if key % 7 == 3),
    }

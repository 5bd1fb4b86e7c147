"""Members in processes of their own: killed, and frozen until others have taken their partitions."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue

import pytest

from headrace.client import SqlGroupStore
from headrace.client.group_state import GroupState
from tests.changelog.windows import TABLE, window
from tests.client.grouping import Kept, opened, started
from tests.requirements import req
from tests.waiting import until

ROWS = 12
LEASE_S = 3.0


class Members:
    """Processes of one group over one relay and one database."""

    def __init__(self, relay: str, folder: Path) -> None:
        self.relay, self.folder = relay, folder
        engine = opened(folder)
        self.kept, self.store = Kept(engine), SqlGroupStore(engine)
        self.processes: list[subprocess.Popen[str]] = []

    def start(self) -> subprocess.Popen[str]:
        process = started(self.relay, self.folder, LEASE_S)
        self.processes.append(process)
        return process

    def state(self) -> GroupState | None:
        return self.store.read("g")

    def owned(self) -> dict[int, set[int]]:
        """Return the partitions of each process, by its id, which is part of a member's name."""
        found: dict[int, set[int]] = {}
        state = self.state()
        for partition in state.partitions if state else ():
            if partition.owner is not None:
                found.setdefault(int(partition.owner.split("-")[-2]), set()).add(partition.number)
        return found


@pytest.fixture
def members(relay: str, tmp_path: Path) -> Iterator[Members]:
    members = Members(relay, tmp_path)
    yield members
    for process in members.processes:
        with contextlib.suppress(ProcessLookupError):
            process.send_signal(signal.SIGCONT)
            process.kill()
        assert process.stdout is not None
        process.stdout.close()
        process.wait(60)


def expected(windows: int) -> dict[tuple[int, int], int]:
    return {(scn, order): 1 for scn in range(1, windows + 1) for order in range(ROWS)}


def lines_of(process: subprocess.Popen[str]) -> SimpleQueue[str]:
    """Return what a process prints, line by line as it comes."""
    lines: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            lines.put(line)

    threading.Thread(target=read, daemon=True).start()
    return lines


def shared_by_two(members: Members) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    one, other = members.start(), members.start()
    until(
        lambda: {pid: len(of) for pid, of in members.owned().items()} == {one.pid: 2, other.pid: 2},
        "two members share four partitions",
        timeout_s=120,
    )
    return one, other


@req("D108", "D10", "F11", "B-7")
def test_partitions_of_a_killed_member_move_and_each_change_is_kept_once(log, members):
    log.register(TABLE)
    one, other = shared_by_two(members)
    written = 40
    log.append(*(window(scn, ROWS) for scn in range(1, written + 1)))
    lines = lines_of(one)

    def has_stored() -> bool:
        # Others may have stored everything so far, where it was stalled for longer than its lease.
        nonlocal written
        written += 1
        log.append(window(written, ROWS))
        return lines.qsize() >= 5

    until(has_stored, "five windows by the member that is killed")
    one.kill()
    log.append(*(window(scn, ROWS) for scn in range(written + 1, written + 21)))
    everything = expected(written + 20)
    until(lambda: members.kept.changes() == everything, "every change once", timeout_s=120)
    assert members.owned()[other.pid] == {0, 1, 2, 3}
    assert all(places == sorted(places) for places in members.kept.by_key().values())


@req("B-7", "D108", "F11")
def test_a_frozen_member_that_wakes_behind_its_lease_stores_nothing(log, members):
    log.register(TABLE)
    one, other = shared_by_two(members)
    log.append(*(window(scn, ROWS) for scn in range(1, 11)))
    until(lambda: members.kept.changes() == expected(10), "every change once", timeout_s=120)
    lost = until(lambda: members.owned().get(one.pid), "it has partitions")
    # Frozen between transactions: inside one it would hold SQLite's only lock, and everybody would wait for it.
    with members.kept.engine.begin() as connection:
        connection.exec_driver_sql("BEGIN EXCLUSIVE")
        one.send_signal(signal.SIGSTOP)
    log.append(*(window(scn, ROWS) for scn in range(11, 31)))
    until(lambda: members.owned().get(other.pid) == {0, 1, 2, 3}, "others took over", timeout_s=120)
    state = members.state()
    assert state is not None
    taken = {p.number: p.generation for p in state.partitions}
    one.send_signal(signal.SIGCONT)
    until(lambda: members.kept.changes() == expected(30), "every change once", timeout_s=120)
    until(lambda: len(members.owned().get(one.pid, ())) == 2, "it is a member again", timeout_s=120)
    log.append(*(window(scn, ROWS) for scn in range(31, 41)))
    until(lambda: members.kept.changes() == expected(40), "every change once", timeout_s=120)
    rows = members.kept.rows()
    for number in lost:
        generations = [row.generation for row in rows if row.number == number]
        # Once another generation stored, no older one ever did.
        assert generations == sorted(generations)
        assert taken[number] in generations
    assert all(places == sorted(places) for places in members.kept.by_key().values())

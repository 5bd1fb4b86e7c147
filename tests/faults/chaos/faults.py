"""What breaks: processes are killed and frozen, connections cut, disks filled; each counted only where it bit."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import psycopg

from headrace.changelog import ChangeLogReader
from headrace.client import SqlGroupStore
from headrace.testing.line_faults import FaultyLine
from tests.faults.chaos.consumer import GROUP, LEASE_S, REFUSED
from tests.faults.chaos.processes import Keeper, Running
from tests.faults.disks import full
from tests.fixtures_postgres import name_of
from tests.waiting import until

__all__ = ["FAULTS", "Bite", "Faults", "Place", "planned"]

_T = TypeVar("_T")

_WITHIN_S = 200.0
_ROLES = ("capture", "leader", "follower", "consumer", "member")
FAULTS = {
    "kill": _ROLES,
    "freeze": _ROLES,
    "cut": ("capture", "follower", "consumer", "database"),
    "disk full": ("capture", "follower", "consumer"),
}
"""What each kind of fault hits: processes by role, and the database in which consumers keep places."""

_NO_ROOM = (b"waiting for room", b"DiskFull", b"StateFull", *REFUSED)
"""What processes say whose writes were refused."""


class Bite(NamedTuple):
    """A fault that was seen in effect."""

    kind: str
    role: str


class Place(NamedTuple):
    """Where things are.

    Attributes:
        source: URL of the source database.
        database: URL of the one in which consumers keep places and rows.
        lines: to relays, by the role of who connects over them.
        disks: by the role of who writes there.
        logs: folders of change logs, likewise.
    """

    source: str
    database: str
    lines: dict[str, list[FaultyLine]]
    disks: dict[str, Path]
    logs: dict[str, Path]


def planned(rng: random.Random) -> Iterator[Bite]:
    """Yield faults for ever: each kind once in a round, and all that it hits before one of them again."""
    decks: dict[str, list[str]] = {kind: [] for kind in FAULTS}
    while True:
        for kind in rng.sample(list(FAULTS), len(FAULTS)):
            if not decks[kind]:
                decks[kind] = rng.sample(FAULTS[kind], len(FAULTS[kind]))
            yield Bite(kind, decks[kind].pop())


class Faults:
    """Breaks things one after the other.

    Args:
        keeper: of the processes.
        place: of everything else.
        store: of the group.
        rng: decides which process, and how long.

    Attributes:
        bites: how often each fault was seen in effect.
        takeovers: frozen members whose partitions others took.
    """

    def __init__(
        self, keeper: Keeper, place: Place, store: SqlGroupStore, rng: random.Random
    ) -> None:
        self._keeper = keeper
        self._place = place
        self._store = store
        self._rng = rng
        self.bites: Counter[Bite] = Counter()
        self.takeovers = 0

    def bring(self, fault: Bite) -> None:
        """Let a fault happen; count it when it bit."""
        does: dict[str, Callable[[str], bool]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "cut": self._cut,
            "disk full": self._fill,
        }
        self.bites[fault] += does[fault.kind](fault.role)
        self._keeper.check()

    def of_kind(self, kind: str) -> int:
        """Return how often a kind of fault bit."""
        return sum(count for bite, count in self.bites.items() if bite.kind == kind)

    def _one(self, role: str) -> Running:
        return self._rng.choice(self._keeper.of(role))

    def _kill(self, role: str) -> bool:
        return self._one(role).kill()

    def _freeze(self, role: str) -> bool:
        process = self._one(role)
        with process.frozen() as still:
            if role == "member" and still:
                self._wait_for_takeover(process)
            else:
                threading.Event().wait(self._rng.uniform(0.2, 4.0))
        return still

    def _wait_for_takeover(self, member: Running) -> None:
        """Wait until others own what a frozen member did; not where it holds what they need for that."""

        def generations() -> dict[int, int]:
            state = self._store.read(GROUP)
            owned = state.partitions if state else []
            pid = f"-{member.pid}-"
            return {p.number: p.generation for p in owned if p.owner and pid in p.owner}

        before = generations()
        pause = threading.Event()
        for _ in range(20):
            if before and not before.items() & generations().items():
                self.takeovers += 1
                return
            pause.wait(LEASE_S / 10)

    def _cut(self, role: str) -> bool:
        if role == "capture":
            return self._ended_sessions(self._place.source)
        if role == "database":
            return self._ended_sessions(self._place.database)
        lines = self._place.lines[role]
        before = sum(line.connections for line in lines)
        broken = sum(line.cut() for line in lines)
        self._until(lambda: sum(line.connections for line in lines) > before, "connected again")
        return broken > 0

    def _ended_sessions(self, url: str) -> bool:
        """End all sessions of ours in a database, and wait until there are new ones."""
        with psycopg.connect(url, autocommit=True) as connection:

            def found(query: bytes) -> set[int]:
                return {pid for (pid,) in connection.execute(query, (name_of(url),)).fetchall()}

            # Of the source the stream alone: the writer has a session there too.
            query = _STREAMS if url == self._place.source else _SESSIONS
            before = self._until(lambda: found(query), "sessions")
            for pid in before:
                connection.execute("SELECT pg_terminate_backend(%s)", (pid,))
            self._until(lambda: found(query) - before, "new sessions")
        return True

    def _fill(self, role: str) -> bool:
        disk = self._place.disks[role]
        places = {path.stem for path in disk.glob("*.place")}
        processes = [p for p in self._keeper.of(role) if not places or p.name in places]
        # Some say it once, and perhaps before anybody looks.
        before = _refusals(processes)
        with full(disk) as take:
            self._wait_for_refusal(processes, before, take)
            if self._rng.random() < 0.5:
                # Who begins on a full disk waits for room too.
                one = self._rng.choice(processes)
                one.kill()
                self._wait_for_refusal([one], _refusals([one]), take)
        self._goes_on(role)
        return True

    def _wait_for_refusal(
        self, processes: list[Running], before: int, take: Callable[[], None]
    ) -> None:
        def is_refused() -> bool:
            take()
            return _refusals(processes) > before

        names = ", ".join(process.name for process in processes)
        self._until(is_refused, f"no room for {names}")

    def _goes_on(self, role: str) -> None:
        """Wait until what had no room moves on: only then another refusal can be told from this one."""
        if role in self._place.logs:
            reader = ChangeLogReader(self._place.logs[role])
            scn = reader.tail().covered_scn
            self._until(lambda: reader.tail().covered_scn > scn, f"{role} goes on")
            return
        places = list(self._place.disks[role].glob("*.place"))
        stored = {path: path.read_text() for path in places}
        self._until(
            lambda: all(path.read_text() != stored[path] for path in places), f"{role}s go on"
        )

    def _until(self, condition: Callable[[], _T], what: str) -> _T:
        def checked() -> _T:
            self._keeper.check()
            return condition()

        return until(checked, what, _WITHIN_S)


def _refusals(processes: list[Running]) -> int:
    """Return how often processes have said that a write was refused."""
    return sum(process.said(*_NO_ROOM) for process in processes)


_SESSIONS = b"SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()"
_STREAMS = b"""
SELECT active_pid FROM pg_replication_slots WHERE database = %s AND active_pid IS NOT NULL
"""

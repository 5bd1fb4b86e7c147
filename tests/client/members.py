"""Members of a group in threads over a real relay and one database, with a clock that a test moves."""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from headrace.client import Consumer, Group, Partition, SqlGroupStore
from headrace.client.consumer import Event
from headrace.model.block import Block
from headrace.testing.group import CutGroupStore
from headrace.wire.place import Place
from tests.changelog.windows import window
from tests.client.grouping import GROUP_SETTINGS, Kept, Storing
from tests.waiting import until

__all__ = ["LEASE_S", "ROWS", "Clock", "Members", "Recording", "expected", "pieces"]

ROWS = 10
LEASE_S = 0.3


class Clock:
    """Seconds and microseconds that move when a test says so."""

    def __init__(self) -> None:
        self.now_s = 1.0

    def __call__(self) -> float:
        return self.now_s

    def us(self) -> int:
        return round(self.now_s * 1e6)


class Members:
    """Members in threads, over one database; leases end only when the test moves the clock."""

    def __init__(self, relay: str, folder: Path) -> None:
        self.relay = relay
        self.clock = Clock()
        engine = sa.create_engine(f"sqlite:///{folder}/group.db", connect_args={"timeout": 60})
        sa.event.listen(engine, "connect", _fast)
        self.kept = Kept(engine)
        self.store = SqlGroupStore(engine, clock=self.clock.us)
        self.live: list[Group] = []
        self.cut: list[tuple[Group, CutGroupStore]] = []
        self.lines: dict[str, CutGroupStore] = {}
        self.threads: dict[str, threading.Thread] = {}
        self.failed: list[BaseException] = []

    def join(self, factory: Any = None, **options: Any) -> Group:
        line = CutGroupStore(self.store)
        settings: dict[str, Any] = {
            "partitions": 4,
            "settings": GROUP_SETTINGS,
            "lease_s": LEASE_S,
            **options,
        }
        group = Group(
            self.relay,
            "shop",
            factory or (lambda partition: Storing(self.kept, partition)),
            line,
            "g",
            clock=lambda: 0.0,
            **settings,
        )
        self.live.append(group)
        self.lines[group.member] = line
        self.threads[group.member] = threading.Thread(
            target=self._run, args=(group,), name=group.member, daemon=True
        )
        self.threads[group.member].start()
        return group

    def _run(self, group: Group) -> None:
        try:
            group.run()
        except BaseException as error:  # noqa: BLE001 - looked at by the test
            self.failed.append(error)

    def leave(self, group: Group) -> None:
        group.stop()
        self.threads[group.member].join(60)
        assert not self.threads[group.member].is_alive()
        if group in self.live:
            self.live.remove(group)

    def silence(self, group: Group) -> None:
        """Let nothing through that the member agrees on, while it goes on delivering."""
        self.lines[group.member].sever()
        self.live.remove(group)
        self.cut.append((group, self.lines[group.member]))

    def heal(self) -> None:
        group, line = self.cut.pop()
        line.cut.clear()
        self.live.append(group)

    def pass_lease(self) -> None:
        """Let the time of a lease pass, in which everybody who is not silent takes turns."""
        for _ in range(3):
            self.clock.now_s += LEASE_S / 2
            renewed = self.clock.us() + round(LEASE_S * 1e6)
            members = [group.member for group in self.live]

            def all_renewed(renewed: int = renewed, members: list[str] = members) -> bool:
                state = self.store.read("g")
                held = state.members if state else {}
                return all(held.get(member, 0) >= renewed for member in members)

            until(all_renewed, "everybody took a turn")

    def shares(self) -> list[int]:
        """Return how many partitions each live member owns, ascending."""
        state = self.store.read("g")
        owners = Counter(p.owner for p in state.partitions) if state else Counter()
        return sorted(owners[group.member] for group in self.live)

    def settled(self, partitions: int, place: int) -> None:
        """Wait until everything is owned, spread and processed."""

        def done() -> bool:
            state = self.store.read("g")
            return (
                state is not None
                and state.target is None
                and len(state.partitions) == partitions
                and all(p.place >= Place(place) for p in state.partitions)
                and sum(self.shares()) == partitions
                and self.shares()[-1] - self.shares()[0] <= 1
            )

        until(done, f"{partitions} partitions at {place}", timeout_s=120)

    def close(self) -> None:
        for group in [*self.live, *(group for group, _ in self.cut)]:
            self.leave(group)


def _fast(connection: Any, _: object) -> None:
    connection.execute("PRAGMA synchronous = OFF")


def expected(windows: int) -> dict[tuple[int, int], int]:
    return {(scn, order): 1 for scn in range(1, windows + 1) for order in range(ROWS)}


def pieces(rng: random.Random, scn: int) -> list[Block]:
    """Return a window whole, or in two blocks."""
    if rng.random() < 0.7:
        return [window(scn, ROWS)]
    half = ROWS // 2
    return [window(scn, half, last=False), window(scn, half, first=half)]


class Recording(Consumer):
    """Writes down what it is told of one partition; places are stored after each window."""

    def __init__(self, partition: Partition, told: list[tuple[int, int, int, int, int]]) -> None:
        self.partition = partition
        self._told = told

    def on_data_event(self, event: Event) -> None:
        own = self.partition
        self._told.append((own.generation, own.number, event.scn, event.ord, event.key[0]))

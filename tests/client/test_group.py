"""Groups over a real relay: members come, leave, fall silent and go on, and the count of partitions changes."""

from __future__ import annotations

import json
import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import sqlalchemy as sa

from headrace.client import Consumer, Group, GroupStore, Partition, Result, SqlGroupStore, State
from headrace.client.consumer import Event, Window
from headrace.client.errors import (
    CheckpointUnusable,
    ConsumerRefused,
    FatalResult,
    StaleGeneration,
)
from headrace.client.group_state import Claim, GroupState
from headrace.errors import ConfigError
from headrace.model.block import Block
from headrace.testing.group import CutGroupStore
from headrace.wire.place import Place
from tests.changelog.windows import OTHER, TABLE, window
from tests.client.grouping import GROUP_SETTINGS, Kept, Storing
from tests.requirements import req
from tests.waiting import until

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
        self.lines[group.member].cut.set()
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


@pytest.fixture
def members(relay: str, tmp_path: Path) -> Iterator[Members]:
    members = Members(relay, tmp_path)
    yield members
    members.close()


def expected(windows: int) -> dict[tuple[int, int], int]:
    return {(scn, order): 1 for scn in range(1, windows + 1) for order in range(ROWS)}


def pieces(rng: random.Random, scn: int) -> list[Block]:
    """Return a window whole, or in two blocks."""
    if rng.random() < 0.7:
        return [window(scn, ROWS)]
    half = ROWS // 2
    return [window(scn, half, last=False), window(scn, half, first=half)]


@req("D10", "D107", "D108", "D109", "D110", "D98", "F11", "B-7")
@pytest.mark.parametrize("seed", [1, 2])
def test_each_change_is_kept_once_and_in_order_whatever_members_do(log, members, seed):
    rng = random.Random(seed)
    log.register(TABLE)
    log.append(window(1, ROWS))
    partitions, scn, acts = 4, 1, Counter[str]()
    members.join()
    for act in _acts(rng):
        if act == "stream":
            for _ in range(rng.randrange(1, 6)):
                scn += 1
                log.append(*pieces(rng, scn))
        elif act == "join" and len(members.live) < 4:
            members.join()
        elif act == "leave" and len(members.live) > 1:
            members.leave(rng.choice(members.live))
        elif act == "silence" and len(members.live) > 1:
            members.silence(rng.choice(members.live))
        elif act == "pass":
            members.pass_lease()
        elif act == "heal" and members.cut:
            members.heal()
        elif act == "resize" and members.store.read("g") is not None:
            partitions = rng.randrange(1, 8)
            members.live[0].resize(partitions)
        elif act == "settle":
            members.pass_lease()
            members.settled(partitions, scn)
        else:
            continue
        acts[act] += 1
    members.pass_lease()
    members.settled(partitions, scn)
    assert members.kept.changes() == expected(scn)
    assert all(places == sorted(places) for places in members.kept.by_key().values())
    assert not members.failed
    assert len(acts) == 8, f"not everything happened: {acts}"


def _acts(rng: random.Random) -> list[str]:
    acts = [*["stream"] * 12, *["join"] * 8, *["leave", "silence", "heal"] * 5]
    acts += [*["resize"] * 4, *["pass"] * 3, *["settle"] * 2]
    rng.shuffle(acts)
    return acts


class Recording(Consumer):
    """Writes down what it is told of one partition; places are stored after each window."""

    def __init__(self, partition: Partition, told: list[tuple[int, int, int, int, int]]) -> None:
        self.partition = partition
        self._told = told

    def on_data_event(self, event: Event) -> None:
        own = self.partition
        self._told.append((own.generation, own.number, event.scn, event.ord, event.key[0]))


@req("D108", "B-7")
def test_a_silent_member_goes_on_delivering_and_stores_nothing_any_more(log, members):
    told: list[tuple[int, int, int, int, int]] = []

    def factory(partition: Partition) -> Recording:
        return Recording(partition, told)

    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 6)))
    one = members.join(factory)
    members.settled(4, 5)
    other = members.join(factory)
    until(lambda: members.shares() == [2, 2], "shared")
    members.silence(one)
    subscriptions = list(one.subscriptions.values())
    members.pass_lease()
    members.settled(4, 5)
    log.append(*(window(scn, ROWS) for scn in range(6, 11)))
    members.settled(4, 10)
    # It was told of the first window, and of no second one: its place was refused, and that ended it.
    until(lambda: all(one.status.state is State.SHUTDOWN for one in subscriptions), "ended")
    state = members.store.read("g")
    assert state is not None
    assert {p.owner for p in state.partitions} == {other.member}
    present = {p.generation for p in state.partitions}
    late = {(scn, number) for generation, number, scn, _, _ in told if generation not in present}
    assert {scn for scn, _ in late if scn > 5} <= {6}
    assert {(scn, order) for _, _, scn, order, _ in told} == set(expected(10))
    for generation in present:
        mine = [(scn, order) for of, _, scn, order, _ in told if of == generation]
        assert mine == sorted(mine)
    assert not members.failed


@req("B-7")
def test_a_member_that_cannot_renew_its_lease_stops_before_others_may_begin(log, relay, members):
    log.register(TABLE)
    log.append(window(1, ROWS))
    line, now = CutGroupStore(members.store), Clock()
    group = Group(
        relay,
        "shop",
        lambda partition: Storing(members.kept, partition),
        line,
        "g",
        2,
        settings=GROUP_SETTINGS,
        lease_s=LEASE_S,
        clock=now,
    )
    thread = threading.Thread(target=group.run, daemon=True)
    thread.start()
    until(lambda: len(group.subscriptions) == 2, "it delivers")
    # However long it has been a member: what counts is the last turn that came through.
    now.now_s += 10 * LEASE_S

    def renewed() -> bool:
        state = members.store.read("g")
        return (
            state is not None and state.members[group.member] > members.clock.us() + LEASE_S * 9e5
        )

    for _ in range(2):
        # A turn that had begun before does not count.
        members.clock.now_s += LEASE_S / 2
        until(renewed, "it renewed its lease")
    line.cut.set()
    until(lambda: line.refused > 2, "its turns do not come through")
    log.append(window(2, ROWS))
    until(lambda: members.kept.changes() == expected(2), "it goes on while its lease lasts")
    now.now_s += LEASE_S
    until(lambda: not group.subscriptions, "it stopped by itself")
    line.cut.clear()
    until(lambda: len(group.subscriptions) == 2, "it delivers again")
    group.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_what_a_group_is_made_with_reaches_each_partition(log, members):
    seen: list[tuple[str, set[str]]] = []

    class Seeing(Consumer):
        def on_data_event(self, event: Event) -> None:
            seen.append((str(event.table), set(event.row)))

    log.register(TABLE, OTHER)
    log.append(*(window(scn, ROWS, tables=(TABLE, OTHER)) for scn in range(1, 4)))
    shapes = {"public.other": pa.schema([("k", pa.int64()), ("later", pa.string())])}
    options: dict[str, Any] = {"filter": {"tables": ["public.other"]}, "shapes": shapes}
    members.join(lambda _: Seeing(), partitions=2, start="newest", **options)
    members.settled(2, 3)
    log.append(window(4, ROWS, tables=(TABLE, OTHER)))
    members.settled(2, 4)
    assert seen == [("public.other", {"k", "later"})] * ROWS


@pytest.mark.parametrize("wanted", ["wait", "raise"])
def test_a_partition_that_fails_for_good_waits_or_ends_its_member_and_keeps_its_windows_apart(
    log, members, tmp_path, wanted
):
    class Poisoned(Consumer):
        def __init__(self, partition: Partition) -> None:
            self.number = partition.number

        def on_end_window(self, window: Window) -> Result | None:
            return Result.ERROR if self.number == 1 and window.scn == 2 else None

    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 4)))
    settings = replace(GROUP_SETTINGS, retries=0)
    options: dict[str, Any] = {"on_suspended": wanted, "dead_letters": tmp_path / "dead"}
    group = members.join(Poisoned, partitions=2, settings=settings, **options)
    if wanted == "raise":
        members.threads[group.member].join(60)
        assert [type(error) for error in members.failed] == [ConsumerRefused]
        members.live.remove(group)
        return
    until(lambda: group.subscriptions, "it delivers")
    stuck = until(lambda: group.subscriptions.get(1), "partition 1")
    until(lambda: stuck.status.state is State.SUSPENDED_ON_ERROR, "suspended")
    stuck.skip_window()
    members.settled(2, 3)
    assert [path.name for path in (tmp_path / "dead").iterdir()] == ["g-1-of-2"]


def test_a_partition_that_fails_at_once_is_begun_with_again_at_the_next_turn_and_no_sooner(
    log, members, relay
):
    class Unreadable(CutGroupStore):
        loads = 0

        def load(self, group: str, claim: Claim) -> Place:
            self.loads += 1
            raise CheckpointUnusable("It does not read.", next_step="none: a test did it.")

    store = Unreadable(members.store)
    log.register(TABLE)
    log.append(window(1, ROWS))
    options: dict[str, Any] = {"settings": GROUP_SETTINGS, "lease_s": 60.0}
    group = Group(relay, "shop", lambda _: Consumer(), store, "g", 1, **options)
    thread = threading.Thread(target=group.run, daemon=True)
    thread.start()
    until(lambda: store.loads, "it was begun with")
    threading.Event().wait(1.0)
    assert store.loads == 1
    # Whoever asks for a count wakes its own member.
    group.resize(1)
    until(lambda: store.loads == 2, "it was begun with again")
    group.stop()
    thread.join(60)
    assert not thread.is_alive()


def test_a_partition_that_was_lost_before_it_was_begun_with_ends_nobody(log, members, relay):
    class Late(CutGroupStore):
        loads = 0

        def load(self, group: str, claim: Claim) -> Place:
            self.loads += 1
            if self.loads == 1:
                raise StaleGeneration(group, claim.number, claim.generation)
            return super().load(group, claim)

    store = Late(members.store)
    log.register(TABLE)
    log.append(window(1, ROWS))
    options: dict[str, Any] = {"settings": GROUP_SETTINGS, "lease_s": LEASE_S}
    group = Group(relay, "shop", lambda p: Storing(members.kept, p), store, "g", 2, **options)
    thread = threading.Thread(target=group.run, daemon=True)
    thread.start()
    until(lambda: members.kept.changes() == expected(1), "everything")
    group.stop()
    thread.join(60)
    assert store.loads >= 3


def test_a_store_that_does_not_answer_is_waited_for_and_a_member_may_run_again(log, members):
    log.register(TABLE)
    log.append(window(1, ROWS))
    one = members.join()
    members.settled(4, 1)
    members.leave(one)
    line = members.lines[one.member]
    line.cut.set()
    before = line.refused
    thread = threading.Thread(target=one.run, daemon=True)
    thread.start()
    until(lambda: line.refused > before + 1, "it asks again")
    line.cut.clear()
    log.append(window(2, ROWS))
    until(lambda: members.kept.changes() == expected(2), "it is a member again")
    one.stop()
    thread.join(60)
    assert not thread.is_alive()


@req("D107", "D109")
def test_members_that_come_and_leave_find_an_even_spread(log, members):
    log.register(TABLE)
    log.append(window(1, ROWS))
    for _ in range(4):
        members.join(partitions=7)
        members.settled(7, 1)
    assert members.shares() == [1, 2, 2, 2]
    members.leave(members.live[1])
    members.settled(7, 1)
    assert members.shares() == [2, 2, 3]


@req("D104")
def test_one_member_of_all_partitions_is_told_each_of_them_in_order(log, members):
    told: list[tuple[int, int, int, int, int]] = []
    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 31)))
    members.join(lambda partition: Recording(partition, told), by="mod")
    members.settled(4, 30)
    assert sorted((scn, order) for _, _, scn, order, _ in told) == sorted(expected(30))
    for number in range(4):
        own = [(scn, order) for _, of, scn, order, _ in told if of == number]
        assert own
        assert own == sorted(own)
    assert all(key % 4 == number for _, number, _, _, key in told)


@req("D111")
def test_a_transaction_is_whole_within_a_partition_and_nothing_waits_across_them(log, members):
    """One partition cannot process a window: the others are past it, and its own part comes whole when it can."""
    repaired = threading.Event()
    done: dict[tuple[int, int], set[int]] = {}

    class Parts(Consumer):
        def __init__(self, partition: Partition) -> None:
            self.number, self.keys = partition.number, set[int]()

        def on_start_window(self, window: Window) -> None:
            self.keys = set()

        def on_data_event(self, event: Event) -> None:
            self.keys.add(event.key[0])

        def on_end_window(self, window: Window) -> None:
            if self.number == 0 and window.scn == 3 and not repaired.is_set():
                raise RuntimeError
            assert done.setdefault((self.number, window.scn), self.keys) == self.keys

    def place(number: int) -> Place | None:
        state = members.store.read("g")
        return state.partitions[number].place if state else None

    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 6)))
    settings = replace(GROUP_SETTINGS, retries=1)
    group = members.join(Parts, partitions=2, settings=settings)
    until(lambda: (place(0), place(1)) == (Place(2), Place(5)), "the other one is past it")
    stuck = group.subscriptions[0]
    until(lambda: stuck.status.state is State.SUSPENDED_ON_ERROR, "suspended")
    assert {scn for number, scn in done if number == 0} == {1, 2}
    repaired.set()
    stuck.resume()
    members.settled(2, 5)
    for scn in range(1, 6):
        assert done[0, scn] == done[0, 1]
        assert done[0, scn] | done[1, scn] == set(range(ROWS))
        assert not done[0, scn] & done[1, scn]


@req("D110")
def test_a_resize_that_was_begun_outlives_all_members(log, members):
    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 6)))
    one = members.join()
    members.settled(4, 5)
    members.leave(one)
    one.resize(7)
    log.append(*(window(scn, ROWS) for scn in range(6, 11)))
    members.join()
    members.settled(7, 10)
    assert members.kept.changes() == expected(10)
    assert {row.count for row in members.kept.rows() if row.scn > 5} == {7}


@req("D110")
def test_a_partition_that_is_behind_goes_up_to_the_barrier_and_no_further(log, members):
    told: list[tuple[int, int, int, int, int]] = []
    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 6)))
    one = members.join()
    members.settled(4, 5)
    members.leave(one)

    def fall_behind(state: GroupState, _: int) -> None:
        state.partitions[3].place = Place(2)

    members.store.change("g", fall_behind)
    one.resize(3)
    log.append(*(window(scn, ROWS) for scn in range(6, 21)))
    members.join(lambda partition: Recording(partition, told))
    members.settled(3, 20)
    again = Counter((scn, order) for _, _, scn, order, _ in told if scn > 5)
    assert again == {(scn, order): 1 for scn in range(6, 21) for order in range(ROWS)}
    assert {number for _, number, scn, _, _ in told if scn <= 5} == {3}


class Refusing(Consumer):
    """Fails for good with what its partition is told."""

    def on_end_window(self, window: Window) -> Result:
        return Result.ERROR_FATAL


def test_a_fatal_answer_ends_the_member_and_frees_what_it_owned(log, members):
    log.register(TABLE)
    log.append(window(1, ROWS))
    group = members.join(lambda _: Refusing())
    members.threads[group.member].join(60)
    assert [type(error) for error in members.failed] == [FatalResult]
    state = members.store.read("g")
    assert state is not None
    assert not state.members
    assert {p.owner for p in state.partitions} == {None}
    members.live.remove(group)


@pytest.mark.parametrize(
    "options", [{"by": "mod"}, {"filter": {"tables": ["public.*"]}}], ids=["by", "filter"]
)
def test_a_member_that_wants_something_else_is_refused(log, members, options):
    log.register(TABLE)
    log.append(window(1, ROWS))
    members.join()
    members.settled(4, 1)
    other = members.join(**options)
    members.threads[other.member].join(60)
    (error,) = members.failed
    assert isinstance(error, ConfigError)
    assert json.dumps(sorted(options)[0]).strip('"') in str(error)
    members.live.remove(other)
    until(lambda: members.shares() == [4], "the group goes on")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"partitions": 0}, "0 partitions"),
        ({"lease_s": 0}, "lease_s"),
        ({"by": "range"}, "'range'"),
        ({"filter": {"partition": {"by": "mod", "count": 2, "take": [0]}}}, "partition"),
    ],
)
def test_what_no_group_can_be_is_refused(tmp_path, options, named):
    store: GroupStore = SqlGroupStore(f"sqlite:///{tmp_path}/group.db")
    with pytest.raises(ConfigError, match=named):
        Group("http://127.0.0.1:1", "shop", lambda _: Consumer(), store, "g", **options)


def test_a_member_that_finds_no_relay_ends_when_it_is_stopped(tmp_path):
    store = SqlGroupStore(f"sqlite:///{tmp_path}/group.db")
    group = Group(
        "http://127.0.0.1:1", "shop", lambda _: Consumer(), store, "g", settings=GROUP_SETTINGS
    )
    thread = threading.Thread(target=group.run, daemon=True)
    thread.start()
    group.stop()
    thread.join(60)
    assert not thread.is_alive()
    assert store.read("g") is None

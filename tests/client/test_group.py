"""Groups over a real relay: members come, leave, fall silent and go on, and the count of partitions changes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from headrace.client import Consumer, Group, Partition, Result, State
from headrace.client.consumer import Event, Window
from headrace.client.group_state import GroupState
from headrace.testing.group import CutGroupStore
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, window
from tests.client.grouping import GROUP_SETTINGS, Storing
from tests.client.members import LEASE_S, ROWS, Clock, Recording, expected, pieces
from tests.requirements import req
from tests.waiting import until


@req("D10", "D107", "D108", "D109", "D110", "D98", "F11", "B-7")
@pytest.mark.parametrize("seed", [1, 2])
def test_each_change_is_kept_once_and_in_order_whatever_members_do(log, members, seed):
    rng = random.Random(seed)
    log.register(TABLE)
    log.append(window(1, ROWS))
    partitions, scn, acts = 4, 1, Counter[str]()
    members.join()
    # Else it would depend on the machine whether the first acts find a group, and so what follows from them.
    until(lambda: members.store.read("g") is not None, "the group is begun")
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
        elif act == "resize":
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


class Failing(Consumer):
    """Fails with one window, for good."""

    def on_end_window(self, window: Window) -> Result | None:
        return Result.ERROR if window.scn == 6 else None


@req("D108", "B-7")
def test_a_silent_member_whose_consumer_fails_is_told_by_its_rollback_that_it_is_over(log, members):
    """It has nothing to store, and waits for no person: the partition is somebody else's."""
    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 6)))
    one = members.join(lambda _: Failing())
    members.settled(4, 5)
    members.join()
    until(lambda: members.shares() == [2, 2], "shared")
    members.silence(one)
    subscriptions = list(one.subscriptions.values())
    members.pass_lease()
    members.settled(4, 5)
    log.append(window(6, ROWS))
    members.settled(4, 6)
    until(lambda: all(one.status.state is State.SHUTDOWN for one in subscriptions), "ended")
    assert not members.failed


@req("B-7")
def test_a_member_that_leaves_hands_on_only_what_it_has_ended(log, members):
    """Its consumer is in the middle of a callback: until that comes back nobody else begins with the partition."""
    held, gate = threading.Event(), threading.Event()

    class Held(Consumer):
        def on_end_window(self, window: Window) -> None:
            held.set()
            assert gate.wait(60)

    log.register(TABLE)
    log.append(window(1, ROWS))
    one = members.join(lambda _: Held(), partitions=1)
    assert held.wait(60)
    other = members.join(partitions=1)
    until(lambda: other.member in members.store.read("g").members, "another member")
    one.stop()
    # So that everybody who is there takes turns, the one that leaves too.
    members.pass_lease()
    assert [p.owner for p in members.store.read("g").partitions] == [one.member]
    assert other.subscriptions == {}
    gate.set()
    members.threads[one.member].join(60)
    members.live.remove(one)
    members.settled(1, 1)
    # What it was at when it was stopped it had ended: the place was stored, and nothing came again.
    assert members.kept.changes() == {}


@req("B-7")
def test_a_lease_is_as_old_as_the_turn_that_asked_for_it(log, relay, members):
    """An answer that is long under way tells of a lease that has passed for the most part."""
    now = Clock()

    class Slow(CutGroupStore):
        takes_s = 0.0

        def change(self, group: str, act: Callable[[GroupState, int], Any]) -> Any:
            done = super().change(group, act)
            if self.takes_s:
                # The next one gets no answer at all.
                now.now_s += self.takes_s
                self.cut.set()
            return done

    log.register(TABLE)
    log.append(window(1, ROWS))
    line = Slow(members.store)
    options: dict[str, Any] = {"settings": GROUP_SETTINGS, "lease_s": LEASE_S, "clock": now}
    group = Group(relay, "shop", lambda p: Storing(members.kept, p), line, "g", 2, **options)
    thread = threading.Thread(target=group.run, daemon=True)
    thread.start()
    until(lambda: members.kept.changes() == expected(1), "it delivers")
    line.takes_s = 0.9 * LEASE_S
    until(lambda: line.refused and not group.subscriptions, "it stopped by itself")
    line.takes_s = 0.0
    line.cut.clear()
    until(lambda: len(group.subscriptions) == 2, "it delivers again")
    group.stop()
    thread.join(60)
    assert not thread.is_alive()


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


@req("B-7")
def test_a_member_stops_with_its_lease_while_it_waits_for_the_store(log, relay, members):
    """A database that another process holds blocks for long: the member learns nothing, and may not go on."""
    now, held, answers = Clock(), threading.Event(), threading.Event()

    class Blocking(CutGroupStore):
        def change(self, group: str, act: Callable[[GroupState, int], Any]) -> Any:
            if held.is_set():
                answers.wait(60)
            return super().change(group, act)

    log.register(TABLE)
    log.append(window(1, ROWS))
    options: dict[str, Any] = {"settings": GROUP_SETTINGS, "lease_s": LEASE_S, "clock": now}
    group = Group(
        relay,
        "shop",
        lambda p: Storing(members.kept, p),
        Blocking(members.store),
        "g",
        2,
        **options,
    )
    thread = threading.Thread(target=group.run, daemon=True)
    thread.start()
    until(lambda: len(group.subscriptions) == 2, "it delivers")
    held.set()
    now.now_s += LEASE_S
    until(lambda: not group.subscriptions, "it stopped by itself")
    held.clear()
    answers.set()
    until(lambda: len(group.subscriptions) == 2, "it delivers again")
    group.stop()
    thread.join(60)
    assert not thread.is_alive()


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


@req("D107", "D108")
def test_as_many_groups_as_wanted_give_each_partition_as_many_members(log, relay, members):
    """Three groups of one stream, each of several members: every partition has three, and keeps them when one goes."""
    kept: list[tuple[str, int, int]] = []

    class Keeping(Consumer):
        def __init__(self, partition: Partition) -> None:
            self.group = partition.group

        def on_data_event(self, event: Event) -> None:
            kept.append((self.group, event.scn, event.ord))

    names, ends = ("copy-1", "copy-2", "copy-3"), []
    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 6)))

    def spread(*members_of: int) -> bool:
        """Whether so many members of each group own all of its seven partitions, evenly."""
        for name, count in zip(names, members_of, strict=True):
            state = members.store.read(name)
            owned = Counter(p.owner for p in state.partitions) if state else Counter([None])
            if owned[None] or len(owned) != count or max(owned.values()) - min(owned.values()) > 1:
                return False
        return True

    def joined(name: str) -> Group:
        options: dict[str, Any] = {"settings": GROUP_SETTINGS, "lease_s": LEASE_S}
        group = Group(relay, "shop", Keeping, members.store, name, 7, **options)
        thread = threading.Thread(target=group.run, daemon=True)
        thread.start()
        ends.append((group, thread))
        return group

    try:
        everybody = [joined(name) for name in names for _ in range(3)]
        until(lambda: spread(3, 3, 3), "three members for each partition")
        everybody[4].stop()
        until(lambda: spread(3, 2, 3), "still three, of those that are left")
        log.append(*(window(scn, ROWS) for scn in range(6, 11)))
        wanted = {(name, *place) for name in names for place in expected(10)}
        until(lambda: set(kept) == wanted, "everything in each group")
    finally:
        for group, thread in ends:
            group.stop()
            thread.join(60)


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
def test_a_resize_that_one_partition_holds_up_is_called_off_and_the_others_go_on(log, members):
    class Failing(Consumer):
        def on_end_window(self, window: Window) -> Result:
            del window
            return Result.ERROR

    def made(partition: Partition) -> Consumer:
        return Failing() if partition.number == 3 else Storing(members.kept, partition)

    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 6)))
    one = members.join(made, settings=replace(GROUP_SETTINGS, retries=0))

    def state() -> GroupState:
        return members.store.read("g") or GroupState("", [])

    def reached(scn: int) -> None:
        def done() -> bool:
            first = state().partitions[:3]
            return len(first) == 3 and all(p.place >= Place(scn) for p in first)

        until(done, f"all but one at {scn}")

    reached(5)
    one.resize(7)
    until(lambda: state().barrier, "a barrier")
    log.append(*(window(scn, ROWS) for scn in range(6, 11)))
    one.resize(4)
    reached(10)
    assert (state().target, state().barrier, len(state().partitions)) == (None, None, 4)
    assert {row.count for row in members.kept.rows()} == {4}


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

"""Groups that begin again: rewound while members come and go, and from a dump when the relays have gone past them."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from headrace.client import Consumer, Partition, Result, State, Window
from headrace.client.consumer import Event
from headrace.client.group_state import GroupState
from headrace.client.start import Start
from headrace.relay.server.settings import ServedSource
from headrace.state.store import StateStore
from headrace.testing.relay import served
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, commit_us, window
from tests.client.grouping import GROUP_SETTINGS, Storing
from tests.client.logs import LogFolder
from tests.client.members import ROWS, Members, expected
from tests.client.test_relays import fallen_off
from tests.requirements import req
from tests.waiting import until

QUICK = replace(GROUP_SETTINGS, patience_s=0.2, retries=0)
NEWEST = 119


class Copy(Consumer):
    """Writes down what it is told, and what it is told to forget."""

    def __init__(
        self, partition: Partition, told: list[tuple[int, int]], forgotten: list[tuple[int, Place]]
    ) -> None:
        self._number, self._told, self._forgotten = partition.number, told, forgotten

    def on_data_event(self, event: Event) -> None:
        self._told.append((event.scn, event.ord))

    def on_rollback(self, place: Place) -> None:
        self._forgotten.append((self._number, place))


@contextmanager
def lost(tmp_path: Path) -> Iterator[tuple[LogFolder, Members, StateStore]]:
    """Give a relay that has dropped the beginning, which may be asked for dumps, and members of it."""
    log, state = fallen_off(tmp_path), StateStore(tmp_path / "state.db")
    source = ServedSource("shop", log.folder, log.folder / "schemas", tmp_path / "state.db")
    with served((source,), heartbeat_s=0.1) as url:
        members = Members(url, tmp_path)
        try:
            yield log, members, state
        finally:
            members.close()
    state.close()
    log.close()


def state_of(members: Members) -> GroupState:
    return members.store.read("g") or GroupState("", [])


@req("B-11")
def test_partitions_that_were_lost_begin_anew_from_one_dump(tmp_path):
    told: list[tuple[int, int]] = []
    forgotten: list[tuple[int, Place]] = []
    with lost(tmp_path) as (log, members, state):
        one = members.join(
            lambda partition: Copy(partition, told, forgotten),
            start=Place(1),
            on_lost="dump",
            settings=QUICK,
        )
        members.settled(4, NEWEST)
        assert sorted(forgotten) == [(number, Place(0)) for number in range(4)]
        assert len(state.requests()) == 1
        assert told == []
        log.append(window(NEWEST + 1, ROWS))
        members.settled(4, NEWEST + 1)
        assert Counter(told) == Counter({(NEWEST + 1, order): 1 for order in range(ROWS)})

        def fall_behind(state: GroupState, _: int) -> None:
            state.partitions[2].place = Place(1)

        # Somebody else's is found to be lost later: what was asked for before still lies ahead of it.
        members.leave(one)
        members.store.change("g", fall_behind)
        members.join(
            lambda partition: Copy(partition, told, forgotten), on_lost="dump", settings=QUICK
        )
        members.settled(4, NEWEST + 1)
        assert forgotten[4:] == [(2, Place(0))]
        assert len(state.requests()) == 1


@req("B-11", "D110")
def test_a_partition_that_is_lost_on_its_way_to_another_count_holds_nobody_up(tmp_path):
    told: list[tuple[int, int]] = []
    forgotten: list[tuple[int, Place]] = []
    with lost(tmp_path) as (log, members, _):
        members.join(start=Place(NEWEST - 3))
        members.settled(4, NEWEST)
        members.leave(members.live[0])

        def fall_behind(state: GroupState, _: int) -> None:
            state.partitions[3].place = Place(1)

        members.store.change("g", fall_behind)
        log.append(*(window(scn, ROWS) for scn in (NEWEST + 1, NEWEST + 2)))
        one = members.join(
            lambda partition: Copy(partition, told, forgotten), on_lost="dump", settings=QUICK
        )
        one.resize(3)
        members.settled(3, NEWEST + 2)
        assert forgotten == [(3, Place(0))]


def test_partitions_that_were_lost_wait_for_a_person_who_rewinds_all_of_them(tmp_path):
    with lost(tmp_path) as (_, members, state):
        one = members.join(start=Place(1), settings=QUICK)

        def waits() -> bool:
            states = [own.status.state for own in one.subscriptions.values()]
            return states == [State.SUSPENDED_ON_ERROR] * 4

        until(waits, "all are suspended")
        one.rewind("oldest")
        until(lambda: state_of(members).rewind is None, "the rewind")
        members.settled(4, NEWEST)
        assert state.requests() == []
        assert {scn for scn, _ in members.kept.changes()} >= {NEWEST - 1, NEWEST}


@req("D08", "F11")
@pytest.mark.parametrize("seed", [1, 2])
def test_a_group_is_rewound_as_one_whatever_members_do(log, members, seed):
    rng = random.Random(seed)
    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 21)))
    members.join()
    members.settled(4, 20)
    wanted = Counter(expected(20))
    moment = datetime.fromtimestamp(commit_us(13) / 1e6, UTC)
    goals: list[tuple[Start | int, int]] = [
        (7, 7),
        ("oldest", 0),
        (moment, 12),
        ("newest", 20),
        (Place(4), 4),
    ]
    acts = ["join", "join", "leave", "silence", "join"]
    rng.shuffle(goals)
    for (to, behind), act in zip(goals, acts, strict=True):
        before = rng.random() < 0.5
        if before:
            rng.choice(members.live).rewind(to)
        if act == "join":
            members.join()
        elif act == "leave":
            members.leave(rng.choice(members.live))
        else:
            members.silence(rng.choice(members.live))
        if not before:
            rng.choice(members.live).rewind(to)
        until(lambda: members.pass_lease() or state_of(members).rewind is None, "the rewind")
        if members.cut:
            members.heal()
        members.pass_lease()
        members.settled(4, 20)
        wanted.update({(scn, order): 1 for scn in range(behind + 1, 21) for order in range(ROWS)})
        assert members.kept.changes() == wanted
    assert not members.failed


def test_a_rewind_outlives_all_members_and_passes_what_suspends_one(log, members):
    class Failing(Storing):
        def on_end_window(self, window: Window) -> Result:
            return Result.ERROR if window.scn == 3 else super().on_end_window(window)

    log.register(TABLE)
    log.append(*(window(scn, ROWS) for scn in range(1, 6)))
    one = members.join(lambda partition: Failing(members.kept, partition), settings=QUICK)
    until(lambda: [p.place for p in state_of(members).partitions] == [Place(2)] * 4, "the second")
    members.leave(one)
    one.rewind(3)
    members.join(lambda partition: Failing(members.kept, partition), settings=QUICK)
    members.settled(4, 5)
    assert {scn for scn, _ in members.kept.changes()} == {1, 2, 4, 5}


def test_a_start_from_a_dump_waits_for_a_store_that_does_not_answer(tmp_path):
    with lost(tmp_path) as (_, members, state):
        one = members.join(start=Place(1), on_lost="dump", settings=replace(QUICK, patience_s=1.0))
        line = members.lines[one.member]
        until(lambda: len(one.subscriptions) == 4, "it delivers")
        line.sever()
        before = line.refused
        until(lambda: line.refused > before + 5, "nothing gets through")
        line.cut.clear()
        members.settled(4, NEWEST)
        assert state.requests()

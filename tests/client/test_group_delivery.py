"""What each partition of a group delivers over a real relay, and what its failures mean for the others."""

from __future__ import annotations

import sys
import threading
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from headrace.client import Consumer, Group, Partition, Result, State
from headrace.client.consumer import Event, Window
from headrace.client.errors import (
    CheckpointUnusable,
    ConsumerRefused,
    FatalResult,
    StaleGeneration,
)
from headrace.client.group_state import Claim
from headrace.testing.group import CutGroupStore
from headrace.wire.place import Place
from tests.changelog.windows import OTHER, TABLE, window
from tests.client.grouping import GROUP_SETTINGS, Storing
from tests.client.members import LEASE_S, ROWS, Recording, expected
from tests.requirements import req
from tests.waiting import until


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


class Refusing(Consumer):
    """Fails for good with what its partition is told."""

    def on_end_window(self, window: Window) -> Result:
        return Result.ERROR_FATAL


class Exiting(Consumer):
    """Wants the end of its process with what its partition is told."""

    def on_data_event(self, event: Event) -> None:
        sys.exit(3)


@pytest.mark.parametrize(("consumer", "error"), [(Refusing, FatalResult), (Exiting, SystemExit)])
def test_what_is_final_ends_the_member_and_frees_what_it_owned(log, members, consumer, error):
    log.register(TABLE)
    log.append(window(1, ROWS))
    group = members.join(lambda _: consumer())
    members.threads[group.member].join(60)
    assert [type(failed) for failed in members.failed] == [error]
    state = members.store.read("g")
    assert state is not None
    assert not state.members
    assert {p.owner for p in state.partitions} == {None}
    members.live.remove(group)

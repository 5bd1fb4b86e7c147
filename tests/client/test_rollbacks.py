"""Where a consumer stands after failures, rewinds and ends that meet each other: never further than it processed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headrace.client import (
    FileCheckpoints,
    NoCheckpoints,
    Result,
    State,
    Subscription,
    dead_letters,
    read_dead_letters,
)
from headrace.client.errors import CheckpointUnusable
from headrace.errors import StateError
from headrace.model.block import Block
from headrace.wire.block import encode_block
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, commit_us, joined, window
from tests.client.conftest import QUICK, running, suspended
from tests.client.logs import LogFolder
from tests.client.recording import Recorder
from tests.faults.test_room import files_at_most
from tests.requirements import req
from tests.waiting import until


def windows_of(log: LogFolder, *scns: int) -> None:
    log.register(TABLE)
    log.append(*(window(scn) for scn in scns))


@req("D31", "D88")
def test_a_rewind_whose_rollback_fails_leads_there_all_the_same(log, relay):
    windows_of(log, *range(10, 60, 10))
    broken = [True]

    def fail(name: str, number: int) -> Result | None:
        return Result.ERROR if name == "on_rollback" and broken and broken.pop() else None

    consumer = Recorder(fail)
    subscription = Subscription(relay, "shop", consumer, settings=QUICK)
    with running(subscription):
        until(lambda: subscription.status.stored == Place(50), "everything")
        consumer.windows.clear()
        subscription.rewind(20)
        until(lambda: consumer.windows == [30, 40, 50], "the windows behind the place")
    assert [place for name, place in consumer.log if name == "on_rollback"] == [Place(20)] * 2


@req("D31")
def test_a_rewind_outlives_an_end_that_comes_at_once(log, relay):
    windows_of(log, *range(10, 60, 10))
    places = NoCheckpoints()

    class Ending(Recorder):
        def on_rollback(self, place: Place) -> Result | None:
            subscription.stop()
            return super().on_rollback(place)

    subscription = Subscription(relay, "shop", Ending(), places, settings=QUICK)
    with running(subscription) as join:
        until(lambda: places.load() == Place(50), "everything")
        subscription.rewind(20)
        join()
    assert places.load() == Place(20)


def test_an_end_in_the_middle_of_a_window_stores_nothing_of_it(log, relay):
    """Whoever did not ask for places inside windows is not given one: all of the window comes again."""
    log.register(TABLE)
    log.append(window(1), *(window(2, 40, first=40 * i, last=i == 9) for i in range(10)))
    places = NoCheckpoints()

    class Ending(Recorder):
        def on_end_source(self, table):
            if self.grammar.scn == 2:
                subscription.stop()
            return super().on_end_source(table)

    subscription = Subscription(relay, "shop", Ending(), places, settings=QUICK)
    subscription.run()
    assert places.load() == Place(1)


@req("D96")
def test_a_person_who_resumes_gives_as_many_tries_as_at_first(log, relay):
    windows_of(log, 1, 2, 3)
    tries = []

    class Broken(Recorder):
        def on_end_window(self, window):
            if window.scn == 2:
                tries.append(window.scn)
                return Result.ERROR
            return super().on_end_window(window)

    settings = replace(QUICK, retries=2)
    subscription = Subscription(relay, "shop", Broken(), settings=settings)
    with running(subscription):
        for count in (3, 6):
            until(lambda: len(tries) == count, f"{count} tries")  # noqa: B023
            suspended(subscription)
            assert len(tries) == count
            subscription.resume()


@req("D96")
def test_a_person_who_resumes_as_soon_as_the_error_is_told_is_heard(log, relay):
    windows_of(log, 1, 2)
    errors: list[Exception] = []

    class Answering(Recorder):
        def on_end_window(self, window):
            return Result.ERROR if window.scn == 2 and not errors else super().on_end_window(window)

        def on_error(self, error):
            errors.append(error)
            assert subscription.status.state is State.SUSPENDED_ON_ERROR
            subscription.resume()
            return super().on_error(error)

    consumer = Answering()
    settings = replace(QUICK, retries=0)
    subscription = Subscription(relay, "shop", consumer, upto=2, settings=settings)
    with running(subscription):
        until(lambda: consumer.windows[-1:] == [2], "the window behind the error")
    assert len(errors) == 1


@req("D96")
def test_failures_at_places_in_turn_end_too(log, relay):
    """With places kept now and then it fails now here and now there, and comes no further: that is no progress."""
    windows_of(log, 1, 2, 3, 4, 5)
    deliveries = [0]

    class Moody(Recorder):
        def on_start_window(self, window):
            if window.scn == 1:
                deliveries[0] += 1
            if window.scn == (5 if deliveries[0] % 2 else 3):
                return Result.ERROR
            return super().on_start_window(window)

    settings = replace(QUICK, retries=4, checkpoint_every=100, idle_checkpoint_s=1e9)
    subscription = Subscription(relay, "shop", Moody(), settings=settings)
    with running(subscription):
        suspended(subscription)
    assert deliveries == [5]


@req("D122")
def test_a_window_that_cannot_be_put_aside_is_not_passed(log, relay, tmp_path: Path):
    windows_of(log, 1, 2, 3)
    places = NoCheckpoints()
    (tmp_path / "full").write_text("a file")

    class Broken(Recorder):
        def on_end_window(self, window):
            return Result.ERROR if window.scn == 2 else super().on_end_window(window)

    subscription = Subscription(
        relay,
        "shop",
        Broken(),
        places,
        settings=replace(QUICK, retries=0),
        dead_letters=tmp_path / "full" / "dead",
    )
    with running(subscription):
        suspended(subscription)
        subscription.skip_window()
        # The error is known a moment before the consumer was told of it and people are waited for.
        until(lambda: isinstance(subscription.status.error, StateError), "it cannot be put aside")
        suspended(subscription)
        assert places.load() == Place(1)
        # Once there is room it is passed, and kept.
        (tmp_path / "full").unlink()
        subscription.resume()
        until(lambda: places.load() == Place(3), "what lies behind it")
    assert [path.name for path in (tmp_path / "full" / "dead").iterdir()] == ["shop-2.blocks"]


@req("D122")
def test_what_is_put_aside_again_is_there_once(log, relay, tmp_path: Path, monkeypatch):
    """The first piece was processed; the disk is full behind the second one, with which it begins again."""
    log.register(TABLE)
    pieces = [window(1, first=2 * number, last=number == 3) for number in range(4)]
    log.append(*pieces, window(2))
    full = iter([False, True])

    def encoded(block: Block) -> bytes:
        if next(full, False):
            raise OSError
        return encode_block(block)

    monkeypatch.setattr(dead_letters, "encode_block", encoded)

    class Broken(Recorder):
        def on_data_event(self, event):
            return (
                Result.ERROR if (event.scn, event.ord) == (1, 2) else super().on_data_event(event)
            )

    places = NoCheckpoints()
    subscription = Subscription(
        relay,
        "shop",
        Broken(),
        places,
        settings=replace(QUICK, retries=0, checkpoint_rows=1),
        dead_letters=tmp_path / "dead",
    )
    with running(subscription):
        suspended(subscription)
        subscription.skip_window()
        until(lambda: isinstance(subscription.status.error, StateError), "the disk is full")
        suspended(subscription)
        subscription.resume()
        until(lambda: places.load() == Place(2), "what lies behind it")
    aside = [*read_dead_letters(tmp_path / "dead" / "shop-1.blocks")]
    rows = [row for block in aside for row in block.bodies[0].batch.to_pylist()]
    assert [(row["_scn"], row["_ord"]) for row in rows] == [(1, order) for order in range(2, 8)]


@req("D97")
def test_a_place_for_which_there_is_no_room_leaves_the_one_before(tmp_path: Path):
    store = FileCheckpoints(tmp_path / "place")
    store.store(Place(41))
    with files_at_most(5), pytest.raises(CheckpointUnusable, match="cannot be written"):
        store.store(Place(42))
    assert store.load() == Place(41)
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


@req("D99")
def test_checkpoints_count_transactions_where_windows_are_merged(log, relay):
    log.register(TABLE)
    # Those of a block are merged however it comes; whether blocks come together nobody knows.
    log.append(*(joined([*map(window, scns)]) for scns in (range(1, 5), range(5, 9), range(9, 12))))
    consumer = Recorder()
    settings = replace(QUICK, merge_windows=True, checkpoint_every=5, idle_checkpoint_s=1e9)
    subscription = Subscription(relay, "shop", consumer, settings=settings)
    with running(subscription):
        # Noted behind the checkpoint, if the last window has one.
        until(lambda: subscription.status.last_commit_us == commit_us(11), "everything")
        merged = [argument for name, argument in consumer.log if name == "on_end_window"]
        counted = 0
        for one in merged:
            counted += one.transactions
            if counted >= 5:
                assert one.place in consumer.checkpoints
                counted = 0
    assert sum(one.transactions for one in merged) == 11
    assert len(merged) < 11

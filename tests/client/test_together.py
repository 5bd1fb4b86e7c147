"""Several sources, one program: each in its own order, and no two callbacks at once."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from headrace.client import Event, NoCheckpoints, Result, State, Subscription, Together, Window
from headrace.client.together import Turns
from headrace.errors import ConfigError
from headrace.testing.histories import TABLES
from headrace.testing.relay import served
from tests.client.conftest import QUICK
from tests.client.logs import LogFolder, random_blocks, told_by
from tests.client.recording import Recorder
from tests.requirements import req
from tests.waiting import until

SOURCES = ("crm", "shop", "stock")


class Shared:
    """What the consumers share, without a lock."""

    def __init__(self) -> None:
        self.order: list[tuple[str, int]] = []
        self.inside: str | None = None
        self.entered = 0
        self.overlaps: list[tuple[str, str | None]] = []


class One(Recorder):
    """The consumer of one source."""

    def __init__(self, source: str, shared: Shared, fails_at: int = 0) -> None:
        super().__init__()
        self.source = source
        self.shared = shared
        self.fails_at = fails_at

    def on_start_window(self, window: Window) -> Result | None:
        if self.shared.inside is not None:
            self.shared.overlaps.append((self.source, self.shared.inside))
        self.shared.inside = self.source
        return super().on_start_window(window)

    def on_data_event(self, event: Event) -> Result | None:
        self.shared.entered += 1
        # Time enough for the others to come in.
        threading.Event().wait(0.0005)
        if self.shared.entered != 1 or self.shared.inside != self.source:
            self.shared.overlaps.append((self.source, self.shared.inside))
        if self.fails_at and event.scn >= self.fails_at:
            self.shared.entered -= 1
            self.shared.inside = None
            return Result.ERROR
        self.shared.order.append((self.source, event.scn))
        answer = super().on_data_event(event)
        self.shared.entered -= 1
        return answer

    def on_end_window(self, window: Window) -> Result | None:
        if self.shared.inside != self.source:
            self.shared.overlaps.append((self.source, self.shared.inside))
        self.shared.inside = None
        return super().on_end_window(window)


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[dict[str, LogFolder]]:
    found = {name: LogFolder(tmp_path / name) for name in SOURCES}
    for seed, log in enumerate(found.values()):
        log.register(*TABLES)
        log.append(*random_blocks(seed, steps=80))
    yield found
    for log in found.values():
        log.close()


@pytest.fixture
def url(logs: dict[str, LogFolder]) -> Iterator[str]:
    with served({name: log.folder for name, log in logs.items()}, heartbeat_s=0.1) as url:
        yield url


def subscription(url: str, log: LogFolder, consumer: One) -> Subscription:
    upto = log.blocks[-1].covered_scn
    return Subscription(url, consumer.source, consumer, NoCheckpoints(), upto=upto, settings=QUICK)


def is_over(subscription: Subscription) -> bool:
    return subscription.status.state is State.SHUTDOWN


def waiting(turns: Turns, count: int) -> bool:
    return len(turns._waiting) == count


@req("D104", "D05")
def test_each_source_comes_whole_and_in_its_order_and_windows_never_overlap(
    url: str, logs: dict[str, LogFolder]
) -> None:
    shared = Shared()
    consumers = {name: One(name, shared) for name in SOURCES}
    Together([subscription(url, logs[name], consumers[name]) for name in SOURCES]).run()
    assert shared.overlaps == []
    for name in SOURCES:
        told = sorted(consumers[name].told, key=lambda one: one[:2])
        assert told == told_by(logs[name].blocks)
        scns = [scn for source, scn in shared.order if source == name]
        assert scns == sorted(scns)
    # They took turns: none of them waited until another one had everything.
    assert len({source for source, _ in shared.order[: len(shared.order) // 2]}) > 1


@req("D13", "D96")
def test_one_that_is_suspended_holds_up_nobody_else(tmp_path: Path) -> None:
    shared = Shared()
    logs = {name: LogFolder(tmp_path / name) for name in SOURCES[:2]}
    blocks = {name: random_blocks(seed, steps=80) for seed, name in enumerate(logs)}
    half = {name: len(blocks[name]) // 2 for name in logs}
    for name, log in logs.items():
        log.register(*TABLES)
        log.append(*blocks[name][: half[name]])
    fails_at = blocks["crm"][half["crm"] // 2].covered_scn
    consumers = {name: One(name, shared, fails_at if name == "crm" else 0) for name in logs}
    with served({name: log.folder for name, log in logs.items()}, heartbeat_s=0.1) as url:
        subscriptions = {
            name: Subscription(
                url,
                name,
                consumers[name],
                NoCheckpoints(),
                upto=blocks[name][-1].covered_scn,
                settings=QUICK,
            )
            for name in logs
        }
        thread = threading.Thread(target=Together(list(subscriptions.values())).run, daemon=True)
        thread.start()
        stuck = subscriptions["crm"]
        until(lambda: stuck.status.state is State.SUSPENDED_ON_ERROR, "suspended")
        # What comes only now cannot have come before.
        for name, log in logs.items():
            log.append(*blocks[name][half[name] :])
        until(partial(is_over, subscriptions["shop"]), "the other one has everything")
        assert len(consumers["shop"].told) == len(told_by(blocks["shop"]))
        consumers["crm"].fails_at = 0
        stuck.resume()
        thread.join(30)
        assert not thread.is_alive()
    assert len(consumers["crm"].told) == len(told_by(blocks["crm"]))
    for log in logs.values():
        log.close()


def test_an_error_that_ends_one_ends_all(url: str, logs: dict[str, LogFolder]) -> None:
    class Fatal(One):
        def on_data_event(self, event: Event) -> Result | None:
            return Result.ERROR_FATAL

    shared = Shared()
    follow = Subscription(url, "shop", One("shop", shared), NoCheckpoints(), settings=QUICK)
    dies = Subscription(url, "crm", Fatal("crm", Shared()), NoCheckpoints(), settings=QUICK)
    with pytest.raises(Exception, match="ERROR_FATAL"):
        Together([follow, dies]).run()
    assert follow.status.state is State.SHUTDOWN


def test_nothing_and_twice_the_same_are_refused(url: str) -> None:
    one = Subscription(url, "shop", One("shop", Shared()), NoCheckpoints())
    for wrong in ([], [one, one]):
        with pytest.raises(ConfigError, match="each another one"):
            Together(wrong)


def test_turns_go_round() -> None:
    turns, order = Turns(), list[int]()
    turns.take("first")
    threads = []
    for number in range(4):

        def wait(number: int = number) -> None:
            turns.take(number)
            order.append(number)
            turns.give(number)

        threads.append(threading.Thread(target=wait))
        threads[-1].start()
        until(partial(waiting, turns, number + 1), "it waits")
    turns.take("first")
    turns.give("first")
    assert order == []
    turns.give("first")
    for thread in threads:
        thread.join(30)
    assert order == [0, 1, 2, 3]

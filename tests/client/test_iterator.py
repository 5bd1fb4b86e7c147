"""Windows by iteration: the same as by callbacks."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from headrace.client import Batch, NoCheckpoints, Subscription
from headrace.client.errors import WindowUnfinished
from headrace.testing.line_faults import SOUND, Damage, FaultyLine
from headrace.wire import encode_block
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, coverage, window
from tests.client.conftest import QUICK
from tests.client.logs import random_blocks
from tests.client.recording import Recorder, told_of
from tests.requirements import req
from tests.waiting import until


@req("D91")
@pytest.mark.parametrize("seed", range(3))
def test_iterating_gives_what_callbacks_get(log, relay, seed):
    log.append(*random_blocks(seed + 80))
    end = log.blocks[-1].covered_scn
    called = Recorder()
    Subscription(relay, "shop", called, upto=end, settings=QUICK).run()
    told, seen = [], []
    for window_ in Subscription(relay, "shop", upto=end, settings=QUICK).windows():
        told += [told_of(event) for event in window_]
        seen.append(window_.window)
        window_.done()
    assert told == called.told
    assert seen == [argument for name, argument in called.log if name == "on_end_window"]


def test_whoever_comes_again_begins_behind_what_was_done(log, relay):
    log.register(TABLE)
    log.append(*(window(scn) for scn in range(1, 8)))
    checkpoints = NoCheckpoints()
    for window_ in Subscription(relay, "shop", None, checkpoints, settings=QUICK).windows():
        if window_.window.scn == 4:
            break
        window_.done()
    assert checkpoints.load() == Place(3)
    again = Subscription(relay, "shop", None, checkpoints, upto=7, settings=QUICK)
    assert [window_.window.scn for window_ in again.windows()] == [4, 5, 6, 7]
    assert checkpoints.load() == Place(3)


def test_what_is_not_read_of_a_window_is_passed_over(log, relay):
    log.register(TABLE)
    log.append(window(1, 4), *(window(2, 5, first=5 * i, last=i == 5) for i in range(6)), window(3))
    found = []
    for window_ in Subscription(relay, "shop", upto=3, settings=QUICK).windows():
        event = next(iter(window_))
        found.append((window_.window.scn, event.ord))
    assert found == [(1, 0), (2, 0), (3, 0)]


def test_a_window_comes_as_batches_too(log, relay):
    log.register(TABLE)
    log.append(window(1, 4), *(window(2, 5, first=5 * i, last=i == 5) for i in range(6)))
    rows = {}
    for window_ in Subscription(relay, "shop", upto=2, settings=QUICK).windows():
        batches = list(window_.batches())
        rows[window_.window.scn] = [b.rows.num_rows for b in batches if isinstance(b, Batch)]
    assert rows == {1: [4], 2: [5] * 6}


def test_coverage_moves_the_place_of_whoever_is_done_and_of_nobody_else(log, relay):
    log.register(TABLE)
    log.append(window(1))
    checkpoints = NoCheckpoints()
    subscription = Subscription(relay, "shop", None, checkpoints, settings=QUICK)
    windows = subscription.windows()
    next(windows)
    log.append(coverage(9))

    def later() -> None:
        threading.Event().wait(0.7)
        log.append(window(10))

    writing = threading.Thread(target=later)
    writing.start()
    assert next(windows).window.scn == 10
    # Window 1 was passed over without a word: nothing behind it may be stored.
    assert checkpoints.load() == Place(0)
    windows.close()
    writing.join()
    subscription = Subscription(relay, "shop", None, checkpoints, settings=QUICK)
    for window_ in subscription.windows():
        window_.done()
        if window_.window.scn == 10:
            log.append(coverage(30))
            log.append(window(40))
        if window_.window.scn == 40:
            subscription.stop()
    assert checkpoints.load() == Place(40)


def test_stop_and_rewind_reach_an_iteration(log, relay):
    log.register(TABLE)
    log.append(*(window(scn) for scn in range(1, 5)))
    subscription = Subscription(relay, "shop", settings=replace(QUICK, checkpoint_every=1))
    seen = []
    for window_ in subscription.windows():
        seen.append(window_.window.scn)
        if len(seen) == 4:
            subscription.rewind(2)
        if len(seen) == 6:
            subscription.stop()
    assert seen == [1, 2, 3, 4, 3, 4]
    until(lambda: subscription.status.state.value == "shutdown", "the end")


def test_a_window_whose_rest_does_not_come_is_given_up_by_a_stop(log, relay):
    log.register(TABLE)
    log.append(window(1), *(window(2, 5, first=5 * i, last=i == 5) for i in range(6)))
    checkpoints = NoCheckpoints()
    begun = threading.Event()
    seen: list[int] = []
    refused: list[int] = []

    def consume() -> None:
        for window_ in subscription.windows():
            if window_.window.scn == 1:
                window_.done()
                continue
            try:
                for event in window_:
                    seen.append(event.ord)
                    begun.set()
            except WindowUnfinished as error:
                refused.append(error.scn)
                with pytest.raises(WindowUnfinished):
                    window_.done()

    with FaultyLine(relay) as line:
        silent_at = 600 + sum(len(encode_block(block)) for block in log.blocks[:2])
        # The second one asks for the table's version.
        line.rule = lambda number: {1: Damage(silent_at=silent_at), 2: SOUND}.get(number, Damage(0))
        subscription = Subscription(line.url, "shop", None, checkpoints, settings=QUICK)
        thread = threading.Thread(target=consume, daemon=True)
        thread.start()
        assert begun.wait(60)
        subscription.stop()
        thread.join(60)
        assert not thread.is_alive()
    assert seen == list(range(5))
    assert refused == [2]
    assert checkpoints.load() == Place(1)

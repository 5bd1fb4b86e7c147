"""Callbacks: their order in every run, and what each failure means for it."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import replace

import pytest

from headrace.client import NoCheckpoints, Result, State, Subscription
from headrace.client.errors import CallbackFailed
from headrace.wire.place import Place
from tests.client.conftest import QUICK, running, suspended
from tests.client.logs import random_blocks, told_by
from tests.client.recording import Recorder
from tests.requirements import req

WINDOWS_ALONE = replace(QUICK, idle_checkpoint_s=3_600.0)
"""Whether coverage is remembered apart from the next window depends on when that comes."""


FAILING = {
    *("on_start_window", "on_start_source", "on_data_event", "on_system_event"),
    *("on_end_source", "on_end_window", "on_checkpoint"),
}
"""Every callback whose failure means that windows come again."""


def run_to_end(relay: str, consumer: Recorder, last: int) -> None:
    settings = WINDOWS_ALONE
    Subscription(relay, "shop", consumer, NoCheckpoints(), upto=last, settings=settings).run()


@req("D82", "D83", "D85", "D86", "D90", "D26", "F6", "D41")
@pytest.mark.parametrize("seed", range(6))
def test_every_event_comes_once_and_in_order_when_nothing_fails(log, relay, seed):
    log.append(*random_blocks(seed))
    consumer = Recorder()
    run_to_end(relay, consumer, log.blocks[-1].covered_scn)
    assert sorted(consumer.told, key=lambda told: told[:2]) == told_by(log.blocks)
    assert consumer.grammar.state == "over"
    assert consumer.rollbacks == 0
    scns = sorted({int(scn) for block in log.blocks for scn in block.index["scn"]})
    for name in ("on_start_window", "on_end_window"):
        assert [window.scn for told, window in consumer.log if told == name] == scns
    table = None
    for name, argument in consumer.log:
        if name == "on_start_source":
            table = argument
            assert table == log.registry.get(table.schema_id)
        elif name == "on_data_event":
            assert table is not None
            assert {*argument.row, *argument.missing} == set(table.names)
    assert len(consumer.told) == consumer.deliveries + sum(
        len(block.system) for block in log.blocks
    )
    per_table: dict[str, tuple[int, int]] = {}
    for scn, order, _, table, _ in consumer.told:
        assert per_table.get(table, (0, -1)) < (scn, order)
        per_table[table] = (scn, order)


@req("D88", "D94", "D95", "F6", "B-4")
@pytest.mark.parametrize("seed", [1, 9, 11])
def test_a_failure_of_any_callback_brings_exactly_what_lies_behind_the_last_checkpoint(
    log, relay, seed
):
    log.append(*random_blocks(seed, steps=100))
    last = log.blocks[-1].covered_scn
    calm = Recorder()
    run_to_end(relay, calm, last)
    rng = random.Random(seed)
    at: dict[str, list[int]] = defaultdict(list)
    for k, (name, _) in enumerate(calm.log, 1):
        at[name].append(k)
    assert set(at) == {*FAILING, "on_start", "on_stop"}
    for k in sorted(k for name in FAILING for k in rng.sample(at[name], min(6, len(at[name])))):

        def fail(name: str, number: int, k: int = k) -> Result | None:
            if number == k:
                if number % 2:
                    raise RuntimeError("a callback fails")
                return Result.ERROR
            return None

        consumer = Recorder(fail)
        run_to_end(relay, consumer, last)
        assert consumer.rollbacks == 1
        assert consumer.told == calm.told
        back = [name for name, _ in consumer.log].index("on_rollback")
        place = consumer.log[back][1]
        before = [one for one in consumer.checkpoints if one <= place]
        assert place in (before[-1] if before else Place(0), Place(0))
        # What followed the checkpoint in the calm run follows the rollback here.
        begun = next((i for i, one in enumerate(calm.log) if one == ("on_checkpoint", place)), 0)
        assert consumer.log[back + 1 : -1] == calm.log[begun + 1 : -1]


class Fails:
    """Lets callbacks of some names fail, the first times that they are called."""

    def __init__(self, how: str, **times: int) -> None:
        self.left = times
        self._how = how

    def __call__(self, name: str, number: int) -> Result | None:
        if self.left.get(name, 0):
            self.left[name] -= 1
            if self._how == "raises":
                raise RuntimeError("a callback fails")
            return Result.ERROR
        return None


HOW = pytest.mark.parametrize("how", ["raises", "says so"])


@HOW
@req("D88", "F6")
def test_a_rollback_that_fails_is_told_again_before_anything_comes_again(log, relay, how):
    log.append(*random_blocks(4, steps=100))
    last = log.blocks[-1].covered_scn
    calm = Recorder()
    run_to_end(relay, calm, last)
    consumer = Recorder(Fails(how, on_end_source=1, on_rollback=2))
    run_to_end(relay, consumer, last)
    names = [name for name, _ in consumer.log]
    first = names.index("on_rollback")
    assert names[first - 1 : first + 4] == ["on_end_source", *["on_rollback"] * 3, names[first + 3]]
    assert names.count("on_rollback") == 3
    assert len({place for name, place in consumer.log if name == "on_rollback"}) == 1
    assert consumer.told == calm.told


@HOW
@req("F6")
def test_a_consumer_that_fails_to_begin_is_told_of_nothing_else(log, relay, how):
    log.append(*random_blocks(4, steps=30))
    consumer, places = Recorder(Fails(how, on_start=1)), NoCheckpoints()
    with pytest.raises(CallbackFailed, match="on_start"):
        Subscription(relay, "shop", consumer, places, settings=QUICK).run()
    assert [name for name, _ in consumer.log] == ["on_start", "on_error", "on_stop"]
    assert places.load() == Place(0)


@HOW
@req("D89", "F6")
def test_a_failure_of_the_callbacks_that_only_tell_changes_nothing(log, relay, how):
    """Of a suspension and of the end a consumer is told; what it makes of that is its own."""
    log.append(*random_blocks(4, steps=60))
    last = log.blocks[-1].covered_scn
    calm = Recorder()
    run_to_end(relay, calm, last)
    consumer = Recorder(Fails(how, on_start_window=2, on_error=1, on_stop=1))
    subscription = Subscription(
        relay, "shop", consumer, upto=last, settings=replace(WINDOWS_ALONE, retries=1)
    )
    with running(subscription) as join:
        suspended(subscription)
        subscription.resume()
        join()
    assert len(consumer.errors) == 1
    assert subscription.status.state is State.SHUTDOWN
    assert [name for name, _ in consumer.log][-1] == "on_stop"
    assert consumer.told == calm.told

"""How much is held at once, and who may be handed what at the same time."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import threading
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.client import Consumer, Event, Subscription
from headrace.client.buffer import _QUIET_S, ByteBuffer
from headrace.client.fetcher import _FLOWS_S
from headrace.client.workers import Workers
from headrace.model.block import Block, Body, transaction_index
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.relay.server.look_out import _LONGEST_PACE_S
from headrace.testing.notation import change_batch
from headrace.wire import encode_block
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, window
from tests.client.conftest import QUICK, running
from tests.client.logs import random_blocks, told_by
from tests.client.recording import Recorder, Told, told_of
from tests.client.test_transport import wide
from tests.requirements import req
from tests.waiting import until

ROOT = Path(__file__).parents[2]


def test_streams_of_a_relay_with_many_readers_flow_at_its_slowest_pace():
    """Else every block would be handed from one thread to another, which costs more than to take it."""
    assert min(_QUIET_S, _FLOWS_S) > 3 * _LONGEST_PACE_S


@req("D100", "P28", "P29")
def test_a_slow_consumer_bounds_what_is_held(log, relay):
    blocks = [wide(10 * i, 40) for i in range(1, 200)]
    log.append(*blocks)
    gate = threading.Event()

    class Gated(Recorder):
        def on_start_window(self, window):
            gate.wait(60)
            return super().on_start_window(window)

    consumer = Gated()
    settings = replace(QUICK, buffer_bytes=500_000)
    subscription = Subscription(relay, "shop", consumer, settings=settings)
    largest = max(len(encode_block(block)) for block in blocks)
    with running(subscription):
        until(lambda: subscription.status.held_bytes > 500_000 - largest, "a full buffer")
        threading.Event().wait(0.3)
        assert subscription.status.held_bytes <= 500_000
        gate.set()
        until(lambda: consumer.windows and consumer.windows[-1] == 1990, "everything")
        assert subscription.status.peak_bytes <= 500_000
    assert consumer.windows == list(range(10, 2000, 10))
    assert sum(len(encode_block(block)) for block in blocks) > 10 * 500_000


@req("D100")
def test_whoever_puts_waits_for_room_and_a_large_item_for_emptiness():
    buffer: ByteBuffer[str] = ByteBuffer(10)
    assert buffer.put("a", 6)
    assert buffer.put("b", 4)
    waiting = threading.Thread(target=buffer.put, args=("large", 50), daemon=True)
    waiting.start()
    waiting.join(0.1)
    assert waiting.is_alive()
    assert buffer.take(1, 6) == ["a"]
    waiting.join(0.1)
    assert waiting.is_alive()
    assert buffer.take(1, 100) == ["b"]
    waiting.join(10)
    assert buffer.take(1, 1) == ["large"]
    assert buffer.take(0.01, 1) == []
    buffer.close()
    assert not buffer.put("late", 1)


class Source:
    """An inlet that gives what it was told to, then nothing."""

    def __init__(self, *items: str) -> None:
        self.left = list(items)
        self.readers: set[int] = set()

    def read(self, wait_s: float, most_bytes: int) -> tuple[list[str], int]:
        self.readers.add(threading.get_ident())
        return ([self.left.pop(0)], 1) if self.left else ([], 0)


def lending(buffer: ByteBuffer[str], inlet: Source) -> threading.Thread:
    thread = threading.Thread(target=buffer.lend, args=(inlet,), daemon=True)
    thread.start()
    until(lambda: buffer._lent is not None, "it is lent")
    return thread


@req("D100")
def test_what_is_lent_is_read_by_whoever_takes_and_comes_back_when_nothing_follows():
    # By this clock nobody is away for long, however long the machine takes between two takes.
    buffer: ByteBuffer[str] = ByteBuffer(10, clock=lambda: 0.0)
    source = Source("a", "b")
    lender = lending(buffer, source)
    assert [buffer.take(5, 100), buffer.take(5, 100)] == [["a"], ["b"]]
    assert source.readers == {threading.get_ident()}
    assert lender.is_alive()
    assert buffer.take(0.01, 100) == []
    lender.join(10)
    assert not lender.is_alive()
    assert buffer.put("c", 1)
    assert buffer.take(1, 100) == ["c"]


@req("D100")
def test_whoever_is_away_for_long_loses_what_was_lent_and_misses_nothing():
    clock = [0.0]
    buffer: ByteBuffer[str] = ByteBuffer(10, clock=lambda: clock[0])
    source = Source("a", "b")
    lender = lending(buffer, source)
    assert buffer.take(5, 100) == ["a"]
    lender.join(0.3)
    assert lender.is_alive()
    clock[0] = 1.0
    lender.join(10)
    assert not lender.is_alive()
    # Received meanwhile by the other side, as far as there is room.
    assert buffer.put("b", 1)
    assert buffer.take(1, 100) == ["b"]
    assert source.left == ["b"]


@req("D100")
def test_an_end_ends_lending_too():
    buffer: ByteBuffer[str] = ByteBuffer(10)
    lender = lending(buffer, Source())
    buffer.close()
    lender.join(10)
    assert not lender.is_alive()


@req("B-3", "D100")
def test_what_comes_during_a_long_callback_is_received_meanwhile(log, relay):
    reached = threading.Event()

    class Slow(Recorder):
        def on_start_window(self, window):
            if window.scn == 60:
                reached.set()
                until(lambda: subscription.status.held_bytes > 0, "blocks are received")
            return super().on_start_window(window)

    consumer = Slow()
    subscription = Subscription(relay, "shop", consumer, settings=QUICK)
    blocks = [wide(scn, 3) for scn in range(1, 121)]
    with running(subscription):
        for block in blocks[:60]:
            log.append(block)
        assert reached.wait(60)
        # Only now: what had come before might have been taken with it.
        for block in blocks[60:]:
            log.append(block)
        until(lambda: consumer.windows and consumer.windows[-1] == 120, "everything")
    assert sorted(consumer.told, key=lambda told: told[:2]) == told_by(blocks)


def keys_of(event: Event) -> set[tuple[str, object]]:
    """Return the keys that an event concerns: an update that moves a row concerns two."""
    moved = {event.before["k"]} if event.before and event.key else set()
    return {(str(event.table), key) for key in {*event.key[:1], *moved}}


@req("D101", "D102")
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_workers_keep_each_keys_order_and_the_barriers(log, relay, seed, across):
    log.append(*random_blocks(seed + 90))
    end = log.blocks[-1].covered_scn
    lock = threading.Lock()
    rng = random.Random(seed)
    events: list[Event] = []
    threads, open_windows = set(), []
    late = 0

    class Parallel(Consumer):
        def on_start_window(self, window):
            open_windows.append(window.scn)

        def on_data_event(self, event):
            nonlocal late
            threading.Event().wait(rng.random() * 0.002)
            with lock:
                threads.add(threading.current_thread().name)
                late += event.scn != open_windows[-1]
                events.append(event)

        def on_system_event(self, event):
            with lock:
                done = set(map(told_of, events))
            told = told_by(log.blocks)
            assert done >= {one for one in told if one[:2] < (event.scn, event.ord) and one[4]}

        def on_checkpoint(self, place):
            with lock:
                done = set(map(told_of, events))
            expected = {told for told in told_by(log.blocks) if told[0] <= place.scn and told[4]}
            assert done == expected

    settings = replace(QUICK, workers=4, across_windows=across, checkpoint_every=20)
    subscription = Subscription(
        relay, "shop", Parallel(), upto=end, settings=settings, on_suspended="raise"
    )
    subscription.run()
    assert len(threads) > 1
    assert (late > 0) == across
    whole = told_by(log.blocks)
    assert sorted(map(told_of, events), key=lambda t: t[:2]) == [t for t in whole if t[4]]
    places: dict[object, list[Place]] = defaultdict(list)
    for event in events:
        for key in keys_of(event) or {("public.bag", None)}:
            places[key].append(event.place)
    assert all(of == sorted(of) for of in places.values())
    assert any(len(keys_of(event)) == 2 for event in events)


@req("D94")
def test_a_failure_in_a_worker_rolls_back(log, relay):
    log.append(*random_blocks(95))
    end = log.blocks[-1].covered_scn
    failed = threading.Event()
    lock = threading.Lock()
    held: list[Told] = []
    open_: list[Told] = []

    class Failing(Consumer):
        def on_data_event(self, event):
            with lock:
                if len(held) > 5 and not failed.is_set():
                    failed.set()
                    raise RuntimeError
                open_.append(told_of(event))

        def on_checkpoint(self, place):
            held.extend(open_)
            open_.clear()

        def on_rollback(self, place):
            open_.clear()

    Subscription(relay, "shop", Failing(), upto=end, settings=replace(QUICK, workers=3)).run()
    assert failed.is_set()
    assert sorted(held, key=lambda told: told[:2]) == [t for t in told_by(log.blocks) if t[4]]


def test_workers_keep_the_order_of_a_key_that_is_equal_to_no_other(log, relay):
    table = TableSchema(
        TableId("public", "measures"),
        tuple(Column(name, pa.float64(), "double precision") for name in "kn"),
        ("k",),
        KeyCheck.IMMEDIATE,
    )
    log.register(table)
    rows = [(1, i, "+I" if not i else "=U", (float("nan"), float(i))) for i in range(60)]
    body = Body(table.schema_id, table.table, change_batch(table, rows))
    log.append(Block(transaction_index([(1, 1, 1, 60, 0, 1)]), (body,), (), 1))
    rng = random.Random(1)
    told: list[float] = []

    class Slow(Consumer):
        def on_data_event(self, event):
            threading.Event().wait(rng.random() * 0.002)
            told.append(event.row["n"])

    settings = replace(QUICK, workers=4)
    subscription = Subscription(relay, "shop", Slow(), upto=1, settings=settings)
    subscription.run()
    assert told == [float(i) for i in range(60)]


def test_an_exit_in_a_worker_ends_the_run(log, relay):
    log.append(*random_blocks(95))

    class Exiting(Consumer):
        def on_data_event(self, event):
            sys.exit(3)

    subscription = Subscription(relay, "shop", Exiting(), settings=replace(QUICK, workers=3))
    with running(subscription) as join, pytest.raises(SystemExit):
        join()


def test_workers_hold_a_bounded_number_of_tasks():
    gate, done = threading.Event(), []
    workers = Workers(1)

    def work(what):
        gate.wait(60)
        done.append(what)

    submitted = 0

    def submit():
        nonlocal submitted
        for i in range(5000):
            workers.submit("k", work, i)
            submitted += 1

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    until(lambda: submitted == 1000, "a full queue")
    thread.join(0.1)
    assert submitted == 1000
    gate.set()
    thread.join(60)
    workers.settle()
    workers.close()
    assert done == list(range(5000))


def test_a_filter_is_carried_out_at_the_relay(log, relay):
    log.append(*(wide(10 * i, 20) for i in range(1, 50)))
    consumer = Recorder()
    chosen = {
        "partition": {"by": "mod", "count": 10, "take": [3]},
        "columns": {"public.patchy": ["k"]},
    }
    subscription = Subscription(
        relay, "shop", consumer, filter=chosen, upto=490, settings=QUICK, on_suspended="raise"
    )
    subscription.run()
    assert {dict(told[4])["k"] % 10 for told in consumer.told} == {3}
    assert {tuple(dict(told[4])) for told in consumer.told} == {("k",)}
    assert len(consumer.told) == 49 * 2


@req("D129")
def test_a_long_lived_answer_brings_windows_sooner_than_polling_and_is_one_request(log, relay):
    log.register(TABLE)
    log.append(window(1))
    told: dict[bool, dict[int, float]] = {True: {}, False: {}}

    class Timed(Recorder):
        def __init__(self, at: dict[int, float]) -> None:
            super().__init__()
            self.at = at

        def on_end_window(self, window):
            self.at[window.scn] = time.monotonic()
            return super().on_end_window(window)

    # Both at the same time: whatever else the machine does, it does to both.
    asked = {
        pull: Subscription(
            relay,
            "shop",
            Timed(at),
            settings=replace(QUICK, pull=pull, pull_wait_ms=0, pull_every_s=0.1),
        )
        for pull, at in told.items()
    }
    with running(asked[True]), running(asked[False]):
        for scn in range(1, 22):
            until(lambda: all(scn in at for at in told.values()), f"window {scn}", pause_s=0.001)  # noqa: B023
            log.append(window(scn + 1))
        requests = {pull: one.status.connections for pull, one in asked.items()}
    later = [told[True][scn] - told[False][scn] for scn in range(2, 22)]
    assert statistics.median(later) > 0
    assert requests[False] == 1
    # One answer may bring two windows where the second came while it was given.
    assert requests[True] >= 10


@req("D24")
def test_the_client_brings_no_server_no_driver_and_no_engine():
    forbidden = [
        *("pyspark", "polars", "pandas", "starlette", "uvicorn", "typer", "rich", "psycopg"),
        *("pydantic", "sqlalchemy", "obstore", "headrace.sources", "headrace.relay"),
        *("headrace.changelog", "headrace.state", "headrace.spark"),
    ]
    script = (
        "import sys\nfrom headrace.client import *\n"
        f"print([m for m in sys.modules if m in {forbidden!r}])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src"), "PATH": ""},
    )
    assert done.stdout.strip() == "[]"

"""Several relays of one source: failover, routes, clocks that go back, logs that are gone."""

from __future__ import annotations

import json
import random
import shutil
from collections import Counter
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.changelog import ChangeLogSettings, register_job
from headrace.client import (
    Backoff,
    Consumer,
    Event,
    HttpSettings,
    NoCheckpoints,
    State,
    Subscription,
    Window,
)
from headrace.client.errors import ClockWentBack, StaleGeneration
from headrace.client.ranges import Ranges
from headrace.client.reading import _Order
from headrace.client.relays import Relays
from headrace.client.transport import Relay
from headrace.errors import ConfigError, ProtocolError, ScnNotFound
from headrace.model.block import Block, Body, SystemEvent, SystemKind, transaction_index
from headrace.model.change import META
from headrace.relay.server.settings import ServedSource
from headrace.state.store import StateStore
from headrace.testing.histories import TABLES
from headrace.testing.line_faults import SOUND, Damage, FaultyLine
from headrace.testing.notation import change_batch
from headrace.testing.ports import free_port
from headrace.testing.relay import served
from headrace.wire import BlockHeader, encode_block, read_header
from headrace.wire.place import Place
from tests.changelog.windows import TABLE, joined, window
from tests.client.conftest import QUICK, running, suspended
from tests.client.logs import LogFolder, commit_us, random_blocks, told_by
from tests.client.recording import Recorder, Told
from tests.requirements import req
from tests.waiting import until


def fail_over(first: str, second: str, consumer: Consumer, upto: int, rng: random.Random) -> None:
    """Consume from two relays whose first answers are cut, so that it goes over between them more than once."""
    with FaultyLine(first) as one, FaultyLine(second) as two:
        for line in (one, two):
            line.rule = lambda n: Damage(cut_at=rng.randrange(500, 5_000)) if n < 16 else SOUND
        Subscription([one.url, two.url], "shop", consumer, upto=upto, settings=QUICK).run()
        assert min(one.connections, two.connections) > 2


@req("B-6", "D26")
@pytest.mark.parametrize("seed", range(3))
def test_failover_inside_windows_loses_and_repeats_nothing(log, relay, tmp_path, seed):
    blocks = random_blocks(seed + 60)
    log.append(*blocks)
    # The other relay has the same windows in other blocks: every transaction whole.
    other = LogFolder(tmp_path / "other")
    other.register(*TABLES)
    other.append(*whole(blocks))
    rng = random.Random(seed)
    consumer = Recorder()
    with served({"shop": other.folder}, heartbeat_s=0.1) as second:
        fail_over(relay, second, consumer, blocks[-1].covered_scn, rng)
    assert sorted(consumer.told, key=lambda told: told[:2]) == told_by(blocks)
    assert consumer.rollbacks == 0
    other.close()


def whole(blocks: list[Block]) -> list[Block]:
    """Return the same windows with the pieces of each transaction in one block."""
    out: list[Block] = []
    held: list[Block] = []
    for block in blocks:
        held.append(block)
        if block.ends_complete:
            out.append(together(held) if len(held) > 1 else block)
            held = []
    return out


def together(blocks: list[Block]) -> Block:
    """Return neighbours as one block, with one index entry per transaction."""
    index = np.concatenate([block.index for block in blocks])
    starts = np.flatnonzero(np.diff(index["scn"], prepend=-1))
    index["changes"][starts] = np.add.reduceat(index["changes"], starts)
    index["last_piece"] = 1
    rows: dict[int, list[Body]] = {}
    for body in (body for block in blocks for body in block.bodies):
        rows.setdefault(body.schema_id, []).append(body)
    return Block(
        index[starts],
        tuple(
            replace(bodies[0], batch=pa.concat_batches([body.batch for body in bodies]))
            for bodies in rows.values()
        ),
        tuple(event for block in blocks for event in block.system),
        blocks[-1].covered_scn,
    )


def announced(blocks: list[Block], rng: random.Random) -> list[Block]:
    """Return the same windows as another capture has them, which tells of some tables where they come first."""
    firsts: dict[tuple[int, str], int] = {}
    for block in blocks:
        for body in block.bodies:
            rows = zip(*(body.batch.column(name).to_pylist() for name in META[:2]), strict=True)
            for scn, order in rows:
                firsts.setdefault((scn, str(body.table)), order)
    told = {place: order for place, order in firsts.items() if rng.random() < 0.6}

    def moved(scn: int, order: int) -> int:
        """Return an ordinal behind the events that stand before it now."""
        return order + sum(at <= order for (of, _), at in told.items() if of == scn)

    def one(block: Block) -> Block:
        bodies, events, index = [], [], block.index.copy()
        for body in block.bodies:
            scns, orders = (body.batch.column(name).to_pylist() for name in META[:2])
            cells = [moved(*place) for place in zip(scns, orders, strict=True)]
            batch = body.batch.set_column(
                1, body.batch.schema.field(1), pa.array(cells, pa.int32())
            )
            bodies.append(replace(body, batch=batch))
            for scn, order in zip(scns, orders, strict=True):
                if told.get((scn, str(body.table))) == order:
                    place = moved(scn, order) - 1
                    events.append(SystemEvent(scn, place, SystemKind.SCHEMA, body.table))
                    index["changes"][index["scn"] == scn] += 1
        events += [replace(event, ord=moved(event.scn, event.ord)) for event in block.system]
        events.sort(key=lambda event: (event.scn, event.ord))
        return Block(index, tuple(bodies), tuple(events), block.covered_scn)

    return [one(block) for block in blocks]


@req("B-6", "D26", "D35", "D44", "D49")
@pytest.mark.parametrize("seed", range(8))
def test_failover_inside_windows_between_captures_of_their_own_loses_and_repeats_nothing(
    tmp_path, seed
):
    rng = random.Random(seed)
    blocks = random_blocks(seed + 60)
    logs = [LogFolder(tmp_path / name) for name in ("one", "two")]
    for log in logs:
        log.register(*TABLES)
        log.append(*announced(blocks if log is logs[0] or seed % 2 else whole(blocks), rng))
    consumer = Recorder()
    with (
        served({"shop": logs[0].folder}, heartbeat_s=0.1) as first,
        served({"shop": logs[1].folder}, heartbeat_s=0.1) as second,
    ):
        fail_over(first, second, consumer, blocks[-1].covered_scn, rng)

    def changes(told: list[Told]) -> Counter[tuple[object, ...]]:
        return Counter((scn, *rest) for scn, _, *rest in told if rest[0] != SystemKind.SCHEMA.value)

    assert changes(consumer.told) == changes(told_by(blocks))
    for log in logs:
        log.close()


def pieces(told: bool) -> list[Block]:
    """Return a transaction of nine rows in three blocks, behind what a capture tells of its table or not."""
    found = []
    for number in range(3):
        keys = range(3 * number, 3 * number + 3)
        rows = [(10, key + told, "+I", (key, "x", "y")) for key in keys]
        body = Body(TABLE.schema_id, TABLE.table, change_batch(TABLE, rows))
        events = [SystemEvent(10, 0, SystemKind.SCHEMA, TABLE.table)] if told and not number else []
        entry = (10, 1000, 5010, len(rows) + len(events), 0, int(number == 2))
        found.append(
            Block(transaction_index([entry]), (body,), tuple(events), 10 if number == 2 else 9)
        )
    return found


@req("B-6", "D35")
@pytest.mark.parametrize("how", ["windows", "ranges"])
@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_a_window_goes_on_at_its_next_row_whatever_captures_tell_of_tables(
    tmp_path, first, second, how
):
    logs = [LogFolder(tmp_path / name) for name in ("one", "two")]
    for log, told in zip(logs, (first, second), strict=True):
        log.register(TABLE)
        log.append(*pieces(told))
    keys: list[int] = []

    class Keys(Consumer):
        def on_data_event(self, event: Event) -> None:
            keys.append(event.row["k"])

    with (
        served({"shop": logs[0].folder}) as one,
        served({"shop": logs[1].folder}) as two,
        FaultyLine(one) as line,
    ):
        cut_at = 600 + len(encode_block(logs[0].blocks[0]))
        line.rule = lambda _: Damage(cut_at=cut_at)
        if how == "windows":
            Subscription([line.url, two], "shop", Keys(), upto=10, settings=QUICK).run()
        else:
            ranges = Ranges([line.url, two], "shop", QUICK)
            for block in ranges.blocks(0, 10):
                keys += [row for body in block.bodies for row in body.batch["k"].to_pylist()]
            ranges.close()
        assert line.connections
    assert keys == list(range(9))
    for log in logs:
        log.close()


@pytest.mark.parametrize(("first", "second"), [(True, False), (False, True), (True, True)])
def test_an_address_that_leads_to_another_log_inside_a_window_loses_and_repeats_nothing(
    tmp_path, first, second
):
    logs = [LogFolder(tmp_path / name) for name in ("one", "two")]
    for log, told in zip(logs, (first, second), strict=True):
        log.register(TABLE)
        log.append(window(1), *pieces(told))
    keys: list[int] = []

    class Keys(Consumer):
        def on_data_event(self, event: Event) -> None:
            if event.scn == 10:
                keys.append(event.row["k"])

        def on_end_window(self, window: Window) -> None:
            if window.scn == 1:
                # What came of the next window from the first log waits meanwhile.
                until(lambda: subscription.status.connections == 2, "the answer of the other log")

    with (
        served({"shop": logs[0].folder}) as one,
        served({"shop": logs[1].folder}) as two,
        FaultyLine(one) as line,
    ):
        cut_at = 600 + sum(len(encode_block(block)) for block in logs[0].blocks[:2])

        def rule(number: int) -> Damage:
            if number > 1:
                line.lead_to(two)
            return Damage(cut_at=cut_at) if number == 1 else SOUND

        line.rule = rule
        subscription = Subscription(line.url, "shop", Keys(), upto=10, settings=QUICK)
        subscription.run()
    assert keys == list(range(9))
    for log in logs:
        log.close()


def test_a_relay_that_is_down_is_passed_over_and_come_back_to(log, relay):
    log.register(TABLE)
    log.append(window(1))
    consumer = Recorder()
    subscription = Subscription(["http://127.0.0.1:9", relay], "shop", consumer, settings=QUICK)
    with running(subscription):
        until(lambda: consumer.windows == [1], "the window")


@pytest.mark.parametrize("start", ["oldest", "newest"])
def test_a_log_that_is_not_there_yet_may_begin_anywhere(tmp_path, start):
    log = LogFolder(tmp_path / "made")
    log.register(TABLE)
    log.writer.begin_at(40, commit_us(40))
    log.append(window(41))
    log.close()
    consumer = Recorder()
    with served({"shop": tmp_path / "log"}) as relay, FaultyLine(relay) as line:
        subscription = Subscription(line.url, "shop", consumer, start=start, settings=QUICK)
        with running(subscription):
            until(lambda: line.connections > 1, "a second question")
            (tmp_path / "made").rename(tmp_path / "log")
            until(lambda: consumer.windows == [41], "all that came since")
    assert consumer.rollbacks == 0


def test_whoever_wants_nothing_waits_for_no_log(tmp_path):
    with served({"shop": tmp_path / "log"}) as relay:
        subscription = Subscription(relay, "shop", upto=0, settings=QUICK)
        with running(subscription) as join:
            join()


def test_a_relay_that_starts_anew_is_gone_on_with(log):
    log.register(TABLE)
    log.append(window(1))
    consumer = Recorder()
    port = free_port()
    with served({"shop": log.folder}, port=port) as url:
        subscription = Subscription(url, "shop", consumer, settings=QUICK)
        running_now = running(subscription)
        running_now.__enter__()
        until(lambda: consumer.windows == [1], "the first window")
    log.append(window(2))
    with served({"shop": log.folder}, port=port):
        until(lambda: consumer.windows == [1, 2], "the window behind the restart")
        running_now.__exit__(None, None, None)
    assert consumer.rollbacks == 0


@req("D54")
def test_a_routing_document_is_followed_without_a_restart(log, tmp_path):
    log.register(TABLE)
    log.append(window(1))
    routes = tmp_path / "routes.json"
    source = ServedSource("shop", log.folder, log.folder / "schemas", relays=routes)
    consumer = Recorder()
    with (
        served((source,), heartbeat_s=0.1) as first,
        served({"shop": log.folder}) as second,
        FaultyLine(first) as line,
    ):
        relays = [line.url, second]
        routes.write_text(json.dumps({"version": 5, "sources": {"shop": {"relays": relays}}}))
        subscription = Subscription(line.url, "shop", consumer, settings=QUICK)
        with running(subscription):
            until(lambda: consumer.windows == [1], "the first window")
            until(lambda: subscription._relays.urls == relays, "the document")
            line.rule = lambda _: Damage(cut_at=0)
            line.cut()
            log.append(window(2))
            until(lambda: consumer.windows == [1, 2], "the window from the other relay")


@pytest.mark.parametrize(
    ("url", "taken"),
    [
        ("http://one:1", ["http://two:2", "https://three:3"]),
        ("https://one:1", ["https://three:3"]),
    ],
)
def test_a_relay_leads_to_no_folder_and_from_tls_to_tls_alone(monkeypatch, url, taken):
    named = ["file:///etc", "http://two:2", "https://three:3"]
    document = {"version": 5, "sources": {"shop": {"relays": named}}}
    monkeypatch.setattr(Relay, "routes", lambda _: document)
    relays = Relays(
        [url],
        "shop",
        HttpSettings(token="secret"),
        max_block_bytes=2**20,
        backoff=Backoff(),
        rng=random.Random(1),
    )
    relays.follow(5)
    assert sorted(relays.urls) == taken


@req("D48")
def test_a_stream_of_three_relays_goes_on_with_any_one_of_them(log):
    log.register(TABLE)
    log.append(window(1))
    consumer = Recorder()
    with ExitStack() as stack:
        urls = [stack.enter_context(served({"shop": log.folder}, heartbeat_s=0.1)) for _ in "123"]
        lines = [stack.enter_context(FaultyLine(url)) for url in urls]
        subscription = Subscription([line.url for line in lines], "shop", consumer, settings=QUICK)
        with running(subscription):
            until(lambda: consumer.windows == [1], "the first window")
            for scn, alive in enumerate([2, 0, 1, 2, 1, 0], 2):
                for number, line in enumerate(lines):
                    line.rule = lambda _, up=number == alive: SOUND if up else Damage(cut_at=0)  # type: ignore[misc]
                for line in lines:
                    line.cut()
                log.append(window(scn))
                until(lambda: consumer.windows[-1] == scn, f"window {scn} from relay {alive}")  # noqa: B023
    assert consumer.windows == list(range(1, 8))
    assert consumer.rollbacks == 0


def test_pauses_grow_to_their_bound_and_are_spread():
    rng = random.Random(1)
    pauses = [Backoff(0.1, 2.0, 5.0).pause_s(tries, rng) for tries in range(200)]
    assert 0.05 <= pauses[0] <= 0.1
    assert all(2.5 <= pause <= 5.0 for pause in pauses[7:])
    assert len(set(pauses)) == len(pauses)


def test_no_relay_at_all_is_refused():
    with pytest.raises(ConfigError):
        Subscription([], "shop", Consumer())


def header(*blocks: Block) -> BlockHeader:
    return read_header(encode_block(joined(blocks) if len(blocks) > 1 else blocks[0]))


@req("B-10")
def test_a_clock_that_goes_back_is_refused_by_name():
    order = _Order(Place(10))
    order.check(header(window(9), window(11)))
    order.check(header(window(12), window(13)))
    with pytest.raises(ClockWentBack, match="13"):
        order.check(header(window(13), window(14)))
    with pytest.raises(ClockWentBack):
        _Order(Place(10)).check(header(window(9), window(10)))
    with pytest.raises(ClockWentBack):
        order.check(header(window(5)))
    # Only the first block may lie below what was asked for, where it says how far it goes.
    late = replace(window(13), covered_scn=20)
    _Order(Place(13)).check(header(late))
    with pytest.raises(ClockWentBack, match="13"):
        order.check(header(late))


def test_a_transaction_without_its_end_is_refused():
    order = _Order(Place(0))
    order.check(header(window(1, last=False)))
    order.check(header(window(1, first=2, last=False)))
    with pytest.raises(ProtocolError, match="goes on"):
        order.check(header(window(2)))


@req("D63")
@pytest.mark.parametrize("pull", [False, True])
def test_a_block_of_which_a_filter_left_only_what_was_processed_is_no_step_back(log, relay, pull):
    """Who resumes inside a block whose other transactions are for others is told that there is nothing, and goes on."""
    log.register(TABLE)
    log.append(joined([keyed(scn, scn) for scn in (1, 3, 5)]))
    checkpoints = NoCheckpoints()
    checkpoints.store(Place(3))
    consumer = Recorder()
    even = {"partition": {"by": "mod", "count": 2, "take": [0]}, "tables": ["public.t"]}
    odd = {"where": {"public.t": "k < 5"}}
    for filter_ in (even, odd):
        subscription = Subscription(
            relay,
            "shop",
            consumer,
            checkpoints,
            filter=filter_,
            settings=replace(QUICK, pull=pull, pull_wait_ms=10),
            on_suspended="raise",
        )
        with running(subscription) as join:
            until(lambda: checkpoints.load() == Place(5), "the coverage behind it")
            subscription.stop()
            join()
        assert consumer.windows == []
        checkpoints.store(Place(3))
        consumer = Recorder()


def keyed(scn: int, key: int) -> Block:
    """Return a transaction with one row of a key."""
    row = (scn, 0, "+I", (key, "x", "x"))
    body = Body(TABLE.schema_id, TABLE.table, change_batch(TABLE, [row]))
    return Block(transaction_index([(scn, scn, scn, 1, 0, 1)]), (body,), (), scn)


@req("B-10", "B-11")
def test_a_log_whose_clock_begins_anew_is_never_delivered(log, relay, tmp_path):
    """The log is replaced by one with lower SCNs while nobody looks: refused, not silently gone on with."""
    log.register(TABLE)
    log.append(window(100), window(110))
    consumer, checkpoints = Recorder(), NoCheckpoints()
    Subscription(relay, "shop", consumer, checkpoints, upto=110, settings=QUICK).run()
    anew = LogFolder(tmp_path / "anew")
    anew.register(TABLE)
    anew.append(window(50), window(60))
    with served({"shop": anew.folder}) as url:
        again = Recorder()
        subscription = Subscription(url, "shop", again, checkpoints, settings=QUICK)
        with running(subscription):
            suspended(subscription)
            assert isinstance(subscription.status.error, ScnNotFound)
            assert again.told == []
    anew.close()


def fallen_off(tmp_path: Path) -> LogFolder:
    """Return a log that dropped its beginning."""
    log = LogFolder(
        tmp_path / "short",
        ChangeLogSettings(segment_bytes=4096, budget_bytes=64 * 1024, retain_bytes=4096),
    )
    log.register(TABLE)
    for scn in range(1, 120):
        register_job(log.folder, "somebody", scn - 1)
        log.append(window(scn, 30))
    return log


@req("B-11")
def test_whoever_fell_off_stops_with_a_state_that_says_so(tmp_path):
    log = fallen_off(tmp_path)
    with served({"shop": log.folder}) as url:
        consumer = Recorder()
        subscription = Subscription(url, "shop", consumer, start=Place(1), settings=QUICK)
        with running(subscription):
            suspended(subscription)
            error = subscription.status.error
            assert isinstance(error, ScnNotFound)
            assert (error.scn, error.newest) == (1, 119)
            assert 1 < error.oldest < 119
            assert consumer.told == []
            subscription.restart()
            until(lambda: consumer.windows and consumer.windows[-1] == 119, "what there is")
    log.close()


@req("B-11", "D59")
def test_whoever_fell_off_may_be_sent_elsewhere_first(tmp_path):
    log = fallen_off(tmp_path)
    lost, places, kept = [], NoCheckpoints(), []

    class Begins(Recorder):
        def on_start_window(self, window):
            kept.append(places.load())
            return super().on_start_window(window)

    consumer = Begins()

    def found(error):
        lost.append((error.scn, consumer.rollbacks))
        return Place(110)

    with served({"shop": log.folder}) as url:
        Subscription(
            url, "shop", consumer, places, start=Place(1), on_lost=found, upto=119, settings=QUICK
        ).run()
    # Before anything comes from there: who dies now need not be lost once more.
    assert kept[0] == Place(110)
    assert lost == [(1, 1)]
    assert ("on_rollback", Place(0)) in consumer.log
    assert consumer.windows == list(range(111, 120))
    log.close()


@req("B-11")
def test_whoever_fell_off_begins_anew_from_a_dump_if_told_so(tmp_path):
    log = fallen_off(tmp_path)
    state = StateStore(tmp_path / "state.db")
    source = ServedSource("shop", log.folder, log.folder / "schemas", tmp_path / "state.db")
    consumer, checkpoints = Recorder(), NoCheckpoints()
    with served((source,)) as url:
        subscription = Subscription(
            url, "shop", consumer, checkpoints, start=Place(1), on_lost="dump", settings=QUICK
        )
        with running(subscription):
            until(lambda: checkpoints.load() == Place(119), "the new place")
            log.append(window(120))
            until(lambda: consumer.windows == [120], "what comes behind it")
    assert state.next_request() is not None
    assert ("on_rollback", Place(0)) in consumer.log
    state.close()
    log.close()


def test_whoever_cannot_begin_anew_is_told_that_it_stands_where_it_did(tmp_path):
    """What is told of place 0 stands for everything that a consumer has."""
    log = fallen_off(tmp_path)
    consumer, checkpoints = Recorder(), NoCheckpoints()
    with served({"shop": log.folder}) as url:
        subscription = Subscription(
            url, "shop", consumer, checkpoints, start=Place(1), on_lost="dump", settings=QUICK
        )
        with running(subscription):
            suspended(subscription)
            assert not isinstance(subscription.status.error, ScnNotFound)
            told = [place for name, place in consumer.log if name == "on_rollback"]
            assert told == [Place(0), Place(1)]
            assert checkpoints.load() == Place(1)
    log.close()


def test_whoever_owns_its_place_no_more_begins_nothing_anew(tmp_path):
    """It was frozen until others had gone on with what was its own, and the relay past it."""

    class Taken(NoCheckpoints):
        loads = 0

        def load(self) -> Place | None:
            self.loads += 1
            if self.loads > 1:
                raise StaleGeneration("g", 0, 1)
            return super().load()

    log = fallen_off(tmp_path)
    consumer = Recorder()
    with served({"shop": log.folder}) as url:
        subscription = Subscription(
            url,
            "shop",
            consumer,
            Taken(),
            start=Place(1),
            on_lost=lambda _: Place(110),
            settings=QUICK,
            on_suspended="raise",
        )
        with pytest.raises(StaleGeneration):
            subscription.run()
    assert "on_rollback" not in [name for name, _ in consumer.log]
    log.close()


def test_a_relay_that_is_behind_is_waited_for(log, relay):
    log.register(TABLE)
    log.append(window(1))
    consumer = Recorder()
    checkpoints = NoCheckpoints()
    checkpoints.store(Place(5))
    settings = replace(QUICK, patience_s=60.0)
    subscription = Subscription(relay, "shop", consumer, checkpoints, settings=settings)
    with running(subscription):
        until(lambda: subscription.status.state is State.STARTED, "started")
        log.append(window(4), window(6))
        until(lambda: consumer.windows == [6], "the window behind the place")


@req("B-11")
def test_a_wiped_relay_is_noticed(log, relay, tmp_path):
    log.register(TABLE)
    log.append(window(10))
    checkpoints = NoCheckpoints()
    Subscription(relay, "shop", Recorder(), checkpoints, upto=10, settings=QUICK).run()
    empty = tmp_path / "wiped"
    shutil.copytree(log.folder / "schemas", empty / "schemas")
    LogFolder(empty).close()
    with served({"shop": empty}) as url:
        subscription = Subscription(url, "shop", Recorder(), checkpoints, settings=QUICK)
        with running(subscription):
            suspended(subscription)
            assert isinstance(subscription.status.error, ScnNotFound)

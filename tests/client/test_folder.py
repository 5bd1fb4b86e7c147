"""A change log's folder in the place of a relay: the same consumer is told the same, in its own process."""

from __future__ import annotations

import random
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from headrace.changelog import ChangeLogSettings, register_job
from headrace.client import Backoff, HttpSettings, NoCheckpoints, State, Subscription
from headrace.client.errors import DamagedBlock
from headrace.client.folder import FolderRelay
from headrace.client.frames import Note
from headrace.client.relays import Relays
from headrace.client.start import Start, resolve
from headrace.client.transport import StreamRequest
from headrace.errors import (
    BlockTooLarge,
    ConfigError,
    CorruptSegment,
    NotServed,
    RelayUnavailable,
    ScnNotFound,
)
from headrace.testing.line_faults import Damage, FaultyLine
from headrace.wire import encode_block
from headrace.wire.place import Place
from tests.changelog.windows import OTHER, TABLE, commit_us, coverage, window
from tests.client.conftest import QUICK, running, suspended
from tests.client.logs import LogFolder, random_blocks, told_by
from tests.client.recording import Recorder
from tests.client.test_transport import wide
from tests.relay.server.test_damage import flip
from tests.requirements import req
from tests.waiting import until

FILTERS: tuple[dict[str, Any] | None, ...] = (
    None,
    {"tables": ["public.patchy"]},
    {"partition": {"by": "hash", "count": 3, "take": [0, 2]}},
    {"where": {"public.patchy": "k > 4"}, "columns": {"public.patchy": ["c2"]}},
    {"tables": ["nobody.*"]},
)


@pytest.mark.parametrize("filter_", FILTERS, ids=str)
@pytest.mark.parametrize("pull", [False, True])
@req("D24")
def test_a_consumer_is_told_the_same_by_a_folder_and_by_a_relay_over_it(log, relay, pull, filter_):
    log.append(*random_blocks(170))
    end = log.blocks[-1].covered_scn
    told = {}
    for url in (relay, log.folder.as_uri()):
        consumer, places = Recorder(), NoCheckpoints()
        settings = replace(QUICK, pull=pull, pull_bytes=5_000, pull_wait_ms=10)
        options: dict[str, Any] = {"settings": settings, "on_suspended": "raise"}
        Subscription(url, "shop", consumer, places, filter=filter_, upto=end, **options).run()
        assert places.load() == Place(end)
        assert consumer.rollbacks == 0
        told[url] = [one for one in consumer.log if one[0] != "on_checkpoint"]
    assert told[relay] == told[log.folder.as_uri()]
    assert bool(consumer.told) == (filter_ != FILTERS[-1])


@req("D24")
def test_what_is_written_and_covered_comes_as_it_does(log):
    log.register(TABLE)
    consumer, places = Recorder(), NoCheckpoints()
    subscription = Subscription(log.folder.as_uri(), "shop", consumer, places, settings=QUICK)
    with running(subscription):
        for scn in range(1, 40):
            # A transaction that has not ended is told of when it has.
            log.append(window(scn, 3, last=False), window(scn, 3, first=3))
            until(lambda: consumer.windows[-1:] == [scn], f"window {scn}")  # noqa: B023
        log.append(coverage(90))
        until(lambda: places.load() == Place(90), "the coverage")
        subscription.rewind(35)
        until(lambda: consumer.windows[-5:] == [39, 36, 37, 38, 39], "the windows again")
        assert subscription.status.connections == 2


def test_windows_are_asked_for_from_any_start(log):
    log.register(TABLE)
    log.append(*(window(scn) for scn in range(1, 8)), coverage(9))
    starts: tuple[tuple[Start, list[int]], ...] = (
        ("oldest", [*range(1, 8)]),
        ("newest", []),
        (Place(5), [6, 7]),
        (Place(5, 0), [5, 6, 7]),
        (datetime.fromtimestamp(commit_us(4) / 1e6, UTC), [4, 5, 6, 7]),
        (datetime.fromtimestamp(commit_us(40) / 1e6, UTC), []),
    )
    for start, expected in starts:
        asked = Subscription(log.folder.as_uri(), "shop", start=start, upto=9, settings=QUICK)
        assert [one.window.scn for one in asked.windows()] == expected


@pytest.mark.parametrize("seed", range(2))
def test_a_relay_that_breaks_is_gone_on_from_by_the_folder_inside_windows(log, relay, seed):
    blocks = random_blocks(seed + 180)
    log.append(*blocks)
    rng = random.Random(seed)
    consumer = Recorder()
    with FaultyLine(relay) as line:
        line.rule = lambda _: Damage(cut_at=rng.randrange(500, 9_000))
        urls = [line.url, log.folder.as_uri()]
        end = blocks[-1].covered_scn
        Subscription(urls, "shop", consumer, upto=end, settings=QUICK).run()
        assert line.connections >= 1
    assert sorted(consumer.told, key=lambda told: told[:2]) == told_by(blocks)
    assert consumer.rollbacks == 0


@req("D24", "D100")
def test_a_slow_consumer_of_a_folder_bounds_what_is_held(log):
    log.append(*(wide(10 * i, 40) for i in range(1, 60)))
    settings = replace(QUICK, buffer_bytes=500_000)
    consumer = Recorder()
    asked = Subscription(log.folder.as_uri(), "shop", consumer, upto=590, settings=settings)
    asked.run()
    assert consumer.windows == list(range(10, 600, 10))
    assert asked.status.peak_bytes <= 500_000


@req("B-12")
@pytest.mark.parametrize(
    ("at", "filter_", "error"),
    [
        (33, None, CorruptSegment),
        (900, None, DamagedBlock),
        (900, {"where": {"public.t": "k >= 0"}}, CorruptSegment),
    ],
)
def test_damage_is_named_and_not_delivered(log, at, filter_, error):
    log.register(TABLE)
    log.append(*(window(scn) for scn in range(1, 9)))
    flip(log.folder, 6, at)
    consumer = Recorder()
    options: dict[str, Any] = {"start": Place(0), "filter": filter_, "settings": QUICK}
    asked = Subscription(log.folder.as_uri(), "shop", consumer, **options)
    with running(asked):
        suspended(asked)
        assert isinstance(asked.status.error, error)
    # Blocks that come together are checked together.
    assert consumer.windows == [*range(1, len(consumer.windows) + 1)]
    assert len(consumer.windows) <= 5


def test_who_fell_off_is_suspended_by_name(tmp_path):
    log = LogFolder(
        tmp_path / "short",
        ChangeLogSettings(segment_bytes=4096, budget_bytes=64 * 1024, retain_bytes=4096),
    )
    log.register(TABLE)
    for scn in range(1, 60):
        register_job(log.folder, "somebody", scn - 1)
        log.append(window(scn, 30))
    oldest = log.writer.tail.oldest_scn
    for place, newest in ((Place(1), 59), (Place(99), 59)):
        asked = Subscription(log.folder.as_uri(), "shop", Recorder(), start=place, settings=QUICK)
        with running(asked):
            suspended(asked)
            error = asked.status.error
            assert isinstance(error, ScnNotFound)
            assert (error.scn, error.oldest, error.newest) == (place.scn, oldest, newest)
    log.close()


def test_a_log_that_begins_later_is_waited_for_and_an_end_reaches_who_waits(tmp_path):
    folder = tmp_path / "later"
    assert FolderRelay(folder.as_uri()).source("shop")["state"] == "none"
    with pytest.raises(RelayUnavailable, match="no change log in"):
        FolderRelay(folder.as_uri()).stream(StreamRequest("shop", Place(0)))
    consumer = Recorder()
    asked = Subscription(folder.as_uri(), "shop", consumer, start=Place(0), settings=QUICK)
    with running(asked):
        until(lambda: asked.status.state is State.STARTED, "started")
        log = LogFolder(folder)
        log.register(TABLE)
        log.append(window(1))
        until(lambda: consumer.windows == [1], "the first window")
    # It ended though nothing came any more.
    assert asked.status.state is State.SHUTDOWN
    log.close()


@pytest.mark.parametrize("start", ["oldest", "newest"])
def test_a_log_that_comes_while_it_is_asked_for_is_told_from_its_beginning(tmp_path, start):
    log = LogFolder(tmp_path / "made")
    log.writer.begin_at(40, commit_us(40))
    log.append(window(41))
    log.close()
    relays = Relays(
        [(tmp_path / "log").as_uri()],
        "shop",
        HttpSettings(),
        max_block_bytes=2**20,
        backoff=Backoff(),
        rng=random.Random(0),
    )

    def comes_meanwhile(_: float) -> bool:
        (tmp_path / "made").rename(tmp_path / "log")
        return True

    assert resolve(relays, StreamRequest("shop"), start, comes_meanwhile) == Place(40)


def test_blocks_are_bounded_as_over_http(log):
    log.append(*(wide(10 * i, 20 if i < 5 else 300) for i in range(1, 6)))
    url = log.folder.as_uri()
    small, large = (len(encode_block(block)) for block in (log.blocks[0], log.blocks[-1]))
    asked = StreamRequest("shop", Place(0), pull=True, max_bytes=3 * small)
    *blocks, end = FolderRelay(url).stream(asked).frames()
    assert [one.header.last_scn for one in blocks if not isinstance(one, Note)] == [10, 20, 30]
    assert end == Note("end", {"reason": "size"})
    with pytest.raises(BlockTooLarge) as refused:
        list(FolderRelay(url).stream(replace(asked, max_bytes=small - 1)).frames())
    assert refused.value.needed_bytes == small
    with pytest.raises(BlockTooLarge, match="max_block_bytes"):
        list(FolderRelay(url, large - 1).stream(replace(asked, max_bytes=2**24)).frames())


def test_nothing_new_is_waited_for_as_long_as_it_was_said(log):
    log.register(TABLE)
    log.append(window(1))
    relay = FolderRelay(log.folder.as_uri())
    pull = StreamRequest("shop", Place(1), pull=True, wait_ms=20)
    assert list(relay.stream(pull).frames()) == [Note("end", {"reason": "drained"})]
    push = relay.stream(StreamRequest("shop", Place(1)))
    assert push.next(0.01) is None
    log.append(window(2))
    frame = push.next(0.01)
    assert frame is not None
    assert not isinstance(frame, Note)
    assert frame.header.last_scn == 2
    relay.interrupt()
    with pytest.raises(RelayUnavailable, match="interrupted"):
        push.next()


def test_what_a_folder_cannot_be_asked_is_refused_by_name(log):
    log.register(OTHER)
    relay = FolderRelay(log.folder.as_uri())
    assert relay.schemas("shop", [OTHER.schema_id]) == [OTHER]
    for ask in (
        lambda: relay.schemas("shop", [4711]),
        lambda: relay.dump("shop"),
        lambda: relay.buffer("shop"),
        lambda: relay.outline("shop", 0, 1),
    ):
        with pytest.raises(NotServed, match="shop"):
            ask()


@pytest.mark.parametrize("url", ["file:", "file:log", "file://host/log"])
def test_an_address_that_is_no_folder_is_refused(url):
    with pytest.raises(ConfigError, match="no folder of a change log"):
        Subscription(url, "shop")


@req("D24")
def test_a_program_with_a_folder_needs_neither_server_nor_connection(log, tmp_path):
    log.register(TABLE)
    log.append(*(window(scn) for scn in range(1, 4)))
    program = (
        "import socket, sys\n"
        "def refused(*_): raise AssertionError('no connection')\n"
        "socket.socket.connect = socket.create_connection = refused\n"
        "from headrace.client import Consumer, Subscription\n"
        "class Printed(Consumer):\n"
        "    def on_data_event(self, event): print(event.scn, event.ord)\n"
        "Subscription(sys.argv[1], 'shop', Printed(), 'place', upto=3).run()\n"
        "print([m for m in ('uvicorn', 'starlette', 'psycopg', 'pyspark') if m in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, log.folder.as_uri()],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        env={"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": ""},
    )
    assert done.stdout.splitlines() == [*(f"{scn} {n}" for scn in (1, 2, 3) for n in (0, 1)), "[]"]

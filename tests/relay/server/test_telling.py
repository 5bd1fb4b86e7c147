"""News that come between a stream's look at the log and its waiting for more."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from headrace.changelog import ChangeLogWriter
from headrace.errors import CorruptSegment
from headrace.relay.server.connection import Connection, _chunk
from headrace.relay.server.counters import Counters
from headrace.relay.server.feed import _TURN_STREAMS, _TURNS, Feed, Turn
from headrace.relay.server.look_out import (
    _LONGEST_S,
    _SEND_S,
    _SHORTEST_S,
    LookOut,
    _pause_s,
    _Watched,
)
from headrace.relay.server.request import StreamRequest
from headrace.relay.server.settings import ServedSource
from headrace.relay.server.stream import Control, Stream
from headrace.relay.server.supply import Stored
from headrace.wire.body import Readable
from tests.changelog.windows import seen, synced, window
from tests.relay.server.test_joining import blocks_in
from tests.requirements import req


class Line:
    """Takes what a stream sends."""

    lost = False

    def __init__(self) -> None:
        self.sent: list[bytes] = []

    async def send_part(self, data: Readable) -> None:
        self.sent.append(bytes(data))

    async def send(self, message: Any) -> None:
        if message.get("body"):
            self.sent.append(bytes(message["body"]))


class Watch:
    """The look-out of a relay that tells of nothing by itself."""

    def attend(self) -> None:
        pass


@req("D41")
@pytest.mark.parametrize("rows", [1, 200], ids=["small", "large"])
@pytest.mark.parametrize("windows", [1, 3])
def test_what_others_are_told_of_while_one_sends_is_sent_too(tmp_path: Path, rows, windows):
    """Others that wait are told of a window once, while this one is busy: nobody tells it again."""
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, window(1))
        feed = Feed(ServedSource("shop", tmp_path, tmp_path / "schemas"))
        feed.reader.look()
        line = Line()
        busy = iter(range(2, 2 + windows))

        class Busy(Stored):
            async def next(self) -> list[Readable]:
                pieces = await super().next()
                # Committed and told of behind the look, before anybody could wait for it.
                if pieces and (scn := next(busy, None)) is not None:
                    synced(writer, window(scn, rows))
                    feed.wake()
                return pieces

        async def streamed() -> None:
            control = Control(Counters(0), 60.0, 60.0)
            request = StreamRequest("shop")
            spot = feed.reader.find(0, 2**20)
            assert spot is not None
            stream = Stream(
                request,
                feed,
                Busy(feed, spot, request),
                cast(LookOut, Watch()),
                control,
                cast(Connection, line),
                line.send,
            )
            run = asyncio.create_task(stream.run([]))
            while not feed.is_awaited:
                await asyncio.sleep(0)
            control.ending = True
            feed.wake()
            await run

        asyncio.run(streamed())
    sent = blocks_in(b"".join(line.sent[:-1]))
    assert seen(sent) == seen([window(1), *(window(scn, rows) for scn in range(2, 2 + windows))])


def feed_of(folder: Path) -> Feed:
    feed = Feed(ServedSource("shop", folder, folder / "schemas"))
    feed.reader.look()
    return feed


def counting(calls: list[str], name: str, of: Callable[..., Any]) -> Callable[..., Any]:
    def called(*given: Any) -> Any:
        calls.append(name)
        return of(*given)

    return called


@req("D42")
def test_the_log_is_looked_at_once_for_all_who_are_told(tmp_path: Path):
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, window(1))
        feed, calls = feed_of(tmp_path), list[str]()
        reader: Any = feed.reader
        reader.look = counting(calls, "look", reader.look)
        reader.after = counting(calls, "after", reader.after)
        spot = feed.reader.find(1, 2**20)
        assert spot is not None
        for scn in (2, 3):
            synced(writer, window(scn))
            feed.wake()
            found = []
            for _ in range(40):
                feed.look()
                found.append(feed.after(spot, 2**20, 0))
            assert (calls.count("look"), calls.count("after")) == (1, 1)
            calls.clear()
            # What was found for one is what is there now, for all of them.
            assert found == [feed.reader.after(spot, 2**20)] * 40
            assert found[0] is not None
            assert seen(blocks_in(found[0].data)) == seen(map(window, range(2, scn + 1)))
            calls.clear()


def test_a_log_that_is_damaged_is_told_of_to_each_who_looks(tmp_path: Path):
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, window(1))
    feed = feed_of(tmp_path)
    feed.wake()
    (tmp_path / "tail").write_bytes(b"short")
    for _ in range(3):
        with pytest.raises(CorruptSegment):
            feed.look()


@pytest.mark.parametrize(
    ("heard_s", "due_s", "pause_s"),
    [
        (0.0, -1.0, _SHORTEST_S),
        (0.0, 10 * _SHORTEST_S, 10 * _SHORTEST_S),
        (0.0, 1.0, _LONGEST_S),
        (1.0, -1.0, _LONGEST_S),
        (32 * _SHORTEST_S * 4, -1.0, 2 * _SHORTEST_S),
    ],
)
def test_nobody_looks_before_anybody_may_be_told(heard_s, due_s, pause_s):
    now = 1000.0
    assert _pause_s(now, now - heard_s, now + due_s) == pytest.approx(pause_s)


class Crowd:
    """Streams of a feed that wait, the thread that tells them, and a clock of its own.

    Attributes:
        pace_s: how often each of them is told at most.
        told: times at which a turn was told, with how many streams have it.
    """

    def __init__(self, writer: ChangeLogWriter, folder: Path, streams: int) -> None:
        self.now = 1000.0
        self.told: list[tuple[float, list[int]]] = []
        self.feed = feed_of(folder)
        self._writer = writer
        self._scn = 1
        self._watched = _Watched(self.feed)
        self.pace_s = streams * _SEND_S
        self._joined = ExitStack()
        self.turns = [self._joined.enter_context(self.feed.joined()) for _ in range(streams)]

    def commit(self) -> None:
        self._scn += 1
        synced(self._writer, window(self._scn))

    def wait(self, turns: Iterable[Turn] | None = None) -> None:
        for turn in self.feed.turns if turns is None else turns:
            if turn.streams:
                turn.news()

    def look(self) -> list[Turn]:
        if self.now < self._watched.due_at or not (turns := self._watched.to_tell(self.now)):
            return []
        self.feed.wake(turns)
        self.told.append((self.now, [turn.streams for turn in turns]))
        return turns

    def pass_until(self, time_s: float, step_s: float) -> None:
        """Look as the thread does, until a time; whoever was told waits again at once."""
        while self.now < time_s:
            self.wait(self.look())
            self.now += step_s


@asynccontextmanager
async def crowd_of(streams: int, folder: Path) -> AsyncIterator[Crowd]:
    with ChangeLogWriter.open(folder) as writer:
        synced(writer, window(1))
        crowd = Crowd(writer, folder, streams)
        crowd.wait()
        assert crowd.look(), "whoever waits first is told of what there is"
        crowd.now += 1.0
        crowd.wait()
        assert not crowd.look()
        crowd.told.clear()
        yield crowd


def test_streams_are_spread_over_turns_and_a_few_share_one(tmp_path: Path):
    with ChangeLogWriter.open(tmp_path) as writer:
        synced(writer, window(1))
    feed = feed_of(tmp_path)
    with ExitStack() as streams:
        for count in range(1, 2 * _TURNS * _TURN_STREAMS + 1):
            streams.enter_context(feed.joined())
            assert feed.streams == count
            sizes = [turn.streams for turn in feed.turns]
            if count <= _TURNS * _TURN_STREAMS:
                assert max(sizes) <= _TURN_STREAMS
                assert sum(size > 0 for size in sizes) == -(-count // _TURN_STREAMS)
            else:
                assert max(sizes) - min(sizes) <= 1
    assert feed.streams == 0


@req("D42")
def test_after_a_quiet_time_all_are_told_at_once(tmp_path: Path):
    async def told() -> None:
        async with crowd_of(4 * _TURN_STREAMS, tmp_path) as crowd:
            crowd.commit()
            assert set(crowd.look()) == set(crowd.feed.turns)

    asyncio.run(told())


@req("D42")
@pytest.mark.parametrize("streams", [_TURN_STREAMS, 2 * _TURN_STREAMS, 40, 300])
def test_on_a_busy_log_turns_are_told_one_behind_the_other(tmp_path: Path, streams):
    """Each as often as the pace allows, and evenly: whoever is told waits for those told with him alone."""

    async def told() -> None:
        async with crowd_of(streams, tmp_path) as crowd:
            pace_s = min(crowd.pace_s, 0.02)
            begun, parts = crowd.now, min(_TURNS, streams // _TURN_STREAMS)
            for _ in range(50):
                crowd.commit()
                crowd.pass_until(crowd.now + pace_s / 8, pace_s / 64)
            rounds = (crowd.now - begun) / pace_s
            first, *others = crowd.told
            assert len(first[1]) == parts, "nobody was told for long"
            assert all(len(sizes) == 1 for _, sizes in others)
            assert len(others) == pytest.approx(rounds * parts, rel=0.2)
            gaps = np.diff([at for at, _ in others])
            assert gaps.min() >= pace_s / parts * 0.99
            told = [turn.told for turn in crowd.feed.turns if turn.streams]
            assert max(told) - min(told) <= 1

    asyncio.run(told())


@req("D41")
def test_a_turn_that_still_sends_is_passed_over_and_told_when_it_waits(tmp_path: Path):
    async def told() -> None:
        async with crowd_of(4 * _TURN_STREAMS, tmp_path) as crowd:
            crowd.commit()
            busy, *others = crowd.look()
            crowd.commit()
            crowd.wait(others)
            seen = []
            for _ in range(_TURNS):
                crowd.now += crowd.pace_s / _TURNS
                seen += crowd.look()
            assert sorted(map(id, seen)) == sorted(map(id, others)), "each once"
            crowd.wait([busy])
            crowd.now += crowd.pace_s / _TURNS
            assert crowd.look() == [busy]

    asyncio.run(told())


def test_connections_that_send_the_same_share_its_chunk():
    part, other = memoryview(b"x" * 300), b"y"
    assert _chunk.of(part) == b"12c\r\n" + b"x" * 300 + b"\r\n"
    assert _chunk.of(part) is _chunk.of(part)
    assert [_chunk.of(other), _chunk.of(part)] == [b"1\r\ny\r\n", b"12c\r\n" + b"x" * 300 + b"\r\n"]

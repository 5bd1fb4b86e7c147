"""News that come between a stream's look at the log and its waiting for more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.changelog import ChangeLogWriter
from headrace.errors import CorruptSegment
from headrace.relay.server.connection import Connection, _chunk
from headrace.relay.server.counters import Counters
from headrace.relay.server.feed import _LONGEST_S, _SHORTEST_S, Feed, LookOut, _pause_s
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


def test_connections_that_send_the_same_share_its_chunk():
    part, other = memoryview(b"x" * 300), b"y"
    assert _chunk.of(part) == b"12c\r\n" + b"x" * 300 + b"\r\n"
    assert _chunk.of(part) is _chunk.of(part)
    assert [_chunk.of(other), _chunk.of(part)] == [b"1\r\ny\r\n", b"12c\r\n" + b"x" * 300 + b"\r\n"]

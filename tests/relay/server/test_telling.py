"""News that come between a stream's look at the log and its waiting for more."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.changelog import ChangeLogWriter
from headrace.relay.server.connection import Connection
from headrace.relay.server.counters import Counters
from headrace.relay.server.feed import Feed, LookOut
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

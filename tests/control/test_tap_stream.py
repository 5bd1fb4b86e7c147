"""The tap of a replicator over HTTP: several listeners, each told what it lacks, and nobody held up."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from headrace.errors import TooManyRequests
from headrace.observe.tap.events import SinkEvent
from headrace.observe.tap.lines import Envelope
from headrace.observe.tap.recorder import Recorder
from headrace.observe.tap.recording import RecordingTap
from headrace.observe.tap.teaching import Bookmark
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.listeners import MOST_BEHIND_BYTES, MOST_LISTENERS, Listener, Listeners
from headrace.replicator.paths import StatePaths
from headrace.replicator.tap import bookmark_file, tap_file
from tests.control.asking import OPERATOR, TOKENS, VIEWER, Asking, served
from tests.control.planes import config_of, end_everything, environment
from tests.control.taps import told
from tests.observe.json_schema import assert_valid
from tests.requirements import req
from tests.waiting import until

SHOP = "/v1/contexts/default/replicators/shop"
TAP = f"{SHOP}/api/v1/tap"


@pytest.fixture
def serving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[ControlPlane, str]]:
    monkeypatch.setenv("SHOP_PASSWORD", environment()["SHOP_PASSWORD"])
    try:
        with served(tmp_path, tokens=TOKENS) as found:
            yield found
    finally:
        end_everything(tmp_path)


def deployed(serving: Any, **tap: Any) -> Path:
    """Deploy a replicator whose tap tells, and return the tap's file."""
    plane, url = serving
    config = config_of(tap={"enabled": True, **tap})
    Asking(url, OPERATOR.secret)("PUT", SHOP, {"config": config})
    row = plane.store.replicator("default", "shop")
    return tap_file(StatePaths.of(plane.folders.of(row).config(row)).tap)


class Stream:
    """Somebody who listens."""

    def __init__(self, url: str, token: str, query: str = "", accept: str = "*/*") -> None:
        parts = urlsplit(url)
        self.connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        headers = {"authorization": f"Bearer {token}", "accept": accept}
        self.connection.request("GET", f"{TAP}/stream{query}", headers=headers)
        self.answer = self.connection.getresponse()

    def line(self) -> Any:
        """Return the next line that tells something, whatever pieces it came in."""
        return json.loads(self.told(1)[0])

    def told(self, count: int) -> list[str]:
        """Return the next lines that tell something: an empty one only says that the stream lives."""
        lines = (self._plain().rstrip("\n") for _ in itertools.count())
        return list(itertools.islice(filter(None, lines), count))

    def _plain(self) -> str:
        line = b""
        while not line.endswith(b"\n"):
            piece = self.answer.read(1)
            assert piece, "the stream has ended"
            line += piece
        return line.decode()

    def lines(self, count: int) -> list[str]:
        return [self._plain().rstrip("\n") for _ in range(count)]

    def close(self) -> None:
        # Both: the answer holds the socket as well.
        self.answer.close()
        self.connection.close()


@contextlib.contextmanager
def listening(*args: Any, **also: Any) -> Iterator[Stream]:
    with contextlib.closing(Stream(*args, **also)) as stream:
        assert stream.answer.status == 200
        yield stream


@req("H19", "F17")
def test_a_tap_that_tells_is_streamed_to_several_who_listen(serving: Any) -> None:
    plane, url = serving
    file = deployed(serving)
    before = [told(0, kind="tap.opened", mode="record", keys="plain", rows=True), told(1)]
    file.parent.mkdir(parents=True)
    file.write_text("\n".join([*before, "half a line"]) + "\n")
    number = plane.store.replicator("default", "shop").number
    with (
        listening(url, VIEWER.secret, "?last=1") as one,
        listening(url, OPERATOR.secret) as other,
    ):
        assert one.answer.getheader("content-type") == "application/x-ndjson"
        assert one.line()["seq"] == 1
        assert len(plane.listeners.of(number)) == 2
        tap = RecordingTap(Recorder(file, 2**20), Envelope(), 1000)
        tap.begin("run-2", "shop")
        for place in range(5):
            row = SinkEvent(lsn=str(place), op="INSERT", table="public.t", pk=(str(place),),
                            origin="LOG", sink_name="changelog")  # fmt: skip
            tap.emit(row)
        got = [one.told(6), other.told(6)]
        assert got[0] == got[1]
        assert_valid(got[0])
        assert [json.loads(text)["seq"] for text in got[0]] == list(range(6))
        tap.close()
        shown = Asking(url, VIEWER.secret).one(TAP)
        assert (shown["enabled"], shown["mode"]) == (True, "record")
        assert {(one["who"], one["dropped"]) for one in shown["listeners"]} == {
            ("vera", 0),
            ("otto", 0),
        }
    until(lambda: not plane.listeners.of(number), "that nobody listens")


@req("H19")
def test_who_has_the_answer_is_told_whatever_comes_from_then_on(
    serving: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The place from which a stream tells is taken before its answer, else what comes in between is lost."""
    file = deployed(serving)
    file.parent.mkdir(parents=True)
    answered, begin = threading.Event(), Listener.begin

    def late(listener: Listener, last: int) -> list[str]:
        answered.wait(0.3)
        return begin(listener, last)

    monkeypatch.setattr(Listener, "begin", late)
    with listening(serving[1], VIEWER.secret) as stream:
        line = told(0)
        file.write_text(line + "\n")
        answered.set()
        assert stream.told(1) == [line]


@req("H19")
def test_a_browser_gets_server_sent_events(serving: Any) -> None:
    file = deployed(serving)
    file.parent.mkdir(parents=True)
    line = told(7, run="r", kind="tap.dropped", dropped=1, total=1)
    file.write_text(line + "\n")
    with listening(serving[1], VIEWER.secret, "?last=9", accept="text/event-stream") as stream:
        assert stream.answer.getheader("content-type", "").startswith("text/event-stream")
        assert stream.lines(4) == ["event: tap.dropped", "id: r-7", f"data: {line}", ""]


@req("H19")
def test_a_tap_that_tells_nothing_and_one_that_is_edited(serving: Any) -> None:
    plane, url = serving
    ask = Asking(url, OPERATOR.secret)
    ask.does("PUT", SHOP, {"config": config_of()}, 201)
    off = ask("GET", f"{TAP}/stream")
    assert (off.status, off.error["type"]) == (503, "TapNotEnabled")
    assert ask.one(TAP)["enabled"] is False
    file = deployed(serving)
    file.parent.mkdir(parents=True)
    file.touch()
    with listening(url, VIEWER.secret) as stream:
        deployed(serving, teach=True)
        # Empty lines say that it lives, where that takes long.
        assert stream.answer.read().strip() == b"", (
            "it ends with the configuration that it began under"
        )
    assert plane.listeners.of(plane.store.replicator("default", "shop").number) == []


@req("H19")
def test_a_tap_that_teaches_is_out_of_a_viewers_reach(serving: Any) -> None:
    plane, url = serving
    file = deployed(serving, teach=True)
    file.parent.mkdir(parents=True)
    file.write_text(told(0, run="r") + "\n")
    viewer, operator = Asking(url, VIEWER.secret), Asking(url, OPERATOR.secret)
    body = {"runId": "r", "seq": 0}
    for accept in ("*/*", "text/event-stream"):
        with contextlib.closing(Stream(url, VIEWER.secret, "?last=1", accept)) as refused:
            # An answer that is none has no end.
            assert refused.answer.status == 403
            assert json.loads(refused.answer.read())["error"]["type"] == "NotAllowed"
    assert plane.listeners.of(plane.store.replicator("default", "shop").number) == []
    answer = viewer("POST", f"{TAP}/taken", body)
    assert (answer.status, answer.error["type"]) == (403, "NotAllowed")
    bookmark = Bookmark(bookmark_file(file.parent))
    assert bookmark.get("r") == -1
    # That it teaches, and who listens, anybody may see.
    assert viewer.one(TAP)["mode"] == "teach"
    with listening(url, OPERATOR.secret, "?last=1") as stream:
        assert stream.line()["seq"] == 0
        assert bookmark.get("r") == -1, "who only listens lets nothing go on"
        operator.does("POST", f"{TAP}/taken", body, 204)
        assert bookmark.get("r") == 0
    for wrong in ({"runId": "a b", "seq": 0}, {"runId": "r", "seq": -1}, {"runId": "r"}):
        assert operator("POST", f"{TAP}/taken", wrong).status == 422


def test_streams_end_with_the_server(serving: Any, tmp_path: Path) -> None:
    with served(tmp_path / "other", tokens=TOKENS) as (plane, url):
        deployed((plane, url)).parent.mkdir(parents=True)
        stream = Stream(url, VIEWER.secret)
        ended = threading.Event()

        def read() -> None:
            # A server that has no more patience with its own streams cuts them; that ends them, too.
            with contextlib.suppress(http.client.IncompleteRead):
                stream.answer.read()
            ended.set()

        reader = threading.Thread(target=read)
        reader.start()
    assert ended.wait(60)
    reader.join()
    stream.close()


# -- one listener ---------------------------------------------------------------------------------


@req("F17")
def test_one_that_is_slow_lacks_lines_and_is_told_how_many(tmp_path: Path) -> None:
    file = tmp_path / "tap.ndjson"
    recorder = Recorder(file, 4 * MOST_BEHIND_BYTES)
    fill = "x" * 1000
    recorder.write(told(0, fill=fill) + "\n")
    with contextlib.closing(Listener("slow", file)) as slow:
        assert len(slow.begin(1)) == 1
        count = MOST_BEHIND_BYTES // 1000
        for seq in range(1, count + 1):
            recorder.write(told(seq, fill=fill) + "\n")
        got = [json.loads(text) for text in slow.read()]
        assert got[0]["kind"] == "stream.dropped"
        assert got[0]["seq"] is None
        while more := slow.read():
            got += map(json.loads, more)
        numbers = [line["seq"] for line in got[1:]]
        assert numbers == list(range(numbers[0], count + 1))
        assert got[0]["dropped"] == got[0]["total"] == slow.dropped == numbers[0] - 1
        assert slow.sent == len(got) + 1
        assert_valid([json.dumps(got[0])])
    recorder.close()


@req("F17")
def test_what_the_tap_itself_left_out_is_not_counted_for_a_listener(tmp_path: Path) -> None:
    file = tmp_path / "tap.ndjson"
    file.write_text(told(0) + "\n")
    with contextlib.closing(Listener("one", file)) as one:
        one.begin(1)
        with file.open("a") as more:
            more.write(told(5, kind="tap.dropped", dropped=4, total=4) + "\n")
            more.write(told(0, run="next") + "\n" + told(3, run="next") + "\n")
        kinds = [json.loads(text)["kind"] for text in one.read()]
    assert kinds == ["tap.dropped", "stream.heartbeat", "stream.dropped", "stream.heartbeat"]
    assert one.dropped == 2


def test_no_more_listen_than_there_is_room_for(tmp_path: Path) -> None:
    listeners = Listeners()
    with contextlib.ExitStack() as stack:
        for number in range(MOST_LISTENERS):
            one = Listener("one", tmp_path / "tap.ndjson")
            stack.enter_context(listeners.joined(number % 3, one))
        late = Listener("late", tmp_path / "tap.ndjson")
        with pytest.raises(TooManyRequests), listeners.joined(1, late):
            pass
    assert listeners.of(1) == []
    with listeners.joined(1, Listener("one", tmp_path / "tap.ndjson")):
        assert len(listeners.of(1)) == 1

"""The tap for teaching: everything stands still until the reader has read."""

from __future__ import annotations

import json
import stat
import threading
from pathlib import Path

from headrace.observe.tap.events import Cdc
from headrace.observe.tap.lines import Envelope
from headrace.observe.tap.recorder import Recorder
from headrace.observe.tap.teaching import Bookmark, TeachingTap
from tests.observe.json_schema import assert_valid, lines_of
from tests.requirements import req
from tests.waiting import until

EVENT = Cdc(lsn="1", op="INSERT", table="public.t", pk=("1",))


@req("H20", "H21")
def test_the_teller_waits_for_each_event_to_be_read(tmp_path: Path) -> None:
    path, bookmark = tmp_path / "tap.ndjson", Bookmark(tmp_path / "bookmark")
    tap = TeachingTap(Recorder(path, 1 << 20), Envelope(), bookmark.get)
    told: list[int] = []

    def tell() -> None:
        tap.begin("run", "shop")
        for number in range(3):
            tap.emit(EVENT)
            told.append(number)

    teller = threading.Thread(target=tell)
    teller.start()
    for number in range(3):
        until(lambda n=number: len(lines_of(path)) == n + 1, "the next line")  # type: ignore[misc]
        assert len(told) == max(0, number - 1)
        # A bookmark in another run moves nobody.
        bookmark.put("another run", 99)
        bookmark.put("run", number)
    until(lambda: len(lines_of(path)) == 4, "the last line")
    bookmark.put("run", 3)
    teller.join(30)
    assert told == [0, 1, 2]
    assert stat.S_IMODE((tmp_path / "bookmark").stat().st_mode) == 0o600
    assert_valid(lines_of(path))


@req("H20")
def test_a_reader_that_stays_away_is_told_of_out_of_band() -> None:
    lines: list[str] = []
    now = 0.0

    class Writer:
        def write(self, text: str) -> None:
            lines.append(text)

    def sleep(seconds: float) -> None:
        nonlocal now
        now += seconds

    tap = TeachingTap(
        Writer(),
        Envelope(),
        lambda run: 99 if not 1.0 <= now < 4.0 else -1,
        clock=lambda: now,
        sleep=sleep,
    )
    tap.begin("run", "shop")
    now = 1.0
    tap.emit(EVENT)
    tap.emit(EVENT)
    values = [json.loads(line) for line in lines]
    assert [(value["kind"], value["seq"]) for value in values] == [
        ("tap.opened", 0), ("cdc", 1), ("stream.standby", None), ("stream.resumed", None), ("cdc", 2),
    ]  # fmt: skip
    assert 1000 <= values[2]["queue_full_ms"] < 1100
    assert 3000 <= values[3]["standby_total_ms"] < 3100
    assert_valid([line.strip() for line in lines])


def test_a_capture_that_is_told_to_stop_waits_for_no_reader(tmp_path: Path) -> None:
    stop = threading.Event()
    tap = TeachingTap(Recorder(tmp_path / "t", 1 << 20), Envelope(), lambda run: -1, stop.is_set)
    teller = threading.Thread(target=lambda: tap.begin("run", "shop"))
    teller.start()
    assert teller.is_alive()
    stop.set()
    teller.join(30)
    assert not teller.is_alive()

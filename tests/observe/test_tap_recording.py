"""The tap for production: bounded, never in the way, nothing lost without a trace."""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.observe.tap import Later
from headrace.observe.tap.events import Cdc, Event, RereadListed
from headrace.observe.tap.keys import hashed_key, plain_key, secret_of
from headrace.observe.tap.lines import Envelope
from headrace.observe.tap.reading import News, Order, follow, parse
from headrace.observe.tap.recorder import Recorder, older
from headrace.observe.tap.recording import MOST_BYTES, RecordingTap
from tests.observe.json_schema import assert_valid, faults_of_line, lines_of
from tests.requirements import req

SIZE = 1 << 20


def change(key: int) -> Cdc:
    return Cdc(lsn="1", op="INSERT", table="public.t", pk=(str(key),))


def rows(count: int, nbytes: int = 0) -> Later:
    def make() -> Iterator[Event]:
        return (change(key) for key in range(count))

    return Later(count, nbytes, make)


class Gate:
    """Holds the writing thread until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def events(self) -> Iterator[Event]:
        self.reached.set()
        assert self.opened.wait(30)
        yield change(0)

    count, nbytes = 1, 0


def kinds(path: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in lines_of(path)]


@req("H20")
def test_what_does_not_fit_is_dropped_and_counted_and_nobody_waits(tmp_path: Path) -> None:
    path = tmp_path / "tap.ndjson"
    tap = RecordingTap(Recorder(path, SIZE), Envelope(), capacity=10, clock=lambda: 0.0)
    tap.begin("run", "shop")
    gate = Gate()
    tap.emit(gate)
    assert gate.reached.wait(30)
    # The writer stands still: from here on nothing leaves the queue, and every call returns.
    tap.emit(rows(8))
    tap.emit(rows(50))
    tap.emit(change(1))
    tap.emit(change(2))
    assert tap.dropped == 51
    gate.opened.set()
    tap.close()
    told = ["tap.opened", "cdc", *["cdc"] * 8, "tap.dropped", "cdc", "tap.dropped"]
    assert kinds(path) == told
    assert [json.loads(line)["seq"] for line in lines_of(path)] == [*range(10), 60, 61, 63]


@req("F17")
def test_a_reader_sees_the_gap_and_the_count(tmp_path: Path) -> None:
    path = tmp_path / "tap.ndjson"
    tap = RecordingTap(Recorder(path, SIZE), Envelope(), capacity=10, clock=lambda: 0.0)
    tap.begin("run", "shop")
    tap.emit(rows(11))
    tap.emit(change(1))
    tap.close()
    lines = [json.loads(line) for line in lines_of(path)]
    assert [line["kind"] for line in lines] == ["tap.opened", "tap.dropped", "cdc"]
    assert [line["seq"] for line in lines] == [0, 12, 13]
    assert (lines[1]["dropped"], lines[1]["total"]) == (11, 11)
    order = Order()
    assert [order.take(line) for line in lines] == [News.NEW_RUN, News.AFTER_GAP, News.NEXT]
    assert order.missed == 11
    assert all(faults_of_line(line) == [] for line in lines_of(path))


def test_columns_that_wait_are_bounded_in_bytes(tmp_path: Path) -> None:
    tap = RecordingTap(Recorder(tmp_path / "t", SIZE), Envelope(), capacity=1000)
    gate = Gate()
    tap.emit(gate)
    assert gate.reached.wait(30)
    tap.emit(rows(1, MOST_BYTES))
    tap.emit(rows(1, 1))
    gate.opened.set()
    tap.close()
    assert tap.dropped == 1


def test_a_disk_that_refuses_costs_lines_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Recorder, text: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Recorder, "write", refuse)
    tap = RecordingTap(Recorder(tmp_path / "t", SIZE), Envelope(), capacity=1000)
    tap.emit(rows(600))
    tap.close()
    assert tap.dropped == 600


def test_an_event_that_cannot_be_made_is_counted_and_the_rest_goes_on(tmp_path: Path) -> None:
    def make() -> Iterator[Event]:
        yield change(1)
        raise KeyError("a schema that nobody knows")

    path = tmp_path / "tap.ndjson"
    tap = RecordingTap(Recorder(path, SIZE), Envelope(), capacity=1000)
    tap.emit(Later(3, 0, make))
    tap.emit(change(2))
    tap.close()
    assert tap.dropped == 3
    assert "cdc" in kinds(path)
    assert kinds(path)[-1] in ("cdc", "tap.dropped")


@req("H20")
def test_a_heartbeat_says_how_full_the_queue_is(tmp_path: Path) -> None:
    now = 0.0
    path = tmp_path / "tap.ndjson"
    tap = RecordingTap(Recorder(path, SIZE), Envelope(), capacity=1000, clock=lambda: now)
    tap.begin("run", "shop")
    now = 2.5
    tap.emit(change(1))
    tap.emit(change(2))
    tap.close()
    assert kinds(path) == ["tap.opened", "stream.heartbeat", "cdc", "cdc"]
    assert_valid(lines_of(path))


def test_the_files_never_take_more_than_their_bound_and_are_their_owners(tmp_path: Path) -> None:
    path = tmp_path / "tap" / "tap.ndjson"
    recorder = Recorder(path, 10_000)
    for number in range(400):
        recorder.write(f'{{"line": {number}, "pad": "{"x" * 60}"}}\n')
        held = path.stat().st_size + (older(path).stat().st_size if older(path).exists() else 0)
        assert held <= 10_000
    recorder.close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(older(path).stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    there = [json.loads(line)["line"] for line in follow(path)]
    assert there == list(range(there[0], 400))


def test_a_line_that_the_disk_took_half_of_costs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, write = tmp_path / "tap.ndjson", os.write
    recorder = Recorder(path, SIZE)

    def half(handle: int, data: bytes) -> int:
        if len(data) < 12:
            raise OSError(28, "No space left on device")
        return write(handle, data[: len(data) // 2])

    monkeypatch.setattr(os, "write", half)
    with pytest.raises(OSError, match="No space"):
        recorder.write('{"lost": true, "pad": "xxxxxxxx"}\n')
    monkeypatch.undo()
    recorder.write('{"kept": true}\n')
    recorder.close()
    assert json.loads(lines_of(path)[-1]) == {"kept": True}


def test_half_a_line_of_a_dead_process_is_skipped(tmp_path: Path) -> None:
    path = tmp_path / "tap.ndjson"
    path.write_text('{"v":1,"seq":0,"ts"')
    os.chmod(path, 0o644)
    tap = RecordingTap(Recorder(path, SIZE), Envelope(), capacity=10)
    tap.begin("run", "shop")
    tap.close()
    assert [parse(line) is None for line in lines_of(path)] == [True, False]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_keys_are_csv_as_the_dump_command_takes_them() -> None:
    assert plain_key(("17",)) == "17"
    assert plain_key(("17", "1")) == "17,1"
    assert plain_key(("a,b", 'say "x"')) == '"a,b","say ""x"""'
    assert plain_key(("a,b",)) == '"a,b"'
    assert plain_key(()) == ""


def test_hashed_keys_hide_values_and_stay_comparable(tmp_path: Path) -> None:
    secret = secret_of(tmp_path / "secret")
    assert secret == secret_of(tmp_path / "secret")
    assert stat.S_IMODE((tmp_path / "secret").stat().st_mode) == 0o600
    show = hashed_key(secret)
    assert show(("ann@example.org",)) == show(("ann@example.org",)) != show(("bob@example.org",))
    assert show(("17",)) != hashed_key(b"another secret")(("17",))
    path = tmp_path / "tap.ndjson"
    tap = RecordingTap(Recorder(path, SIZE), Envelope(show_key=show), capacity=10, hashed=True)
    tap.begin("run", "shop")
    tap.emit(change(4711))
    tap.emit(RereadListed(table="public.t", pks=[("4711",), ("4712",)], reason="moved in"))
    tap.close()
    text = path.read_text()
    assert (
        "471" not in text.replace(json.loads(text.splitlines()[0])["ts"], "").split('"pk"')[1][:30]
    )
    told = [json.loads(line) for line in lines_of(path)]
    assert told[0]["keys"] == "hashed"
    assert told[1]["pk"] == told[2]["pks"][0] == show(("4711",))
    assert_valid(lines_of(path))

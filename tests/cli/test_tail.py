"""``headrace tail``: what comes, in its order, from where it was asked for, until it was asked to end."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.cli.stream import filter_of, start_of
from headrace.cli.tail_consumer import TailConsumer
from headrace.cli.tail_forms import TableForm
from headrace.client import Event, Window
from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.testing.relay import served, sources_of
from headrace.wire.place import Place
from tests.changelog.windows import OTHER, TABLE, window
from tests.client.logs import LogFolder, random_blocks, told_by
from tests.faults.disks import into_full, on_a_full_disk
from tests.requirements import req
from tests.waiting import until

TOKEN = "a-token-that-is-long-enough"


def tail(*words: object, env: dict[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["tail", *map(str, words)], catch_exceptions=False, env=env)


def lines(done: Result) -> list[dict[str, Any]]:
    assert done.exit_code == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def places(done: Result) -> list[tuple[int, int]]:
    return [(line["scn"], line["ord"]) for line in lines(done) if "ord" in line]


def fill(log: LogFolder, seed: int, steps: int = 250) -> list[tuple[int, int]]:
    """Fill a log at random; return the places of what has to be shown."""
    log.append(*random_blocks(seed, steps))
    return [told[:2] for told in told_by(log.blocks)]


def simple(log: LogFolder, *scns: int, rows: int = 2) -> None:
    log.register(TABLE, OTHER)
    log.append(*(window(scn, rows, tables=(OTHER, TABLE)) for scn in scns))


ALL = ("--from", "oldest", "--upto", "newest", "--format", "json")


@pytest.mark.parametrize("seed", range(4))
def test_every_change_is_shown_once_in_the_order_of_the_stream(log, relay, seed):
    expected = fill(log, seed)
    done = tail(relay, *ALL)
    assert places(done) == expected
    assert f"{len(expected):,} changes" in done.stderr


@pytest.mark.parametrize("seed", range(4))
def test_counted_pieces_joined_by_a_resume_file_are_the_whole_stream(log, relay, tmp_path, seed):
    expected = fill(log, seed, 120)
    found: list[tuple[int, int]] = []
    step = 7 + seed
    while True:
        done = tail(relay, *ALL, "--count", step, "--resume", tmp_path / "place")
        found += places(done)
        assert len(places(done)) <= step
        if len(places(done)) < step:
            break
    assert found == expected


def test_a_count_ends_inside_a_window_of_several_tables(log, relay, tmp_path):
    simple(log, 1, rows=3)
    resume = ("--resume", tmp_path / "place")
    assert places(tail(relay, *ALL, *resume, "--count", 4)) == [(1, n) for n in range(4)]
    assert json.loads((tmp_path / "place").read_text())["place"] == "1:3"
    assert places(tail(relay, *ALL, *resume)) == [(1, 4), (1, 5)]


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        ("oldest", [1, 2, 3]),
        ("2", [3]),
        ("newest", []),
        ("1970-01-01T00:00:01.000002Z", [2, 3]),
    ],
)
def test_it_begins_where_it_was_asked_to(log, relay, start, expected):
    simple(log, 1, 2, 3)
    done = tail(relay, *ALL, "--from", start)
    assert sorted({scn for scn, _ in places(done)}) == expected


def test_how_long_ago_is_a_time():
    now = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert start_of("90s", now) == datetime(2026, 1, 31, 11, 58, 30, tzinfo=UTC)
    assert start_of("2d", now) == datetime(2026, 1, 29, 12, tzinfo=UTC)
    assert start_of("12:3") == Place(12, 3)
    assert start_of("2026-01-31") == datetime(2026, 1, 31)  # noqa: DTZ001 - the client takes it for UTC


def test_options_are_the_filter_of_the_protocol():
    assert filter_of(None, None, None, None) is None
    assert filter_of(["public.*"], ["public.a:x,y"], ["public.a:x = 'b:c'"], "hash:8:0,3") == {
        "tables": ["public.*"],
        "columns": {"public.a": ["x", "y"]},
        "where": {"public.a": "x = 'b:c'"},
        "partition": {"by": "hash", "count": 8, "take": [0, 3]},
    }
    for text, part in (
        ("5..9", {"from": 5, "below": 9}),
        ("..b", {"below": "b"}),
        ("-1..", {"from": -1}),
    ):
        partition = {"by": "range", "ranges": [part]}
        assert filter_of(None, None, None, f"range:{text}") == {"partition": partition}


@req("D11")
def test_filters_are_evaluated_by_the_relay_and_parts_make_the_whole(log, relay):
    log.register(TABLE, OTHER)
    log.append(*(window(scn, 5, tables=(OTHER, TABLE)) for scn in range(1, 6)))
    everything = Counter(places(tail(relay, *ALL)))
    assert {line["table"] for line in lines(tail(relay, *ALL, "--table", "*.other"))} == {
        str(OTHER.table)
    }
    cuts = [[f"{by}:3:{n}" for n in range(3)] for by in ("hash", "mod")]
    for cut in [*cuts, ["range:..1", "range:1..3", "range:3.."]]:
        parts = [places(tail(relay, *ALL, "--partition", part)) for part in cut]
        assert Counter(place for part in parts for place in part) == everything
        assert all(len(part) < everything.total() for part in parts)
    kept = lines(
        tail(relay, *ALL, "--where", f"{TABLE.table}:k >= 3", "--columns", f"{TABLE.table}:k")
    )
    rows = [line["row"] for line in kept if line["table"] == str(TABLE.table)]
    assert rows == [{"k": 3}, {"k": 4}] * 5


def test_each_format_has_its_lines(log, relay):
    simple(log, 1, rows=1)
    table = tail(relay, *ALL[:4], "--table", "*.other").stdout
    assert re.fullmatch(r'1970-01-01 00:00:01\.000 1 \+I \S+other 0  k=0  c1="x"\n', table)
    info = tail(relay, *ALL[:4], "--table", "*.other", "-F", "info").stdout
    assert info.rstrip("\n").split("\t") == [
        *("1", "0", "+I", str(OTHER.table), "1970-01-01 00:00:01.000", "log", "[0]")
    ]
    none = tail(relay, *ALL[:4], "-F", "none", "--stats")
    assert none.stdout == ""
    assert "2 changes in 1 window " in none.stderr
    assert re.search(rf"{OTHER.table}\s+\+I\s+1", none.stderr)


def test_verbosity_adds_ends_of_windows_and_then_what_happens(log, relay, tmp_path):
    simple(log, 1, 2, rows=1)
    quiet, ends, life = (
        tail(relay, *ALL, "-V", each, "--resume", tmp_path / each)
        for each in ("event", "window", "lifecycle")
    )
    assert [line.get("end") for line in lines(quiet)] == [None] * 4
    assert [line.get("end") for line in lines(ends)] == [None, None, True] * 2
    assert lines(life) == lines(ends)
    assert "checkpoint 2" in life.stderr
    assert "checkpoint" not in ends.stderr


def test_an_update_shows_what_changed_and_nothing_steers_the_terminal(capsys):
    window_ = Window("shop", 1, 1, 1, 1_000_000, 7, "log")
    table = TableId("public", "orders")
    before = {"id": 7, "note": "old", "same": 1}
    row = {"id": 7, "note": "\x1b[2J\x9b2J" + "x" * 100, "same": 1}
    TableForm().change(window_, Event(1, 1, "+U", table, (7,), row, before, frozenset({"big"})))
    shown = capsys.readouterr().out
    assert 'note: "old" → "\\u001b[2J\\u009b2J' in shown
    assert "same" not in shown
    assert "(not sent: big)" in shown
    assert "x" * 61 not in shown
    assert shown.rstrip("\n").isprintable()


def test_seconds_end_it_and_nothing_is_lost_for_the_next(log, relay, tmp_path, monkeypatch):
    shown, end = threading.Event(), TailConsumer.on_end_window

    def ended(consumer: TailConsumer, window: Window) -> Any:
        result = end(consumer, window)
        shown.set()
        return result

    class Timer(threading.Timer):
        """Begins to count when a window was shown, which may take longer than the seconds do."""

        def run(self) -> None:
            assert shown.wait(60)
            super().run()

    monkeypatch.setattr(TailConsumer, "on_end_window", ended)
    monkeypatch.setattr(threading, "Timer", Timer)
    simple(log, 1)
    resume = ("--resume", tmp_path / "place", "--format", "json")
    began = time.monotonic()
    assert places(tail(relay, "--from", "oldest", "--seconds", 0.3, *resume)) == [
        (1, n) for n in range(4)
    ]
    assert time.monotonic() - began < 20
    simple(log, 2)
    # A place that is remembered is stronger than --from.
    assert {scn for scn, _ in places(tail(relay, *ALL, *resume))} == {2}


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_with_what_was_seen(log, relay, tmp_path, number):
    simple(log, 1)
    words = [relay, "--from", "oldest", "--format", "json", "--resume", str(tmp_path / "place")]
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "tail", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    shown = [process.stdout.readline() for _ in range(4)]
    process.send_signal(number)
    rest, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert [json.loads(line)["ord"] for line in shown] == [0, 1, 2, 3]
    assert rest == ""
    assert "4 changes in 1 window " in said
    assert "Traceback" not in said
    assert json.loads((tmp_path / "place").read_text())["place"] == "1"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_while_its_reader_takes_nothing(log, relay, number):
    simple(log, *range(1, 300), rows=50)
    words = [relay, "--from", "oldest", "--format", "json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "tail", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    assert process.stdout is not None
    # It waits inside a callback then.
    until(lambda: is_full(process.stdout) and is_held_up(process.pid), "a full pipe")
    process.send_signal(number)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(2)
    process.send_signal(number)
    try:
        assert process.wait(30) in (130, -signal.SIGTERM)
    finally:
        process.kill()
        process.stdout.close()


def is_full(pipe: Any) -> bool:
    """Return whether a pipe, of which we read, takes nothing more."""
    end = os.open(f"/dev/fd/{pipe.fileno()}", os.O_WRONLY | os.O_NONBLOCK)
    try:
        return not select.select([], [end], [], 0)[1]
    finally:
        os.close(end)


def is_held_up(pid: int) -> bool:
    """Return whether a thread of a process waits for room in a pipe, or the system does not say."""
    waits = [place.read_text() for place in Path("/proc").glob(f"{pid}/task/*/wchan")]
    return any("pipe_write" in place for place in waits) or set(waits) <= {"0"}


@on_a_full_disk
@pytest.mark.parametrize("form", ["table", "json", "info"])
def test_an_output_without_room_is_said(log, relay, form):
    simple(log, 1)
    words = [relay, "--from", "oldest", "--upto", "newest", "--format", form]
    done = into_full("tail", *words)
    assert done.returncode == 2
    assert "The standard output cannot be written: No space left on device" in done.stderr
    assert "next step make room where it goes" in done.stderr


def test_a_reader_that_has_enough_ends_it_quietly(log, relay):
    simple(log, *range(1, 200), rows=50)
    words = [sys.executable, "-m", "headrace.cli.main", "tail", relay, "--from", "oldest"]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline()
    process.stdout.close()
    assert process.wait(60) == 0
    said = process.stderr.read()
    assert "Traceback" not in said
    assert "BrokenPipe" not in said
    process.stderr.close()


def test_a_relay_that_goes_away_is_waited_for_and_nothing_is_shown_twice(log, relay, tmp_path):
    simple(log, 1)
    file = tmp_path / "shown"
    with served({"shop": log.folder}, heartbeat_s=0.1) as other, file.open("w") as shown:
        words = [other, relay, "--from", "oldest", "--count", "8", "--format", "json"]
        process = subprocess.Popen(
            [sys.executable, "-m", "headrace.cli.main", "tail", *words],
            stdout=shown,
            stderr=subprocess.PIPE,
        )
        until(lambda: file.read_text().count("\n") == 4, "the first window")
    simple(log, 2)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert [json.loads(line)["scn"] for line in file.read_text().splitlines()] == [1] * 4 + [2] * 4


def test_a_file_names_address_source_and_token(log, tmp_path):
    simple(log, 1)
    with served(sources_of({"shop": log.folder}), heartbeat_s=0.1, tokens=tokens()) as url:
        file = tmp_path / "shop.yaml"
        file.write_text(
            "name: shop\n"
            "source: {type: postgres, url: 'postgresql://u@h/db', tables: ['public.*']}\n"
            "target: {type: delta, path: ./lake}\n"
            f"relay: {{listen: '{url.removeprefix('http://')}',"
            f" tokens: [{{name: reports, token: {TOKEN}}}]}}\n"
        )
        done = tail(file, *ALL)
        assert len(places(done)) == 4
        assert TOKEN not in done.output
        refused = tail(url, *ALL)
        assert refused.exit_code == 2
        assert "NotAllowed" in refused.stderr
        assert len(places(tail(url, *ALL, env={"HEADRACE_TOKEN": TOKEN}))) == 4


def tokens() -> tuple[Any, ...]:
    from headrace.relay.server.settings import Role, Token

    return (Token("reports", TOKEN, Role.READER),)


def test_a_source_of_several_has_to_be_named(log, tmp_path):
    simple(log, 1)
    with served({"shop": log.folder, "billing": log.folder}) as url:
        done = tail(url, *ALL)
        assert done.exit_code == 2
        assert "billing, shop" in done.stderr
        assert "--source" in done.stderr
        assert len(places(tail(url, *ALL, "--source", "billing"))) == 4
        unknown = tail(url, *ALL, "--source", "nobody")
        assert unknown.exit_code == 2
        assert "NotServed" in unknown.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--from", "yesterday"), "--from: 'yesterday'"),
        (("--from", "999999d"), "--from: '999999d'"),
        (("--from", "9" * 5000 + "d"), "--from: '999"),
        (("--upto", "x"), "--upto: 'x'"),
        (("--upto", "9" * 5000), "--upto: '999"),
        (("--partition", "hash:8"), "--partition"),
        (("--partition", "range:8"), "--partition"),
        (("--columns", "public.orders"), "--columns"),
        (("--where", "total > 10"), "--where"),
        (("--where", "public.a:b >"), "BadFilter"),
        (("--from", "999"), "ScnNotFound"),
        (("--ca", "/nowhere/ca.pem"), "--ca: /nowhere/ca.pem"),
    ],
)
def test_what_cannot_be_is_an_error_with_a_next_step(log, relay, words, said):
    simple(log, 1)
    done = tail(relay, "--seconds", 30, *words)
    assert done.exit_code == 2
    assert said in done.stderr
    assert "next step" in done.stderr
    assert "Traceback" not in done.output


def test_no_relay_at_all_is_said_at_once():
    done = tail("http://127.0.0.1:1")
    assert done.exit_code == 2
    assert "RelayUnavailable" in done.stderr
    two_files = tail("a.yaml", "b.yaml")
    assert two_files.exit_code == 2
    assert "several names" in two_files.stderr


def test_columns_without_a_table_are_refused_by_option():
    with pytest.raises(ConfigError, match="--columns"):
        filter_of(None, [":a"], None, None)


@pytest.mark.parametrize("seconds", ["nan", "inf", "1e300"])
def test_seconds_without_an_end_are_refused(seconds):
    done = tail("http://127.0.0.1:1", "--seconds", seconds)
    assert done.exit_code == 2
    assert "--seconds" in done.stderr

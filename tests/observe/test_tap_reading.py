"""F17 and A-18: gaps, restarts and repeated lines; following a file that is moved aside."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.demo.scenes import SCENES, recording
from headrace.observe.tap.picture import Picture
from headrace.observe.tap.reading import Line, News, follow, parse
from headrace.observe.tap.recorder import Recorder
from tests.observe.json_schema import lines_of
from tests.requirements import req


def line_of(seq: int | None, run: str = "a", kind: str = "stream.heartbeat", **own: object) -> Line:
    line = parse(
        json.dumps(
            {"v": 1, "seq": seq, "ts": "t", "run_id": run, "source_id": "s", "kind": kind, **own}
        )
    )
    assert line is not None
    return line


@req("F17")
def test_gaps_repeats_and_restarts_are_noticed() -> None:
    picture = Picture()
    news = [
        picture.take(line)
        for line in (line_of(0), line_of(1), line_of(1), line_of(5), line_of(None), line_of(0, "b"))
    ]
    assert news == [
        News.NEW_RUN, News.NEXT, News.REPEATED, News.AFTER_GAP, News.NEXT, News.NEW_RUN,
    ]  # fmt: skip
    assert (picture.order.missed, picture.events) == (0, 1)


@req("A-18", "F17")
@pytest.mark.parametrize("scene", SCENES)
def test_repeated_lines_give_the_same_picture(scene: str) -> None:
    once, again = Picture(), Picture()
    lines = [parse(text) for text in lines_of(recording(scene))]
    for place, line in enumerate(lines):
        assert line is not None
        once.take(line)
        again.take(line)
        for repeated in lines[max(0, place - 3) : place + 1]:
            assert repeated is not None
            if repeated["seq"] is not None:
                again.take(repeated)
    assert again == once
    assert once.windows


@req("F17")
def test_a_new_run_begins_a_new_picture() -> None:
    picture = Picture()
    for text in lines_of(recording("chunk42")):
        line = parse(text)
        assert line is not None
        picture.take(line)
    picture.take(line_of(0, "another"))
    fresh = Picture()
    fresh.take(line_of(0, "another"))
    assert picture == fresh


def test_kinds_that_nobody_knows_are_passed_over() -> None:
    picture = Picture()
    picture.take(line_of(0, kind="lease.lost", holder="x"))
    assert (picture.events, picture.window) == (1, None)


def test_a_file_that_is_moved_aside_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "tap.ndjson"
    written = 0
    recorder: Recorder | None = None

    def more(_seconds: float) -> None:
        # Comes when everything that is there was read.
        nonlocal written, recorder
        recorder = recorder or Recorder(path, 600)
        for _ in range(3):
            recorder.write(f"line {written:04} {'x' * 40}\n")
            written += 1

    got = []
    for line in follow(path, stop=lambda: written >= 60, sleep=more):
        got.append(int(line.split()[1]))
    assert got == list(range(60))

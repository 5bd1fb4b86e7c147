"""F17 and A-18: gaps, restarts and repeated lines; following a file that is moved aside."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from headrace.demo.scenes import SCENES, recording
from headrace.observe.tap.picture import Picture
from headrace.observe.tap.reading import Line, LineReader, News, follow, parse
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


def test_a_reader_begins_near_the_end_with_a_whole_line_and_knows_how_far_behind_it_is(
    tmp_path: Path,
) -> None:
    path = tmp_path / "tap.ndjson"
    recorder = Recorder(path, 600)
    lines = [f"line {number:04} {'x' * 40}" for number in range(12)]
    for line in lines[:8]:
        recorder.write(line + "\n")
    each = len(lines[0]) + 1
    with closing(LineReader(path, 2 * each)) as two, closing(LineReader(path, 2 * each - 1)) as one:
        assert two.behind_bytes == 2 * each
        assert (two.read(), one.read()) == (lines[6:8], lines[7:8])
        assert (two.read(), two.behind_bytes) == ([], 0)
        recorder.write(lines[8] + "\n")
        assert two.behind_bytes == each
        assert two.read() == lines[8:9]
    with closing(LineReader(path, 4 * each)) as both_files:
        assert both_files.read() + both_files.read() == lines[5:9]
    recorder.close()


def test_a_reader_whose_file_was_moved_twice_goes_on_with_the_one_between(tmp_path: Path) -> None:
    path = tmp_path / "tap.ndjson"
    recorder = Recorder(path, 200)
    got = []
    with closing(LineReader(path)) as reader:
        recorder.write("0" * 90 + "\n")
        got += reader.read()
        for number in "12":
            recorder.write(number * 90 + "\n")
        while lines := reader.read():
            got += lines
    recorder.close()
    assert [line[0] for line in got] == ["0", "1", "2"]

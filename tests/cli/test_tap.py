"""``headrace tap``: follow, replay, step; raw for programs, words and panes for people."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import pty
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner, Result

from headrace.cli.main import app
from headrace.cli.tap_panes import draw
from headrace.demo.scenes import SCENES, recording
from headrace.observe.tap.picture import Picture
from headrace.observe.tap.reading import parse
from headrace.observe.tap.recorder import Recorder
from headrace.observe.tap.teaching import Bookmark
from headrace.replicator import config_file
from headrace.replicator.paths import StatePaths
from headrace.replicator.tap import bookmark_file, tap_file
from tests.observe.json_schema import lines_of
from tests.requirements import req


def call(*words: str, typed: str | None = None) -> Result:
    return CliRunner().invoke(app, ["tap", *words], input=typed, catch_exceptions=False)


def configured(folder: Path, tap: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(
        "name: shop\n"
        "source: {type: postgres, tables: ['public.*'], url: 'postgresql://user@127.0.0.1:1/db'}\n"
        "target: {type: delta, path: ./lake}\n"
        f"tap: {tap}\n"
    )
    return path


def told(file: Path) -> Path:
    """Put the lines of a scene where the capture of a configuration would."""
    folder = StatePaths.of(config_file.load(file)).tap
    recorder = Recorder(tap_file(folder), 1 << 20)
    recorder.write(recording("chunk42").read_text())
    recorder.close()
    return folder


@req("H22", "F17")
@pytest.mark.parametrize("scene", SCENES)
def test_a_raw_replay_gives_the_recorded_lines(scene: str) -> None:
    shown = call("replay", scene, "--raw")
    assert shown.exit_code == 0
    assert shown.stdout == recording(scene).read_text(encoding="utf-8")


@req("H22", "N15")
def test_a_replay_says_each_step_in_words() -> None:
    shown = call("replay", "chunk42").stdout
    steps = [
        "LOW of chunk 1", "40 rows 1…40, the last", "HIGH of chunk 1", "17 yields to UPDATE at 140",
        "23 yields to DELETE at 150", "38 rows left at 170, 2 yielded", "ACTIVE → COMPLETED",
    ]  # fmt: skip
    places = [shown.index(step) for step in steps]
    assert places == sorted(places)


@req("H21")
def test_stepping_shows_one_event_for_each_key() -> None:
    shown = call("replay", "chunk42", "--step", "--raw", typed="\n \nq\nnever read\n")
    assert shown.exit_code == 0
    assert shown.stdout.splitlines() == lines_of(recording("chunk42"))[:3]
    # s ends stepping, and the rest runs through.
    whole = call("replay", "chunk42", "--step", "--raw", typed="\ns\n")
    assert whole.stdout.splitlines() == lines_of(recording("chunk42"))


def test_a_recording_that_is_not_there_is_an_error_with_a_next_step() -> None:
    shown = call("replay", "chunk43")
    assert shown.exit_code == 2
    assert "chunk42, showcase" in shown.stderr
    assert "next step" in shown.stderr


@pytest.mark.parametrize("held", ["", "name: shop\n", '{"seq": 1}\n' * 3, "\0\1\2"])
@pytest.mark.parametrize("form", ["--raw", "--lines"])
def test_a_file_that_is_no_recording_is_refused(tmp_path: Path, held: str, form: str) -> None:
    path = tmp_path / "other.txt"
    path.write_text(held)
    shown = call("replay", str(path), form)
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert "other.txt holds no event of a tap" in " ".join(shown.stderr.split())
    assert "next step" in shown.stderr


def test_a_tap_that_is_off_says_how_to_switch_it_on(tmp_path: Path) -> None:
    shown = call(str(configured(tmp_path, "{}")), "--once")
    assert shown.exit_code == 2
    assert "tap: {enabled: true}" in shown.stderr


@req("H20")
def test_following_begins_with_the_newest_lines_or_the_oldest(tmp_path: Path) -> None:
    file = configured(tmp_path, "{enabled: true}")
    told(file)
    lines = lines_of(recording("chunk42"))
    assert call(str(file), "--raw", "--once").stdout.splitlines() == lines[-50:]
    assert call(str(file), "--raw", "--once", "--last", "3").stdout.splitlines() == lines[-3:]
    assert call(str(file), "--raw", "--once", "--last", "0").stdout.splitlines() == []
    assert call("follow", str(file), "--raw", "--once", "--all").stdout.splitlines() == lines


def test_missing_and_repeated_lines_are_shown_as_such(tmp_path: Path) -> None:
    path = tmp_path / "run.ndjson"
    lines = lines_of(recording("chunk42"))
    path.write_text("\n".join([*lines[:5], *lines[3:6], '{"half', *lines[9:12]]) + "\n")
    shown = call("replay", str(path), "--raw").stdout.splitlines()
    assert shown == [*lines[:6], *lines[9:12]]
    assert "3 events of this run are missing" in call("replay", str(path)).stdout
    path.write_text("\n".join([*lines[:5], *lines[6:8]]) + "\n")
    assert "1 event of this run is missing" in call("replay", str(path)).stdout


@pytest.mark.parametrize(
    ("how", "wrong"),
    [
        *itertools.product(
            ["--lines", "--panes", "--raw"], [{"seq": "5"}, {"kind": []}, {"ts": 7}]
        ),
        # What is printed as it is is not looked into.
        *itertools.product(["--lines", "--panes"], [{"kind": "chunk.selected", "chunk_id": {}}]),
    ],
)
def test_a_line_that_is_no_event_is_named_by_its_number(
    tmp_path: Path, how: str, wrong: dict[str, Any]
) -> None:
    path, lines = tmp_path / "run.ndjson", lines_of(recording("chunk42"))
    path.write_text("\n".join([*lines[:5], json.dumps({**json.loads(lines[5]), **wrong})]) + "\n")
    shown = call("replay", str(path), how, "--pace", "0")
    assert shown.exit_code == 2
    assert f"line 6 of {path}" in " ".join(shown.stderr.split())
    assert "ConfigError" in shown.stderr
    assert "next step" in shown.stderr


@req("H20", "H21")
def test_the_reader_of_a_teaching_tap_leaves_a_bookmark(tmp_path: Path) -> None:
    file = configured(tmp_path, "{enabled: true, teach: true}")
    folder = told(file)
    bookmark = Bookmark(bookmark_file(folder))
    shown = call(str(file), "--raw", "--step", "--once", typed="\n\nq\n").stdout.splitlines()
    assert shown == lines_of(recording("chunk42"))[:3]
    # Two were taken; the third is shown again to the next reader, since capture still waits for it.
    assert bookmark.get("run-1") == 1
    rest = call(str(file), "--raw", "--once").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in rest] == list(range(2, 70))
    assert bookmark.get("run-1") == 69


@req("H21")
def test_single_keys_steer_a_replay_on_a_terminal() -> None:
    terminal, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "headrace.cli.main", "tap", "replay", "chunk42", "--step"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
    )
    os.close(theirs)
    shown = b""
    # Two steps, then at full speed to the last event, then away.
    typing = [(b"event 0", b" "), (b"event 1", b" "), (b"event 2", b"f"), (b"event 69", b"q")]
    with contextlib.suppress(OSError):  # the terminal's end, once the child has left
        while data := os.read(terminal, 65536):
            shown += data
            if typing and typing[0][0] in shown:
                os.write(terminal, typing.pop(0)[1])
    os.close(terminal)
    assert child.wait(30) == 0
    assert b"RECONCILER" in shown
    assert b"full speed" in shown


@req("H21")
@pytest.mark.parametrize("scene", SCENES)
def test_the_panes_show_log_output_and_reconciler_at_every_step(scene: str) -> None:
    picture = Picture()
    console = Console(width=140, height=48, record=True, file=io.StringIO())
    for place, text in enumerate(lines_of(recording(scene))):
        line = parse(text)
        assert line is not None
        picture.take(line)
        if scene == "chunk42" or place % 10 == 0 or picture.standby:
            console.print(draw(picture, "keys"), height=48)
            drawn = console.export_text(clear=True)
            assert all(title in drawn for title in ("SOURCE LOG", "CHANGE LOG", "RECONCILER"))
            if picture.standby:
                assert "capture stands still" in drawn
    if scene == "chunk42":
        for words in (
            "yielded: 2",
            "rows out: 38",
            "LOW received at 120",
            "log inside: 4",
            "window done",
        ):
            assert words in drawn

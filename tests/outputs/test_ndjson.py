"""Lines of JSON: durable before each checkpoint, cut back with it, and whole windows in each file."""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import threading
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from headrace.client import Event, Result, Window
from headrace.errors import ConfigError, TargetUnwritable
from headrace.model.block import SystemEvent, SystemKind
from headrace.outputs import Format, NdjsonOutput
from headrace.wire.place import Place
from tests.outputs.windows import TABLE, change, deliver, insert
from tests.requirements import req


def lines(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def started(path: Path, **options: Any) -> NdjsonOutput:
    output = NdjsonOutput(path, **options)
    output.on_start()
    return output


@req("H15")
def test_a_window_is_its_changes_its_events_and_its_end(tmp_path):
    output = started(tmp_path / "new" / "changes.ndjson")
    truncate = SystemEvent(81, 2, SystemKind.TRUNCATE, TABLE.table)
    update = Event(81, 4, "+U", TABLE.table, (2,), {"k": 2}, {"k": 1, "c1": "a"})
    deliver(output, 81, [insert(81, 0, 7), change(81, 1, "=U", k=7, c1="b"), truncate, update])
    output.on_stop()
    assert lines(tmp_path / "new" / "changes.ndjson") == [
        {
            "scn": 81,
            "ord": 0,
            "op": "+I",
            "table": "public.orders",
            "row": {"k": 7, "c1": "a", "c2": None},
        },
        {
            "scn": 81,
            "ord": 1,
            "op": "=U",
            "table": "public.orders",
            "row": {"k": 7, "c1": "b"},
            "missing": ["c2"],
        },
        {"scn": 81, "event": "truncate", "ord": 2, "table": "public.orders", "payload": {}},
        {
            "scn": 81,
            "ord": 4,
            "op": "+U",
            "table": "public.orders",
            "row": {"k": 2},
            "before": {"k": 1, "c1": "a"},
        },
        {"scn": 81, "end": True, "commit_us": 1_700_000_000_000_081, "origin": "log"},
    ]


PLAIN = [
    (2**53, 2**53),
    (2**53 + 1, "9007199254740993"),
    (-(2**63), "-9223372036854775808"),
    (Decimal("12.50"), "12.50"),
    (Decimal("1E+5"), "100000"),
    (b"\x00\xff", "AP8="),
    (math.nan, "NaN"),
    (-math.inf, "-Infinity"),
    (0.1, 0.1),
    (True, True),
    (date(2024, 2, 29), "2024-02-29"),
    (datetime(2024, 2, 29, 1, tzinfo=UTC), "2024-02-29T01:00:00+00:00"),
    ("ü", "ü"),
    (None, None),
]


@pytest.mark.parametrize(("value", "shown"), PLAIN)
def test_what_json_cannot_hold_exactly_is_text(value, shown):
    form = Format()
    assert json.loads(form.serialize(form.plain({"v": value}))) == {"v": shown}


def test_lines_are_durable_before_the_checkpoint_is_answered(tmp_path, monkeypatch):
    path = tmp_path / "changes.ndjson"
    output = started(path)
    synced: list[int] = []
    real = os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(os.fstat(descriptor).st_size)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    deliver(output, 1, [insert(1, 0, 1)], checkpoint=False)
    assert synced == []
    output.on_checkpoint(Place(1))
    assert synced == [path.stat().st_size]
    assert synced[0] > 0


def test_a_rollback_cuts_the_file_back_to_the_checkpoint(tmp_path):
    path = tmp_path / "changes.ndjson"
    output = started(path)
    deliver(output, 1, [insert(1, 0, 1)])
    kept = path.read_bytes()
    deliver(output, 2, [insert(2, 0, 2)], checkpoint=False)
    output.on_start_window(Window("shop", 3, 3, 1, 0, 0, "log"))
    output.on_data_event(insert(3, 0, 3))
    output.on_rollback(Place(1))
    assert path.read_bytes() == kept
    deliver(output, 2, [insert(2, 0, 2)])
    output.on_stop()
    assert [line["scn"] for line in lines(path)] == [1, 1, 2, 2]


def test_a_line_that_a_crash_cut_off_is_removed(tmp_path):
    path = tmp_path / "changes.ndjson"
    output = started(path)
    deliver(output, 1, [insert(1, 0, 1)])
    output.on_stop()
    whole = path.read_bytes()
    for torn in (b'{"scn": 2', b"x" * 200_000):
        path.write_bytes(whole + torn)
        started(path).on_stop()
        assert path.read_bytes() == whole
    path.write_bytes(b'{"scn')
    started(path).on_stop()
    assert path.read_bytes() == b""


@pytest.mark.parametrize("by", ["bytes", "seconds"])
def test_a_full_or_old_file_is_renamed_at_a_checkpoint_and_holds_whole_windows(tmp_path, by):
    now = [0.0]
    options: dict[str, Any] = {"rotate_bytes": 250} if by == "bytes" else {"rotate_s": 2.5}
    output = started(tmp_path / "changes.ndjson", clock=lambda: now[0], **options)
    for scn in range(1, 10):
        now[0] += 1
        deliver(output, scn, [insert(scn, 0, scn)], checkpoint=scn != 5)
    output.on_stop()
    files = sorted(tmp_path.iterdir(), key=lambda file: (file.stem == "changes", file.name))
    assert len(files) > 2
    told = [line for file in files for line in lines(file)]
    assert [line["scn"] for line in told] == [scn for scn in range(1, 10) for _ in range(2)]
    for file in files[:-1]:
        last = lines(file)[-1]
        assert last["end"] is True
        assert file.name == f"changes-{last['scn']:020d}.ndjson"


def test_a_checkpoint_inside_a_window_renames_nothing(tmp_path):
    output = started(tmp_path / "changes.ndjson", rotate_bytes=1)
    output.on_start_window(Window("shop", 3, 3, 1, 0, 0, "log"))
    output.on_data_event(insert(3, 0, 3))
    output.on_checkpoint(Place(3, 0))
    assert [file.name for file in tmp_path.iterdir()] == ["changes.ndjson"]


def test_a_name_that_is_taken_is_not_overwritten(tmp_path):
    output = started(tmp_path / "changes.ndjson", rotate_bytes=1)
    for key in (1, 2):
        deliver(output, 3, [insert(3, 0, key)])
        deliver(output, 4, [insert(4, 0, key)])
        output.on_rollback(Place(0))
    output.on_stop()
    assert len([file for file in tmp_path.iterdir() if "0003" in file.name]) == 2


@pytest.mark.parametrize("refused", ["rename", "open"])
def test_a_rotation_that_is_refused_once_is_made_up_for(tmp_path, monkeypatch, refused):
    output = started(tmp_path / "changes.ndjson", rotate_bytes=1)
    deliver(output, 1, [insert(1, 0, 1)])

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "refused")

    with monkeypatch.context() as patched:
        patched.setattr(Path, refused, refuse)
        with pytest.raises(TargetUnwritable):
            deliver(output, 2, [insert(2, 0, 1)])
    output.on_rollback(Place(1))
    deliver(output, 2, [insert(2, 0, 2)])
    deliver(output, 3, [insert(3, 0, 3)])
    output.on_stop()
    files = sorted(tmp_path.glob("changes*"))
    assert len(files) == 3
    told = sorted(line["row"]["k"] for file in files for line in lines(file) if "row" in line)
    assert told == [1, 2, 3]


@pytest.mark.parametrize("rotate_bytes", [None, 1])
def test_a_window_whose_checkpoint_was_not_stored_comes_once(tmp_path, rotate_bytes):
    """It was durable, and yet the subscription did not count it: its callback took too long, say."""
    output = started(tmp_path / "changes.ndjson", rotate_bytes=rotate_bytes)
    deliver(output, 1, [insert(1, 0, 1)])
    for _ in range(3):
        deliver(output, 2, [insert(2, 0, 2)])
        output.on_rollback(Place(1))
    deliver(output, 2, [insert(2, 0, 2)])
    deliver(output, 3, [insert(3, 0, 3)])
    output.on_rollback(Place(3))
    output.on_stop()
    files = sorted(tmp_path.glob("changes*"), key=lambda file: (file.stem == "changes", file.name))
    assert len(files) == (1 if rotate_bytes is None else 3)
    told = [line["scn"] for file in files for line in lines(file)]
    assert told == [1, 1, 2, 2, 3, 3]


def test_a_rewind_to_between_two_checkpoints_loses_no_line(tmp_path):
    path = tmp_path / "changes.ndjson"
    output = started(path)
    for scn in range(1, 7):
        deliver(output, scn, [insert(scn, 0, scn)], checkpoint=scn % 3 == 0)
    deliver(output, 7, [insert(7, 0, 7)], checkpoint=False)
    for place in (5, 2):
        output.on_rollback(Place(place))
        for scn in range(place + 1, 8):
            deliver(output, scn, [insert(scn, 0, scn)], checkpoint=scn == 7)
        assert {line["scn"] for line in lines(path)} == {*range(1, 8)}
    output.on_stop()


def test_who_begins_anew_keeps_every_line_that_was_durable(tmp_path):
    """What was deleted meanwhile no dump tells, and what was told of it before comes from nowhere any more."""
    path = tmp_path / "changes.ndjson"
    output = started(path)
    for scn in (1, 2, 3):
        deliver(output, scn, [insert(scn, 0, scn)])
    kept = path.read_bytes()
    deliver(output, 4, [insert(4, 0, 4)], checkpoint=False)
    output.on_rollback(Place(0))
    assert path.read_bytes() == kept
    deliver(output, 91, [insert(91, 0, 1)], checkpoint=False)
    output.on_rollback(Place(90))
    assert path.read_bytes() == kept
    output.on_stop()


@req("N12", "N29")
def test_a_format_of_ones_own_decides_what_is_written(tmp_path):
    class Keys(Format):
        def change(self, window: Window, event: Event) -> Any:
            return None if event.op == "-D" else [window.source, *event.key]

        def end(self, window: Window) -> Any:
            return None

        def serialize(self, value: Any) -> bytes:
            return "/".join(map(str, value)).encode()

    output = started(tmp_path / "keys.txt", form=Keys())
    deliver(output, 1, [insert(1, 0, 5), change(1, 1, "-D", k=5)])
    output.on_stop()
    assert (tmp_path / "keys.txt").read_bytes() == b"shop/5\n"


def test_standard_output_gets_each_window_when_it_ends():
    program = (
        "from headrace.outputs import NdjsonOutput\n"
        "from tests.outputs.windows import deliver, insert\n"
        "output = NdjsonOutput()\n"
        "output.on_start()\n"
        "for scn in range(1, 100_000):\n"
        "    answers = deliver(output, scn, [insert(scn, 0, scn)], checkpoint=False)\n"
        "    if answers: raise SystemExit(answers[0].value)\n"
        "    if scn == 2: input()\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        # A program that keeps its lines to itself waits for us as we for it.
        deadline = threading.Timer(30, process.kill)
        deadline.start()
        first = [json.loads(process.stdout.readline()) for _ in range(4)]
        process.stdout.close()
        process.stdin.write(b"\n")
        process.stdin.close()
        told = process.stderr.read().decode()
        process.wait(60)
        deadline.cancel()
    assert [line["scn"] for line in first] == [1, 1, 2, 2]
    # Whoever read is gone: the subscription ends, and no stack is shown.
    assert Result.ERROR_FATAL.value in told
    assert "Traceback" not in told


def test_a_disk_that_is_full_is_named_and_nothing_half_stays(tmp_path):
    path = tmp_path / "changes.ndjson"
    output = started(path)
    deliver(output, 1, [insert(1, 0, 1)])
    whole = path.read_bytes()
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) + 10, before[1]))
    try:
        with pytest.raises(TargetUnwritable, match=r"changes\.ndjson.*too large") as raised:
            deliver(output, 2, [insert(2, 0, 1, "secret value")])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "secret" not in str(raised.value)
    output.on_rollback(Place(1))
    assert path.read_bytes() == whole
    deliver(output, 2, [insert(2, 0, 1)])
    output.on_stop()
    assert [line["scn"] for line in lines(path)] == [1, 1, 2, 2]


def test_a_file_that_is_a_folder_is_named(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(TargetUnwritable, match="folder"):
        started(folder)


@pytest.mark.parametrize(
    "options",
    [{"rotate_bytes": 1}, {"path": "x", "rotate_s": 0}, {"path": "x", "rotate_bytes": -1}],
)
def test_a_rotation_that_cannot_be_is_refused_by_name(options):
    with pytest.raises(ConfigError, match="rotate_"):
        NdjsonOutput(**options)

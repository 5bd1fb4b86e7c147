"""N15, H02: the golden windows once more, as the tap tells them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.observe.tap import NO_TAP, Tap
from headrace.testing.scenario import Player, Scenario
from tests.observe.json_schema import assert_valid
from tests.observe.taps import ListTap, as_told, check_windows, told_windows
from tests.requirements import req
from tests.scenarios.crashing_log import open_log
from tests.scenarios.test_windows import FILES


def played(text: str, folder: Path, tap: Tap) -> Player:
    log, lose = open_log(folder)
    player = Player(Scenario(text), folder, log, tap=tap)
    player.play()
    lose()
    return player


@req("N15", "H02", "H03", "H20", "F17")
@pytest.mark.parametrize("file", FILES, ids=[f.stem for f in FILES])
def test_the_tap_tells_what_the_change_log_holds(file: Path, tmp_path: Path) -> None:
    tap = ListTap()
    player = played(file.read_text(), tmp_path, tap)
    assert_valid(tap.lines)
    keyed = bool(player.schema.key)
    assert told_windows(tap.events) == as_told(player.windows, keyed=keyed)
    completed = check_windows(tap.events)
    assert completed == 0 if file.stem == "empty_table" else completed > 0


@req("N15")
def test_each_step_of_a_window_is_told_in_its_order(tmp_path: Path) -> None:
    tap = ListTap()
    played("rows 41,a 42,b 43,c\nat 1 after select\n=U(42,B)\n", tmp_path, tap)
    steps = [
        (event["kind"], event.get("level") or event.get("excluded_pk") or event.get("pk"))
        for event in tap.events
        if "chunk_id" in event
    ]
    assert steps == [
        ("watermark.written", "LOW"), ("chunk.selected", None), ("watermark.written", "HIGH"),
        ("watermark.received", "LOW"), ("sink.event", "42"), ("watermark.received", "HIGH"),
        ("chunk.visibility", None), ("chunk.collision", "42"), ("sink.event", "41"), ("sink.event", "43"),
        ("chunk.completed", None), ("certificate", None),
    ]  # fmt: skip


def test_a_patched_row_and_its_columns_are_told(tmp_path: Path) -> None:
    tap = ListTap()
    played(
        "table k,c1,c2\nrows 1,old,C 2,b,D\nat 1 before low\nhidden =U(1,new,?)\nat 1 after high\nreveal\n",
        tmp_path,
        tap,
    )
    (patched,) = (event for event in tap.events if event["kind"] == "chunk.patched")
    (seen,) = (event for event in tap.events if event["kind"] == "chunk.visibility")
    assert (patched["pk"], patched["columns"]) == ("1", ["k", "c1"])
    assert (seen["not_seen"], seen["unseen_tx_ids"]) == (1, [patched["cause_tx_id"]])


def test_a_row_that_moved_in_goes_onto_the_list_and_off_it(tmp_path: Path) -> None:
    file = next(file for file in FILES if file.stem == "moved_into_covered_range")
    tap = ListTap()
    played(file.read_text(), tmp_path, tap)
    kinds = Counter(event["kind"] for event in tap.events)
    assert kinds["reread.listed"] >= 1
    listed = {pk for event in tap.events if event["kind"] == "reread.listed" for pk in event["pks"]}
    settled = {
        pk for event in tap.events if event["kind"] == "reread.settled" for pk in event["pks"]
    }
    assert listed == settled
    modes = [event["mode"] for event in tap.events if event["kind"] == "chunk.selected"]
    assert modes[-1] == "keys"
    moves = [event for event in tap.events if event["kind"] == "cdc" and "from_pk" in event]
    assert [move["op"] for move in moves] == ["UPDATE"] * len(moves) != []


class _Deaf:
    """A tap that is off, and takes it ill to be told anything."""

    on = rows = False
    begun = dropped = 0

    def begin(self, run_id: str, source_id: str) -> None:
        self.begun += 1

    def emit(self, told: object) -> None:
        raise AssertionError(told)


@req("H20")
def test_a_tap_that_is_off_is_told_nothing(tmp_path: Path) -> None:
    deaf = _Deaf()
    told = played("rows 1..9\nat 1 after select\n=U(2,x)\n", tmp_path / "off", deaf)
    silent = played("rows 1..9\nat 1 after select\n=U(2,x)\n", tmp_path / "no", NO_TAP)
    assert told.windows == silent.windows
    assert deaf.begun == 1

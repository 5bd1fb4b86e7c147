"""H22: the scenes that ship are what our own code does, line by line, and show what they promise."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from headrace.demo.scenes import SCENES, recording
from headrace.demo.scenes.record import record
from tests.observe.taps import check_windows
from tests.requirements import req


def events_of(scene: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in recording(scene).read_text(encoding="utf-8").splitlines()]


@req("H22", "F17")
@pytest.mark.parametrize("scene", SCENES)
def test_playing_a_scene_again_gives_the_same_lines(scene: str) -> None:
    assert record(scene) == recording(scene).read_text(encoding="utf-8"), "run: make tap-data"


@req("H22", "F2")
def test_chunk42_is_one_chunk_of_forty_rows_with_two_collisions() -> None:
    events = events_of("chunk42")
    assert check_windows(events) == 1
    (chosen,) = (event for event in events if event["kind"] == "chunk.selected")
    (end,) = (event for event in events if event["kind"] == "chunk.completed")
    assert (chosen["row_count"], end["excluded"], end["emitted"]) == (40, 2, 38)
    assert 60 <= len(events) <= 75


@req("H22", "F2")
def test_showcase_is_request_42_with_four_windows_and_a_reader_that_goes_away() -> None:
    events = events_of("showcase")
    assert check_windows(events) == 5
    ends = [event for event in events if event["kind"] == "chunk.completed"]
    mine = [end for end in ends if end["request_id"] == "request-42"]
    assert [(e["emitted"] + e["excluded"], e["excluded"]) for e in mine] == [
        (15, 0), (15, 3), (20, 5), (8, 1),
    ]  # fmt: skip
    assert [end["final_chunk"] for end in mine] == [False, False, False, True]
    causes = Counter(e["cause_op"] for e in events if e["kind"] == "chunk.collision")
    assert causes == {"UPDATE": 8, "DELETE": 1}
    states = [e["state"] for e in events if e.get("request_id") == "request-42" and "state" in e]
    assert states[-2:] == ["ACTIVE", "COMPLETED"]
    kinds = [event["kind"] for event in events]
    away = kinds.index("stream.standby")
    assert kinds[away + 1] == "stream.resumed"
    assert (
        kinds.index("chunk.completed")
        < away
        < len(kinds) - 1 - kinds[::-1].index("chunk.completed")
    )
    done = len(kinds) - 1 - kinds[::-1].index("table.completed")
    assert kinds[done:].count("cdc") == 30

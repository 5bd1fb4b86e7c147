"""The tap of random histories, with crashes and cut connections: every line fits, every window adds up."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from headrace.relay.capture import Capture
from headrace.testing.simulation import Simulation
from tests.observe.json_schema import assert_valid
from tests.observe.taps import ListTap, check_windows
from tests.requirements import req
from tests.scenarios.crashing_log import open_log

SEEDS = (*range(7), 9)
"""One history in eight meets a patched row; the last of these does."""
MUST_BE_TOLD = (
    "cdc", "sink.event", "watermark.written", "watermark.received", "chunk.selected", "chunk.collision",
    "chunk.completed", "checkpoint.advanced", "request.transition", "tap.opened", "chunk.visibility",
    "chunk.patched", "window.void", "reread.listed", "reread.settled", "certificate", "snapshot.forgot",
    "table.truncated", "table.completed",
)  # fmt: skip


@req("H20", "N15", "F17")
def test_what_is_told_of_random_histories_is_valid_and_adds_up(tmp_path: Path) -> None:
    taps: list[ListTap] = []

    class Tapped(Capture):
        def __init__(self, **given: Any) -> None:
            taps.append(ListTap())
            super().__init__(**(given | {"tap": taps[-1]}))

    told: Counter[str] = Counter()
    windows = 0
    for seed in SEEDS:
        taps.clear()
        folder = tmp_path / str(seed)
        folder.mkdir()
        Simulation(seed, folder, open_log, Counter(), Tapped).run()
        for tap in taps:
            told.update(event["kind"] for event in tap.events)
            # A process that crashed before it began told nothing.
            if tap.lines:
                assert_valid(tap.lines)
                windows += check_windows(tap.events, cut=True)
    assert [kind for kind in MUST_BE_TOLD if not told[kind]] == []
    assert windows > 5 * len(SEEDS)

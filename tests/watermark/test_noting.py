"""When the coordinator takes note of a streamed block: behind its sync where nobody asks sooner."""

from __future__ import annotations

from pathlib import Path

from headrace.observe import failpoints
from headrace.sources.scripted.database import Change
from tests.requirements import req
from tests.watermark.machine import ONE, Machine


@req("A-17", "T10")
def test_a_lone_block_is_noted_between_its_sync_and_its_acknowledgement(tmp_path: Path) -> None:
    """Readers do not wait for it, and what a crash leaves unnoted comes again."""
    machine = Machine(tmp_path)
    machine.run()
    with machine.capture() as (capture, state):
        machine.work(capture, state)
        row = (77, "v77")
        machine.write(Change(ONE.table, "+I", row), puts=[(ONE.table, "add", row)])
        noted: list[tuple[str, int]] = []
        for place in ("capture.after_sync", "capture.after_acknowledge"):

            def note(place: str = place) -> None:
                noted.append((place, capture.status().remembered))

            failpoints.arm(place, note)
        assert capture.step(0.0)
    assert noted == [("capture.after_sync", 0), ("capture.after_acknowledge", 1)]

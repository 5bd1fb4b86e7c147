"""A log that has something to read at every look, for ever: dumps come to their end all the same."""

from __future__ import annotations

from pathlib import Path

from tests.requirements import req
from tests.watermark.machine import ONE, ROUNDS, THREE, TWO, Machine


@req("P12")
def test_a_log_without_a_moment_of_rest_does_not_starve_a_dump(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    with machine.capture() as (capture, state):
        for number in range(ROUNDS):
            machine.update(ONE, number % 10, f"n{number}")
            assert capture.step(0.0), "the log rested"
            if state.next_request() is None:
                break
        else:
            raise AssertionError("the dump never ends")
    assert {p.state for p in machine.progress().values()} == {"done"}
    assert {p.rows_read for p in machine.progress().values()} == {10}
    for schema in (TWO, THREE):
        assert len(machine.read_rows(schema)) == 10

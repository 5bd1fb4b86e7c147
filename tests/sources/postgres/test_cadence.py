"""When blocks leave: at once after a pause, apart from each other under load, larger the more comes."""

from __future__ import annotations

from headrace.sources.postgres.cadence import Cadence


def test_what_comes_after_a_pause_leaves_at_once() -> None:
    cadence = Cadence(0.025)
    for now in (10.0, 10.5, 11.0):
        cadence.begun(now)
        assert cadence.due(now)
        cadence.ended(now, 1)
    assert not cadence.busy


def test_under_load_blocks_keep_their_distance() -> None:
    cadence = Cadence(0.025)
    cadence.begun(10.0)
    cadence.ended(10.0, 1)
    cadence.begun(10.005)
    assert not cadence.due(10.02)
    assert cadence.due(10.026)


def test_the_more_comes_the_larger_a_block() -> None:
    cadence = Cadence(0.0)
    cadence.begun(10.0)
    cadence.ended(10.0, 1)
    cadence.begun(10.0)
    cadence.ended(10.01, 3_000)
    assert cadence.busy
    cadence.begun(10.01)
    assert round(cadence.due_at - 10.01, 6) == 0.03
    cadence.ended(10.04, 200)
    assert not cadence.busy


def test_nothing_at_hand_is_never_due() -> None:
    assert not Cadence(0.0).due(1e9)

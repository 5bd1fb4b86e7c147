"""Malformed watermark sequences: each stops capture with the broken rule's name, none emits a row."""

from __future__ import annotations

import pytest

from headrace.errors import WatermarkOutOfOrder
from headrace.model.mark import Mark, MarkKind
from headrace.watermark.window import Window, WindowState
from tests.requirements import req

OURS, LOW, HIGH, END = "run", MarkKind.LOW, MarkKind.HIGH, MarkKind.END


def window(*received: MarkKind, token: str = "t", chunk: bool = True) -> Window:
    """Return a window with token ``t`` that has received the given marks."""
    made = Window(OURS)
    made.open(token, chunk=chunk)
    for kind in received:
        made.receive(Mark(kind, token, OURS))
    return made


@req("P40", "P42", "H02")
def test_low_then_high_closes_the_window() -> None:
    opened = window()
    assert opened.receive(Mark(LOW, "t", OURS)) is False
    assert opened.state is WindowState.OPEN
    assert opened.receive(Mark(HIGH, "t", OURS)) is True
    assert not opened.token


@req("F3", "A-7")
@pytest.mark.parametrize(
    ("opened", "mark", "rule"),
    [
        (window(LOW), Mark(LOW, "t", OURS), "duplicate low mark"),
        (window(LOW, HIGH), Mark(HIGH, "t", OURS), "duplicate mark"),
        (window(LOW, HIGH), Mark(LOW, "t", OURS), "duplicate mark"),
        (window(), Mark(HIGH, "t", OURS), "high mark first"),
        (window(), Mark(LOW, "u", OURS), "unknown token"),
        (window(LOW), Mark(HIGH, "u", OURS), "unknown token"),
        (window(LOW), Mark(LOW, "u", OURS), "unknown token"),
        (Window(OURS), Mark(LOW, "t", OURS), "unknown token"),
        (Window(OURS), Mark(HIGH, "t", OURS), "unknown token"),
        (window(LOW), Mark(END, "t", OURS), "unexpected mark"),
        (window(chunk=False), Mark(HIGH, "t", OURS), "unexpected mark"),
        (window(chunk=False), Mark(LOW, "t", OURS), "unexpected mark"),
    ],
)
def test_malformed_sequences_name_the_broken_rule(opened: Window, mark: Mark, rule: str) -> None:
    with pytest.raises(WatermarkOutOfOrder, match=rule):
        opened.receive(mark)


@req("A-7")
@pytest.mark.parametrize(
    "text", ["", "low", "low  run", "low t ", "middle t run", "low t run more"]
)
def test_malformed_marks_are_not_marks(text: str) -> None:
    with pytest.raises(ValueError):
        Mark.parse(text)


@req("A-10", "T4")
def test_orphans_of_a_dead_run_are_drained_silently() -> None:
    opened = window(LOW)
    for kind in (LOW, HIGH, END):
        assert opened.receive(Mark(kind, "old", "dead run")) is False
    assert opened.receive(Mark(HIGH, "t", OURS)) is True


@req("T4")
def test_marks_of_a_window_we_gave_up_are_drained() -> None:
    opened = window(LOW)
    opened.give_up()
    assert opened.receive(Mark(HIGH, "t", OURS)) is False
    assert opened.state is WindowState.NONE


@req("A-12")
def test_marks_that_come_again_after_a_reconnect_are_drained() -> None:
    opened = window(LOW, HIGH)
    opened.reconnected()
    for kind in (LOW, HIGH):
        assert opened.receive(Mark(kind, "t", OURS)) is False

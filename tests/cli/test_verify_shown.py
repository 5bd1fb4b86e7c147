"""What ``headrace verify`` says of tables that it compares in part, or not at all."""

from __future__ import annotations

from headrace.cli.output import console
from headrace.cli.verify import _show
from headrace.replicator.verify_report import TableReport, VerifyReport

EQUAL = TableReport("shop.people", 2, 2, 0, 0, 0, True, 7, 90, 0.1, "equal", left_out=("email",))


def shown(*tables: TableReport) -> tuple[bool, str]:
    report = VerifyReport(tables, "1:1:", 90)
    with console.capture() as capture:
        _show(report)
    return report.equal, " ".join(capture.get().split())


def test_columns_and_tables_that_were_left_out_are_named() -> None:
    moves = TableReport.unread("shop.moves", "append")
    readings = TableReport.unread("shop.readings", "where")
    equal, text = shown(EQUAL, moves, readings)
    assert equal
    assert "shop.people is compared without email" in text
    assert "shop.moves is not compared: its target keeps changes, not rows" in text
    assert "shop.readings is not compared: its target has the rows of a condition" in text
    assert "source = target" in text
    _, text = shown(moves, readings)
    assert "nothing was compared" in text
    assert "source = target" not in text


def test_a_table_that_could_be_compared_and_was_not_is_unequal() -> None:
    equal, text = shown(EQUAL, TableReport.unread("shop.orders", "behind"))
    assert not equal
    assert "unequal" in text

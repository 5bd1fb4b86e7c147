"""Names as databases may have them: what looks like markup of Rich is shown, and ends no command."""

from __future__ import annotations

from typing import Any

import pytest

from headrace.cli import verify
from headrace.cli.dump_view import request_view
from headrace.cli.live import render
from headrace.cli.output import console
from headrace.cli.replicators_view import list_view, one_view
from headrace.model.schema import TableId
from headrace.replicator.picture import Picture, TablePicture
from headrace.replicator.requests import Shown
from headrace.replicator.verify_report import TableReport, VerifyReport
from headrace.state.records import DumpProgress, DumpRequest, RequestState, Scope

ODD = ["we[/ird]", "[bold]x[/bold]", "[red]", "a[b]c", "back\\[slash]", "<b>&amp;</b>", "[link=x]"]


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console, "_width", 300)


def said(view: Any) -> str:
    with console.capture() as captured:
        console.print(view)
    return captured.get()


@pytest.mark.parametrize("name", ODD)
def test_the_view_of_a_run_shows_the_name_of_a_table(name: str) -> None:
    table = TablePicture(f"public.{name}", "failing", 0, 0, 0, 0, f"bad: {name}")
    shown = said(render("shop", Picture((table,), 0, 0, 0, 0, None, 0, 0, {})))
    assert shown.count(name) == 3


@pytest.mark.parametrize("name", ODD)
def test_the_views_of_a_control_plane_show_names(name: str) -> None:
    both = {
        "name": "shop", "namespace": "default", "state": "RUNNING", "source": name, "target": name,
        "tables": {name: 1}, "lag_s": 1.0, "unheard": name, "changed_ms": 0, "reason": name,
    }  # fmt: skip
    table = {"name": name, "state": "FAILING", "rows_read": 0, "lag_changes": 0, "error": name}
    table["lag_s"] = None
    one = {
        **both, "generation": 1, "revision": 1, "table_list": [table], "lag_changes": 0,
        "seen_error": name, "held_up": name, "roles": {}, "objective": None, "drops": None,
    }  # fmt: skip
    assert said(list_view([both])).count(name) == 4
    assert said(one_view(one)).count(name) == 8


@pytest.mark.parametrize("name", ODD)
def test_the_views_of_a_dump_show_names(name: str) -> None:
    table = TableId("public", name)
    request = DumpRequest("r1", Scope.TABLE, table, (), (), RequestState.FAILED, f"bad: {name}")
    shown = said(request_view(Shown(request, (DumpProgress("r1", table),))))
    assert shown.count(name) == 3


@pytest.mark.parametrize("name", ODD)
def test_a_comparison_shows_names(name: str) -> None:
    report = VerifyReport((TableReport.unread(f"public.{name}", "append"),), "", None)
    with console.capture() as captured:
        verify._show(report)
    assert captured.get().count(name) == 2

"""How far a freshness objective is met, and which tables' operations fell, each in one line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from headrace.plural import counted

__all__ = ["drop_lines", "objective_line"]


def objective_line(told: Mapping[str, Any]) -> Text:
    """Return the line of an attainment, as `headrace.replicator.objective.Attainment.to_json` tells it."""
    wanted = f"{_percent(told['share'])} within {told['within_s']:g} s"
    if told["attained"] is None:
        return Text(f"objective {wanted}: nothing to measure yet", style="dim")
    line = f"objective {wanted}: {_percent(told['attained'])} of the last {_span(told['over_s'])}"
    waiting = f", {told['overdue']:,} overdue" if told["overdue"] else ""
    verdict = "MISSED" if told["missed"] else "met"
    return Text(f"{line}{waiting}, {verdict}", style="bold red" if told["missed"] else "dim")


def drop_lines(told: Sequence[Mapping[str, Any]] | None) -> list[Text]:
    """Return a line for each of the drops, as `headrace.replicator.drops.Drop.to_json` tells them."""
    return [
        Text(
            f"{one['table']}: activity dropped, {counted(one['seen'], 'operation')} "
            f"in the last {_span(one['over_s'])}, usually {one['usual']:,.0f}",
            style="bold red",
        )
        for one in told or ()
    ]


def _percent(share: float) -> str:
    """Return a share, cut and not rounded: 99.999 % is not all."""
    return f"{int(share * 1_000_000 + 1e-6) / 10_000:g} %"


def _span(seconds: int) -> str:
    return f"{seconds / 3600:g} h" if seconds >= 3600 else f"{seconds / 60:g} min"

"""How what a control plane tells looks: tables by Rich."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.cli.behind_view import behind_line
from headrace.cli.objective_view import drop_lines, objective_line
from headrace.cli.unheard_view import unheard_lines

__all__ = ["audit_view", "drafts_view", "list_view", "one_view"]

_STYLES = {
    "RUNNING": "green",
    "REPLICATING": "green",
    "STARTING": "cyan",
    "SNAPSHOTTING": "cyan",
    "PAUSED": "yellow",
    "STOPPING": "yellow",
    "DELETING": "yellow",
    "FAILED": "bold red",
    "FAILING": "bold red",
}


def list_view(found: Sequence[dict[str, Any]]) -> RenderableType:
    """Return replicators, one a line."""
    table = _table("replicator", "state", "from", "to", "tables", "behind", "since")
    for one in found:
        counts = ", ".join(f"{count} {state.lower()}" for state, count in one["tables"].items())
        table.add_row(
            one["name"],
            _state(one["state"]),
            one["source"],
            one["target"],
            counts,
            _lag(one),
            _time(one["changed_ms"]),
        )
    reasons = [
        Text(f"{one['name']}: {one['reason']}", style="red") for one in found if one["reason"]
    ]
    return Group(table, *reasons)


def one_view(shown: dict[str, Any]) -> RenderableType:
    """Return one replicator with its tables."""
    head = Text.assemble(
        (shown["name"], "bold"),
        "  ",
        _state(shown["state"]),
        f"  {shown['source']} → {shown['target']}  generation {shown['generation']}, "
        f"revision {shown['revision']}",
    )
    table = _table("table", "state", "rows", "changes to apply", "error")
    for one in shown["table_list"]:
        table.add_row(
            one["name"],
            _state(one["state"]),
            f"{one['rows_read']:,}",
            f"{one['lag_changes']:,}",
            Text(one["error"], style="red"),
        )
    failing = [
        (one["lag_s"], one["lag_changes"])
        for one in shown["table_list"]
        if one["state"] == "FAILING"
    ]
    foot = behind_line(shown["lag_s"], shown["lag_changes"], failing, is_heard=not shown["unheard"])
    if shown["state"] == "DEPLOYED":
        foot = f"never started; headrace start {shown['name']} starts it"
    wrong = [shown["reason"], shown["seen_error"]]
    wrong += [
        f"{name}: {role['error']['name']}: {role['error']['message']}"
        for name, role in shown["roles"].items()
        if role["error"]
    ]
    notes = [Text(text, style="red") for text in wrong if text]
    notes += [Text(line, style="yellow") for line in unheard_lines(shown["unheard"], _gone(shown))]
    notes += [Text(shown["held_up"], style="yellow")] if shown["held_up"] else []
    objective = [objective_line(shown["objective"])] if shown["objective"] else []
    drops = drop_lines(shown["drops"])
    return Group(head, table, Text(foot, style="bold"), *objective, *drops, *notes)


def drafts_view(found: Sequence[dict[str, Any]]) -> RenderableType:
    """Return drafts, one a line."""
    table = _table("draft", "label", "created", "changed")
    for one in found:
        times = (_time(one["createdTimeMillis"]), _time(one["updatedTimeMillis"]))
        table.add_row(Text(one["name"]), Text(one["label"]), *times)
    return table


def audit_view(found: Sequence[dict[str, Any]]) -> RenderableType:
    """Return lines of the audit log."""
    table = _table("time", "who", "what", "object", "outcome")
    for line in found:
        style = "" if line["outcome"] == "done" else "red"
        cells = (Text(line[name]) for name in ("who", "what", "object"))
        table.add_row(_time(line["at_ms"]), *cells, Text(line["outcome"], style=style))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for column in columns:
        right = column in ("rows", "changes to apply", "behind")
        table.add_column(column, justify="right" if right else "left", overflow="fold")
    return table


def _state(state: str) -> Text:
    return Text(state, style=_STYLES.get(state, "dim"))


def _gone(shown: dict[str, Any]) -> list[str]:
    return [name for name, role in shown["roles"].items() if role["state"] == "gone"]


def _lag(one: dict[str, Any]) -> str:
    """Return how far a replicator is behind; more, where nobody knows what the source did of late."""
    if one["lag_s"] is None:
        return ""
    # Those that fail are no part of the frontier, and this is its lag.
    others = " without failing" if one["tables"].get("FAILING") else ""
    return f"{'at least ' if one['unheard'] else ''}{one['lag_s']:.1f} s{others}"


def _time(millis: int) -> str:
    moment = dt.datetime.fromtimestamp(millis / 1000, dt.UTC)
    return moment.strftime("%Y-%m-%d %H:%M:%S")

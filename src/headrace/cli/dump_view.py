"""How requests and the pace look on a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headrace.cli.dumps import figure
from headrace.errors import ConfigError
from headrace.plural import be, counted
from headrace.replicator.config import DumpConfig
from headrace.replicator.requests import Shown
from headrace.state.pace import ADAPTIVE, Pace
from headrace.state.records import DumpRequest, Scope

__all__ = ["chunk_size", "outcome", "pace_lines", "request_view", "requests_table"]

_STYLES = {
    "QUEUED": "dim",
    "ACTIVE": "cyan",
    "PAUSED": "yellow",
    "COMPLETED": "green",
    "FAILED": "bold red",
    "CANCELLED": "dim",
}


def requests_table(found: Sequence[Shown]) -> RenderableType:
    """Return requests as a table, one line each."""
    table = Table(box=None, pad_edge=False)
    for name in ("request", "state", "asks for"):
        table.add_column(name, no_wrap=name == "request")
    for name in ("priority", "rows", "rows/s", "left"):
        table.add_column(name, justify="right")
    for shown in found:
        request = shown.request
        table.add_row(
            request.request_id,
            Text(request.state.value, style=_STYLES[request.state.value]),
            Text(_wish(request)),
            str(request.priority),
            _rows(shown.rows_read, shown.rows_estimated),
            f"{shown.rows_per_s:,.0f}" if shown.rows_per_s else "",
            _left(shown.seconds_left),
        )
    return table


def request_view(shown: Shown) -> RenderableType:
    """Return one request with its tables."""
    request = shown.request
    head = Text.assemble(
        f"request {request.request_id}  ",
        (request.state.value, _STYLES[request.state.value]),
        f"  {_wish(request)}  priority {request.priority}  {request.cause.value}",
    )
    table = Table(box=None, pad_edge=False)
    for name in ("table", "state"):
        table.add_column(name)
    for name in ("chunks", "rows", "into the log", "rows/s", "left"):
        table.add_column(name, justify="right")
    for entry in shown.progress:
        table.add_row(
            str(entry.table),
            entry.state,
            f"{entry.chunks:,}",
            _rows(entry.rows_read, entry.rows_estimated),
            f"{entry.rows_emitted:,}",
            f"{entry.rows_per_s:,.0f}" if entry.rows_per_s else "",
            _left(entry.seconds_left),
        )
    lines = [Text(request.reason, style="red")] if request.reason else []
    if request.missing:
        lines.append(Text(_missing(request)))
    return Group(head, table, *lines)


def outcome(shown: Shown) -> str:
    """Return a sentence about a completed request."""
    rows = sum(entry.rows_emitted for entry in shown.progress)
    said = f"{counted(rows, 'row')} {be(rows)}"
    missing = f"; {_missing(shown.request)}" if shown.request.missing else ""
    return f"completed: {said} in the change log{missing}"


def chunk_size(text: str) -> int:
    """Return the number of rows that people wrote.

    Raises:
        ConfigError: it is none.
    """
    if text == "auto":
        return ADAPTIVE
    if not text.isdecimal() or not int(text):
        raise ConfigError(
            "pace: --chunk-rows is a number of rows, or auto.", next_step="choose one of them."
        )
    return int(text)


def pace_lines(file: DumpConfig, now: Pace) -> list[str]:
    """Return how fast tables are read, and where each setting comes from."""
    lines = []
    for name, in_file, set_now in (
        ("chunk_rows", file.chunk_rows or ADAPTIVE, now.chunk_rows),
        ("chunk_s", file.chunk_s, now.chunk_s),
        ("load", file.load, now.load),
        ("delay_s", file.delay_s, now.delay_s),
        ("rows_per_s", file.rows_per_s, now.rows_per_s),
    ):
        value = in_file if set_now is None else set_now
        shown = {"chunk_rows": "auto", "rows_per_s": "no limit"}.get(name) if not value else None
        origin = "from the file" if set_now is None else "set"
        lines.append(f"{name:<10}  {shown or figure(value):>10}  {origin}")
    return lines


def _wish(request: DumpRequest) -> str:
    if request.scope is Scope.ALL_TABLES:
        return "all tables"
    if request.scope is Scope.PREDICATE:
        return f"{request.table} where {request.predicate}"
    if request.scope is Scope.PRIMARY_KEYS:
        deletes = ", deleting missing ones" if request.delete_missing else ""
        return f"{counted(len(request.keys), 'key')} of {request.table}{deletes}"
    return str(request.table)


def _missing(request: DumpRequest) -> str:
    listed = "; ".join(",".join(key) for key in request.missing)
    return f"no longer at the source: {listed}"


def _rows(read: int, estimated: int) -> str:
    return f"{read:,} of about {estimated:,}" if estimated > read else f"{read:,}"


def _left(seconds: float | None) -> str:
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"

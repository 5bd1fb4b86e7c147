"""How a replicator's picture looks: a table that is redrawn, or plain lines where nothing can be."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console, Group, RenderableType
from rich.filesize import decimal
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from headrace.cli.behind_view import behind_line
from headrace.cli.objective_view import drop_lines, objective_line
from headrace.cli.unheard_view import unheard_lines
from headrace.observe.status import ProcessState
from headrace.plural import counted
from headrace.replicator.picture import Picture, TablePicture

__all__ = ["Display", "render"]

_STYLES = {
    "waiting": "dim",
    "copying": "cyan",
    "paused": "yellow",
    "incomplete": "bold yellow",
    "live": "green",
    "failing": "bold red",
    "left": "dim",
}
_PLAIN_INTERVAL_S = 5.0


def render(name: str, picture: Picture) -> RenderableType:
    """Return the picture as a table with a line about the whole under it."""
    table = Table(title=name, title_justify="left", title_style="bold", box=None, pad_edge=False)
    table.add_column("table", no_wrap=True)
    table.add_column("phase")
    table.add_column("copied", width=18)
    table.add_column("rows", justify="right")
    table.add_column("changes to apply", justify="right")
    for entry in picture.tables:
        table.add_row(
            entry.name,
            Text(entry.phase, style=_STYLES.get(entry.phase, "")),
            _bar(entry),
            f"{entry.rows_read:,}",
            f"{entry.lag_changes:,}",
        )
    line = f"{summary(picture)} · change log {_room(picture)}"
    notes = [
        *_unheard(picture),
        *_held_up(picture),
        *_refused(picture),
        *_delivery(picture),
        *_slot(picture),
        *_slow(picture),
        *_resync(picture),
        *_objective(picture),
        *drop_lines([drop.to_json() for drop in picture.drops or ()]),
        *_errors(picture),
    ]
    return Group(table, Text(line, style="bold"), *notes)


def summary(picture: Picture) -> str:
    """Return one line about all tables."""
    phases = [table.phase for table in picture.tables]
    told = ", ".join(f"{phases.count(phase)} {phase}" for phase in _STYLES if phases.count(phase))
    failing = [(t.lag_s, t.lag_changes) for t in picture.tables if t.phase == "failing"]
    behind = behind_line(picture.lag_s, picture.lag_changes, failing, is_heard=not picture.unheard)
    return f"{told or 'no tables yet'} · {behind}"


def _room(picture: Picture) -> str:
    held, most = (decimal(size) for size in (picture.log_bytes, picture.log_budget_bytes))
    return f"{held} of {most}"


def _delivery(picture: Picture) -> list[Text]:
    """Return what people hold back, if they do."""
    limit = picture.log_rows_per_s
    if picture.log_paused:
        return [Text("log delivery paused; the source keeps its log", style="yellow")]
    return [Text(f"log delivery: at most {limit:,.0f} rows/s", style="yellow")] if limit else []


def _unheard(picture: Picture) -> list[Text]:
    gone = [name for name, role in picture.roles.items() if role.state is ProcessState.GONE]
    return [Text(line, style="bold yellow") for line in unheard_lines(picture.unheard, gone)]


def _held_up(picture: Picture) -> list[Text]:
    """Return what apply has been waiting for, or busy with, for long."""
    return [Text(picture.held_up, style="bold yellow")] if picture.held_up else []


def _refused(picture: Picture) -> list[Text]:
    """Return why relays give nothing more."""
    return [Text(picture.refused, style="bold red")] if picture.refused else []


def _slot(picture: Picture) -> list[Text]:
    """Return what the source keeps for us; a warning is told from news."""
    slot = picture.slot
    if not slot:
        return []
    warning = slot["warning"]
    return [Text(warning, style="bold yellow") if warning else Text(slot["text"], style="dim")]


def _slow(picture: Picture) -> list[Text]:
    """Return what the source finds hard to answer."""
    count, slowest, took_s = picture.slow_queries
    queries = "1 slow query" if count == 1 else f"{count:,} slow queries"
    said = f"{queries} at the source, the slowest {took_s:.1f} s: {slowest}"
    return [Text(said, style="yellow")] if count else []


def _resync(picture: Picture) -> list[Text]:
    resync = picture.resync
    if not resync:
        return []
    if resync["state"] == "needed":
        step = resync["next_step"].removeprefix("RESYNC NEEDED: ")
        return [Text(f"RESYNC NEEDED: {step}", style="bold red")]
    return [Text(f"resync {resync['state']}: {resync['reason'] or 'as asked for'}", style="yellow")]


def _objective(picture: Picture) -> list[Text]:
    """Return how far the freshness objective is met, if there is one."""
    one = picture.objective
    return [objective_line(one.to_json())] if one is not None else []


def _bar(entry: TablePicture) -> RenderableType:
    if entry.phase == "live":
        return ProgressBar(total=1, completed=1, width=16)
    total = max(entry.rows_estimated, entry.rows_read, 1)
    return ProgressBar(total=total, completed=entry.rows_read, width=16)


def _errors(picture: Picture) -> list[Text]:
    lines = [f"{table.name}: {table.error}" for table in picture.tables if table.error]
    lines += [
        f"{name}: {role.error['name']}: {role.error['message']}"
        for name, role in picture.roles.items()
        if role.error
    ]
    return [Text(line, style="red") for line in lines]


class Display:
    """Shows pictures as they come; use it in a ``with`` block.

    On a terminal the table is redrawn in place. Elsewhere one plain line is printed when a phase
    changes, and every few seconds.
    """

    def __init__(self, console: Console, name: str) -> None:
        self.console = console
        self._name = name
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._said_at = float("-inf")
        self._phases = ""

    def __enter__(self) -> Display:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, picture: Picture, note: str = "") -> None:
        """Draw a picture with a line of news under it."""
        if self._live is not None:
            self._live.update(Group(render(self._name, picture), Text(note)), refresh=True)
            return
        phases = "".join(table.phase for table in picture.tables)
        now = time.monotonic()
        if phases != self._phases or now - self._said_at >= _PLAIN_INTERVAL_S:
            self._phases, self._said_at = phases, now
            copied = sum(table.rows_read for table in picture.tables)
            tail = f" · {note}" if note else ""
            self.console.print(f"{summary(picture)} · {counted(copied, 'row')} copied{tail}")

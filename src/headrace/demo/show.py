"""What the demo says: milestones with their time, and at the end how to look at the result."""

from __future__ import annotations

import time

from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from headrace.demo.freshness import Freshness
from headrace.demo.place import Place
from headrace.plural import counted

__all__ = ["Story", "python_snippet", "sql_line"]


class Story:
    """Prints milestones; the clock starts when it is made."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self._started = time.monotonic()

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._started

    def milestone(self, name: str, text: str, *, good: bool = True) -> None:
        """Say that something is reached."""
        mark = ("✔ ", "bold green") if good else ("✘ ", "bold red")
        self._print(
            Text.assemble((f"{self.seconds:6.1f} s  ", "dim"), mark, (name, "bold"), "  ", text)
        )

    def news(self, text: str) -> None:
        """Say that something happened at the source."""
        self._print(Text.assemble((f"{self.seconds:6.1f} s  ", "dim"), ("· ", "cyan"), text))

    def freshness(self, measured: Freshness, rate: float) -> None:
        """Say how soon commits became visible."""
        self.milestone(
            "freshness",
            f"source commit → visible in Delta at {rate:,.0f} transactions/s: "
            f"p50 {measured.p50_s:.1f} s, p95 {measured.p95_s:.1f} s, p99 {measured.p99_s:.1f} s "
            f"({counted(measured.transactions, 'transaction')})",
        )

    def way_on(self, place: Place, kept: bool) -> None:
        """Say where the tables lie and how to query them."""
        self._print(
            Text.assemble("\nThe tables lie in ", (str(place.lake), "bold"), ". Query them:\n")
        )
        self._print(Text("Python, without Spark", style="bold"))
        self._code(python_snippet(place), "python")
        self._print(Text("\nSpark SQL", style="bold"))
        self._code(sql_line(place), "sql")
        if kept:
            state, server = (str(place.root), "bold"), (str(place.server), "bold")
            said = (
                "\nState and configuration are kept in ",
                state,
                ", the files of the server in ",
                server,
                ".",
            )
            self._print(Text.assemble(*said))

    def _code(self, lines: str, language: str) -> None:
        """Print lines as they are typed: none is cut at the edge of a terminal, nor filled up to it."""
        shown = Syntax(lines, language, background_color="default").highlight(lines)
        shown.rstrip()
        self._print(shown)

    def _print(self, text: Text) -> None:
        self.console.print(text, soft_wrap=True)


def python_snippet(place: Place) -> str:
    """Return lines that read a table of the result."""
    return (
        "import polars\n"
        "from headrace.lake import DeltaTable\n"
        f'orders = DeltaTable("{place.lake}/shop/orders").snapshot()\n'
        "frame = polars.from_arrow(orders.batches())\n"
        'print(frame.group_by("status").len())'
    )


def sql_line(place: Place) -> str:
    """Return a statement over a table of the result."""
    return f"select status, count(*) from delta.`{place.lake}/shop/orders` group by status"

"""``headrace demo``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from headrace.cli.output import (
    MOST_SECONDS,
    a_number,
    console,
    errors_without_traceback,
)

__all__ = ["demo"]


@errors_without_traceback
def demo(
    seconds: Annotated[
        float,
        typer.Option(
            min=1,
            max=MOST_SECONDS,
            callback=a_number,
            help="How long the shop is busy, at least.",
        ),
    ] = 45.0,
    rate: Annotated[
        float,
        typer.Option(
            min=1, max=1_000_000, callback=a_number, help="Transactions per second to try."
        ),
    ] = 300.0,
    rows: Annotated[int, typer.Option(min=1_000, help="Rows the shop begins with.")] = 500_000,
    keep: Annotated[
        bool, typer.Option("--keep", help="Keep the server's files and the state too.")
    ] = False,
    source: Annotated[
        str, typer.Option(help="The database to copy from: postgres, mysql or mariadb.")
    ] = "postgres",
    folder: Annotated[
        Path, typer.Option("--dir", help="Where it all happens; cleared first.")
    ] = Path("headrace-demo"),
) -> None:
    """Watch a busy database being copied, and see the proof that the copy is right.

    Starts a PostgreSQL, MySQL or MariaDB of its own, fills a shop with half a million rows, lets customers loose on it
    and copies it into Delta tables meanwhile: long texts, changing keys, tables without a key, a new
    column, a transaction of 200,000 rows. Compares both sides while writes go on and after.

    Exit code: 0 when source and target are equal, 1 when they are not.

    [bold]Example[/bold]  headrace demo --seconds 20 --rate 100
    """
    from headrace.cli.live import Display
    from headrace.demo.place import Place
    from headrace.demo.play import DemoSettings, play
    from headrace.demo.servers import check_kind
    from headrace.demo.show import Story

    check_kind(source)
    place = Place(folder.absolute())
    place.clear()
    try:
        with Display(console, "shop") as display:
            settings = DemoSettings(place, seconds, rate, rows, source)
            outcome = play(settings, display.console, display.show)
    except BaseException:
        if not keep:
            place.remove()
        raise
    if not keep:
        place.forget_server()
    Story(console).way_on(place, keep)
    if not outcome.equal:
        console.print("\nsource and target differ", style="bold red")
        raise typer.Exit(1)
    console.print(
        Text.assemble(("\nsource = target", "bold green"), f" after {outcome.seconds:.0f} s")
    )

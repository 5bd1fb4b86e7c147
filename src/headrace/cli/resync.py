"""``headrace resync``."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.output import ConfigFile, console, errors_without_traceback

__all__ = ["resync"]


@errors_without_traceback
def resync(
    file: ConfigFile,
    force: Annotated[
        bool, typer.Option("--force", help="Also where nothing says that the position is lost.")
    ] = False,
) -> None:
    """Give up a lost position in the source's log, and bring the tables back.

    For RESYNC NEEDED: the slot was dropped or invalidated, or the source was restored or promoted without all that was
    captured. The order is kept; the next start of the replicator makes a new slot where needed, goes on from there
    with rising positions, and makes every table equal to the source again. So it does with tables that the target kept
    of a replicator whose state folder is gone, or was deleted.

    Where capture works, or was stopped without an error, it is refused: it reads every table whole. --force orders it
    all the same, for rows that came or went past the log.

    [bold]Examples[/bold]
      headrace resync shop.yaml && headrace run shop.yaml
      headrace resync shop.yaml --force
    """
    from headrace.replicator import config_file, runner

    runner.order_resync(config_file.load(file), force=force)
    console.print(f"ordered: the next start carries it out: headrace run {file}")

"""``headrace status``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.cli.output import console, errors_without_traceback
from headrace.cli.server import (
    DEFAULT_URL,
    AsJson,
    Authority,
    FileOrName,
    Namespace,
    Server,
    ServerUrl,
    printed,
    replicator_named,
)

if TYPE_CHECKING:
    from headrace.replicator.config import Config

__all__ = ["status"]


@errors_without_traceback
def status(
    file: FileOrName,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show how a replicator stands: phase, rows and lag of each table.

    Of a file it reads files only; it works while the replicator runs and when it does not. With a name it is
    headrace replicators NAME.

    [bold]Examples[/bold]
      headrace status shop.yaml --json
      headrace status shop
    """
    name = replicator_named(file)
    if name is not None:
        _at_server(Server(server, namespace, ca), name, as_json=as_json)
        return
    from headrace.cli.live import render
    from headrace.replicator import config_file
    from headrace.replicator.picture import Observer

    config = config_file.load(Path(file))
    with contextlib.closing(Observer(config)) as observer:
        picture = observer.look()
    if as_json:
        printed({"name": config.name, **picture.to_json()})
        return
    console.print(render(config.name, picture))
    if not picture.roles:
        _tell_beginning(config, file)


def _tell_beginning(config: Config, file: str) -> None:
    """Say of a replicator without processes whether it was started, and of what it failed."""
    from headrace.observe.status import ProcessState
    from headrace.replicator.paths import StatePaths
    from headrace.replicator.roles import read_role

    run = read_role(StatePaths.of(config), "run")
    if run is None:
        said = f"never started; headrace run {file} starts it"
        console.print(said, style="yellow", soft_wrap=True)
    elif run.error is not None:
        console.print(
            f"run: {run.error['name']}: {run.error['message']}", style="red", soft_wrap=True
        )
        console.print(f"  next step: {run.error['next_step']}", soft_wrap=True)
    elif run.state is ProcessState.GONE:
        said = f"run: it ended without a word before its processes began; headrace run {file} starts it again"
        console.print(said, style="red", soft_wrap=True)


def _at_server(server: Server, name: str, *, as_json: bool) -> None:
    from headrace.cli.replicators_view import one_view

    shown = server.replicator(name)
    if as_json:
        printed(shown)
    else:
        console.print(one_view(shown))

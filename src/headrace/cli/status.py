"""``headrace status``."""

from __future__ import annotations

import contextlib
from pathlib import Path

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
    else:
        console.print(render(config.name, picture))


def _at_server(server: Server, name: str, *, as_json: bool) -> None:
    from headrace.cli.replicators_view import one_view

    shown = server.replicator(name)
    if as_json:
        printed(shown)
    else:
        console.print(one_view(shown))

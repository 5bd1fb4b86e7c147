"""``headrace metrics``."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Annotated

import typer

from headrace.cli.output import errors_without_traceback
from headrace.cli.server import (
    DEFAULT_URL,
    AsJson,
    Authority,
    FileOrName,
    Server,
    ServerUrl,
    printed,
    replicator_named,
)

__all__ = ["metrics"]


@errors_without_traceback
def metrics(
    file: FileOrName,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace",
            "-n",
            envvar="HEADRACE_NAMESPACE",
            help="Of a control plane; with a file, the value of a label of that name.",
        ),
    ] = "",
    server: ServerUrl = DEFAULT_URL,
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Print every number of a replicator, as Prometheus reads them.

    With a section metrics in the file, headrace run serves the same at /metrics. Of a file it reads files only; it
    works while the replicator runs and when it does not.

    [bold]Examples[/bold]
      headrace metrics shop.yaml | grep freshness
      headrace metrics shop --json
    """
    name = replicator_named(file)
    if name is not None:
        asked = Server(server, namespace or "default", ca)
        if as_json:
            printed(asked.within("GET", f"replicators/{name}/metrics"))
        else:
            typer.echo(asked.text(f"replicators/{name}/metrics"), nl=False)
        return
    from headrace.errors import ConfigError
    from headrace.observe.exposition import text
    from headrace.replicator import config_file
    from headrace.replicator.metrics import families, plain
    from headrace.replicator.picture import Observer

    try:
        namespace.encode()
    except UnicodeEncodeError:
        raise ConfigError(
            "--namespace: no text in UTF-8, as the value of a label is.",
            next_step="write it in letters.",
        ) from None
    config = config_file.load(Path(file))
    with contextlib.closing(Observer(config)) as observer:
        found = families(config.name, observer.look(), namespace)
    if as_json:
        printed({"name": config.name, "samples": plain(found)})
    else:
        typer.echo(text(found), nl=False)

"""``headrace metrics``."""

from __future__ import annotations

import contextlib
import json
from typing import Annotated

import typer

from headrace.cli.output import ConfigFile, errors_without_traceback

__all__ = ["metrics"]


@errors_without_traceback
def metrics(
    file: ConfigFile,
    namespace: Annotated[
        str, typer.Option("--namespace", help="Value of a label of that name; none when empty.")
    ] = "",
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object, for programs.")
    ] = False,
) -> None:
    """Print every number of a replicator, as Prometheus reads them.

    With a section metrics in the file, headrace run serves the same at /metrics. Reads files only; it works while the
    replicator runs and when it does not.

    [bold]Example[/bold]  headrace metrics shop.yaml | grep freshness
    """
    from headrace.observe.exposition import text
    from headrace.replicator import config_file
    from headrace.replicator.metrics import families
    from headrace.replicator.picture import Observer

    config = config_file.load(file)
    with contextlib.closing(Observer(config)) as observer:
        found = families(config.name, observer.look(), namespace)
    if not as_json:
        typer.echo(text(found), nl=False)
        return
    plain = [
        {
            "name": family.name + sample.suffix,
            "type": family.kind,
            "labels": dict(sample.labels),
            "value": sample.value,
        }
        for family in found
        for sample in family.samples
    ]
    typer.echo(json.dumps({"name": config.name, "samples": plain}, indent=2))

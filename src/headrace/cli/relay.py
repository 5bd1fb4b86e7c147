"""``headrace relay``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from headrace.cli.output import console, errors_without_traceback

__all__ = ["relay"]


@errors_without_traceback
def relay(
    files: Annotated[
        list[Path],
        typer.Argument(
            metavar="FILE...",
            help="Configurations of one or several replicators, or of relays that read from others.",
        ),
    ],
) -> None:
    """Serve change logs to consumers over HTTP, until Ctrl-C.

    Any number of consumers read the stream of changes from here, and none of them touches the source. The relay keeps
    nothing about them: each says where it stands. It reads the change logs beside the captures that write them, of
    which none has to run.

    The section [bold]relay[/bold] of the file says where it listens, which tokens it asks for and how many processes
    share the work; several files share one such section. Without it: http://127.0.0.1:7070, this machine only.
    [bold]headrace run FILE[/bold] starts a relay by itself when its file has the section.

    A file with [bold]relay.upstream.urls[/bold] and no source is a relay that reads from other relays: it keeps
    a copy of their change log and serves that, with the same SCNs.

    Exit code: 0 when asked to end, 2 on an error.

    [bold]Examples[/bold]
      headrace relay shop.yaml
      headrace relay shop.yaml billing.yaml
      headrace relay follower.yaml
      curl 'http://127.0.0.1:7070/sources'
      curl -N 'http://127.0.0.1:7070/stream?source=shop&after=oldest&format=ndjson'
    """
    import signal
    import threading

    from headrace.replicator.lean import begin_lean

    begin_lean()

    from headrace.cli.refusals import pass_over_no_room
    from headrace.relay.server.workers import run_relay
    from headrace.replicator import config_file
    from headrace.replicator.following import followed
    from headrace.replicator.relaying import relay_settings

    # Its consumers do without the line that says where it listens.
    pass_over_no_room()
    configs = {file: config_file.load_relay(file) for file in files}
    settings = relay_settings(configs)
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    said: list[str] = []

    def tell(url: str, _: dict[int, int]) -> None:
        if not said:
            said.append(url)
            names = ", ".join(source.name for source in settings.sources)
            told = Text.assemble(f"serving {names} on ", (url, "bold"), "; Ctrl-C ends it")
            console.print(told, soft_wrap=True)

    with followed(configs, stop):
        run_relay(settings, stop, tell)

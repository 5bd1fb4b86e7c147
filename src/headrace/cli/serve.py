"""``headrace serve``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from headrace.cli.output import a_number, console, errors_without_traceback
from headrace.plural import counted

__all__ = ["serve"]


@errors_without_traceback
def serve(
    address: Annotated[
        str,
        typer.Option(
            "--listen", metavar="HOST:PORT", envvar="HEADRACE_LISTEN", help="Where to listen."
        ),
    ] = "127.0.0.1:8070",
    state: Annotated[Path, typer.Option(help="Folder of everything that it keeps.")] = Path(
        ".headrace/serve"
    ),
    tokens: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Who may ask: names, tokens, roles; YAML or JSON."),
    ] = None,
    database: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="PostgreSQL that several control planes share; a file in the state folder otherwise. A password "
            "stands in the environment: ${env:NAME}.",
        ),
    ] = None,
    stop_seconds: Annotated[
        float,
        typer.Option(min=1, max=3600, callback=a_number, help="How long a replicator has to end."),
    ] = 60.0,
) -> None:
    """Look after many replicators, over HTTP, until Ctrl-C.

    Replicators are deployed, started, paused, stopped and deleted by commands, or by programs over the API, which
    [bold]/docs[/bold] describes. Each runs in processes of its own, which are started again when they die. Ending the
    control plane ends none of them: the next one adopts those that still run.

    Without tokens it answers this machine alone. Two of them with one database and one state folder watch over each
    other: one is active, the other takes over when it is gone.

    Exit code: 0 when asked to end, 2 on an error.

    [bold]Examples[/bold]
      headrace serve
      headrace serve --listen 0.0.0.0:8070 --tokens people.yaml
      headrace serve --database 'postgresql://headrace:${env:STATE_PASSWORD}@db.internal/headrace' --state
      /shared/headrace
    """
    import signal
    import threading

    from headrace.replicator.lean import begin_lean

    begin_lean()

    from headrace.cli.refusals import pass_over_no_room
    from headrace.observe.logs import begin_logging
    from headrace.replicator.api.app import application
    from headrace.replicator.api.serve import Listening, known_of, limits_of, listen
    from headrace.replicator.api.serve import serve as answer
    from headrace.replicator.control.plane import ControlPlane
    from headrace.replicator.control.reconcile import Limits
    from headrace.replicator.serving import plane_settings, tokens_of

    # Whom it looks after goes on without a word of it, too.
    pass_over_no_room()
    begin_logging()
    people = tokens_of(tokens)
    where = Listening.parse(address, people)
    settings = plane_settings(state, database, tokens, Limits(stop_s=stop_seconds))
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda _number, _frame: stop.set())
    listening = listen(where)
    scheme = "https" if where.certificate else "http"
    host, port = listening.getsockname()[:2]
    shown = f"[{host}]" if ":" in host else host

    def tell() -> None:
        who = "whoever has a token" if people else "this machine, without a token"
        url = (f"{scheme}://{shown}:{port}", "bold")
        told = Text.assemble("serving ", url, f" for {who}; its API: /docs; Ctrl-C ends it")
        console.print(told, soft_wrap=True)

    with ControlPlane(settings) as plane:
        answer(
            application(plane, known_of(people), stop.is_set, limits_of(people)),
            where,
            listening,
            stop,
            tell,
        )
        left = len(plane.reconciler.processes())
    if left:
        them = "it" if left == 1 else "them"
        console.print(f"{counted(left, 'replicator')} left running; headrace serve adopts {them}")

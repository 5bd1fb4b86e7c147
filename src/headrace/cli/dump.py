"""``headrace dump``: read tables again, and steer how."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from headrace.cli.dumps import HeldUp, configured, dumps_of
from headrace.cli.output import console, errors_without_traceback, notes
from headrace.cli.server import (
    DEFAULT_URL,
    AsJson,
    Authority,
    FileOrName,
    Namespace,
    Server,
    ServerUrl,
)
from headrace.errors import ConfigError, HeadraceError

__all__ = ["dump"]

dump = typer.Typer(
    help=(
        "Read tables, or parts of them, from the source again, while everything else goes on.\n\n"
        "Requests are durable: a running replicator takes one up, and whatever is done to it, within a second; "
        "one that does not run takes it up when it starts. In the place of a file the name of a control plane's "
        "replicator will do. Rows flow through watermark windows, so nothing that "
        "a table shows ever goes back to an older state.\n\n"
        "[bold]Examples[/bold]\n\n"
        "  headrace dump start shop.yaml --table public.orders --wait\n\n"
        "  headrace dump list shop\n\n"
        "  headrace dump pause shop.yaml 3f2a\n\n"
        "  headrace dump pace shop.yaml --load 0.5"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)

Request = Annotated[
    str, typer.Argument(metavar="REQUEST", help="The request's name, or the beginning of it.")
]


@dump.command()
@errors_without_traceback
def start(
    file: FileOrName,
    table: Annotated[str, typer.Option(help="schema.table, or 'all'.")],
    keys: Annotated[
        list[str] | None,
        typer.Option(
            help="Only this key; repeat it. A composite key is 17,1 or (17,1) or {order_id=17,line=1}. "
            "Blanks are part of a value."
        ),
    ] = None,
    where: Annotated[
        str | None,
        typer.Option(help="Only rows for which this SQL condition holds at the source."),
    ] = None,
    delete_missing: Annotated[
        bool,
        typer.Option(
            "--delete-missing", help="Delete from the target those keys that the source lacks."
        ),
    ] = False,
    priority: Annotated[
        int, typer.Option(help="From -100 to 100; the highest goes first and overtakes the others.")
    ] = 0,
    wait: Annotated[
        bool, typer.Option("--wait", help="Return when the rows are in the change log.")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Ask for tables, one table, the rows of a condition, or single keys.

    Keys that no longer exist at the source are listed. After the source was restored from a backup the target may hold
    rows that it lost: --delete-missing deletes those of the keys.

    [bold]Examples[/bold]
      headrace dump start shop.yaml --table public.orders --wait
      headrace dump start shop.yaml --table public.orders --where "placed_at > '2026-01-01'"
      headrace dump start shop.yaml --table public.items --keys 17,1 --keys "{order_id=17,line=2}"
      headrace dump start shop.yaml --table public.orders --keys 99 --delete-missing --priority 10
      headrace dump start shop.yaml --table all
    """
    from headrace.cli.dump_view import outcome

    if where is not None and not where.strip():
        raise ConfigError(
            "dump: the condition is empty.", next_step="leave --where out to read every row."
        )
    with dumps_of(file, Server(server, namespace, ca)) as requests:
        asked = requests.start(
            table,
            keys=keys or (),
            where=where or "",
            delete_missing=delete_missing,
            priority=priority,
        )
        held = HeldUp(requests)
        if not as_json:
            console.print(f"queued: request {asked}")
            held.look()
            if wait:
                console.print(outcome(requests.wait(asked, look=held.look)))
            return
        try:
            held.look()
            shown = requests.wait(asked, look=held.look) if wait else requests.show(asked)
        except HeadraceError:
            # Whoever repeated the command would have it twice.
            notes.print(f"queued: request {asked}")
            raise
        typer.echo(json.dumps(shown.to_json(), indent=2))


@dump.command(name="list")
@errors_without_traceback
def list_(
    file: FileOrName,
    every: Annotated[bool, typer.Option("--all", help="Those that have ended, too.")] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """List the requests that have not ended, with how far they are.

    [bold]Example[/bold]  headrace dump list shop.yaml --all
    """
    from headrace.cli.dump_view import requests_table

    with dumps_of(file, Server(server, namespace, ca)) as requests:
        found = requests.all(ended=every)
    if as_json:
        typer.echo(json.dumps([shown.to_json() for shown in found], indent=2))
    elif found:
        console.print(requests_table(found))
    else:
        console.print("no request waits" if not every else "nothing was ever asked for")


@dump.command()
@errors_without_traceback
def show(
    file: FileOrName,
    request: Request,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show one request, table by table: rows, rate, time left.

    The time left is an estimate: the catalog's number of rows at the present rate.

    [bold]Example[/bold]  headrace dump show shop.yaml 3f2a --json
    """
    from headrace.cli.dump_view import request_view

    with dumps_of(file, Server(server, namespace, ca)) as requests:
        shown = requests.show(request)
    if as_json:
        typer.echo(json.dumps(shown.to_json(), indent=2))
    else:
        console.print(request_view(shown))


@dump.command()
@errors_without_traceback
def pause(
    file: FileOrName,
    request: Request,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Let a request rest after its present chunk, and return when that is over. Nothing that it has read is read again.

    [bold]Example[/bold]  headrace dump pause shop.yaml 3f2a
    """
    with dumps_of(file, Server(server, namespace, ca)) as requests:
        paused = requests.pause(request)
        console.print(f"paused: request {paused.request_id}")
        HeldUp(requests).look()


@dump.command()
@errors_without_traceback
def resume(
    file: FileOrName,
    request: Request,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Let a paused request go on with its next chunk.

    [bold]Example[/bold]  headrace dump resume shop.yaml 3f2a
    """
    with dumps_of(file, Server(server, namespace, ca)) as requests:
        resumed = requests.resume(request)
        console.print(f"resumed: request {resumed.request_id}")
        HeldUp(requests).look()


@dump.command()
@errors_without_traceback
def cancel(
    file: FileOrName,
    request: Request,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Give a request up after its present chunk.

    A table that was complete stays so. One whose first copy is cancelled is incomplete until another is asked for: it
    is not taken up again by itself.

    [bold]Example[/bold]  headrace dump cancel shop.yaml 3f2a
    """
    with dumps_of(file, Server(server, namespace, ca)) as requests:
        cancelled = requests.cancel(request)
        incomplete = requests.incomplete()
    console.print(f"cancelled: request {cancelled.request_id}")
    for table in incomplete:
        console.print(
            f"incomplete: {table}; headrace dump start FILE --table {table} copies it",
            style="yellow",
        )


# A number below zero is no option.
@dump.command(context_settings={"ignore_unknown_options": True})
@errors_without_traceback
def prioritise(
    file: FileOrName,
    request: Request,
    priority: Annotated[int, typer.Argument(help="From -100 to 100; 0 is usual.")],
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Give a request another priority. The highest goes first; what it overtakes waits where it is.

    [bold]Example[/bold]  headrace dump prioritise shop.yaml 3f2a 10
    """
    with dumps_of(file, Server(server, namespace, ca)) as requests:
        moved = requests.steer(request, priority=priority)
    console.print(f"priority {moved.priority}: request {moved.request_id}")


@dump.command()
@errors_without_traceback
def pace(
    file: FileOrName,
    chunk_rows: Annotated[
        str | None,
        typer.Option(help="Rows of one select; 'auto' lets the size follow the time it takes."),
    ] = None,
    chunk_seconds: Annotated[
        float | None, typer.Option(help="Seconds that an automatic chunk aims at.")
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(help="Share of one connection's time that selects may take, up to 1."),
    ] = None,
    delay: Annotated[float | None, typer.Option(help="Seconds between two chunks.")] = None,
    rows_per_second: Annotated[
        float | None, typer.Option(help="Most rows read per second; 0 lifts the limit.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="First take everything as the file has it.")
    ] = False,
    request: Annotated[
        str | None,
        typer.Option(help="Of this request alone: its rows per chunk, delay and rows per second."),
    ] = None,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Change how fast tables are read, also while they are; without an option, show it.

    What is set here wins over the file, and stays until --reset. What a request has of its own wins over both.

    [bold]Examples[/bold]
      headrace dump pace shop.yaml --load 0.1 --rows-per-second 20000
      headrace dump pace shop.yaml --chunk-rows 500 --delay 0.2
      headrace dump pace shop.yaml --reset
      headrace dump pace shop.yaml --request 3f2a --rows-per-second 500
    """
    from headrace.cli.dump_view import chunk_size, pace_lines
    from headrace.errors import ConfigError

    given = {
        "chunk_rows": None if chunk_rows is None else chunk_size(chunk_rows),
        "chunk_s": chunk_seconds,
        "load": load,
        "delay_s": delay,
        "rows_per_s": rows_per_second,
    }
    wanted = {name: value for name, value in given.items() if reset or value is not None}
    at = Server(server, namespace, ca)
    if request is not None:
        if given["chunk_s"] is not None or given["load"] is not None:
            raise ConfigError(
                "dump pace: a request has chunk rows, delay and rows per second of its own, and nothing else.",
                next_step="leave --request out to set the others for all of them.",
            )
        own = {name: value for name, value in wanted.items() if name not in ("chunk_s", "load")}
        with dumps_of(file, at) as requests:
            asked = requests.steer(request, priority=None, **own) if own else None
            steered = asked or requests.show(request).request
        set_ = ", ".join(f"{name} {value:g}" for name, value in steered.pace.settings.items())
        if as_json:
            typer.echo(json.dumps(asdict(steered.pace), indent=2))
        else:
            console.print(f"request {steered.request_id}: {set_ or 'as the others'}")
        return
    in_file = configured(file, at)[0]
    with dumps_of(file, at) as requests:
        now = requests.set_pace(**wanted) if wanted else requests.pace()
    if as_json:
        typer.echo(json.dumps({name: getattr(now, name) for name in given}, indent=2))
    else:
        console.print("\n".join(pace_lines(in_file, now)))

"""``headrace log``: hold the delivery of the source's log back, let it go on, and say what is kept of it."""

from __future__ import annotations

from typing import Annotated

import typer

from headrace.cli.dumps import configured, dumps_of, figure
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
)

__all__ = ["log"]

log = typer.Typer(
    help=(
        "Pause or throttle the delivery of the source's log, and say how much of it is kept.\n\n"
        "What is held back stays at the source, whose disk must have room for it; nothing is lost. Dumps wait too "
        "while the log is paused: their windows close by marks in it. headrace status shows both. Of a control plane's "
        "replicator, which its name stands for in the place of a file, pausing the log is headrace pause.\n\n"
        "[bold]Examples[/bold]\n\n"
        "  headrace log pause shop.yaml\n\n"
        "  headrace log resume shop.yaml\n\n"
        "  headrace log pace shop.yaml --rows-per-second 5000\n\n"
        "  headrace log retain shop.yaml --size 4GiB"
    ),
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)


@log.command()
@errors_without_traceback
def pause(
    file: FileOrName,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Stop taking changes from the source, until resume.

    [bold]Example[/bold]  headrace log pause shop.yaml
    """
    _set(file, Server(server, namespace, ca), log_paused=True)
    console.print("paused: the source keeps its log; headrace log resume FILE goes on")


@log.command()
@errors_without_traceback
def resume(
    file: FileOrName,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Take changes from the source again, from where it stopped.

    [bold]Example[/bold]  headrace log resume shop.yaml
    """
    _set(file, Server(server, namespace, ca), log_paused=False)
    console.print("resumed")


@log.command()
@errors_without_traceback
def pace(
    file: FileOrName,
    rows_per_second: Annotated[
        float | None,
        typer.Option(help="Most change rows delivered per second; 0 lifts the limit."),
    ] = None,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Deliver no more than so many change rows per second, on average; without an option, show it.

    A transaction goes out whole; the pause after it makes up for its size.

    [bold]Examples[/bold]
      headrace log pace shop.yaml --rows-per-second 5000
      headrace log pace shop.yaml --json
    """
    with dumps_of(file, Server(server, namespace, ca)) as requests:
        if rows_per_second is None:
            now = requests.pace()
        else:
            now = requests.set_pace(log_rows_per_s=rows_per_second)
    most = now.log_rows_per_s
    if as_json:
        printed({"log_rows_per_s": most, "log_paused": now.log_paused})
        return
    paused = ", paused" if now.log_paused else ""
    console.print(f"log delivery: {f'at most {most:,.10g} rows/s' if most else 'no limit'}{paused}")


@log.command()
@errors_without_traceback
def retain(
    file: FileOrName,
    size: Annotated[
        str | None,
        typer.Option(metavar="SIZE", help="Keep so much for late readers: 4GiB, or bytes."),
    ] = None,
    seconds: Annotated[
        float | None, typer.Option(help="Keep what is younger than this, too.")
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="First take both as the file has them.")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Change what the change log keeps for readers that come late; without an option, show it.

    A running capture takes it up within a second.

    What the apply job has not applied stays in any case, and the log never outgrows changelog.budget. It wins over
    changelog.retain and changelog.retain_s of the file until --reset.

    [bold]Examples[/bold]
      headrace log retain shop.yaml --size 4GiB --seconds 86400
      headrace log retain shop.yaml --reset
    """
    given = {"retain_bytes": None if size is None else _size(size), "retain_s": seconds}
    wanted = {name: value for name, value in given.items() if reset or value is not None}
    at = Server(server, namespace, ca)
    changelog = configured(file, at)[1]
    with dumps_of(file, at) as requests:
        now = requests.set_pace(**wanted) if wanted else requests.pace()
    kept = changelog.retain if now.retain_bytes is None else now.retain_bytes
    for_s = changelog.retain_s if now.retain_s is None else now.retain_s
    if as_json:
        printed({"retain_bytes": kept, "retain_s": for_s})
        return
    console.print(
        f"kept for late readers: {figure(kept)} bytes, and what is younger than {figure(for_s, ',.0f')} s"
    )


def _size(text: str) -> int:
    from headrace.errors import ConfigError
    from headrace.replicator.units import parse_size

    try:
        return int(str(parse_size(text)))
    except ValueError as error:
        raise ConfigError(f"--size: {text!r} is no size.", next_step=f"write {error}.") from error


def _set(file: str, server: Server, **settings: float | bool) -> None:
    with dumps_of(file, server) as requests:
        requests.set_pace(**settings)

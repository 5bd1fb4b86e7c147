"""``headrace tap``: follow a running capture's events, or replay recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from headrace.cli.output import console, errors_without_traceback
from headrace.cli.server import (
    DEFAULT_URL,
    AsJson,
    Authority,
    FileOrName,
    Name,
    Namespace,
    Server,
    ServerUrl,
    printed,
    replicator_named,
)

if TYPE_CHECKING:
    from headrace.observe.tap.reading import Line

__all__ = ["tap"]

FOLLOW = "follow"
_MOST = 10_000
"""Lines that a control plane begins with at most."""


class _FileOrCommand(TyperGroup):
    """Takes what is no command for the FILE, or the NAME, to follow."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put ``follow`` in front of it."""
        if args and args[0] not in self.commands and not args[0].startswith("-"):
            args = [FOLLOW, *args]
        return super().parse_args(ctx, args)


tap = typer.Typer(
    cls=_FileOrCommand,
    no_args_is_help=True,
    help=(
        "Watch the algorithm at work: marks, chunks, collisions, row by row.\n\n"
        "No database is needed to see it: [bold]headrace tap replay chunk42[/bold]\n\n"
        "A running replicator tells its steps when its file says so:\n\n"
        "[bold]tap: {enabled: true}[/bold]\n\n"
        "It then writes one line of JSON for each event into [bold]tap/tap.ndjson[/bold] of its state "
        "folder, which only its owner can read since events hold keys. When it cannot keep up it drops events "
        "and counts them; it never holds up the capture. With [bold]teach: true[/bold] beside it the capture "
        "stands still until a reader has taken each event: step by step, and never in production.\n\n"
        "[bold]Examples[/bold]\n\n"
        "headrace tap shop\n\n"
        "headrace tap shop.yaml\n\n"
        "headrace tap shop.yaml --raw --all --once > run.ndjson\n\n"
        "headrace tap replay run.ndjson --step"
    ),
    epilog="What each kind means stands in docs/tap.md.",
)

_Raw = Annotated[
    bool, typer.Option("--raw", help="Print the lines as they are: NDJSON, for programs.")
]
_Step = Annotated[
    bool, typer.Option("--step", help="Wait for a key after each event: space or Enter goes on.")
]
_Panes = Annotated[
    bool | None,
    typer.Option("--panes/--lines", help="Three panes drawn in place, or one line for each event."),
]


@tap.command(FOLLOW)
@errors_without_traceback
def follow(
    file: FileOrName,
    raw: _Raw = False,
    step: _Step = False,
    panes: _Panes = None,
    last: Annotated[
        int, typer.Option(min=0, help="Begin with so many of the lines there are.")
    ] = 50,
    everything: Annotated[bool, typer.Option("--all", help="Begin with the oldest line.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="End where the file ends now; with a FILE only.")
    ] = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
) -> None:
    """Follow the events of a running capture (the word may be left out: headrace tap FILE).

    Works while the replicator runs and when it does not. In teaching mode this is the reader that the capture waits
    for: each event that is shown lets it take the next step. Of a control plane's replicator at most 10,000 of the
    lines that there are come, and a tap that teaches is for operators.

    [bold]Examples[/bold]
      headrace tap shop.yaml --step
      headrace tap shop --lines --last 200
    """
    from headrace.cli.tap_show import show

    name = replicator_named(file)
    if name is not None:
        asked = Server(server, namespace, ca)
        lines, taken = _of_server(asked, name, _MOST if everything else last, once=once)
    else:
        from headrace.replicator import config_file
        from headrace.replicator.tap import follow_tap

        config = config_file.load(Path(file))
        lines, taken = follow_tap(config, last=None if everything else last, once=once)
    show(lines, file, raw=raw, step=step, panes=bool(panes), taken=taken)


@tap.command()
@errors_without_traceback
def listeners(
    name: Name,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show whether the tap of a control plane's replicator tells anything, and who listens.

    [bold]Example[/bold]  headrace tap listeners shop
    """
    from headrace.cli.plain_view import plain_view

    told = Server(server, namespace, ca).within("GET", f"replicators/{name}/api/v1/tap")
    if as_json:
        printed(told)
    else:
        console.print(plain_view(told))


def _of_server(
    server: Server, name: str, last: int, *, once: bool
) -> tuple[Iterable[str], Callable[[Line], None]]:
    """Return the lines of a tap over HTTP, and what to call with each that was taken; as of a file."""
    from headrace.errors import ConfigError

    if once:
        raise ConfigError(
            "tap: --once is for the file of a replicator; what a control plane sends has no end.",
            next_step="leave it out, or name the FILE on the machine where it runs.",
        )
    page = f"replicators/{name}/api/v1/tap"
    teaches = server.within("GET", page)["mode"] == "teach"

    def taken(line: Line) -> None:
        if teaches and line["seq"] is not None:
            server.within("POST", f"{page}/taken", {"runId": line["run_id"], "seq": line["seq"]})

    return server.lines(f"{page}/stream", "application/x-ndjson", last=min(last, _MOST)), taken


@tap.command("replay")
@errors_without_traceback
def replay(
    recorded: Annotated[
        str,
        typer.Argument(
            metavar="RECORDED",
            help="A file of lines, or a scene that ships: chunk42 (one window, two collisions) or showcase "
            "(a whole request with four windows, and traffic).",
        ),
    ],
    raw: _Raw = False,
    step: _Step = False,
    panes: _Panes = None,
    pace: Annotated[
        int | None,
        typer.Option(min=0, help="Milliseconds between two events; 100 on a terminal, else 0."),
    ] = None,
) -> None:
    """Play a recorded run again; no database is needed.

    On a terminal: space shows the next event, s begins and ends stepping, n goes slower, m faster, f at full speed,
    q ends.

    [bold]Examples[/bold]
      headrace tap replay chunk42
      headrace tap replay showcase --step
      headrace tap replay .headrace/shop/tap/tap.ndjson --lines --pace 0
    """
    from headrace.cli.tap_show import show
    from headrace.demo.scenes import SCENES, recording
    from headrace.errors import ConfigError

    path = recording(recorded) if recorded in SCENES else Path(recorded)
    if not path.is_file():
        raise ConfigError(
            f"tap replay: {recorded} is neither a file nor one of {', '.join(SCENES)}.",
            next_step="name a file that headrace tap FILE --raw gave, or a scene.",
        )
    drawn = console.is_terminal if panes is None else panes
    pace_ms = pace if pace is not None else 100 if console.is_terminal else 0
    lines = _recorded(path, recorded)
    show(lines, recorded, raw=raw, step=step, panes=drawn and not raw, pace_ms=pace_ms)


def _recorded(path: Path, name: str) -> Iterator[str]:
    """Yield the lines of a recording.

    Raises:
        ConfigError: at the end, where none of them was an event.
    """
    from headrace.errors import ConfigError
    from headrace.observe.tap.reading import follow, parse

    is_recording = False
    for text in follow(path):
        is_recording = is_recording or parse(text) is not None
        yield text
    if not is_recording:
        raise ConfigError(
            f"tap replay: {name} holds no event of a tap.",
            next_step="name a file that headrace tap FILE --raw gave, or tap.ndjson of a state folder.",
        )

"""``headrace consume``: a consumer as a process."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headrace.cli.output import MOST_SECONDS, a_number, errors_without_traceback
from headrace.cli.stream import (
    Authority,
    Columns,
    Conditions,
    From,
    Partition,
    Source,
    Tables,
    Upto,
    Where,
)

if TYPE_CHECKING:
    import logging

    from headrace.client import Checkpoints, Consumer

__all__ = ["consume"]

EXIT_SUSPENDED = 3


@errors_without_traceback
def consume(
    what: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:CLASS",
            help="A headrace.client.Consumer of your own, of a module in this folder or an installed one; or an "
            "output: ndjson, http, sql, noop.",
            show_default=False,
        ),
    ],
    where: Where,
    source: Source = None,
    to: Annotated[
        str | None,
        typer.Option(
            metavar="PLACE",
            help="Where an output delivers. ndjson: a file, else the standard output. http: the address of a webhook. "
            "sql: sqlite:FILE, duckdb:FILE, postgresql://HOST/DATABASE or mysql://HOST/. "
            "env:NAME takes it from the environment.",
        ),
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Remember in this file how far it came. Not for consumers that keep their own, as sql does.",
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Of the consumer, where sql keeps its place; SOURCE-copy by default."),
    ] = None,
    tables: Tables = None,
    columns: Columns = None,
    conditions: Conditions = None,
    partition: Partition = None,
    start: From = "oldest",
    upto: Upto = None,
    every: Annotated[
        int, typer.Option(min=1, help="Windows between two checkpoints, which sql writes together.")
    ] = 1,
    retries: Annotated[
        int, typer.Option(min=0, help="Of a window that fails, before the consumer is suspended.")
    ] = 3,
    lost: Annotated[
        str,
        typer.Option(
            "--on-lost",
            metavar="stop|dump",
            help="When no relay holds the place any more: stop, or begin anew and ask for a dump of all tables, which "
            "takes a token with the role admin.",
        ),
    ] = "stop",
    patience: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=MOST_SECONDS,
            callback=a_number,
            help="Seconds for which relays that do not hold the place are asked again.",
        ),
    ] = 30.0,
    dead_letters: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where windows are put that are skipped."),
    ] = None,
    skip_window: Annotated[
        list[int] | None,
        typer.Option(
            metavar="SCN",
            help="Put this window into the folder of dead letters if it fails as often as it may. May be repeated.",
        ),
    ] = None,
    report: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=MOST_SECONDS,
            callback=a_number,
            help="Seconds between two lines about lag.",
        ),
    ] = 10.0,
    authority: Authority = None,
) -> None:
    """Run a consumer until Ctrl-C.

    The class is made without arguments. A callback that fails is called again, from the last checkpoint on; when its
    retries are used up the consumer is suspended: the command ends with exit code 3 and says which window is in the
    way. Then either repair the consumer and run the same command, which resumes at the checkpoint; or pass the window:
    --skip-window SCN --dead-letters FOLDER.

    A consumer that keeps its place itself, in its own transactions, has it as the attribute checkpoints. Without that
    and without --checkpoint each run begins where --from says.

    State and lag go to the standard error. A relay's token is read from the environment's HEADRACE_TOKEN, the secret
    that signs calls of a webhook from HEADRACE_WEBHOOK_SECRET.

    Exit code: 0 when asked to end, or when everything that was asked for came; 2 on an error; 3 suspended.

    [bold]Examples[/bold]
      headrace consume orders:Orders http://127.0.0.1:7070 --checkpoint orders.place
      headrace consume ndjson shop.yaml --to changes.ndjson --checkpoint changes.place
      headrace consume sql shop.yaml --to sqlite:copy.sqlite --every 1000
      headrace consume http shop.yaml --to https://example.org/hook --checkpoint hook.place --table 'public.order*'
      headrace consume orders:Orders shop.yaml --checkpoint orders.place --skip-window 81 --dead-letters ./aside
    """
    import logging
    import os
    from dataclasses import replace

    from headrace.cli.consume_watch import Watch, line_of
    from headrace.cli.consumers import consumer_of
    from headrace.cli.ending import ending_on_signals
    from headrace.cli.output import notes, show_error
    from headrace.cli.refusals import pass_over_no_room
    from headrace.cli.stream import filter_of, start_of, stream_of, upto_of
    from headrace.client import Settings, Subscription
    from headrace.errors import ConfigError, HeadraceError

    # What is said beside the changes is the least matter.
    pass_over_no_room(output=False)
    if lost not in ("stop", "dump"):
        raise ConfigError(f"--on-lost: {lost!r} is neither stop nor dump.", next_step="name one.")
    if skip_window and dead_letters is None:
        raise ConfigError(
            "--skip-window: a window is skipped only into a folder of dead letters.",
            next_step="add --dead-letters FOLDER.",
        )
    begin, wanted = start_of(start), filter_of(tables, columns, conditions, partition)
    stream = stream_of(where, source, authority)
    consumer = consumer_of(what, to, name or f"{stream.source}-copy")
    subscription = Subscription(
        stream.urls,
        stream.source,
        consumer,
        _checkpoints(consumer, what, checkpoint),
        filter=wanted,
        start=begin,
        upto=upto_of(upto, stream),
        on_lost="dump" if lost == "dump" else "stop",
        dead_letters=dead_letters,
        settings=replace(
            Settings(),
            http=stream.http,
            checkpoint_every=every,
            retries=retries,
            patience_s=patience,
        ),
    )
    logging.getLogger("headrace.client.delivery").addFilter(_is_no_error)
    with (
        Watch(subscription, stream.newest, report, skip_window or ()) as watch,
        ending_on_signals(subscription.stop),
    ):
        subscription.run()
    notes.print(line_of(subscription.status), soft_wrap=True)
    if (error := watch.suspended) is None:
        return
    if os.environ.get("HEADRACE_DEBUG"):
        raise error
    assert isinstance(error, HeadraceError)
    show_error(error)
    if watch.failed_scn is not None:
        notes.print(
            f"Suspended at window {watch.failed_scn}. Run the same command to try it again; to put the window aside, "
            f"add --skip-window {watch.failed_scn} --dead-letters FOLDER.",
            soft_wrap=True,
        )
    raise typer.Exit(EXIT_SUSPENDED)


def _is_no_error(record: logging.LogRecord) -> bool:
    """Keep suspensions out of the log: the command says them itself, at its end."""
    return record.levelname != "ERROR"


def _checkpoints(consumer: Consumer, what: str, file: Path | None) -> Checkpoints | None:
    """Return where the place is kept: by the consumer itself, in a file, or nowhere."""
    from headrace.cli.consumers import own_checkpoints
    from headrace.cli.output import notes
    from headrace.client import FileCheckpoints
    from headrace.errors import ConfigError

    own = own_checkpoints(consumer)
    if own is not None and file is not None:
        raise ConfigError(
            f"--checkpoint: {what} keeps its place itself.", next_step="leave --checkpoint out."
        )
    if own is None and file is None:
        notes.print("no checkpoints: the next run begins where --from says", soft_wrap=True)
    return own or (None if file is None else FileCheckpoints(file))

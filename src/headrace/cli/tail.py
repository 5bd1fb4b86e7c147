"""``headrace tail``: the stream of changes in a terminal."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from enum import StrEnum
from pathlib import Path
from typing import Annotated

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

__all__ = ["tail"]

_PATIENCE_S = 2.0
"""How long a place that no relay holds is asked for: somebody sits there and waits."""


class _Format(StrEnum):
    TABLE = "table"
    JSON = "json"
    INFO = "info"
    NONE = "none"


class _Verbosity(StrEnum):
    EVENT = "event"
    WINDOW = "window"
    LIFECYCLE = "lifecycle"


@errors_without_traceback
def tail(
    where: Where,
    source: Source = None,
    tables: Tables = None,
    columns: Columns = None,
    conditions: Conditions = None,
    partition: Partition = None,
    start: From = "newest",
    upto: Upto = None,
    count: Annotated[int | None, typer.Option(min=1, help="End after so many changes.")] = None,
    seconds: Annotated[
        float | None,
        typer.Option(
            min=0.0, max=MOST_SECONDS, callback=a_number, help="End after so many seconds."
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Remember in this file how far it came, and begin there the next time; --from counts for the first.",
        ),
    ] = None,
    form: Annotated[
        _Format,
        typer.Option(
            "--format",
            "-F",
            help="table: a line for people. json: lines of JSON. info: what is known of a change without its row, with "
            "tabs between. none: only count.",
        ),
    ] = _Format.TABLE,
    verbosity: Annotated[
        _Verbosity,
        typer.Option(
            "--verbosity",
            "-V",
            help="event: changes and system events. window: also where each window ends. lifecycle: also what happens "
            "to the connection's subscription.",
        ),
    ] = _Verbosity.EVENT,
    stats: Annotated[
        bool, typer.Option("--stats", help="Count each second, and per table at the end.")
    ] = False,
    authority: Authority = None,
) -> None:
    """Show the changes of a relay as they come, until Ctrl-C.

    A window is one transaction of the source; its changes come together and in their order. What is shown goes to the
    standard output, all else to the standard error. The database is not asked: the relay reads its change log.

    A relay that asks for a token gets the one in the environment's HEADRACE_TOKEN; with a replicator's file, else the
    file's first one. When a relay goes away the next of the list is asked, and nothing is shown twice.

    Exit code: 0 when asked to end, or when everything that was asked for came; 2 on an error.

    [bold]Examples[/bold]
      headrace tail shop.yaml
      headrace tail http://127.0.0.1:7070 --from 10m --table 'public.order*'
      headrace tail http://a:7070 http://b:7070 --where 'public.orders:total > 100' --count 20
      headrace tail shop.yaml --from oldest --upto newest --format json > changes.ndjson
      headrace tail shop.yaml --format json --resume place.json --seconds 60
      headrace tail shop.yaml --format none --stats
    """
    import threading
    from dataclasses import replace

    from headrace.cli.ending import ending_on_signals
    from headrace.cli.output import notes
    from headrace.cli.refusals import pass_over_no_room
    from headrace.cli.stream import filter_of, start_of, stream_of, upto_of
    from headrace.cli.tail_consumer import TailConsumer, Verbosity
    from headrace.cli.tail_forms import FORMS
    from headrace.client import FileCheckpoints, NoCheckpoints, Settings, Subscription

    # What is said beside the changes is the least matter.
    pass_over_no_room(output=False)
    begin, wanted = start_of(start), filter_of(tables, columns, conditions, partition)
    stream = stream_of(where, source, authority)
    checkpoints = NoCheckpoints() if resume is None else FileCheckpoints(resume)
    settings = replace(
        Settings(),
        http=stream.http,
        retries=0,
        patience_s=_PATIENCE_S,
        # A file is replaced about once a second, and at the end.
        checkpoint_every=1_000_000,
        # Pieces of a huge window are written one by one.
        checkpoint_rows=1,
    )
    consumer = TailConsumer(
        FORMS[form.value](),
        Verbosity[verbosity.name],
        count,
        lambda: subscription.stop(),
    )
    subscription = Subscription(
        stream.urls,
        stream.source,
        consumer,
        checkpoints,
        filter=wanted,
        start=begin,
        upto=upto_of(upto, stream),
        on_suspended="raise",
        settings=settings,
    )
    place = checkpoints.load()
    notes.print(
        f"{stream.source} at {stream.urls[0]}: {_held(stream.state, stream.oldest_scn, stream.covered_scn)}; "
        f"from {start if place is None else place}; Ctrl-C ends it",
        soft_wrap=True,
    )
    ended = threading.Event()

    def count_each_second() -> None:
        while not ended.wait(1.0):
            notes.print(consumer.seen.line(), soft_wrap=True)

    timer = None if seconds is None else threading.Timer(seconds, subscription.stop)
    if timer is not None:
        timer.daemon = True
        timer.start()
    if stats:
        threading.Thread(target=count_each_second, daemon=True).start()
    try:
        with ending_on_signals(subscription.stop), _unlogged():
            subscription.run()
        if consumer.place is not None:
            checkpoints.store(consumer.place)
    finally:
        ended.set()
        if timer is not None:
            timer.cancel()
        notes.print(consumer.seen.line(), soft_wrap=True)
        if stats:
            notes.print(consumer.seen.table())


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Keep what ends a subscription from the log: it ends the command, which says it."""
    import logging

    log, nowhere = logging.getLogger("headrace"), logging.NullHandler()
    log.addHandler(nowhere)
    try:
        yield
    finally:
        log.removeHandler(nowhere)


def _held(state: str, oldest_scn: int, covered_scn: int) -> str:
    return "no change log yet" if state == "none" else f"SCN {oldest_scn} to {covered_scn}"

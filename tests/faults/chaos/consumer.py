"""A consumer in a process of its own, until it is killed: one of six, or a member of the group.

Two take callbacks, with the place in a file and in their own transaction; two are outputs that ship, a file and a
database; two iterate, over changes and over batches.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import sqlalchemy as sa

from headrace.client import (
    Backoff,
    Batch,
    Consumer,
    Event,
    Group,
    HttpSettings,
    IteratedWindow,
    Partition,
    Settings,
    SqlCheckpoints,
    SqlGroupStore,
    Subscription,
)
from headrace.errors import HeadraceError
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.outputs import NdjsonOutput
from headrace.outputs.sql import SqlOutput
from tests.faults.chaos.kept import Keeping, kept_table
from tests.faults.chaos.told import Lines, Row, line_of, lines_of
from tests.faults.chaos.watched import Watched, WatchedBatches

__all__ = ["GROUP", "KINDS", "LEASE_S", "PARTITIONS", "REFUSED", "SOURCE"]

SOURCE = "chaos"
KINDS = {
    "callbacks": ("file", "transaction"),
    "outputs": ("ndjson", "sql"),
    "iteration": ("events", "batches"),
}
GROUP = "members"
PARTITIONS = 6
LEASE_S = 2.0
REFUSED = (b"Delivered again", b"begins anew")
"""What a consumer says that could not do its work."""

_SETTINGS = Settings(
    idle_checkpoint_s=0.2,
    patience_s=600.0,
    # Nobody is there to resume what waits for a person.
    retries=1_000_000,
    retry=Backoff(0.05, 1.5, 0.5),
    reconnect=Backoff(0.05, 1.5, 0.5),
    http=HttpSettings(connect_timeout_s=3.0, read_timeout_s=3.0),
)
_MERGED = replace(_SETTINGS, merge_windows=True)


def main(name: str, folder: Path, small: Path, database: str, urls: list[str]) -> None:
    """Consume until killed.

    Args:
        name: of the consumer, or of a member.
        folder: of what it was told.
        small: folder of places and files, which at times has no room.
        database: URL for SQLAlchemy of what is kept in one.
        urls: of the relays.
    """
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://", 1))
    if name not in (one for kind in KINDS.values() for one in kind):
        _be_a_member(name, urls, engine, folder)
        return
    place, lines = small / f"{name}.place", Lines(folder / f"{name}.lines")
    if name == "file":
        consumer = Watched(lines, Consumer())
        Subscription(urls, SOURCE, consumer, place, settings=_SETTINGS).run()
    elif name == "transaction":
        table, own = kept_table(engine, "own"), SqlCheckpoints(engine, name)
        consumer = Watched(lines, Keeping(engine, table, own))
        Subscription(urls, SOURCE, consumer, own, settings=_SETTINGS).run()
    elif name == "ndjson":
        consumer = Watched(lines, NdjsonOutput(small / "ndjson.out"))
        Subscription(urls, SOURCE, consumer, place, settings=_SETTINGS).run()
    elif name == "sql":
        output = SqlOutput(PostgresWarehouse(database), name)
        batches = WatchedBatches(lines, output)
        Subscription(urls, SOURCE, batches, output, settings=_MERGED).run()
    elif name == "events":
        _iterate(urls, place, lines, _changes)
    else:
        _iterate(urls, place, lines, _columns)


def _iterate(
    urls: list[str], place: Path, lines: Lines, read: Callable[[IteratedWindow], list[Row]]
) -> None:
    pause = threading.Event()
    while True:
        lines.write({"begin": "iteration"})
        try:
            subscription = Subscription(urls, SOURCE, checkpoints=place, settings=_SETTINGS)
            for window in subscription.windows():
                lines.write(*read(window))
                window.done()
        except HeadraceError as error:
            # Begun anew where it cannot go on: that is what iteration asks of its caller.
            print(f"begins anew: {type(error).__name__}: {error}", flush=True)
            pause.wait(0.1)


def _changes(window: IteratedWindow) -> list[Row]:
    return [line_of(event) for event in window if isinstance(event, Event)]


def _columns(window: IteratedWindow) -> list[Row]:
    batches = [part for part in window.batches() if isinstance(part, Batch)]
    return [line for batch in batches for line in lines_of(batch)]


def _be_a_member(name: str, urls: list[str], engine: sa.Engine, folder: Path) -> None:
    table = kept_table(engine, "shared")

    def consumer(partition: Partition) -> Watched:
        lines = Lines(folder / f"{name}-{partition.number}-{partition.generation}.lines")
        keeping = Keeping(
            engine, table, partition.checkpoints, partition.number, partition.generation
        )
        return Watched(lines, keeping)

    Group(
        urls,
        SOURCE,
        consumer,
        SqlGroupStore(engine),
        GROUP,
        partitions=PARTITIONS,
        settings=_SETTINGS,
        lease_s=LEASE_S,
    ).run()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4], sys.argv[5:])

"""Consumers of groups that keep what they get in a database, and a member in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from headrace.client import (
    Backoff,
    Consumer,
    Event,
    Group,
    Partition,
    Result,
    Settings,
    SqlGroupStore,
    Window,
)
from headrace.wire.place import Place

__all__ = ["GROUP_SETTINGS", "Kept", "Storing", "started"]

ROOT = Path(__file__).parents[2]

GROUP_SETTINGS = Settings(
    idle_checkpoint_s=0.0,
    retry=Backoff(0.001, 1.0, 0.001),
    reconnect=Backoff(0.005, 1.2, 0.05),
    patience_s=5.0,
)


class Kept:
    """A table of everything that was processed, in the order in which it was committed."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.table = sa.Table(
            "kept",
            sa.MetaData(),
            sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
            *(sa.Column(name, sa.BigInteger) for name in ("scn", "ord", "key")),
            *(sa.Column(name, sa.BigInteger) for name in ("number", "count", "generation")),
        )
        self.table.create(engine, checkfirst=True)

    def rows(self) -> list[Any]:
        """Return all rows in the order of their commits."""
        with self.engine.connect() as connection:
            return list(connection.execute(sa.select(self.table).order_by(self.table.c.id)))

    def changes(self) -> Counter[tuple[int, int]]:
        """Return how often each change was kept."""
        return Counter((row.scn, row.ord) for row in self.rows())

    def by_key(self) -> dict[int, list[tuple[int, int]]]:
        """Return the changes of each key, in the order of their commits."""
        found: dict[int, list[tuple[int, int]]] = defaultdict(list)
        for row in self.rows():
            found[row.key].append((row.scn, row.ord))
        return found


class Storing(Consumer):
    """Stores rows and place in one transaction: each change exactly once, whatever happens to members.

    Args:
        kept: the table.
        partition: that it consumes.
        told: prints what it does for whoever started the process.
    """

    def __init__(self, kept: Kept, partition: Partition, *, told: bool = False) -> None:
        self._kept = kept
        self._partition = partition
        self._told = told
        self._rows: list[dict[str, int]] = []

    def on_start_window(self, window: Window) -> None:
        self._rows = []

    def on_data_event(self, event: Event) -> None:
        own = self._partition
        row = {"scn": event.scn, "ord": event.ord, "key": event.key[0]}
        self._rows.append(
            row | {"number": own.number, "count": own.count, "generation": own.generation}
        )

    def on_rollback(self, place: Place) -> None:
        self._rows = []

    def on_end_window(self, window: Window) -> Result:
        with self._kept.engine.begin() as connection:
            # The place first: whoever is fenced finds out before anything is written.
            self._partition.checkpoints.store(window.place, connection=connection)
            if self._rows:
                connection.execute(self._kept.table.insert(), self._rows)
        if self._told:
            print(f"{self._partition.number} {window.scn}", flush=True)
        return Result.SKIP_CHECKPOINT


def started(relay: str, folder: Path, lease_s: float) -> subprocess.Popen[str]:
    """Start a member in a process of its own; it prints partition and SCN of each window it stored."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.client.grouping", relay, str(folder), str(lease_s)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}"),
    )


def opened(folder: Path) -> sa.Engine:
    """Return the database that members of one test share."""
    return sa.create_engine(f"sqlite:///{folder}/group.db", connect_args={"timeout": 60})


def main(relay: str, folder: str, lease_s: str) -> None:
    """Be a member until killed."""
    engine = opened(Path(folder))
    kept = Kept(engine)
    Group(
        relay,
        "shop",
        lambda partition: Storing(kept, partition, told=True),
        SqlGroupStore(engine),
        "g",
        partitions=4,
        settings=GROUP_SETTINGS,
        lease_s=float(lease_s),
    ).run()


if __name__ == "__main__":
    main(*sys.argv[1:])

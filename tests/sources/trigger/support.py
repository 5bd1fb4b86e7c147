"""An opened trigger source that tests drive by hand: write SQL, then collect what the triggers kept."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from headrace.model.mark import Mark, MarkKind
from headrace.registry.file import FileRegistry
from headrace.sources.base import LogItem
from headrace.sources.trigger.postgres import PostgresTriggerSource
from tests.sources.postgres.support import Collected
from tests.waiting import until

__all__ = ["TriggerLog", "opened", "session", "transactions_of", "waits_for_a_lock"]

DEADLINE_S = 30.0

_tokens = itertools.count(1)


class TriggerLog:
    """A prepared source and its open log."""

    def __init__(self, source: Any, folder: Path) -> None:
        self.source = source
        self.registry = FileRegistry(folder / "schemas")
        self.reader = source.open(self.registry)
        self.writer = source.watermarks()
        self._covered = 0

    def close(self) -> None:
        self.reader.close()
        self.writer.close()

    def reopen(self) -> None:
        """Open the log again, as after a crash: what was not noted comes again."""
        self.reader.close()
        self.reader = self.source.open(self.registry)
        self._covered = 0

    def collect(self, *, acknowledge: bool = True) -> Collected:
        """Write a mark and return everything up to it."""
        mark = Mark(MarkKind.LOW, f"token-{next(_tokens)}", "run")
        self.writer.write(mark)
        return self.until(lambda i: i.mark is not None and i.mark.mark == mark, acknowledge)

    def covered(self, *, acknowledge: bool = False) -> Collected:
        """Return everything that is committed by now."""
        end = self.source.end_scn()
        if self._covered >= end:
            return Collected()
        return self.until(lambda item: item.block.covered_scn >= end, acknowledge)

    def until(self, condition: Callable[[LogItem], bool], acknowledge: bool) -> Collected:
        """Poll until an item satisfies the condition."""
        collected = Collected()
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            item = self.reader.poll(0.2)
            if item is None:
                continue
            collected.items.append(item)
            self._covered = item.block.covered_scn
            if acknowledge:
                self.reader.acknowledge(item.position)
            if condition(item):
                return collected
        raise AssertionError(f"the log did not bring it in {DEADLINE_S:.0f} s")


@contextmanager
def opened(url: str, folder: Path, **arguments: Any) -> Iterator[TriggerLog]:
    """Prepare a source and open its log; it is closed afterwards."""
    source = PostgresTriggerSource(url, **arguments)
    source.prepare()
    log = TriggerLog(source, folder)
    try:
        yield log
    finally:
        log.close()


@contextmanager
def session(url: str) -> Iterator[psycopg.Connection]:
    """Give a connection whose transactions the test begins and ends."""
    with psycopg.connect(url) as connection:
        yield connection


def transactions_of(collected: Collected) -> list[tuple[int, int]]:
    """Return SCN and id of every whole transaction, in the order in which they came."""
    return [(row["scn"], row["xid"]) for row in collected.index if row["last_piece"]]


def waits_for_a_lock(url: str, pid: int) -> None:
    """Return when a session waits for another one's lock."""
    with psycopg.connect(url, autocommit=True) as other:

        def waiting() -> bool:
            found = other.execute("SELECT cardinality(pg_blocking_pids(%s))", (pid,)).fetchone()
            return bool(found and found[0])

        until(waiting, "the session waits")

"""An opened source that tests drive by hand: write SQL, then collect what the log gives."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headrace.model.block import Block, Body, SystemEvent
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import TableId, TableSchema
from headrace.registry.file import FileRegistry
from headrace.sources.base import LogItem, ReceivedMark
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.stream import PostgresLogReader

DEADLINE_S = 30.0

_tokens = itertools.count(1)

Row = dict[str, Any]


@dataclass
class Collected:
    """What came through the log, up to and including one mark."""

    items: list[LogItem] = field(default_factory=list)

    @property
    def blocks(self) -> list[Block]:
        return [item.block for item in self.items]

    @property
    def marks(self) -> list[ReceivedMark]:
        return [item.mark for item in self.items if item.mark is not None]

    @property
    def bodies(self) -> tuple[Body, ...]:
        """Bodies of the first block that has any: one may say only how far the log is covered."""
        return next(block.bodies for block in self.blocks if block.bodies)

    @property
    def events(self) -> list[SystemEvent]:
        return [event for block in self.blocks for event in block.system]

    @property
    def index(self) -> list[Row]:
        return [
            {name: int(entry[name]) for name in entry.dtype.names}
            for block in self.blocks
            for entry in block.index
        ]

    def rows(self, table: str) -> list[Row]:
        """Rows of one table, all versions, in (scn, ord) order; missing cells read ``?``."""
        wanted = TableId.parse(table)
        found: list[Row] = []
        for block in self.blocks:
            for body in block.bodies:
                if body.table == wanted:
                    found += [_readable(row) for row in body.batch.to_pylist()]
        return sorted(found, key=lambda row: (row["_scn"], row["_ord"]))

    def changes(self, table: str) -> list[tuple[Any, ...]]:
        """Operation and own cells of each row of one table."""
        return [
            (row["_op"], *(value for name, value in row.items() if not name.startswith("_")))
            for row in self.rows(table)
        ]


def _readable(row: Row) -> Row:
    mask = row.pop("_missing") or b""
    names = [name for name in row if not name.startswith("_")]
    for place, name in enumerate(names):
        if place // 8 < len(mask) and mask[place // 8] >> place % 8 & 1:
            assert row[name] is None, "a missing cell must be null in its column"
            row[name] = "?"
    return row


class Opened:
    """A prepared source and its open log."""

    def __init__(self, source: PostgresSource, folder: Path) -> None:
        self.source = source
        # The server may stall before it frees the slot of a reader that was closed.
        object.__setattr__(source.settings, "slot_busy_s", DEADLINE_S)
        self.registry = FileRegistry(folder / "schemas")
        self.reader: PostgresLogReader = source.open(self.registry)
        self.writer = source.watermarks()

    def close(self) -> None:
        self.reader.close()
        self.writer.close()

    def reopen(self) -> None:
        """Open the log again, as after a crash: nothing more is acknowledged."""
        self.reader.close()
        self.reader = self.source.open(self.registry)

    def collect(self, *, acknowledge: bool = True) -> Collected:
        """Write a mark and return everything up to it."""
        mark = Mark(MarkKind.LOW, f"token-{next(_tokens)}", "run")
        self.writer.write(mark)
        return self.until(
            lambda item: item.mark is not None and item.mark.mark == mark, acknowledge=acknowledge
        )

    def until(self, condition: Callable[[LogItem], bool], *, acknowledge: bool = True) -> Collected:
        """Poll until an item satisfies the condition."""
        collected = Collected()
        deadline = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline:
            item = self.reader.poll(0.2)
            if item is None:
                continue
            collected.items.append(item)
            if acknowledge:
                self.reader.acknowledge(item.position)
            if condition(item):
                return collected
        raise AssertionError(f"the log did not bring it in {DEADLINE_S:.0f} s")

    def schema(self, body_schema_id: int) -> TableSchema:
        return self.registry.get(body_schema_id)


@contextmanager
def opened(url: str, folder: Path, **arguments: Any) -> Iterator[Opened]:
    """Prepare a source and open its log; everything of it is removed afterwards."""
    source = PostgresSource(url, **arguments)
    source.prepare()
    log = Opened(source, folder)
    try:
        yield log
    finally:
        log.close()

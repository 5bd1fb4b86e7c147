"""Change logs written by the real writer, from the notation of `headrace.testing.notation`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, TypeVar

from headrace.changelog.writer import ChangeLogWriter
from headrace.fold import fold
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    Body,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.schema import TableId, TableSchema
from headrace.observe.failpoints import disarm
from headrace.registry.file import FileRegistry
from headrace.testing.notation import change_batch, parse_history
from headrace.testing.target import ModelTable

__all__ = ["HasLog", "Log", "lent", "model"]


class Log:
    """A change log that a test writes; SCNs are 10, 20, 30, …"""

    def __init__(self, folder: Path, commit_us: Callable[[int], int] | None = None) -> None:
        self.commit_us = commit_us or (lambda _scn: time.time_ns() // 1_000)
        self.folder = folder
        self.registry = FileRegistry(folder / "schemas")
        self.writer = ChangeLogWriter.open(folder, sync=lambda _descriptor: None)
        self.scn = 0
        self._read_from: dict[TableId, int] = {}

    def write(self, schema: TableSchema, history: str, origin: int = ORIGIN_LOG) -> int:
        """Append the transactions of one table, a block for each, and return the last SCN."""
        schema_id = self.registry.put(schema)
        for part in history.split("|"):
            parsed = parse_history(part, self._next())
            if "+R(" in part:
                self._read_from.setdefault(schema.table, self.scn)
            body = Body(schema_id, schema.table, change_batch(schema, parsed.rows))
            events = tuple(
                SystemEvent(scn, order, SystemKind.TRUNCATE, schema.table)
                for scn, order in parsed.truncates
            )
            self._append((body,) if parsed.rows else (), events, origin)
        self.writer.sync()
        return self.scn

    def batch(self, *bodies: Body, events: tuple[SystemEvent, ...] = ()) -> int:
        """Append one transaction of ready bodies and events, which have the SCN of `following`."""
        self._next()
        self._append(bodies, events)
        self.writer.sync()
        return self.scn

    @property
    def following(self) -> int:
        """SCN that the next transaction will have."""
        return self.scn + 10

    def announce(
        self, schema: TableSchema, numbers: Mapping[str, int] | None = None, **further: object
    ) -> int:
        """Append a schema event, with the numbers of its columns if they are known, and return its SCN."""
        told = {"numbers": numbers} if numbers else {}
        payload = {"schema_id": self.registry.put(schema), **told, **further}
        return self.tell(SystemKind.SCHEMA, schema.table, **payload)

    def complete(self, schema: TableSchema) -> int:
        """Append the end of a table's dump and return its SCN."""
        return self._system(schema, SystemKind.DUMP_COMPLETE)

    def gap(self, schema: TableSchema) -> int:
        """Append a gap of a table and return its SCN."""
        return self._system(schema, SystemKind.GAP)

    def tell(self, kind: SystemKind, table: TableId, **payload: Any) -> int:
        """Append one system event and return its SCN; the end of a dump says where its rows begin."""
        scn = self._next()
        if kind is SystemKind.DUMP_COMPLETE:
            payload.setdefault("first_scn", self._read_from.pop(table, scn))
        self._append((), (SystemEvent(scn, 0, kind, table, payload),))
        self.writer.sync()
        return self.scn

    def _system(self, schema: TableSchema, kind: SystemKind) -> int:
        return self.tell(kind, schema.table, schema_id=self.registry.put(schema), request_id="1")

    def _next(self) -> int:
        self.scn += 10
        return self.scn

    def _append(
        self,
        bodies: tuple[Body, ...],
        events: tuple[SystemEvent, ...],
        origin: int = ORIGIN_LOG,
    ) -> None:
        changes = sum(body.batch.num_rows for body in bodies) + len(events)
        at_us = self.commit_us(self.scn)
        index = transaction_index([(self.scn, at_us, self.scn, changes, origin, 1)])
        self.writer.append(Block(index, bodies, events, self.scn))


class HasLog(Protocol):
    """Whatever has a change log of its own."""

    @property
    def log(self) -> Log:
        """The log."""
        ...


B = TypeVar("B", bound=HasLog)


def lent(bench: B) -> Iterator[B]:
    """Yield a bench to a test, for a fixture; no failpoint is armed and its log is closed behind it."""
    yield bench
    disarm()
    bench.log.writer.close()


def model(schema: TableSchema, *histories: str) -> Counter[tuple[object, ...]]:
    """Return what the rows of all histories, folded at once, leave of an empty table."""
    table = ModelTable(schema)
    parsed = parse_history(" | ".join(histories))
    folded = fold(schema, [change_batch(schema, parsed.rows)], parsed.truncates)
    table.apply(folded, 1, complete=True)
    return table.content()

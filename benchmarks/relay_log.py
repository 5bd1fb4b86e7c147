"""The change logs of the relay benchmark: rows of 2.5 KB, one transaction each, as the Databus paper has them."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.changelog.config import ChangeLogSettings
from headrace.changelog.writer import ChangeLogWriter
from headrace.model.block import ORIGIN_LOG, TRANSACTION_DTYPE, Block, Body
from headrace.model.change import INSERT, change_schema
from headrace.model.schema import Column, KeyCheck, TableId, TableSchema
from headrace.registry.file import FileRegistry

__all__ = ["EVENT_BYTES", "SCHEMA", "EventLog", "Events"]

EVENT_BYTES = 2_500
"""Of one event, nearly all of it in one column that does not compress."""

SCHEMA = TableSchema(
    TableId("bench", "event"),
    (
        Column("id", pa.int64(), "bigint", nullable=False),
        Column("at_us", pa.int64(), "bigint", nullable=False),
        Column("body", pa.binary(), "bytea", nullable=False),
    ),
    ("id",),
    KeyCheck.IMMEDIATE,
)

_META_BYTES = 64
_BODIES = 64
_SETTINGS = ChangeLogSettings(budget_bytes=2**36, retain_bytes=2**36)


class Events(NamedTuple):
    """Events that follow each other.

    Attributes:
        rows: as a block has them.
        transactions: likewise.
    """

    rows: pa.RecordBatch
    transactions: npt.NDArray[np.void]

    def part(self, start: int, stop: int) -> Events:
        """Return those from one place up to another."""
        return Events(self.rows.slice(start, stop - start), self.transactions[start:stop])


class EventLog:
    """Writes events into a change log of its own.

    Args:
        folder: of the log; its table versions lie in ``schemas`` inside.
        seed: of the events' bodies.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._writer = ChangeLogWriter.open(folder, _SETTINGS)
        self._schema_id = FileRegistry(folder / "schemas").put(SCHEMA)
        drawn = np.random.default_rng(seed).bytes((EVENT_BYTES - _META_BYTES) * _BODIES)
        size = EVENT_BYTES - _META_BYTES
        self._bodies = pa.array([drawn[at * size : (at + 1) * size] for at in range(_BODIES)])
        self.events = 0

    def made(self, at_us: npt.NDArray[np.int64]) -> Events:
        """Return the next events, one per time, as they will be written; the n-th of the log has ``id`` and SCN n."""
        count = len(at_us)
        ids = np.arange(self.events + 1, self.events + count + 1)
        columns = {
            "_scn": pa.array(ids),
            "_ord": pa.array(np.zeros(count, np.int32)),
            "_op": pa.repeat(INSERT, count),
            "_missing": pa.nulls(count, pa.binary()),
            "id": pa.array(ids),
            "at_us": pa.array(at_us),
            "body": self._bodies.take(pa.array(ids % _BODIES)),
        }
        schema = change_schema(SCHEMA)
        rows = pa.record_batch(
            [columns[name].cast(schema.field(name).type) for name in schema.names], schema
        )
        index = np.zeros(count, TRANSACTION_DTYPE)
        index["scn"], index["commit_us"] = ids, at_us
        index["changes"], index["origin"], index["last_piece"] = 1, ORIGIN_LOG, 1
        return Events(rows, index)

    def append(self, events: Events) -> None:
        """Write the next events and make them readable."""
        body = Body(self._schema_id, SCHEMA.table, events.rows)
        self.events += len(events.transactions)
        self._writer.append(Block(events.transactions, (body,), (), self.events))
        self._writer.sync()

    def fill(self, size: int, per_block: int) -> None:
        """Write about ``size`` bytes in blocks of so many events."""
        while self.events * EVENT_BYTES < size:
            self.append(self.made(np.zeros(per_block, np.int64)))

    def close(self) -> None:
        """Let the log go."""
        self._writer.close()

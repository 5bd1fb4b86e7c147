"""What a consumer is told, and what it answers.

In order: ``on_start``, then any number of windows, then ``on_stop``. A window is ``on_start_window``, any number of
sources and system events, ``on_end_window``; a source is ``on_start_source``, its events or batches, ``on_end_source``.
``on_checkpoint`` comes between windows, and between sources inside a huge one if that was asked for. ``on_rollback``
may come anywhere and ends the open window: the next is told from its start, or from the checkpoint inside it.

Inside a window the changes of one table come together, in their order, as far as no system event stands between;
`Event.ord` tells their order among tables.

Source: Databus, section 3.3 (the callbacks and their order).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa

from headrace.model.block import SystemEvent
from headrace.model.schema import TableId, TableSchema
from headrace.wire.place import Place

__all__ = ["Batch", "Consumer", "Event", "Result", "Window"]


class Result(Enum):
    """What a callback may return; None stands for `SUCCESS`."""

    SUCCESS = "success"
    CHECKPOINT = "checkpoint"
    """Done, and a checkpoint is wanted here. Counts at the end of a window."""
    SKIP_CHECKPOINT = "skip checkpoint"
    """Done, and no checkpoint shall be stored here: the consumer did, or will do so later."""
    ERROR = "error"
    """Failed; deliver again from the last checkpoint."""
    ERROR_FATAL = "fatal error"
    """Failed, and delivering again is of no use: the subscription ends."""


@dataclass(frozen=True, slots=True)
class Window:
    """One transaction of the source, or, when windows are merged, several that follow each other.

    Attributes:
        source: whose.
        scn: of the transaction; of the last one when several are merged.
        first_scn: of the first one.
        transactions: how many they are, 1 unless windows are merged.
        commit_us: commit time at the source, microseconds since 1970 UTC; of the last one.
        xid: the source's own transaction id; 0 when unknown, for a chunk window, and for several.
        origin: ``log``, or ``select`` for rows of a chunk.
        resumed_after: ordinal up to which this window was processed before, when it is told from a checkpoint inside
            it; -1 when it is told whole.
    """

    source: str
    scn: int
    first_scn: int
    transactions: int
    commit_us: int
    xid: int
    origin: str
    resumed_after: int = -1

    @property
    def place(self) -> Place:
        """Where a consumer stands that has processed all of this window: what to store with its data."""
        return Place(self.scn)


class Event(NamedTuple):
    """One change. An update whose two images came is one event.

    Attributes:
        scn: of the transaction.
        ord: place inside it; of the new image for an update of two.
        op: ``+I``, ``+U``, ``=U``, ``-D`` or ``+R``.
        table: whose row.
        key: values of the key columns, in the key's order; empty for a table without a key.
        row: value by column: the row behind the change, of ``-D`` the row ahead of it. Columns that were
            not sent are left out.
        before: of ``+U`` the row ahead of it, columns that were not sent left out; None for every other.
        missing: columns of ``row`` that the source did not send: neither a value nor null.
        value: the row as the pydantic model that was asked for; None without one.
    """

    scn: int
    ord: int
    op: str
    table: TableId
    key: tuple[Any, ...]
    row: dict[str, Any]
    before: dict[str, Any] | None = None
    missing: frozenset[str] = frozenset()
    value: Any = None

    @property
    def place(self) -> Place:
        """Where a consumer stands that has processed everything up to this event of its table."""
        return Place(self.scn, self.ord)


@dataclass(frozen=True, slots=True)
class Batch:
    """Changes of one table inside one window, in ``(scn, ord)`` order.

    Attributes:
        table: whose rows.
        schema: version of the table that the rows have.
        rows: the meta columns ``_scn, _ord, _op, _missing`` (`headrace.model.change`), then the table's own, as the
            source sent them or as the consumer asked for. Views of what was received: whoever keeps a few rows for
            long copies them.
        whole: whether they are all rows of the table in what was received together.
    """

    table: TableId
    schema: TableSchema
    rows: pa.RecordBatch
    whole: bool = False


class Consumer:
    """What output is written with: override what is needed. Every callback may return a `Result`, and may raise.

    An exception, ``Result.ERROR`` and a callback that took longer than its budget mean the same: `on_rollback`, and
    everything behind the last checkpoint comes once more. All callbacks come from one thread, unless workers were
    asked for: then those of events come from several, unless the consumer is one that takes them ``in_order``.

    Attributes:
        in_order: take events one after the other, in the order of the stream, however many workers were asked for.
    """

    in_order: ClassVar[bool] = False

    def on_start(self) -> Result | None:
        """The subscription begins; nothing was delivered yet."""

    def on_stop(self) -> Result | None:
        """The subscription ends; the last callback. What it returns or raises changes nothing any more."""

    def on_start_window(self, window: Window) -> Result | None:
        """A window begins."""

    def on_start_source(self, table: TableSchema) -> Result | None:
        """Changes of one table begin; ``table`` is the version of it that they have."""

    def on_data_event(self, event: Event) -> Result | None:
        """One change. Not called when `on_data_batch` is overridden."""

    def on_data_batch(self, batch: Batch) -> Result | None:
        """Several changes as columns; whoever overrides this gets no events."""

    def on_system_event(self, event: SystemEvent) -> Result | None:
        """A truncate, another shape, the end of a dump, …, at its place between the changes of the window."""

    def on_end_source(self, table: TableSchema) -> Result | None:
        """The changes of a table are over, for now."""

    def on_end_window(self, window: Window) -> Result | None:
        """The window is over. Whoever returns success says that it may be forgotten."""

    def on_checkpoint(self, place: Place) -> Result | None:
        """Everything up to ``place`` is about to be remembered as processed: make it durable, or refuse.

        ``Result.SKIP_CHECKPOINT`` refuses; the place is offered again later.
        """

    def on_rollback(self, place: Place) -> Result | None:
        """Everything behind ``place`` will come again: forget what was not made durable."""

    def on_error(self, error: Exception) -> Result | None:
        """The subscription was suspended, or ends for good; ``error`` says why."""

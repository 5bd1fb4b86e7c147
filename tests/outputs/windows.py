"""Windows as a subscription tells them: the callbacks of a consumer, in their order."""

from __future__ import annotations

from collections.abc import Sequence

from headrace.client import Consumer, Event, Result, Window
from headrace.model.block import SystemEvent
from headrace.model.schema import TableSchema
from headrace.testing.notation import table_of
from headrace.wire.place import Place

__all__ = ["TABLE", "change", "deliver", "insert", "window_of"]

TABLE = table_of(3, name="orders")


def insert(scn: int, order: int, key: int, text: str | None = "a") -> Event:
    """Return an insert."""
    row = {"k": key, "c1": text, "c2": None}
    return Event(scn, order, "+I", TABLE.table, (key,), row)


def change(scn: int, order: int, op: str, **row: object) -> Event:
    """Return a change of `TABLE` with the given cells; the others were not sent."""
    missing = frozenset(TABLE.names) - row.keys()
    return Event(scn, order, op, TABLE.table, (row["k"],), row, None, missing)


def window_of(scn: int) -> Window:
    """Return a window of one transaction."""
    return Window("shop", scn, scn, 1, 1_700_000_000_000_000 + scn, 7, "log")


def deliver(
    consumer: Consumer,
    scn: int,
    events: Sequence[Event | SystemEvent],
    *,
    checkpoint: bool = True,
    table: TableSchema = TABLE,
) -> list[Result]:
    """Tell one window and, unless it is refused, a checkpoint behind it; return what was answered beside success."""
    window = window_of(scn)
    answers = [consumer.on_start_window(window)]
    for event in events:
        if isinstance(event, SystemEvent):
            answers.append(consumer.on_system_event(event))
        else:
            answers.append(consumer.on_start_source(table))
            answers.append(consumer.on_data_event(event))
            answers.append(consumer.on_end_source(table))
    answers.append(consumer.on_end_window(window))
    if checkpoint:
        answers.append(consumer.on_checkpoint(Place(scn)))
    return [answer for answer in answers if answer not in (None, Result.SUCCESS)]

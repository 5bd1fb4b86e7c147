"""Tables that are queues: the application inserts events into them, and takes them back to nothing.

An event is a row as it was inserted. It comes in the order in which transactions become visible, as everything here
does; what becomes of the row afterwards is no change of it. Delivered rows may be removed by us: once they are durable
in the change log, and before our place says so. Whoever dies in between finds them again among the changes, and removes
them then.
"""

from __future__ import annotations

import collections
from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from headrace.errors import SourceError
from headrace.model.block import Block
from headrace.model.change import INSERT
from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import Finding, SchemaStore
from headrace.sources.trigger.settings import TriggerSettings

__all__ = ["Delivered", "not_removable", "refuse_queues"]

_AT_ONCE = 500

Keys = Sequence[tuple[str, ...]]


class Delivered:
    """Remembers the rows of queues that were handed over, until they are delivered; then removes them.

    Args:
        settings: which tables are queues.
        schemas: where versions are kept.
        render: returns each row's key as the database renders it.
        remove: removes the rows of some keys that are there.
    """

    def __init__(
        self,
        settings: TriggerSettings,
        schemas: SchemaStore,
        render: Callable[[TableSchema, pa.RecordBatch], list[tuple[str, ...]]],
        remove: Callable[[TableSchema, Keys], None],
    ) -> None:
        self._settings = settings
        self._schemas = schemas
        self._render = render
        self._remove = remove
        self._held: collections.deque[tuple[int, TableSchema, Keys]] = collections.deque()

    def take(self, block: Block) -> None:
        """Remember what is handed over."""
        for body in block.bodies:
            if not self._settings.removes(body.table):
                continue
            schema = self._schemas.get(body.schema_id)
            rows = body.batch.filter(pc.equal(body.batch.column("_op"), INSERT))
            if rows.num_rows:
                last = int(pc.max(rows.column("_scn")).as_py())
                self._held.append((last, schema, self._render(schema, rows)))

    def delivered(self, scn: int) -> None:
        """Remove what is durable up to an SCN.

        Raises:
            SourceError: the database refuses it.
            SourceUnavailable: the connection is gone; what was not removed comes again.
        """
        while self._held and self._held[0][0] <= scn:
            _, schema, keys = self._held[0]
            for at in range(0, len(keys), _AT_ONCE):
                self._remove(schema, keys[at : at + _AT_ONCE])
            self._held.popleft()


def not_removable(table: TableId, *, has_key: bool, may: bool, grant: str) -> Finding | None:
    """Return why delivered rows of a queue cannot be removed, None when they can.

    Args:
        table: the queue.
        has_key: whether it has a key.
        may: whether we may delete from it.
        grant: what would let us.
    """
    if has_key and may:
        return None
    why = "we may not delete from it" if has_key else "it has no primary key to find them by"
    remedy = grant if has_key else "Give it one"
    return Finding(
        "queue-not-removable",
        f"Delivered rows of the queue {table} cannot be removed: {why}.",
        f"{remedy}; or source.queue_rows: keep.",
        table=str(table),
    )


def refuse_queues(settings: TriggerSettings, tables: Sequence[TableId]) -> None:
    """Refuse to compare queues with their copies.

    Raises:
        SourceError: one of the tables is a queue.
    """
    if queues := [table for table in tables if settings.is_queue(table)]:
        raise SourceError(
            f"{', '.join(map(str, queues))}: a queue's copy has every event, and the table only those that nobody "
            "removed yet. There is nothing to compare.",
            next_step="name the other tables.",
        )

"""Which version each table has at the present place of the log, and which transaction said so.

In: schema events of the log, and shapes of chunks that are emitted. Out: whether a read is of a shape that the log
has left behind since. Pure; used on the log thread alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.model.block import SystemEvent
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import YES, Visibility
from headrace.model.succession import NO_NUMBERS, Numbers

__all__ = ["TableVersions"]


@dataclass(frozen=True, slots=True)
class _Told:
    """The last word on a table.

    Attributes:
        transaction: xid and SCN of who said it in the log, None for a chunk of ours.
    """

    schema_id: int
    numbers: Numbers
    transaction: tuple[int, int] | None


class TableVersions:
    """The last word on each table."""

    def __init__(self) -> None:
        self._told: dict[TableId, _Told] = {}

    def tell(self, event: SystemEvent, index: npt.NDArray[np.void]) -> bool:
        """Take note of a schema event of the log; return whether it says another version than the last one.

        Args:
            event: of kind `SystemKind.SCHEMA`.
            index: transactions of its block.
        """
        payload: dict[str, Any] = event.payload
        before = self._told.get(event.table)
        xid = int(index["xid"][np.searchsorted(index["scn"], event.scn)])
        numbers = payload.get("numbers", NO_NUMBERS)
        told = _Told(payload["schema_id"], numbers, (xid, event.scn))
        self._told[event.table] = told
        return before is None or before.schema_id != told.schema_id

    def adopt(self, schema: TableSchema) -> None:
        """Take note of a chunk's shape: what has seen the table so is not behind the log."""
        self._told[schema.table] = _Told(schema.schema_id, schema.numbers, None)

    def tells(self, schema: TableSchema) -> bool:
        """Return whether this version, and which of its columns is which, was said last."""
        told = self._told.get(schema.table)
        return told is not None and _is(told, schema)

    def before(self, schema: TableSchema) -> dict[str, Any]:
        """Return what an event that tells this version says of the one told before it, empty where nobody knows."""
        told = self._told.get(schema.table)
        if told is None or not told.numbers:
            return {}
        return {"was": {"schema_id": told.schema_id, "numbers": dict(told.numbers)}}

    def has_left(self, schema: TableSchema, saw: Visibility) -> bool:
        """Return whether the log has gone on from the shape in which a read found a table.

        It has when it speaks of another one in a transaction that the read did not surely see, before the read began
        or while it went on: a commit is in the log before others see it. A read that saw it and found another shape
        is ahead: the log tells of a new shape with the table's next change, or not at all.

        Args:
            schema: the shape that was read.
            saw: what the read saw.
        """
        told = self._told.get(schema.table)
        if told is None or told.transaction is None or _is(told, schema):
            return False
        xid, scn = told.transaction
        return int(saw.sees(np.array([xid]), np.array([scn]))[0]) != YES


def _is(told: _Told, schema: TableSchema) -> bool:
    # A column that was dropped and made anew under its old name is another one, and the version's id is the same.
    return told.schema_id == schema.schema_id and told.numbers == schema.numbers

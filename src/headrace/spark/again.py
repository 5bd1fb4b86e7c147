"""Tables that are copied again beside themselves: begun, gone on with after a restart or a failure, and ended.

A copy is whole at the end of the dump that was asked for when it began. Any other dump may have read rows from before
the change that the copy is for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Protocol

from headrace.lake.copies import Copy, CopyNeeded
from headrace.model.block import SystemEvent
from headrace.model.schema import TableId, TableSchema
from headrace.spark.targets.base import Copies, TargetState

__all__ = ["Again", "Ask", "Copied"]

_LOG = logging.getLogger(__name__)

Ask = Callable[[TableId, str], str]
"""Asks for a dump of a table, given the request made before, empty for none; returns the request that comes."""


class Copied(Protocol):
    """What is known of a table while the job runs, as far as it matters here."""

    id: TableId
    complete_scn: int | None
    version: int
    left: str
    copy: Copy | None


class Again:
    """The copies of one job.

    Args:
        copies: of the target, None where it has none.
        ask: asks for dumps, None where nobody can be asked.
    """

    def __init__(self, copies: Copies | None, ask: Ask | None) -> None:
        self._copies = copies
        self._ask = ask

    def begin(
        self, table: Copied, columns: TableSchema, after_scn: int, needed: CopyNeeded
    ) -> TargetState:
        """Begin a copy of a table, which leaves the frontier until that is whole.

        Args:
            table: the table.
            columns: of the copy.
            after_scn: position behind which it begins.
            needed: what takes it.

        Raises:
            CopyNeeded: nobody can be asked for a dump.
        """
        if self._copies is None or self._ask is None:
            raise needed
        request = self._ask(table.id, "")
        state = self._copies.begin_copy(columns, Copy(request, after_scn))
        table.copy, table.complete_scn = state.copy, None
        _LOG.warning("%s is copied again: %s", table.id, needed.message)
        return state

    def resume(self, table: Copied) -> None:
        """Go on with a table's copy after a restart or a failure; its dump may have been given up meanwhile."""
        if table.copy is None:
            return
        if (table.complete_scn or 0) <= table.copy.after_scn:
            table.complete_scn = None
        if self._copies is None or self._ask is None or table.complete_scn or table.left:
            return
        request = self._ask(table.id, table.copy.request)
        if request != table.copy.request:
            table.copy = self._copies.ask_again(table.id, request).copy

    @staticmethod
    def completes(table: Copied, event: SystemEvent) -> bool:
        """Whether the end of a dump makes a table complete."""
        return table.copy is None or event.payload.get("request_id") == table.copy.request

    def end(self, table: Copied) -> None:
        """Put the copy of a table in its place if it is whole; errors as of `Copies.end_copy`."""
        if self._copies is None or table.copy is None or table.complete_scn is None:
            return
        state = self._copies.end_copy(table.id)
        table.copy, table.version = None, state.version

"""Dumps that the target needs: of a table that it copies again beside the old one."""

from __future__ import annotations

import contextlib
from pathlib import Path

from headrace.model.schema import TableId
from headrace.state.records import Cause, RequestState, Scope
from headrace.state.store import StateStore

__all__ = ["ask_for_copy"]

_COMES = (
    RequestState.QUEUED,
    RequestState.ACTIVE,
    RequestState.PAUSED,
    RequestState.COMPLETED,
)


def ask_for_copy(database: Path, table: TableId, before: str) -> str:
    """Return the request of a dump of a table that has not begun yet, or of the one that was asked for before.

    Args:
        database: of the state.
        table: the whole of it.
        before: the request that was asked for, empty for none; another takes its place when it will not come any more.
    """
    with contextlib.closing(StateStore(database)) as store:
        held = store.request(before) if before else None
        if held is not None and held.state in _COMES:
            return before
        for request in store.requests():
            whole = (request.scope, request.table) == (Scope.TABLE, table)
            # That of an adopted table reads no row.
            waits = request.state is RequestState.QUEUED and request.cause is not Cause.ADOPTED
            if whole and waits and not store.progress(request.request_id):
                return request.request_id
        return store.submit(Scope.TABLE, table, cause=Cause.RETYPED)

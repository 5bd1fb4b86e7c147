"""The dump that a table's new copy waits for is asked for once, and again when it will not come."""

from __future__ import annotations

from pathlib import Path

from headrace.model.schema import TableId
from headrace.replicator.copies import ask_for_copy
from headrace.state.records import Cause, DumpProgress, RequestState, Scope
from headrace.state.store import StateStore

ORDERS, ITEMS = TableId("public", "orders"), TableId("public", "items")


def test_a_dump_is_asked_for_once_and_again_when_it_was_given_up(tmp_path: Path) -> None:
    database = tmp_path / "state.db"
    store = StateStore(database)
    asked = ask_for_copy(database, ORDERS, "")
    request = store.request(asked)
    assert request is not None
    assert (request.scope, request.table, request.cause) == (Scope.TABLE, ORDERS, Cause.RETYPED)
    # Nobody has begun with it, so it is as good as another.
    assert ask_for_copy(database, ORDERS, "") == asked
    assert ask_for_copy(database, ITEMS, "") != asked
    assert ask_for_copy(database, ORDERS, asked) == asked
    # One that has begun may have read rows from before the change.
    store.write([lambda w: w.put_progress(DumpProgress(asked, ORDERS, state="copying"), 0)])
    second = ask_for_copy(database, ORDERS, "")
    assert second != asked
    assert ask_for_copy(database, ORDERS, asked) == asked
    store.write(
        [lambda w: w.request_state(asked, RequestState.CANCELLED, since=(RequestState.QUEUED,))]
    )
    assert ask_for_copy(database, ORDERS, asked) == second
    store.close()

"""One of a thing is told as one."""

from __future__ import annotations

import pytest

from headrace.cli.behind_view import behind_line
from headrace.cli.dump_view import outcome, request_view
from headrace.cli.output import console
from headrace.model.schema import TableId
from headrace.plural import counted
from headrace.replicator.requests import Shown
from headrace.state.records import DumpProgress, DumpRequest, RequestState, Scope

TABLE = TableId("public", "orders")


@pytest.mark.parametrize(
    ("number", "said"), [(0, "0 rows"), (1, "1 row"), (2, "2 rows"), (1234, "1,234 rows")]
)
def test_a_number_of_things_is_told_with_its_word(number: int, said: str) -> None:
    assert counted(number, "row") == said


@pytest.mark.parametrize(
    ("number", "lag", "rows", "keys"),
    [
        (1, "1 change", "1 row is in", "1 key of"),
        (2, "2 changes", "2 rows are in", "2 keys of"),
    ],
)
def test_what_is_told_of_one_is_not_told_as_of_many(
    number: int, lag: str, rows: str, keys: str
) -> None:
    assert behind_line(0.0, number, [], is_heard=True).endswith(f", {lag}")
    given = tuple((str(key),) for key in range(number))
    state = RequestState.COMPLETED
    request = DumpRequest("r1", Scope.PRIMARY_KEYS, TABLE, given, (), state, "")
    shown = Shown(request, (DumpProgress("r1", TABLE, "done", rows_emitted=number),))
    assert outcome(shown) == f"completed: {rows} the change log"
    with console.capture() as captured:
        console.print(request_view(shown))
    assert keys in captured.get()

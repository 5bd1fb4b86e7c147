"""Random batches through the statements of every dialect, on real servers, against the truth."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.lake.sql.session import Warehouse
from tests.histories import TargetHistory
from tests.lake.sql.warehouses import MIRRORS, apply, content, counted, made
from tests.requirements import req

pytestmark = pytest.mark.postgres

MUST_HAPPEN = (
    "key changes with missing columns",
    "swaps",
    "deferred key shifts",
    "delete and re-insert",
    "keyless deletes and updates",
    "truncates",
)


@pytest.fixture(params=MIRRORS)
def warehouse(request: pytest.FixtureRequest, tmp_path: Path) -> Warehouse:
    return made(request.param, request, tmp_path)


def run_history(warehouse: Warehouse, seed: int) -> Counter[str]:
    """Take one history through a warehouse and compare all tables at its end."""
    history = TargetHistory(seed, f"h{seed}_")
    begin = 0
    for end in history.ends:
        for piece in history.pieces(begin, end):
            apply(warehouse, piece.schema, piece.folded, end)
        begin = end
    for schema, rows in history.truth().items():
        if history.touches(schema):
            assert counted(content(warehouse, schema)) == rows, (seed, schema.table)
    return history.coverage


@req("C50")
def test_random_histories_leave_what_the_source_has(warehouse: Warehouse) -> None:
    coverage: Counter[str] = Counter()
    for seed in range(3):
        coverage += run_history(warehouse, seed)
    assert [name for name in MUST_HAPPEN if not coverage[name]] == []


@req("C50")
@pytest.mark.long
def test_three_hundred_random_histories_leave_what_the_source_has(warehouse: Warehouse) -> None:
    for seed in range(300):
        run_history(warehouse, seed)

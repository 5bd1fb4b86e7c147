"""How far a table is decides which commits it takes."""

from __future__ import annotations

import pytest

from headrace.errors import TargetConflict
from headrace.lake.ledger import check_ahead
from headrace.model.schema import TableId

TABLE = TableId("shop", "orders")


def test_a_commit_that_brings_a_table_no_further_is_refused() -> None:
    check_ahead(TABLE, 6, 7)
    for applied in (7, 8):
        with pytest.raises(
            TargetConflict, match=f"shop.orders is at SCN {applied} before a commit of SCN 7"
        ):
            check_ahead(TABLE, applied, 7)

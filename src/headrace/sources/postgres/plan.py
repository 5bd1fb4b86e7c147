"""Whether the server can read chunks as ranges of the key's index, or sorts the table for each of them.

In: the catalog's facts about a table. Out: a finding. EXPLAIN plans and reads nothing of the table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from headrace.sources.base import Finding, Severity
from headrace.sources.postgres.catalog import TableFacts, TypeCache, describe
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.copy_binary import selected_columns
from headrace.sources.postgres.keyset import read_keyset, relation_sql

__all__ = ["check_plan"]

_BIG_ROWS = 100_000
"""A table with fewer rows is sorted in no time, and the planner often prefers that."""
_PAGE_ROWS = 1_000
_SORTING = frozenset({"Sort", "Incremental Sort", "Seq Scan"})


def check_plan(session: Session, types: TypeCache, facts: TableFacts) -> Finding | None:
    """Return a finding about a table whose first chunk would not be a range scan; None for small tables."""
    known_small = 0 < facts.rows < _BIG_ROWS and not facts.partitioned
    if not facts.identity.index or known_small:
        return None
    keyset = read_keyset(session, facts.identity.index)
    selected = selected_columns(describe(session, types, facts))
    page = keyset.page(relation_sql(facts), selected, None, None, _PAGE_ROWS)
    (top,) = json.loads(session.value(f"EXPLAIN (FORMAT JSON) {page}"))
    nodes = [
        node
        for node in _nodes(top["Plan"])
        if node["Node Type"] in _SORTING and node["Plan Rows"] >= _BIG_ROWS
    ]
    if not nodes:
        return None
    kinds = " and ".join(sorted({node["Node Type"] for node in nodes}))
    rows = max(node["Plan Rows"] for node in nodes)
    relation = relation_sql(facts).removeprefix("ONLY ")
    return Finding(
        "no-range-scan",
        f"Each chunk of {facts.table} would read about {rows:.0f} rows ({kinds}), "
        "because the planner does not use the index of its key.",
        f"ANALYZE {relation}; and see that enable_indexscan and random_page_cost let the role use "
        f"indexes; or CREATE INDEX CONCURRENTLY ON {relation} ({keyset.index_order}); "
        "EXPLAIN shows which of them helps.",
        Severity.WARNING,
        table=str(facts.table),
    )


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)

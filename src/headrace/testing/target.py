"""A target in memory that applies folded changes by the decision table, and keeps its ledger with its rows."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pyarrow as pa

from headrace.errors import MissingBase, NegativeCount
from headrace.fold.form import ALL_DEAD, DEAD, NET, origin_name
from headrace.model.change import missing_matrix
from headrace.model.schema import KeyCheck, TableSchema

__all__ = ["ModelTable"]

Cells = tuple[Any, ...]


class ModelTable:
    """One table: ``rows`` by key (or counted, without a key) and the SCN they reflect.

    Source: docs/paper_map.md, decision table of the apply step.
    """

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.rows: dict[Cells, Cells] = {}
        self.counts: Counter[Cells] = Counter()
        self.applied_scn = 0

    def content(self) -> Counter[Cells]:
        """Return the rows as a multiset."""
        if self.schema.key_check is KeyCheck.NONE:
            return +self.counts
        return Counter(self.rows.values())

    def apply(self, folded: pa.Table, scn: int, *, complete: bool) -> None:
        """Commit a folded batch and the SCN it reaches, at once.

        Args:
            folded: of changes above `applied_scn` only.
            scn: the batch's end.
            complete: whether the table's dump lies before the batch.

        Raises:
            MissingBase: a complete table lacks the row that a change patches.
            NegativeCount: a keyless row is removed more often than it is held.
        """
        if self.schema.key_check is KeyCheck.NONE:
            self._apply_counts(folded, complete)
        else:
            self._apply_rows(folded, complete)
        self.applied_scn = max(self.applied_scn, scn)

    def _apply_rows(self, folded: pa.Table, complete: bool) -> None:
        before = dict(self.rows)
        missing = missing_matrix(folded["_missing"].combine_chunks(), len(self.schema.columns))
        for number, row in enumerate(folded.to_pylist()):
            if row["_effect"] == ALL_DEAD:
                self.rows.clear()
                continue
            key = tuple(row[name] for name in self.schema.key)
            self.rows.pop(key, None)
            if row["_effect"] == DEAD:
                continue
            cells = [row[name] for name in self.schema.names]
            if missing[number].any():
                origin = tuple(row[origin_name(name)] for name in self.schema.key)
                base = None if row["_hole"] else before.get(origin)
                if base is None:
                    if complete:
                        raise MissingBase(str(self.schema.table), "(model)", [])
                    continue
                for index in missing[number].nonzero()[0]:
                    cells[index] = base[index]
            self.rows[key] = tuple(cells)

    def _apply_counts(self, folded: pa.Table, complete: bool) -> None:
        for row in folded.to_pylist():
            if row["_effect"] == ALL_DEAD:
                self.counts.clear()
            elif row["_effect"] == NET:
                cells = tuple(row[name] for name in self.schema.names)
                self.counts[cells] += row["_count"]
        if complete and any(count < 0 for count in self.counts.values()):
            raise NegativeCount(f"{self.schema.table} would hold a row fewer than zero times.")

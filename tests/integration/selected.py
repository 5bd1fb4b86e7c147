"""What the change log says came from selects, and what from the log."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from headrace.changelog import ChangeLogReader
from headrace.model.block import ORIGIN_LOG

__all__ = ["Row", "rows_by_origin"]

Row = tuple[str, str, tuple[object, ...]]
"""Table, operation and the values of its columns."""


def rows_by_origin(folder: Path, after_scn: int = 0) -> tuple[Counter[Row], Counter[Row]]:
    """Return the rows of log windows and those of chunk windows, of transactions above an SCN."""
    log: Counter[Row] = Counter()
    selected: Counter[Row] = Counter()
    for block in ChangeLogReader(folder / "changelog").blocks(after_scn):
        logged = {int(e["scn"]) for e in block.index if e["origin"] == ORIGIN_LOG}
        for body in block.bodies:
            for row in body.batch.to_pylist():
                if row["_scn"] > after_scn:
                    values = tuple(v for name, v in row.items() if not name.startswith("_"))
                    found = log if row["_scn"] in logged else selected
                    found[(str(body.table), row["_op"], values)] += 1
    return log, selected

"""What the change log says came from selects, and what from the log."""

from __future__ import annotations

from collections import Counter
from itertools import groupby
from pathlib import Path

from headrace.changelog import ChangeLogReader
from headrace.model.block import ORIGIN_LOG, ORIGIN_SELECT

__all__ = ["Row", "rows_by_origin", "tables_in_turn"]

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


def tables_in_turn(folder: Path, after_scn: int = 0) -> list[str]:
    """Return the tables that chunk windows above an SCN read, in the order of these windows, neighbours once."""
    windows: set[tuple[int, str]] = set()
    for block in ChangeLogReader(folder / "changelog").blocks(after_scn):
        selected = {int(e["scn"]) for e in block.index if e["origin"] == ORIGIN_SELECT}
        for body in block.bodies:
            scns = set(body.batch.column("_scn").to_pylist()) & selected
            windows |= {(scn, str(body.table)) for scn in scns if scn > after_scn}
    return [table for table, _ in groupby(table for _, table in sorted(windows))]

"""How far each target table has been applied, read from the table itself.

Every commit carries a Delta ``txn`` action whose application id names pipeline and table and whose
version is the applied SCN, so that data and position become durable together.
"""

from __future__ import annotations

from pathlib import Path

from headrace.lake.delta_log import DeltaTable
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import TableId

__all__ = ["app_id", "applied_scn", "shown_version", "table_path"]


def app_id(pipeline: str, table: TableId | str) -> str:
    """Return the application id under which a pipeline commits to a table."""
    return f"headrace/{pipeline}/{table}"


def applied_scn(target: Snapshot | Path | None, pipeline: str, table: TableId | str) -> int:
    """Return the applied SCN of a table, 0 when nothing was applied.

    Args:
        target: a snapshot, the table's folder, or None when there is no table.
        pipeline: name of the pipeline.
        table: ``schema.table``.
    """
    if isinstance(target, Path):
        target = DeltaTable(target).latest()
    return 0 if target is None else target.transactions.get(app_id(pipeline, table), 0)


def table_path(lake: Path, table: TableId) -> Path:
    """Return the folder of a target table."""
    return lake / table.schema / table.name


def shown_version(folder: Path, app: str, version: int) -> int:
    """Return the newest version of a table at the position of ``version``; readers see what others committed since.

    Args:
        folder: of the table.
        app: application id under which positions are committed.
        version: one that a frontier names; without a position it stands for itself.
    """
    table = DeltaTable(folder)
    held = table.snapshot(version).transactions.get(app) if version >= 0 else None
    if held is None:
        return version
    later = range(table.latest_version() or version, version, -1)
    return next((v for v in later if table.snapshot(v).transactions.get(app) == held), version)

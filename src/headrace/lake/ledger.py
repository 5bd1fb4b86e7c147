"""How far each target table has been applied, read from the table itself.

Every commit carries a Delta ``txn`` action whose application id names pipeline and table and whose
version is the applied SCN, so that data and position become durable together. An applied SCN never goes back: a table
that was rewound counts under another application id from then on, and the highest numbered one is the one that holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import overload

from headrace.errors import IncompatibleSchemaChange, TargetConflict
from headrace.lake.commit import APPLICATIONS
from headrace.lake.delta_log import DeltaTable
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import TableId
from headrace.store import Location

__all__ = [
    "app_id",
    "applied_scn",
    "check_ahead",
    "check_folder",
    "identity",
    "rewinds",
    "shown_version",
    "table_path",
]


def app_id(pipeline: str, table: TableId | str, rewound: int = 0) -> str:
    """Return the application id under which a pipeline commits to a table that was rewound so often."""
    name = f"{APPLICATIONS}{pipeline}/{table}"
    return f"{name}#{rewound}" if rewound else name


def rewinds(held: Snapshot | None, pipeline: str, table: TableId | str) -> int:
    """Return the number of a table's newest rewind, 0 when there was none."""
    begin = f"{app_id(pipeline, table)}#"
    known = held.transactions if held else ()
    numbers = (name.removeprefix(begin) for name in known if name.startswith(begin))
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def identity(held: Snapshot | None, pipeline: str, table: TableId | str) -> str:
    """Return the application id under which a table counts now."""
    return app_id(pipeline, table, rewinds(held, pipeline, table))


def applied_scn(target: Snapshot | Location | None, pipeline: str, table: TableId | str) -> int:
    """Return the applied SCN of a table, 0 when nothing was applied.

    Args:
        target: a snapshot, the table's folder, or None when there is no table.
        pipeline: name of the pipeline.
        table: ``schema.table``.
    """
    held = target if target is None or isinstance(target, Snapshot) else DeltaTable(target).latest()
    return 0 if held is None else held.transactions.get(identity(held, pipeline, table), 0)


def check_ahead(table: TableId, applied: int, scn: int) -> None:
    """Return when a commit of ``scn`` brings a table further than it is.

    Raises:
        TargetConflict: another process of ours has brought it there, or beyond.
    """
    if applied >= scn:
        raise TargetConflict(
            f"The target table of {table} is at SCN {applied} before a commit of SCN {scn}.",
            next_step="let one headrace process write the table; the batch is tried again.",
        )


@overload
def table_path(lake: Path, table: TableId) -> Path: ...


@overload
def table_path(lake: Location, table: TableId) -> Location: ...


def table_path(lake: Location, table: TableId) -> Location:
    """Return the folder of a target table."""
    return lake / table.schema / table.name


def check_folder(table: TableId) -> None:
    """Refuse a table without a folder of its own.

    Raises:
        IncompatibleSchemaChange: its name leads elsewhere.
    """
    for part in (table.schema, table.name):
        if "/" in part or part in (".", ".."):
            raise IncompatibleSchemaChange(
                f"{table} cannot be copied: no folder can have its name.",
                next_step="rename it at the source, or leave it out: source.exclude.",
            )


def shown_version(lake: Location, pipeline: str, table: TableId, version: int) -> int:
    """Return the newest version of a table at the position of ``version``; readers see what others committed since.

    Args:
        lake: folder of all tables.
        pipeline: name under which positions are committed.
        table: whose version it is.
        version: one that a frontier names, negative for none; without a position it stands for itself.
    """
    delta = DeltaTable(table_path(lake, table))
    later = range(delta.latest_version() or 0, version, -1) if version >= 0 else ()
    held = applied_scn(delta.snapshot(version), pipeline, table) if later else 0
    if not held:
        return version
    return next(
        (v for v in later if applied_scn(delta.snapshot(v), pipeline, table) == held), version
    )

"""What is applied, at a start: the tables' own commits and the newest frontier, and where to go on.

A table without changes gets no commit, so its position may be told by the manifest alone; a table whose
commit came before a crash is told by its commit alone. Spark's checkpoint is never asked.

Source: docs/paper_map.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from headrace.errors import HeadraceError, TargetBehind
from headrace.lake.frontier import Manifest
from headrace.model.schema import TableId
from headrace.spark.stated import Stated
from headrace.spark.targets.base import TargetState

__all__ = ["Position", "Start", "position_of", "start_from"]


@dataclass(frozen=True, slots=True)
class Position:
    """What one table has at a start.

    Attributes:
        applied_scn: changes up to here are in the table.
        complete_scn: where its dump was complete, None when that is not known yet.
        state: what the target says, None when there is no table.
        problem: why the table cannot go on from what the target says, or the target cannot say; the rest is then the
            frontier's word, and the target may be ahead of it.
    """

    applied_scn: int
    complete_scn: int | None
    state: TargetState | None
    problem: HeadraceError | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """Where the job goes on.

    Attributes:
        from_scn: everything up to here is applied everywhere.
        first_end: highest applied position of any table: the first frontier is published there, none below.
        tables: position per table.
    """

    from_scn: int
    first_end: int
    tables: Mapping[TableId, Position]


def position_of(
    said: TargetState | HeadraceError | None,
    manifest: Manifest | None,
    table: TableId,
    oldest_scn: int,
) -> Position:
    """Return what one table has.

    Args:
        said: what the target says, or why it cannot.
        manifest: newest frontier.
        table: the table.
        oldest_scn: where the change log begins, 0 while it is whole.
    """
    at = _told(said, manifest, table, oldest_scn)
    if manifest is None or not at.applied_scn < oldest_scn <= manifest.scn:
        # Where the log begins behind the frontier, it lacks something for all tables.
        return at
    entry = manifest.tables.get(str(table))
    held = max(entry.applied_scn if entry else 0, oldest_scn)
    if at.state is None:
        # A dump has to fill it, and brings what the log lacks.
        return replace(at, applied_scn=held, complete_scn=None)
    return Position(
        held, at.complete_scn, None, TargetBehind(str(table), at.applied_scn, oldest_scn)
    )


def _told(
    said: TargetState | HeadraceError | None,
    manifest: Manifest | None,
    table: TableId,
    oldest_scn: int,
) -> Position:
    """Return what the target and the frontier say that one table has, wherever the change log begins."""
    entry = manifest.tables.get(str(table)) if manifest else None
    if isinstance(said, HeadraceError):
        told = entry.applied_scn if entry else manifest.scn if manifest else 0
        return Position(told, entry.complete_scn if entry else None, None, said)
    state = said
    committed = state.applied_scn if state else 0
    if entry is None:
        # Every table that the log spoke of up to the frontier is listed there.
        return Position(max(committed, manifest.scn if manifest else 0), None, state)
    if state is None and entry.version < 0:
        # The log has not spoken of it yet, or it could never be created.
        return Position(entry.applied_scn, entry.complete_scn, None)
    if state is None and (oldest_scn > 0 or entry.state == "failing"):
        # The table was taken away, and the log alone cannot fill another one: a dump has to.
        return Position(entry.applied_scn, None, None)
    if state is None or state.version < entry.version:
        # The table was taken away, or another one put in its place: only its own word counts.
        return Position(committed, entry.complete_scn, state)
    return Position(max(committed, entry.applied_scn), entry.complete_scn, state)


def start_from(
    stated: Stated, manifest: Manifest | None, tables: Iterable[TableId], oldest_scn: int
) -> Start:
    """Return where to go on.

    Args:
        stated: asked for each table.
        manifest: newest frontier, None before the first.
        tables: every table that may have been applied.
        oldest_scn: where the change log begins, 0 while it is whole.
    """
    found = {table: position_of(stated.of(table), manifest, table, oldest_scn) for table in tables}
    frontier = manifest.scn if manifest else 0
    applied = [position.applied_scn for position in found.values()]
    return Start(min([frontier, *applied]), max([frontier, *applied]), found)

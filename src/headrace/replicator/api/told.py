"""Replicators as values of an answer."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

from headrace.replicator.api.bodies import (
    Positions,
    ReplicatorDetail,
    ReplicatorShown,
    RoleShown,
    TableShown,
)
from headrace.replicator.control.pictures import Seen
from headrace.replicator.control.records import Deployed
from headrace.replicator.export import table_state
from headrace.replicator.picture import TablePicture
from headrace.replicator.seed.read import is_seed, read_seed

__all__ = ["detail", "shown"]


def shown(row: Deployed, seen: Seen | None) -> ReplicatorShown:
    """Return a replicator as the list has it."""
    return ReplicatorShown(**_of_both(row, seen))


def detail(row: Deployed, seen: Seen, pid: int | None, file: Path) -> ReplicatorDetail:
    """Return everything that is known of a replicator."""
    picture = seen.picture
    return ReplicatorDetail(
        **_of_both(row, seen),
        config=dict(row.config),
        file=str(file),
        pid=pid,
        positions=Positions(
            captured_scn=picture.captured_scn,
            covered_scn=picture.covered_scn,
            frontier_scn=picture.frontier_scn,
            frontier_changes=picture.frontier_changes,
        )
        if picture
        else None,
        log_bytes=picture.log_bytes if picture else 0,
        log_budget_bytes=picture.log_budget_bytes if picture else 0,
        log_paused=picture.log_paused if picture else False,
        slot=dict(picture.slot) if picture else {},
        resync=dict(picture.resync) if picture else {},
        held_up=picture.held_up if picture else "",
        objective=picture.objective.to_json() if picture and picture.objective else None,
        drops=picture.to_json()["drops"] if picture else None,
        roles={
            name: RoleShown(
                state=role.state.value,
                pid=role.pid,
                said_ms=role.updated_us // 1000,
                error=role.error,
            )
            for name, role in picture.roles.items()
        }
        if picture
        else {},
        table_list=[_table(table) for table in picture.tables] if picture else [],
        seen_error=seen.error,
    )


def _of_both(row: Deployed, seen: Seen | None) -> dict[str, Any]:
    picture = seen.picture if seen else None
    tables = picture.tables if picture else ()
    return {
        "namespace": row.namespace,
        "name": row.name,
        "generation": row.generation,
        "revision": row.revision,
        "state": row.state.value,
        "desired": row.desired.value,
        "reason": row.reason,
        "source": _kind(row, "source"),
        "target": _kind(row, "target"),
        "tables": dict(Counter(table_state(table.phase) for table in tables)),
        "lag_s": picture.lag_s if picture else None,
        "unheard": picture.unheard if picture else "",
        "lag_changes": picture.lag_changes if picture else 0,
        "created_ms": row.created_ms,
        "changed_ms": row.changed_ms,
        "seen_ms": seen.at_ms if seen and picture else None,
    }


def _kind(row: Deployed, side: str) -> str:
    config = read_seed(row.config, row.name).mapping if is_seed(row.config) else row.config
    section = config.get(side)
    return str(section.get("type", "")) if isinstance(section, dict) else ""


def _table(table: TablePicture) -> TableShown:
    return TableShown(
        name=table.name,
        state=table_state(table.phase),
        phase=table.phase,
        error=table.error,
        rows_read=table.rows_read,
        rows_estimated=table.rows_estimated,
        rows_per_s=table.rows_per_s,
        seconds_left=table.seconds_left,
        lag_changes=table.lag_changes,
        lag_s=table.lag_s,
        applied_scn=table.applied_scn,
    )

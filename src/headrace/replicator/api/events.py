"""What a replicator's tap told of late, as pages: single row changes, and how many there were.

Marks, chunks and requests are not among them; ``/tap/stream`` has everything. The end of the tap's files is read for
each answer, so an answer costs the same whatever the age of the capture.

Source: the reference implementation's HTTP control plane, ``/events``.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query

from headrace.errors import NotFound, TapNotEnabled
from headrace.observe.tap.events import Cdc, SinkEvent
from headrace.observe.tap.reading import Line, LineReader, parse
from headrace.replicator.api.bodies import NamespaceName, ReplicatorName
from headrace.replicator.api.dblog_bodies import Events, EventShown, EventSummary, StageCount
from headrace.replicator.api.dblog_told import RECENT_BYTES
from headrace.replicator.api.people import Person, looks
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.paths import StatePaths
from headrace.replicator.tap import tap_file

__all__ = ["events"]

_Looks = Annotated[Person, Depends(looks)]
_STAGES = {Cdc.kind: "SOURCE_LOG", SinkEvent.kind: "CHANGE_LOG"}
_OPERATIONS = ("INSERT", "UPDATE", "DELETE")


def events(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(
        prefix="/v1/contexts/{namespace}/replicators/{name}/api/v1/events", tags=["events"]
    )

    def told(namespace: str, name: str) -> list[Line]:
        row = plane.store.replicator(namespace, name)
        config = plane.folders.of(row).config(row)
        if not config.tap.enabled:
            raise TapNotEnabled(
                f"The tap of replicator {name} tells nothing.",
                next_step="deploy it with tap: {enabled: true}.",
            )
        found = []
        with contextlib.closing(
            LineReader(tap_file(StatePaths.of(config).tap), RECENT_BYTES)
        ) as reader:
            while lines := reader.read():
                found += [line for text in lines if (line := parse(text)) and _is_row(line)]
        return found

    @router.get("/summary")
    def summary(namespace: NamespaceName, name: ReplicatorName, _: _Looks) -> EventSummary:
        """Count the row changes that the tap told of late, per table and stage."""
        lines = told(namespace, name)
        counts = Counter((line["table"], line["kind"], line["op"]) for line in lines)
        places = sorted({place[:2] for place in counts})
        return EventSummary(
            since=lines[0]["ts"] if lines else None,
            totalEvents=len(lines),
            tables=[
                _count(table, kind, [counts[table, kind, op] for op in _OPERATIONS])
                for table, kind in places
            ],
        )

    @router.get("/recent")
    def recent(
        namespace: NamespaceName,
        name: ReplicatorName,
        _: _Looks,
        limit: Annotated[int, Query(ge=1, le=1000)] = 20,
    ) -> Events:
        """Show the newest row changes that the tap told."""
        return _newest(told(namespace, name), limit)

    @router.get("/tables/{table}")
    def of_table(
        namespace: NamespaceName,
        name: ReplicatorName,
        table: Annotated[str, Path(max_length=200, description="schema.table")],
        _: _Looks,
        limit: Annotated[int, Query(ge=1, le=1000)] = 10,
    ) -> Events:
        """Show the newest row changes of one table."""
        lines = told(namespace, name)
        row = plane.store.replicator(namespace, name)
        picture = plane.pictures.seen(row).picture
        known = {one.name for one in picture.tables} if picture else set()
        found = [line for line in lines if line["table"] == table]
        if not found and table not in known:
            raise NotFound(
                f"Replicator {name} has no table of that name.",
                next_step="write schema.table; its detail page lists them.",
            )
        return _newest(found, limit)

    return router


def _is_row(line: Line) -> bool:
    return line["kind"] in _STAGES


def _count(table: str, kind: str, by_operation: list[int]) -> StageCount:
    inserts, updates, deletes = by_operation
    return StageCount(
        table=table,
        stageLabel=_STAGES[kind],  # type: ignore[arg-type]
        inserts=inserts,
        updates=updates,
        deletes=deletes,
        total=sum(by_operation),
    )


def _newest(lines: list[Line], limit: int) -> Events:
    return Events(events=[_shown(line) for line in reversed(lines[-limit:])])


def _shown(line: Line) -> EventShown:
    return EventShown(
        stageLabel=_STAGES[line["kind"]],  # type: ignore[arg-type]
        recordedAt=line["ts"],
        table=line["table"],
        operationType=line["op"],
        # What comes through the source's log was captured there.
        captureOrigin=line.get("origin", "LOG"),
        primaryKey=line["pk"],
        sourcePosition=line["lsn"],
        dumpId=line.get("dump_id"),
    )

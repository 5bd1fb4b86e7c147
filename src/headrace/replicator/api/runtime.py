"""How a replicator's capture does, in the shapes of the reference implementation of DBLog's control plane.

Source: the reference implementation's HTTP control plane, ``/runtime`` and ``/metrics``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends

from headrace.replicator.api.bodies import NamespaceName, ReplicatorName
from headrace.replicator.api.dblog_bodies import (
    Chunking,
    EventCapture,
    Metrics,
    RequestCoordinator,
    Runtime,
    RuntimeHealth,
    RuntimeMeasurement,
    RuntimeStatus,
    SchemaIssues,
    Schemas,
    SourceCapture,
)
from headrace.replicator.api.dblog_told import (
    adapter_of,
    events_now,
    health_of,
    queue_of,
    requests_now,
    source_runtime,
)
from headrace.replicator.api.people import Person, looks
from headrace.replicator.api.schemas_told import schema_issues, table_schemas
from headrace.replicator.config import Config
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Deployed
from headrace.replicator.picture import Picture
from headrace.replicator.requests import Requests, Shown

__all__ = ["runtime"]

_Looks = Annotated[Person, Depends(looks)]


@dataclass(frozen=True, slots=True)
class _Seen:
    """A replicator as these pages see it.

    Attributes:
        row: as it is noted.
        config: with its secrets in their places.
        picture: of it, None where nobody could look.
        runs: whether it has a process.
        shown: its requests, in order of submission.
    """

    row: Deployed
    config: Config
    picture: Picture | None
    runs: bool
    shown: list[Shown]


def runtime(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(
        prefix="/v1/contexts/{namespace}/replicators/{name}/api/v1", tags=["runtime"]
    )

    def seen(namespace: str, name: str) -> _Seen:
        row = plane.store.replicator(namespace, name)
        config = plane.folders.of(row).config(row)
        shown: list[Shown] = []
        if adapter_of(row) != "relay":
            with Requests(config) as found:
                shown = found.all()
        runs = row.number in plane.reconciler.processes()
        return _Seen(row, config, plane.pictures.seen(row).picture, runs, shown)

    @router.get("/runtime")
    def get_runtime(namespace: NamespaceName, name: ReplicatorName, _: _Looks) -> Runtime:
        """Show a replicator's capture at a glance."""
        one = seen(namespace, name)
        return Runtime(
            mode=one.row.state.value,
            adapter=adapter_of(one.row),
            health=health_of(one.row, one.picture, runs=one.runs).status,
            sourceRuntime=source_runtime(one.row, one.picture, runs=one.runs),
            queue=queue_of(one.row, one.shown),
        )

    @router.get("/runtime/health")
    def health(namespace: NamespaceName, name: ReplicatorName, _: _Looks) -> RuntimeHealth:
        """Say whether a replicator's capture does its work; the answer's status is 200 either way."""
        row = plane.store.replicator(namespace, name)
        runs = row.number in plane.reconciler.processes()
        return health_of(row, plane.pictures.seen(row).picture, runs=runs)

    @router.get("/runtime/status")
    def status(namespace: NamespaceName, name: ReplicatorName, _: _Looks) -> RuntimeStatus:
        """Show a replicator's capture in full: its flow, its requests, its changes."""
        one = seen(namespace, name)
        return RuntimeStatus(
            mode=one.row.state.value,
            adapter=adapter_of(one.row),
            health=health_of(one.row, one.picture, runs=one.runs),
            sourceRuntime=source_runtime(one.row, one.picture, runs=one.runs),
            requests=requests_now(one.shown),
            events=events_now(one.picture),
        )

    @router.get("/runtime/schemas")
    def schemas(namespace: NamespaceName, name: ReplicatorName, _: _Looks) -> Schemas:
        """Show the tables' versions: what the log follows, and what was seen last."""
        one = seen(namespace, name)
        found = table_schemas(one.config, one.shown, one.picture)
        return Schemas(stateStoreConfigured=True, count=len(found), schemas=found)

    @router.get("/runtime/schema-issues")
    def issues(namespace: NamespaceName, name: ReplicatorName, _: _Looks) -> SchemaIssues:
        """Show which tables have to be read anew for their shape, and whose shape stands in the way."""
        one = seen(namespace, name)
        return schema_issues(one.row.full_name, one.shown, one.picture)

    @router.get("/metrics")
    def runtime_metrics(namespace: NamespaceName, name: ReplicatorName, _: _Looks) -> Metrics:
        """Show the counters of a replicator's capture, dumps and requests."""
        one = seen(namespace, name)
        capture = one.picture.roles.get("capture") if one.picture else None
        detail = capture.detail if capture else {}
        count, slowest, seconds = one.picture.slow_queries if one.picture else (0, "", 0.0)
        progress = [entry for shown in one.shown for entry in shown.progress]
        return Metrics(
            runtimeMeasurement=RuntimeMeasurement(
                sourceCapture=SourceCapture(
                    changes=int(detail.get("changes", 0)),
                    slowQueries=count,
                    slowestQuery=slowest,
                    slowestQuerySeconds=seconds,
                    restarts=one.picture.restarts.get("capture", 0) if one.picture else 0,
                ),
                chunking=Chunking(
                    chunksCompleted=sum(entry.chunks for entry in progress),
                    rowsRead=sum(entry.rows_read for entry in progress),
                    rowsEmitted=sum(entry.rows_emitted for entry in progress),
                    rowsVoided=sum(entry.rows_voided for entry in progress),
                ),
                requestCoordinator=RequestCoordinator(
                    submitted=len(one.shown),
                    byState=dict(Counter(shown.request.state.value for shown in one.shown)),
                ),
            ),
            eventCapture=EventCapture(
                enabled=one.config.tap.enabled,
                dropped=int(detail.get("tap_dropped", 0)),
                listeners=len(plane.listeners.of(one.row.number)),
            ),
        )

    return router

"""A replicator's numbers over HTTP: metrics as Prometheus reads them, and what became visible over time.

In: pictures, and the minutes that its run keeps. Out: the samples and counts that ``headrace metrics`` and
``headrace activity`` tell of a file.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import PlainTextResponse

from headrace.errors import StateError
from headrace.observe.exposition import CONTENT_TYPE, text
from headrace.replicator.api.bodies import (
    ActivityShown,
    MetricsShown,
    NamespaceName,
    ReplicatorName,
)
from headrace.replicator.api.people import Person, looks
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.metrics import families, plain
from headrace.replicator.minutes import latest
from headrace.state.minutes import HOUR_S, MINUTE_S

__all__ = ["numbers"]

_JSON = "application/json"


def numbers(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(prefix="/v1/contexts/{namespace}/replicators/{name}", tags=["replicators"])

    @router.get(
        "/metrics",
        response_model=MetricsShown,
        responses={200: {"content": {"text/plain": {}}, "description": "As the client accepts."}},
    )
    def metrics(
        namespace: NamespaceName,
        name: ReplicatorName,
        request: Request,
        _: Annotated[Person, Depends(looks)],
    ) -> Any:
        """Show every number of a replicator: to Prometheus as text, as JSON to who accepts that."""
        row = plane.store.replicator(namespace, name)
        seen = plane.pictures.seen(row)
        if seen.picture is None:
            raise StateError(
                f"Nobody can look at {name}: {seen.error}", next_step="see its detail page."
            )
        found = families(name, seen.picture, namespace)
        if _JSON in request.headers.get("accept", ""):
            return {"name": name, "samples": plain(found)}
        return PlainTextResponse(text(found), media_type=CONTENT_TYPE)

    @router.get("/activity")
    def activity(
        namespace: NamespaceName,
        name: ReplicatorName,
        _: Annotated[Person, Depends(looks)],
        minutes: Annotated[int, Query(ge=1, le=43_200, description="How far back.")] = 60,
        hours: Annotated[
            int, Query(ge=0, le=87_600, description="As far back by the hour instead.")
        ] = 0,
        table: Annotated[str, Query(max_length=200, description="Only this one.")] = "",
    ) -> ActivityShown:
        """Show what became visible in the target: operations per table and minute, or hour, oldest first."""
        row = plane.store.replicator(namespace, name)
        config, span_s = plane.folders.of(row).config(row), HOUR_S if hours else MINUTE_S
        found = latest(config, time.time(), hours or minutes, table or None, span_s)
        told = [one.to_json() for one in found]
        return ActivityShown(name=name, minutes=[] if hours else told, hours=told if hours else [])

    return router

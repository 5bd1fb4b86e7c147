"""Where the columns of a replicator's target come from, over HTTP."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query

from headrace.errors import StateError
from headrace.replicator.api.bodies import LineageShown, NamespaceName, ReplicatorName
from headrace.replicator.api.people import Person, looks
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.lineage.known import Known

__all__ = ["lineage"]


def lineage(plane: ControlPlane) -> APIRouter:
    """Return the page."""
    router = APIRouter(prefix="/v1/contexts/{namespace}/replicators/{name}", tags=["replicators"])

    @router.get("/lineage")
    def get_lineage(
        namespace: NamespaceName,
        name: ReplicatorName,
        _: Annotated[Person, Depends(looks)],
        table: Annotated[str, Query(max_length=200, description="Only this one.")] = "",
    ) -> LineageShown:
        """Show, for each column of the target, the columns of the source that it is made of."""
        row = plane.store.replicator(namespace, name)
        seen = plane.pictures.seen(row)
        if seen.picture is None:
            raise StateError(
                f"Nobody can look at {name}: {seen.error}", next_step="see its detail page."
            )
        config = plane.folders.of(row).config(row)
        tables = Known(config).shown(seen.picture, table or None)
        return LineageShown(name=name, tables=tables)

    return router

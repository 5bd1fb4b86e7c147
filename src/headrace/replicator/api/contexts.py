"""Namespaces, and who did what in all of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from headrace.replicator.api.bodies import AuditLine, AuditLog, NamespaceName, Namespaces
from headrace.replicator.api.described import CONFLICT, made
from headrace.replicator.api.people import Person, Role, changes, looks
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Who

__all__ = ["contexts"]


def contexts(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(tags=["contexts"])

    @router.get("/v1/contexts")
    def list_namespaces(_: Annotated[Person, Depends(looks)]) -> Namespaces:
        """List the namespaces."""
        return Namespaces(namespaces=plane.store.namespaces())

    @router.put("/v1/contexts/{namespace}", responses=made(Namespaces))
    def put_namespace(
        namespace: NamespaceName,
        who: Annotated[Who, Depends(changes("make namespace", Role.ADMIN))],
        response: Response,
    ) -> Namespaces:
        """Make a namespace; nothing when it is there."""
        with plane.writing() as writer:
            made = writer.put_namespace(namespace)
            writer.note(who)
        response.status_code = 201 if made else 200
        return Namespaces(namespaces=[namespace])

    @router.delete("/v1/contexts/{namespace}", status_code=204, responses=CONFLICT)
    def delete_namespace(
        namespace: NamespaceName,
        who: Annotated[Who, Depends(changes("delete namespace", Role.ADMIN))],
    ) -> None:
        """Delete a namespace without replicators, and its drafts."""
        with plane.writing() as writer:
            writer.delete_namespace(namespace)
            writer.note(who)

    @router.get("/v1/audit")
    def audit(
        _: Annotated[Who, Depends(changes("read audit", Role.ADMIN))],
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        before: Annotated[int | None, Query(ge=1, lt=2**63)] = None,
    ) -> AuditLog:
        """Show who asked for what, newest first."""
        lines = plane.store.audit(limit, before)
        return AuditLog(
            audit=[
                AuditLine(
                    number=line.number,
                    at_ms=line.at_ms,
                    who=line.who,
                    what=line.what,
                    object=line.object,
                    outcome=line.outcome,
                )
                for line in lines
            ]
        )

    return router

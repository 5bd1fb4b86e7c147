"""Dump requests of one replicator over HTTP, in the shapes of the reference implementation of DBLog's control plane.

Thin over `headrace.replicator.requests`: a request is durable when the answer comes, and is carried out by the
replicator's capture, within a second where it runs.

Source: the reference implementation's HTTP control plane, root ``/api/v1``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from headrace.errors import BadRequest, CommandRefused, ConfigError, NotFound, RequestEnded
from headrace.replicator.api.bodies import NamespaceName, ReplicatorName
from headrace.replicator.api.dblog_bodies import (
    Accepted,
    PaceBody,
    PaceShown,
    RequestBody,
    RequestList,
    RequestPaceBody,
    RequestShown,
)
from headrace.replicator.api.dblog_told import request_shown
from headrace.replicator.api.described import CONFLICT, UNFIT
from headrace.replicator.api.opened import opened
from headrace.replicator.api.people import Person, changes, looks
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Who
from headrace.replicator.requests import ALL, Requests, Shown
from headrace.state.records import RequestState, Scope

__all__ = ["requests"]

_SCOPES = (Scope.ALL_TABLES, Scope.TABLE, Scope.PRIMARY_KEYS, Scope.PREDICATE)


def requests(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(
        prefix="/v1/contexts/{namespace}/replicators/{name}/api/v1", tags=["requests"]
    )

    @router.get("/requests")
    def list_requests(
        namespace: NamespaceName,
        name: ReplicatorName,
        _: Annotated[Person, Depends(looks)],
        state: RequestState | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> RequestList:
        """List the dump requests of a replicator, newest first."""
        with opened(plane, namespace, name) as found:
            shown = found.all()
        chosen = [one for one in reversed(shown) if state is None or one.request.state is state]
        return RequestList(
            stateStoreConfigured=True,
            requests=[request_shown(one) for one in chosen[:limit]],
            countsByState=dict(Counter(one.request.state.value for one in shown)),
        )

    @router.post("/requests", status_code=201, responses=UNFIT | CONFLICT)
    def submit(
        namespace: NamespaceName,
        name: ReplicatorName,
        body: RequestBody,
        who: Annotated[Who, Depends(changes("request dump"))],
    ) -> Accepted:
        """Ask for all tables, one table, or some keys to be read again."""
        table, keys = _checked(body)
        with opened(plane, namespace, name, to_steer=True) as found:
            with plane.writing() as writer:
                writer.note(who)
            asked = found.start(
                table,
                keys=keys,
                where=body.where,
                delete_missing=body.delete_missing,
                priority=body.priority,
            )
            return Accepted(accepted=True, request=request_shown(found.show(asked)))

    @router.get("/requests/{request}")
    def get_request(
        namespace: NamespaceName,
        name: ReplicatorName,
        request: str,
        _: Annotated[Person, Depends(looks)],
    ) -> RequestShown:
        """Show one dump request."""
        with opened(plane, namespace, name) as found:
            return request_shown(_found(found, name, request))

    @router.patch("/requests/{request}", responses=CONFLICT)
    def steer_request(
        namespace: NamespaceName,
        name: ReplicatorName,
        request: str,
        body: RequestPaceBody,
        who: Annotated[Who, Depends(changes("steer dump"))],
    ) -> RequestShown:
        """Change priority, chunk rows, delay or rate of one request, also while it is carried out."""
        with opened(plane, namespace, name, to_steer=True) as found:
            _found(found, name, request)
            with plane.writing() as writer:
                writer.note(who)
            with _refusing():
                found.steer(request, **body.model_dump(exclude_unset=True))
            return request_shown(found.show(request))

    def steered(verb: str) -> Callable[..., RequestShown]:
        let_through: Who = Depends(changes(f"{verb} dump"))

        def steer(
            namespace: NamespaceName, name: ReplicatorName, request: str, who: Who = let_through
        ) -> RequestShown:
            with opened(plane, namespace, name, to_steer=True) as found:
                _found(found, name, request)
                with plane.writing() as writer:
                    writer.note(who)
                with _refusing():
                    getattr(found, verb)(request)
                return request_shown(found.show(request))

        steer.__doc__ = f"{verb.capitalize()} a dump request after its present chunk."
        return steer

    for verb in ("pause", "resume", "cancel"):
        router.add_api_route(
            f"/requests/{{request}}/{verb}",
            steered(verb),
            methods=["POST"],
            responses=CONFLICT,
            name=f"{verb} request",
            operation_id=f"{verb}_request",
        )

    @router.get("/pace")
    def get_pace(
        namespace: NamespaceName, name: ReplicatorName, _: Annotated[Person, Depends(looks)]
    ) -> PaceShown:
        """Show what was set of the pace of dumps and of the log, null where the configuration holds."""
        with opened(plane, namespace, name) as found:
            return PaceShown(**asdict(found.pace()))

    @router.put("/pace", responses=CONFLICT)
    def set_pace(
        namespace: NamespaceName,
        name: ReplicatorName,
        body: PaceBody,
        who: Annotated[Who, Depends(changes("set pace"))],
    ) -> PaceShown:
        """Change the pace while it runs; null gives a setting back to the configuration."""
        with opened(plane, namespace, name, to_steer=True) as found:
            # First: a control plane that stands by changes nothing.
            with plane.writing() as writer:
                writer.note(who)
            return PaceShown(**asdict(found.set_pace(**body.model_dump(exclude_unset=True))))

    return router


def _checked(body: RequestBody) -> tuple[str, list[str]]:
    """Return table and keys as `Requests.start` takes them.

    Raises:
        BadRequest: scope, table and keys do not go together; nothing was asked for.
    """
    scope = next((one for one in _SCOPES if one.value == body.scope), None)
    said = (body.table is not None, bool(body.keys), bool(body.where), body.delete_missing)
    fits = {
        Scope.ALL_TABLES: said == (False, False, False, False),
        Scope.TABLE: said == (True, False, False, False),
        Scope.PRIMARY_KEYS: said[:3] == (True, True, False),
        Scope.PREDICATE: said == (True, False, True, False),
    }
    if scope is None or not fits[scope]:
        raise BadRequest(
            "scope, table, primaryKeyLiterals, where and deleteMissing do not go together.",
            next_step="ALL_TABLES takes none, TABLE a table, PREDICATE a table and where, PRIMARY_KEYS a table, "
            "at least one key, and deleteMissing where that is wanted.",
        )
    table = body.table
    name = f"{table.schema_name}.{table.table_name}" if table is not None else ALL
    return name, list(body.keys or ())


@contextmanager
def _refusing() -> Iterator[None]:
    """Say that a request has ended by the status of a conflict."""
    try:
        yield
    except RequestEnded as error:
        raise CommandRefused(error.message, next_step="ask again: POST requests.") from error


def _found(found: Requests, name: str, request: str) -> Shown:
    try:
        return found.show(request)
    except ConfigError as error:
        raise NotFound(
            f"Replicator {name} has no such request.", next_step="list them: GET requests."
        ) from error

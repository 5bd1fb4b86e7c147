"""Dump requests of one replicator over HTTP, in the shapes of the reference implementation of DBLog's control plane.

Thin over `headrace.replicator.requests`: a request is durable when the answer comes, and is carried out by the
replicator's capture, within a second where it runs.

Source: the reference implementation's HTTP control plane, root ``/api/v1``.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query
from pydantic import Field

from headrace.errors import BadRequest, ConfigError, NotFound
from headrace.observe.status import ProcessState
from headrace.replicator.api.bodies import Asked, NamespaceName, ReplicatorName
from headrace.replicator.api.people import Person, changes, looks
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Who
from headrace.replicator.requests import ALL, Requests, Shown
from headrace.state.records import RequestState, Scope

__all__ = ["requests"]

_SCOPES = (Scope.ALL_TABLES, Scope.TABLE, Scope.PRIMARY_KEYS)


class RequestTable(Asked):
    """A table."""

    database_name: str = Field("", alias="databaseName", max_length=200)
    schema_name: str = Field("public", alias="schemaName", max_length=200)
    table_name: str = Field(alias="tableName", max_length=200)


class RequestBody(Asked):
    """What is to be read again."""

    scope: str = Field(description="ALL_TABLES, TABLE or PRIMARY_KEYS.")
    table: RequestTable | None = None
    keys: list[str] | None = Field(
        None,
        alias="primaryKeyLiterals",
        max_length=10_000,
        description="42, 17,1 or {id=17,line=1}.",
    )


class PaceBody(Asked):
    """Settings of `headrace.state.pace.Pace`; what is left out stays, but for pause, which has a command."""

    chunk_rows: int | None = None
    chunk_s: float | None = None
    load: float | None = None
    delay_s: float | None = None
    rows_per_s: float | None = None
    log_rows_per_s: float | None = None
    retain_bytes: int | None = None
    retain_s: float | None = None


def requests(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(
        prefix="/v1/contexts/{namespace}/replicators/{name}/api/v1", tags=["requests"]
    )

    @contextmanager
    def opened(namespace: str, name: str) -> Iterator[Requests]:
        row = plane.store.replicator(namespace, name)
        with Requests(plane.folders.of(row).config(row)) as found:
            yield found

    @router.get("/requests")
    def list_requests(
        namespace: NamespaceName,
        name: ReplicatorName,
        _: Annotated[Person, Depends(looks)],
        state: RequestState | None = None,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> dict[str, Any]:
        """List the dump requests of a replicator, newest first."""
        with opened(namespace, name) as found:
            shown = found.all()
        chosen = [one for one in reversed(shown) if state is None or one.request.state is state]
        return {
            "stateStoreConfigured": True,
            "requests": [_told(one) for one in chosen[:limit]],
            "countsByState": dict(Counter(one.request.state.value for one in shown)),
        }

    @router.post("/requests", status_code=201)
    def submit(
        namespace: NamespaceName,
        name: ReplicatorName,
        body: RequestBody,
        who: Annotated[Who, Depends(changes("request dump"))],
    ) -> dict[str, Any]:
        """Ask for all tables, one table, or some keys to be read again."""
        table, keys = _checked(body)
        with plane.writing() as writer:
            writer.note(who)
        with opened(namespace, name) as found:
            asked = found.start(table, keys=keys)
            return {"accepted": True, "request": _told(found.show(asked))}

    @router.get("/requests/{request}")
    def get_request(
        namespace: NamespaceName,
        name: ReplicatorName,
        request: str,
        _: Annotated[Person, Depends(looks)],
    ) -> dict[str, Any]:
        """Show one dump request."""
        with opened(namespace, name) as found:
            return _told(_found(found, name, request))

    def steered(verb: str) -> Callable[..., dict[str, Any]]:
        let_through: Who = Depends(changes(f"{verb} dump"))

        def steer(
            namespace: NamespaceName, name: ReplicatorName, request: str, who: Who = let_through
        ) -> dict[str, Any]:
            with opened(namespace, name) as found:
                _found(found, name, request)
                with plane.writing() as writer:
                    writer.note(who)
                getattr(found, verb)(request)
                return _told(found.show(request))

        steer.__doc__ = f"{verb.capitalize()} a dump request after its present chunk."
        return steer

    for verb in ("pause", "resume", "cancel"):
        router.add_api_route(
            f"/requests/{{request}}/{verb}",
            steered(verb),
            methods=["POST"],
            name=f"{verb} request",
            operation_id=f"{verb}_request",
        )

    @router.get("/pace")
    def get_pace(
        namespace: NamespaceName, name: ReplicatorName, _: Annotated[Person, Depends(looks)]
    ) -> dict[str, Any]:
        """Show what was set of the pace of dumps and of the log, null where the configuration holds."""
        with opened(namespace, name) as found:
            return asdict(found.pace())

    @router.put("/pace")
    def set_pace(
        namespace: NamespaceName,
        name: ReplicatorName,
        body: PaceBody,
        who: Annotated[Who, Depends(changes("set pace"))],
    ) -> dict[str, Any]:
        """Change the pace while it runs; null gives a setting back to the configuration."""
        with opened(namespace, name) as found:
            now = found.set_pace(**body.model_dump(exclude_unset=True))
            with plane.writing() as writer:
                writer.note(who)
            return asdict(now)

    @router.get("/runtime/health")
    def health(
        namespace: NamespaceName, name: ReplicatorName, _: Annotated[Person, Depends(looks)]
    ) -> dict[str, Any]:
        """Say whether a replicator's capture does its work; the answer's status is 200 either way."""
        row = plane.store.replicator(namespace, name)
        picture = plane.pictures.seen(row).picture
        capture = picture.roles.get("capture") if picture else None
        works = (
            row.number in plane.reconciler.processes()
            and capture is not None
            and capture.state is ProcessState.RUNNING
        )
        return {
            "status": "UP" if works else "DOWN",
            "mode": row.state.value,
            "adapter": row.config.get("source", {}).get("type", ""),
            "sourceId": row.full_name,
            "lastAcknowledgedCheckpoint": str(picture.covered_scn) if picture else None,
        }

    return router


def _checked(body: RequestBody) -> tuple[str, list[str]]:
    """Return table and keys as `Requests.start` takes them.

    Raises:
        BadRequest: scope, table and keys do not go together; nothing was asked for.
    """
    scope = next((one for one in _SCOPES if one.value == body.scope), None)
    fits = {
        Scope.ALL_TABLES: body.table is None and not body.keys,
        Scope.TABLE: body.table is not None and not body.keys,
        Scope.PRIMARY_KEYS: body.table is not None and bool(body.keys),
    }
    if scope is None or not fits[scope]:
        raise BadRequest(
            "scope, table and primaryKeyLiterals do not go together.",
            next_step="ALL_TABLES takes neither, TABLE a table, PRIMARY_KEYS a table and at least one key.",
        )
    table = body.table
    name = f"{table.schema_name}.{table.table_name}" if table is not None else ALL
    return name, list(body.keys or ())


def _found(found: Requests, name: str, request: str) -> Shown:
    try:
        return found.show(request)
    except ConfigError as error:
        raise NotFound(
            f"Replicator {name} has no such request.", next_step="list them: GET requests."
        ) from error


def _told(shown: Shown) -> dict[str, Any]:
    request, table = shown.request, shown.request.table
    created = dt.datetime.fromtimestamp(request.created_s, dt.UTC).isoformat()
    return {
        "requestId": request.request_id,
        "scope": request.scope.value,
        "table": {"databaseName": None, "schemaName": table.schema, "tableName": table.name}
        if table
        else None,
        "state": request.state.value,
        "primaryKeyLiterals": [",".join(key) for key in request.keys],
        "missingPrimaryKeyLiterals": [",".join(key) for key in request.missing],
        "failureReason": request.reason or None,
        "createdAt": created,
        "rowsRead": shown.rows_read,
        "rowsEstimated": shown.rows_estimated,
    }

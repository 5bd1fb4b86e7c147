"""The control plane as an application: FastAPI behind the guard.

In: requests of HTTP. Out: answers as ``/openapi.json`` describes them; every refusal has one shape, and repeats no
value of what was asked.
"""

from __future__ import annotations

import contextlib
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from headrace import __version__
from headrace.errors import HeadraceError
from headrace.replicator.api.bodies import ErrorShown, Health
from headrace.replicator.api.contexts import contexts
from headrace.replicator.api.drafts import drafts
from headrace.replicator.api.guard import Guard
from headrace.replicator.api.lineage import lineage
from headrace.replicator.api.logs import logs
from headrace.replicator.api.numbers import numbers
from headrace.replicator.api.people import Known, who_of
from headrace.replicator.api.refusals import no_page, refusal, unexpected, unreadable
from headrace.replicator.api.replicators import replicators
from headrace.replicator.api.requests import requests
from headrace.replicator.control.plane import ControlPlane

__all__ = ["api", "application"]

_REFUSALS: dict[int | str, dict[str, Any]] = {
    400: {"model": ErrorShown, "description": "The request does not read."},
    401: {"model": ErrorShown, "description": "No token, or an unknown one."},
    403: {
        "model": ErrorShown,
        "description": "The role does not suffice, or the origin is foreign.",
    },
    404: {"model": ErrorShown, "description": "There is no such thing."},
    409: {"model": ErrorShown, "description": "It does not go with how things stand."},
    413: {"model": ErrorShown, "description": "The body is too large."},
    422: {"model": ErrorShown, "description": "The configuration, or the request, has mistakes."},
    503: {
        "model": ErrorShown,
        "description": "Not now: standby, or the database or a source is away.",
    },
}


def application(plane: ControlPlane, known: Known) -> ASGIApp:
    """Return what answers requests, behind its guard."""
    return Guard(api(plane), known)


def api(plane: ControlPlane) -> FastAPI:
    """Return the pages, which believe what the guard says of who asks."""
    app = FastAPI(
        title="headrace",
        version=__version__,
        description="Many replicators, kept as people want them.",
        redoc_url=None,
        responses=_REFUSALS,
        generate_unique_id_function=lambda route: route.name,
    )

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, RequestValidationError):
            told: HeadraceError = unreadable(error.errors())
        elif isinstance(error, HTTPException):
            told = no_page(request.url.path)
        elif isinstance(error, HeadraceError):
            told = error
        else:
            raise error
        who = who_of(request)
        if who is not None and plane.active:
            with contextlib.suppress(HeadraceError), plane.writing() as writer:
                writer.note(who, type(told).__name__)
        status = {RequestValidationError: 422, HTTPException: getattr(error, "status_code", None)}
        answer = refusal(told, status.get(type(error)))
        if isinstance(error, HTTPException):
            # A refused method comes with those that there are.
            answer.headers.update(error.headers or {})
        return answer

    async def broke(_: Request, error: Exception) -> Response:
        return unexpected(error)

    app.add_exception_handler(Exception, broke)
    for kind in (HeadraceError, RequestValidationError, HTTPException):
        app.add_exception_handler(kind, refused)

    @app.get("/healthz", tags=["health"])
    def healthz() -> Health:
        """Say whether the control plane answers, and whether it is the active one."""
        plane.store.lease()
        return Health(status="ok", role="active" if plane.active else "standby")

    for router in (contexts, drafts, replicators, numbers, lineage, logs, requests):
        app.include_router(router(plane))
    return app

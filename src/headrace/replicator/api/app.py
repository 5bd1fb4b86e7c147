"""The control plane as an application: FastAPI behind the guard.

In: requests of HTTP. Out: answers as ``/openapi.json`` describes them; every refusal has one shape, and repeats no
value of what was asked.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi_offline import FastAPIOffline
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp

from headrace import __version__
from headrace.errors import HeadraceError
from headrace.replicator.api.bodies import Health
from headrace.replicator.api.contexts import contexts
from headrace.replicator.api.dead_letters import dead_letters
from headrace.replicator.api.described import REFUSALS, describe
from headrace.replicator.api.drafts import drafts
from headrace.replicator.api.events import events
from headrace.replicator.api.guard import DOCS_FILES, Guard
from headrace.replicator.api.lineage import lineage
from headrace.replicator.api.logs import logs
from headrace.replicator.api.numbers import numbers
from headrace.replicator.api.people import Known, who_of
from headrace.replicator.api.rates import RateLimits
from headrace.replicator.api.refusals import no_json, no_page, refusal, unexpected, unreadable
from headrace.replicator.api.replicators import replicators
from headrace.replicator.api.requests import requests
from headrace.replicator.api.runtime import runtime
from headrace.replicator.api.tap import tap
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Who

__all__ = ["api", "application"]


def application(
    plane: ControlPlane,
    known: Known,
    ending: Callable[[], bool] = lambda: False,
    limits: RateLimits | None = None,
) -> ASGIApp:
    """Return what answers requests, behind its guard.

    Args:
        plane: whose pages they are.
        known: who may ask.
        ending: whether answers that have no end of their own are to end, because the server does.
        limits: how often.
    """
    return Guard(api(plane, ending), known, limits or RateLimits())


def api(plane: ControlPlane, ending: Callable[[], bool] = lambda: False) -> FastAPI:
    """Return the pages, which believe what the guard says of who asks."""
    app = FastAPIOffline(
        static_url=DOCS_FILES,
        title="headrace",
        version=__version__,
        description="Many replicators, kept as people want them.",
        redoc_url=None,
        responses=REFUSALS,
        generate_unique_id_function=lambda route: route.name,
    )

    def noted(who: Who, outcome: str) -> None:
        with contextlib.suppress(HeadraceError), plane.writing() as writer:
            writer.note(who, outcome)

    async def refused(request: Request, error: Exception) -> Response:
        if isinstance(error, RequestValidationError):
            told: HeadraceError = unreadable(error.errors())
        elif isinstance(error, HTTPException):
            # Of a body that does not read in another way than by a wrong letter FastAPI says this alone.
            told = no_json() if error.status_code == 400 else no_page(request.url.path)
        elif isinstance(error, HeadraceError):
            told = error
        else:
            raise error
        who = who_of(request)
        if who is not None and plane.active:
            # Beside the loop: while the database is waited for, everybody else is answered.
            await run_in_threadpool(noted, who, type(told).__name__)
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

    @app.get("/", include_in_schema=False)
    def start() -> RedirectResponse:
        """Show people who open the control plane in a browser what it can be asked."""
        return RedirectResponse("/docs")

    for router in (
        *(contexts, drafts, replicators, numbers, lineage, logs),
        *(requests, runtime, events, dead_letters),
    ):
        app.include_router(router(plane))
    app.include_router(tap(plane, ending))
    describe(app)
    return app

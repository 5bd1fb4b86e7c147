"""A replicator's tap over HTTP: its lines while they come, for several listeners at a time.

NDJSON as it is in the tap's file, or server-sent events for a browser. What it holds up is nobody: see
`headrace.replicator.listeners`.

Source: the reference implementation's HTTP control plane, ``/tap/stream``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Callable
from typing import Annotated

from anyio.to_thread import run_sync
from fastapi import APIRouter, Depends, Header, Query
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from headrace.errors import CommandRefused, HeadraceError, NotAllowed, TapNotEnabled
from headrace.observe.tap.reading import Line
from headrace.replicator.api.bodies import NamespaceName, ReplicatorName
from headrace.replicator.api.dblog_bodies import ListenerShown, TakenBody, TapShown
from headrace.replicator.api.described import CONFLICT
from headrace.replicator.api.people import Person, Role, changes, looks
from headrace.replicator.config import Config
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Deployed, Who
from headrace.replicator.listeners import Listener
from headrace.replicator.paths import StatePaths
from headrace.replicator.tap import tap_file, taught

__all__ = ["tap"]

_LOOK_S = 0.1
_ALIVE_S = 15.0
_CHECK_S = 2.0
_EVENTS = "text/event-stream"
_LINES = "application/x-ndjson"


def tap(plane: ControlPlane, ending: Callable[[], bool]) -> APIRouter:
    """Return the pages.

    Args:
        plane: that they are of.
        ending: whether streams are to end, because the server does.
    """
    router = APIRouter(
        prefix="/v1/contexts/{namespace}/replicators/{name}/api/v1/tap", tags=["tap"]
    )

    def found(namespace: str, name: str) -> tuple[Deployed, Config]:
        row = plane.store.replicator(namespace, name)
        return row, plane.folders.of(row).config(row)

    @router.get("")
    def get_tap(
        namespace: NamespaceName, name: ReplicatorName, _: Annotated[Person, Depends(looks)]
    ) -> TapShown:
        """Show whether a replicator's tap tells anything, and who listens."""
        row, config = found(namespace, name)
        picture = plane.pictures.seen(row).picture
        capture = picture.roles.get("capture") if picture else None
        return TapShown(
            enabled=config.tap.enabled,
            mode="teach" if config.tap.teach else "record",
            dropped=int(capture.detail.get("tap_dropped", 0)) if capture else 0,
            listeners=[
                ListenerShown(
                    who=one.who, sinceMillis=one.since_ms, sent=one.sent, dropped=one.dropped
                )
                for one in plane.listeners.of(row.number)
            ],
        )

    @router.get(
        "/stream",
        response_class=StreamingResponse,
        responses={
            200: {
                "description": "The tap's lines while they come; see docs/tap.md.",
                "content": {_LINES: {}, _EVENTS: {}},
            }
        },
    )
    def stream(
        namespace: NamespaceName,
        name: ReplicatorName,
        person: Annotated[Person, Depends(looks)],
        last: Annotated[
            int, Query(ge=0, le=10_000, description="Begin with so many of the newest lines.")
        ] = 0,
        accept: Annotated[str, Header(include_in_schema=False)] = "",
    ) -> StreamingResponse:
        """Stream the lines of a replicator's tap, each as it comes."""
        row, config = found(namespace, name)
        if not config.tap.enabled:
            raise TapNotEnabled(
                f"The tap of replicator {name} tells nothing.",
                next_step="deploy it with tap: {enabled: true}.",
            )
        if config.tap.teach and person.role < Role.OPERATOR:
            raise NotAllowed(
                f"The tap of {name} teaches, which is for those with the role operator.",
                next_step="ask somebody who has it, or for a token that has it.",
            )
        listener = Listener(person.name, tap_file(StatePaths.of(config).tap))
        as_events = _EVENTS in accept
        with contextlib.ExitStack() as begun:
            begun.enter_context(plane.listeners.joined(row.number, listener))
            # Before the answer: who has it is told whatever comes from then on.
            newest = listener.begin(last)
            stack = begun.pop_all()

        def goes_on() -> bool:
            """Whether it is still the same replicator, and its tap teaches no more than it did."""
            try:
                now = plane.store.replicator(namespace, name)
            except HeadraceError:
                return False
            return (now.number, now.revision) == (row.number, row.revision)

        async def body() -> AsyncIterator[str]:
            alive_at = check_at = time.monotonic()
            lines = newest
            with stack:
                while True:
                    now = time.monotonic()
                    if lines:
                        alive_at = now
                        yield "".join(map(_event if as_events else _plain, lines))
                    elif now - alive_at >= _ALIVE_S:
                        alive_at = now
                        yield ":\n\n" if as_events else "\n"
                    if ending():
                        return
                    if now - check_at >= _CHECK_S:
                        check_at = now
                        if not await run_sync(goes_on):
                            return
                    lines = await run_sync(listener.read)
                    if not lines:
                        await asyncio.sleep(_LOOK_S)

        return _Stream(body(), stack, media_type=_EVENTS if as_events else _LINES)

    @router.post("/taken", status_code=204, responses=CONFLICT)
    def take(
        namespace: NamespaceName,
        name: ReplicatorName,
        body: TakenBody,
        _: Annotated[Who, Depends(changes("step tap"))],
    ) -> None:
        """Say which line of a tap that teaches was taken: its capture goes on behind that one."""
        config = found(namespace, name)[1]
        if not (config.tap.enabled and config.tap.teach):
            raise CommandRefused(
                f"The tap of replicator {name} does not teach: its capture waits for nobody.",
                next_step="deploy it with tap: {enabled: true, teach: true}, and never in production.",
            )
        taught(StatePaths.of(config).tap)(body.run_id, body.seq)

    return router


class _Stream(StreamingResponse):
    """A stream that lets go of what it holds also where nobody has taken its first line."""

    def __init__(
        self, body: AsyncIterator[str], held: contextlib.ExitStack, media_type: str
    ) -> None:
        super().__init__(body, media_type=media_type)
        self._held = held

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._held.close()


def _plain(text: str) -> str:
    return text + "\n"


def _event(text: str) -> str:
    line: Line = json.loads(text)
    number = "" if line["seq"] is None else f"id: {line['run_id']}-{line['seq']}\n"
    return f"event: {line['kind']}\n{number}data: {text}\n\n"

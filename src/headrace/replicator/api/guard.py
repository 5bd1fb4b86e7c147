"""The door of a control plane: who may come in, from where, with how much.

Tokens travel in a header alone, which no other site's page can set; there are no cookies. Where no token is asked for,
a browser on the same machine is still a way in for pages from elsewhere: so requests under a foreign name, from a
foreign origin or in the form of a page's form are refused before anybody looks at them.
"""

from __future__ import annotations

import logging
import math
import traceback
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import BadRequest, NotAllowed, RequestTooLarge, TooManyRequests
from headrace.relay.server.settings import is_loopback
from headrace.replicator.api.people import Known, set_person
from headrace.replicator.api.rates import Buckets, RateLimits
from headrace.replicator.api.refusals import refusal, unexpected

__all__ = ["DOCS_FILES", "MOST_BODY_BYTES", "Guard"]

_log = logging.getLogger(__name__)

MOST_BODY_BYTES = 2**20
"""Bytes of a request's body; a configuration has thousands."""
DOCS_FILES = "/docs/files"
"""Where the files are that the page of the API needs."""
_OPEN = ("/", "/docs", "/healthz", "/openapi.json")
_HEADERS = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
}


class Guard:
    """Looks at each request before the application does, and keeps what nobody foresaw from being shown."""

    def __init__(self, inner: ASGIApp, known: Known, limits: RateLimits) -> None:
        self._inner = inner
        self._known = known
        self._asked = Buckets(limits.per_s, limits.burst)
        self._guessed = Buckets(limits.wrong_tokens / 60, limits.wrong_tokens)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""
        if scope["type"] != "http":
            await self._inner(scope, receive, send)
            return
        begun = False

        async def sending(message: Message) -> None:
            nonlocal begun
            if message["type"] == "http.response.start":
                begun = True
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        refused = self._refused(scope)
        if refused is not None:
            await refused(scope, receive, sending)
            return
        body = await _body(scope, receive)
        if body is None:
            error = RequestTooLarge(
                f"The body has more than {MOST_BODY_BYTES:,} bytes.", next_step="say it shorter."
            )
            await refusal(error)(scope, receive, sending)
            return
        try:
            await self._inner(scope, _replayed(body, receive), sending)
        except Exception as error:  # noqa: BLE001 - what an error says may hold anything
            frames = "".join(traceback.format_tb(error.__traceback__))
            _log.error(
                "%s in %s %s\n%s", type(error).__name__, scope["method"], scope["path"], frames
            )
            if not begun:
                await unexpected(error)(scope, receive, sending)

    def _refused(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        foreign = self._foreign(scope, headers)
        if foreign is not None:
            return refusal(foreign)
        address = scope["client"][0] if scope.get("client") else "unknown"
        if scope["path"] in _OPEN or scope["path"].startswith(f"{DOCS_FILES}/"):
            return _late(self._asked.take(f"address {address}"))
        token = headers.get("authorization")
        if token is not None and not self._known.anybody:
            # Before anybody looks at it: a guess that comes too soon tells nothing.
            late = _late(self._guessed.wait_s(address))
            if late is not None:
                return late
        person = self._known.person(token)
        if person is None:
            if token is not None:
                self._guessed.take(address)
            late = _late(self._asked.take(f"address {address}"))
            if late is not None:
                return late
            answer = refusal(self._known.unknown(), 401)
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        late = _late(self._asked.take(f"person {person.name}"))
        if late is not None:
            return late
        set_person(scope, person)  # type: ignore[arg-type]
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in ("", "application/json") and scope["method"] not in ("GET", "HEAD"):
            error = BadRequest(
                "The body is not JSON.", next_step="send content-type: application/json."
            )
            return refusal(error, 415)
        return None

    def _foreign(self, scope: Scope, headers: Headers) -> NotAllowed | None:
        host = headers.get("host", "")
        name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() else host
        if self._known.anybody and not is_loopback(name):
            return NotAllowed(
                "A control plane without tokens answers under the names of this machine alone.",
                next_step="ask http://127.0.0.1 or http://localhost, or give it tokens: headrace serve --tokens FILE.",
            )
        origin = headers.get("origin")
        if origin is not None and origin != f"{scope['scheme']}://{host}":
            return NotAllowed(
                "The request comes from the page of another site.",
                next_step="ask from a program, or from a page that this control plane has served.",
            )
        return None


def _late(seconds: float) -> Response | None:
    """Return the refusal of who has to wait so long, None where nobody has."""
    if not seconds:
        return None
    error = TooManyRequests(
        "Requests come faster than the control plane answers them to one who asks.",
        next_step=f"ask again in {math.ceil(seconds)} s, and less often.",
    )
    answer = refusal(error)
    answer.headers["retry-after"] = str(math.ceil(seconds))
    return answer


async def _body(scope: Scope, receive: Receive) -> bytes | None:
    """Return the body, None when it is too large."""
    promised = Headers(scope=scope).get("content-length", "0")
    if not promised.isdecimal() or int(promised) > MOST_BODY_BYTES:
        return None
    parts, size, more = [], 0, True
    while more:
        message = await receive()
        part = message.get("body", b"")
        size += len(part)
        if size > MOST_BODY_BYTES:
            return None
        parts.append(part)
        more = message.get("more_body", False)
    return b"".join(parts)


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Return what gives a body that was read already, then what comes."""
    given = False

    async def replay() -> dict[str, Any]:
        nonlocal given
        if given:
            return dict(await receive())
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay

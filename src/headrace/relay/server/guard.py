"""The door of a relay: which protocol is spoken, who may come in, and how a refusal looks."""

from __future__ import annotations

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headrace.errors import HeadraceError, NotServed, UnsupportedProtocol
from headrace.relay.server.access import Access
from headrace.relay.server.settings import Role
from headrace.wire.notes import PROTOCOL
from headrace.wire.refusals import error_json, status_of

__all__ = ["Guard", "no_page", "refusal"]

_PROTOCOL = str(PROTOCOL)


class Guard:
    """Looks at each request before the application does, and puts the protocol's version on each answer."""

    def __init__(self, inner: ASGIApp, access: Access) -> None:
        self._inner = inner
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or have it answered."""

        async def with_version(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).append("headrace-protocol", _PROTOCOL)
            await send(message)

        refusal = self._refusal(scope)
        await (refusal or self._inner)(scope, receive, with_version)

    def _refusal(self, scope: Scope) -> Response | None:
        headers = Headers(scope=scope)
        spoken = headers.get("headrace-protocol")
        if spoken is not None and spoken != _PROTOCOL:
            error = UnsupportedProtocol(
                f"The relay speaks protocol {PROTOCOL} alone.",
                next_step="use versions of headrace on both sides that fit together.",
            )
            return refusal(error)
        path = scope["path"]
        if path == "/healthz":
            return None
        role = self._access.role(headers.get("authorization"))
        if role is None:
            answer = refusal(self._access.unknown(), 401)
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        if path.startswith("/admin/") and role is not Role.ADMIN:
            return refusal(self._access.too_low())
        return None


def refusal(error: HeadraceError, status: int | None = None) -> Response:
    """Return an error as an answer, with its own status where none is given."""
    return JSONResponse({"error": error_json(error)}, status or status_of(error))


def no_page(path: str) -> NotServed:
    """Return the refusal of a path that there is not."""
    return NotServed(
        f"The relay has no page {path[:80]}, or not for this method.",
        next_step="see docs/relay_protocol.md for the pages that there are.",
    )

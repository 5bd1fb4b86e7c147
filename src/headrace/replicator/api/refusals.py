"""How a control plane refuses: the JSON of a relay's errors, and the status that goes with each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.responses import JSONResponse, Response

from headrace.errors import (
    BadRequest,
    CommandRefused,
    ConfigError,
    HeadraceError,
    LeaseLost,
    NotAllowed,
    NotFound,
    RequestTooLarge,
    Retry,
    StateError,
    TapNotEnabled,
    TooManyRequests,
    UnknownTable,
)
from headrace.observe.status import describe_error
from headrace.wire.refusals import error_json

__all__ = ["no_json", "no_page", "refusal", "unexpected", "unreadable"]

_STATUS: dict[type[HeadraceError], int] = {
    BadRequest: 400,
    NotAllowed: 403,
    NotFound: 404,
    UnknownTable: 404,
    CommandRefused: 409,
    RequestTooLarge: 413,
    ConfigError: 422,
    TooManyRequests: 429,
    TapNotEnabled: 503,
    LeaseLost: 503,
    StateError: 503,
}


def refusal(error: HeadraceError, status: int | None = None) -> Response:
    """Return an error as an answer, with its own status where none is given."""
    own = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), None)
    if own is None:
        own = 503 if error.retry is Retry.TIMED else 500
    return JSONResponse({"error": error_json(error)}, status or own)


def unexpected(error: BaseException) -> Response:
    """Return an error that nobody foresaw as an answer: its type, and nothing that it says."""
    told = describe_error(error)
    body = {"type": told["name"], "message": told["message"], "next_step": told["next_step"]}
    return JSONResponse({"error": body}, 500)


def no_page(path: str) -> NotFound:
    """Return the refusal of a path that there is not, or of a method that its page does not take."""
    return NotFound(
        f"The control plane has no page {path[:80]}, or not for this method.",
        next_step="see /docs for the pages that there are.",
    )


def no_json() -> BadRequest:
    """Return the refusal of a body of which the JSON does not read."""
    return BadRequest(
        "The body does not read as JSON: it is not UTF-8, too deep, or holds a number with thousands of digits.",
        next_step="send JSON in UTF-8; see /docs for what the page takes.",
    )


def unreadable(problems: Sequence[Any]) -> BadRequest:
    """Return the refusal of a request whose parts do not have their forms; no value of it is repeated."""
    told = []
    for problem in problems[:10]:
        place = ".".join(str(part) for part in problem["loc"] if part != "body") or "the body"
        told.append(f"{place}: {problem['msg']}")
    return BadRequest(
        f"The request does not read: {'; '.join(told)}.",
        next_step="see /docs for what it takes.",
    )

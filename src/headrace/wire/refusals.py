"""Errors of a relay as JSON, and back: whoever asks gets the error that was raised on the other side."""

from __future__ import annotations

from typing import Any

from headrace.errors import (
    BadFilter,
    BadRequest,
    BlockTooLarge,
    CorruptSegment,
    HeadraceError,
    NotAllowed,
    NotServed,
    RelayError,
    RelayUnavailable,
    Retry,
    ScnNotFound,
    UnsupportedProtocol,
)

__all__ = ["error_json", "error_of", "status_of"]

_STATUS: dict[type[HeadraceError], int] = {
    BadFilter: 400,
    BadRequest: 400,
    NotAllowed: 403,
    NotServed: 404,
    ScnNotFound: 410,
    BlockTooLarge: 413,
    UnsupportedProtocol: 426,
    CorruptSegment: 500,
    RelayUnavailable: 503,
}
_KINDS = {kind.__name__: kind for kind in _STATUS}


def status_of(error: HeadraceError) -> int:
    """Return the HTTP status that goes with an error: 503 for what passes by itself, 500 for the rest."""
    found = next((_STATUS[kind] for kind in type(error).__mro__ if kind in _STATUS), None)
    return found or (503 if error.retry is Retry.TIMED else 500)


def error_json(error: HeadraceError) -> dict[str, Any]:
    """Return the object that ``docs/relay_protocol.md`` calls an error."""
    said: dict[str, Any] = {
        "type": type(error).__name__,
        "message": error.message,
        "next_step": error.next_step,
    }
    if isinstance(error, ScnNotFound):
        said |= {
            "wanted_scn": error.scn,
            "oldest_scn": error.oldest,
            "newest_scn": error.newest,
        }
    if isinstance(error, BlockTooLarge):
        said |= {"needed_bytes": error.needed_bytes}
    return said


def error_of(said: dict[str, Any]) -> HeadraceError:
    """Return the error that an object stands for; a `RelayError` when its type is unknown here."""
    kind, message = str(said.get("type", "")), str(said.get("message", "The relay says no more."))
    try:
        if kind == ScnNotFound.__name__:
            return ScnNotFound(
                int(said["wanted_scn"]), int(said["oldest_scn"]), int(said["newest_scn"])
            )
        if kind == BlockTooLarge.__name__:
            return BlockTooLarge(int(said["needed_bytes"]))
    except (KeyError, TypeError, ValueError):
        return RelayError(message, next_step="look at the relay's log: its answer is not whole.")
    return _KINDS.get(kind, RelayError)(message, next_step=str(said.get("next_step", "")))

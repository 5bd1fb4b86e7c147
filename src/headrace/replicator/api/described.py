"""What ``/openapi.json`` says of refusals: for each operation those that it can give, and no other."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel

from headrace.replicator.api.bodies import ErrorShown

__all__ = ["CONFLICT", "REFUSALS", "UNFIT", "describe", "made"]

_SAID = {
    400: "The parts of the request do not go together.",
    401: "No token, or an unknown one.",
    403: "The role does not suffice, or the origin is foreign.",
    404: "There is no such thing.",
    409: "It does not go with how things stand.",
    413: "The body is too large.",
    415: "The body is not JSON.",
    422: "The request does not read, or the configuration has mistakes.",
    429: "Requests come too fast; the header retry-after says when to ask again.",
    500: "An error that nobody foresaw.",
    503: "Not now: standby, or the database, a source or the tap is away.",
}


def _refusals(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {one: {"model": ErrorShown, "description": _SAID[one]} for one in statuses}


REFUSALS = _refusals(401, 403, 404, 413, 415, 422, 429, 500, 503)
"""What operations can give by what they are; `describe` leaves out what one cannot."""
CONFLICT = _refusals(409)
"""Of operations that a state may not allow."""
UNFIT = _refusals(400)
"""Of operations with parts that have to go together."""


def made(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """Return what says that something was made, and not changed."""
    return {201: {"model": model, "description": "It was made."}}


def describe(app: FastAPI) -> None:
    """Let an application's document tell of each operation what it can give."""
    whole = app.openapi

    def document() -> dict[str, Any]:
        found = whole()
        for path, methods in found["paths"].items():
            for method, operation in methods.items():
                for status in _impossible(path, method, operation):
                    operation["responses"].pop(status, None)
                for status, answer in operation["responses"].items():
                    if int(status) >= 400:
                        # Also of a page whose answers are text.
                        (schema,) = answer["content"].values()
                        answer["content"] = {"application/json": schema}
        return found

    app.openapi = document  # type: ignore[method-assign]


def _impossible(path: str, method: str, operation: dict[str, Any]) -> set[str]:
    """Return the refusals that an operation cannot give."""
    none: set[str] = set()
    if path == "/healthz":
        none |= {"401", "500"}
    if "{" not in path or (method, path) == ("put", "/v1/contexts/{namespace}"):
        # What names nothing, and what makes what it names.
        none.add("404")
    if method == "get":
        none |= {"413", "415"}
    if not operation.get("parameters") and "requestBody" not in operation:
        none.add("422")
    return none

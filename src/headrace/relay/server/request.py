"""What a consumer asks for, checked: the same names in a query and in a JSON object."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from starlette.requests import ClientDisconnect, Request

from headrace.errors import BadRequest
from headrace.wire.filters import Filter, parse_filter
from headrace.wire.place import Inside, Place
from headrace.wire.plain import is_json

__all__ = ["DEFAULT_PULL_BYTES", "StreamRequest", "number", "parameters"]

DEFAULT_PULL_BYTES = 16 * 2**20
"""Bytes of a pull that does not say how many it wants."""
_MOST_BODY_BYTES = 2**20
_MOST = 2**63 - 1
_MOST_WAIT_MS = 600_000
_NAMES = (
    "source",
    "after",
    "since_us",
    "upto",
    "mode",
    "max_bytes",
    "wait_ms",
    "format",
    "filter",
)


@dataclass(frozen=True, slots=True)
class StreamRequest:
    """A request of ``/stream``; its fields are the protocol's.

    Attributes:
        source: which.
        after: where the consumer stands, or an end of the log.
        since_us: a commit time to begin with, in place of ``after``.
        upto: the SCN after which the stream ends, None for none.
        push: whether the response goes on as blocks come.
        max_bytes: most bytes of a pull.
        wait_ms: how long a pull waits for its first block.
        lines: whether the answer comes as NDJSON.
        filter: what is let through, None for all.
    """

    source: str
    after: Place | Literal["oldest", "newest"] = "newest"
    since_us: int | None = None
    upto: int | None = None
    push: bool = True
    max_bytes: int = DEFAULT_PULL_BYTES
    wait_ms: int = 0
    lines: bool = False
    filter: Filter | None = None

    @classmethod
    def parse(cls, given: Mapping[str, Any]) -> StreamRequest:
        """Return the request that named values make up; texts, or what JSON has.

        Raises:
            BadRequest: names the first that does not read.
            BadFilter: the filter does not.
        """
        unknown = next((name for name in given if name not in _NAMES), None)
        if unknown is not None:
            raise _bad(str(unknown)[:40], f"a request has no such name; it has {', '.join(_NAMES)}")
        source = given.get("source")
        if not isinstance(source, str) or not source:
            raise _bad("source", "name the source; GET /sources lists them")
        if "after" in given and "since_us" in given:
            raise _bad("since_us", "either after or since_us")
        push = _one_of(given, "mode", ("push", "pull")) == "push"
        for name in ("max_bytes", "wait_ms"):
            if push and name in given:
                raise _bad(name, "it belongs to mode=pull")
        return cls(
            source,
            _after(given.get("after", "newest")),
            number(given, "since_us"),
            number(given, "upto"),
            push,
            number(given, "max_bytes", least=1) or DEFAULT_PULL_BYTES,
            number(given, "wait_ms", most=_MOST_WAIT_MS) or 0,
            _one_of(given, "format", ("blocks", "ndjson")) == "ndjson",
            _filter(given.get("filter")),
        )


def _after(value: object) -> Place | Literal["oldest", "newest"]:
    if value == "oldest":
        return "oldest"
    if value == "newest":
        return "newest"
    try:
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise ValueError("neither text nor number")
        place = Place.parse(str(value))
        # Whoever asks looks for himself whose ordinals these are: the answer tells.
        if (
            isinstance(place, Inside)
            or place.scn > _MOST
            or place.ord >= 2**31
            or (place.scn == 0 and not place.whole)
        ):
            raise ValueError("no place of a stream")
    except ValueError as error:
        raise _bad("after", "an SCN such as 81, a place such as 81:3, oldest or newest") from error
    return place


def number(given: Mapping[str, Any], name: str, *, least: int = 0, most: int = _MOST) -> int | None:
    """Return the whole number under a name, None when it was left out.

    Raises:
        BadRequest: it is none, or none of these.
    """
    value = given.get(name)
    if value is None:
        return None
    text = str(value)
    good = isinstance(value, str | int) and not isinstance(value, bool)
    if not good or not text.isascii() or not text.isdecimal() or len(text) > len(str(_MOST)):
        raise _bad(name, f"a whole number from {least:,} to {most:,}")
    if not least <= int(text) <= most:
        raise _bad(name, f"a whole number from {least:,} to {most:,}")
    return int(text)


def _one_of(given: Mapping[str, Any], name: str, known: tuple[str, ...]) -> str:
    """Return the value of a name, the first known one when it was left out."""
    value = given.get(name, known[0])
    if value not in known:
        raise _bad(name, " or ".join(known))
    return str(value)


def _filter(value: object) -> Filter | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = _json(value)
        except ValueError as error:
            raise _bad("filter", "a JSON object; in a URL it has to be percent-encoded") from error
    if not isinstance(value, Mapping):
        raise _bad("filter", "a JSON object")
    return parse_filter(value)


def _json(text: str | bytes) -> Any:
    """Return what JSON holds.

    Raises:
        ValueError: it is none, or nothing that can be used.
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("It is nested too deeply.") from error
    if not is_json(value):
        # A refusal that quoted it could not be sent.
        raise ValueError("It holds what no JSON does.")
    return value


def _bad(name: str, wanted: str) -> BadRequest:
    return BadRequest(
        f"The parameter {name} does not read: expected {wanted}.",
        next_step="correct it; docs/relay_protocol.md describes every parameter.",
    )


async def parameters(request: Request) -> Mapping[str, Any]:
    """Return the names and values of a query, or of a JSON object.

    Raises:
        BadRequest: a name comes twice, or the body is no JSON object.
    """
    if request.method in ("GET", "HEAD"):
        pairs = request.query_params.multi_items()
        counts = Counter(name for name, _ in pairs)
        twice = next((name for name, count in counts.items() if count > 1), None)
        if twice is not None:
            raise BadRequest(f"The parameter {twice[:40]} comes twice.", next_step="say it once.")
        return dict(pairs)
    body = b""
    try:
        async for part in request.stream():
            body += part
            if len(body) > _MOST_BODY_BYTES:
                raise BadRequest(
                    f"The body is larger than {_MOST_BODY_BYTES:,} bytes.",
                    next_step="say it shorter.",
                )
    except ClientDisconnect as error:
        # Nobody hears it; only the log of the relay would call it an error of its own.
        raise BadRequest(
            "The request ended inside its body.", next_step="send all of it."
        ) from error
    try:
        value = _json(body)
    except ValueError as error:
        raise BadRequest("The body is no JSON.", next_step="send a JSON object.") from error
    if not isinstance(value, dict):
        raise BadRequest("The body is no JSON object.", next_step="send a JSON object.")
    return value

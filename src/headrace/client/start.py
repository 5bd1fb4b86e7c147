"""Where to begin: a word or a time into a place, which relays are asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, TypeAlias

import numpy as np

from headrace.client.relays import Relays
from headrace.client.transport import AnyRelay, StreamRequest
from headrace.errors import BlockTooLarge, ConfigError, HeadraceError, RelayUnavailable, Retry
from headrace.wire.block import BlockFrame, join_indexes, read_index
from headrace.wire.place import Place

__all__ = ["Start", "resolve", "resolve_once"]

Start: TypeAlias = Place | datetime | Literal["oldest", "newest"]
"""A place; a time, for the first transaction that committed then or later; or an end of what the relay holds."""


def resolve_once(
    relays: Relays, source: str, start: Start, pause: Callable[[float], bool]
) -> Place:
    """Return the place that ``start`` is now, as `resolve` does, and close the relays, which serve for nothing else."""
    try:
        return resolve(relays, StreamRequest(source), start, pause)
    finally:
        relays.close()


def resolve(
    relays: Relays, request: StreamRequest, start: Start, pause: Callable[[float], bool]
) -> Place:
    """Return the place that ``start`` is now.

    A relay that has no change log yet is waited for like one that does not answer: its log may begin anywhere.

    Args:
        relays: asked one after the other until one answers.
        request: names the source.
        start: what to find.
        pause: waits for some seconds; returns False to give up.

    Raises:
        ConfigError: ``start`` is nothing of this kind.
        HeadraceError: no relay can tell.
    """
    if isinstance(start, Place):
        return start
    if not isinstance(start, datetime) and start not in ("oldest", "newest"):
        raise ConfigError(
            f"A stream cannot begin at {start!r}.",
            next_step="begin at 'oldest', 'newest', a place or a time.",
        )
    if request.upto == 0:
        # Nothing is wanted, wherever a log begins.
        return Place(0)
    refused = 0
    without: set[str] = set()
    while True:
        relay = relays.current()
        try:
            if isinstance(start, datetime):
                found = _at_time(relay, request, start)
            else:
                said = relay.source(request.source)
                if said.get("state") == "none":
                    without.add(relay.url)
                    raise RelayUnavailable(
                        f"Relay {relay.url} has no change log of {request.source} yet.",
                        next_step="start what fills it; tried again.",
                    )
                # What a log holds that was not there before is newer than all there was.
                oldest = start == "oldest" or relay.url in without
                found = Place(int(said["oldest_scn" if oldest else "covered_scn"]))
        except HeadraceError as error:
            refused = 0 if error.retry is Retry.TIMED else refused + 1
            if refused >= len(relays.urls) or not pause(relays.failed()):
                raise
        else:
            relays.answered()
            return found


def _at_time(relay: AnyRelay, request: StreamRequest, start: datetime) -> Place:
    """Return the place before the first transaction that committed at a time or later."""
    moment = start if start.tzinfo is not None else start.replace(tzinfo=UTC)
    since_us = max(0, round(moment.timestamp() * 1e6))
    # Without the filter: it may leave out the very transaction, and clocks go back behind it.
    asked = replace(
        request, after=None, since_us=since_us, upto=None, filter=None, pull=True, wait_ms=0
    )
    while True:
        try:
            stream = relay.stream(asked)
        except BlockTooLarge as error:
            asked = replace(asked, max_bytes=error.needed_bytes)
            continue
        try:
            for frame in stream.frames():
                if isinstance(frame, BlockFrame):
                    index = join_indexes([read_index(frame.data, frame.header)])
                    later = np.flatnonzero(index["commit_us"] >= since_us)
                    if later.size:
                        return Place(int(index["scn"][later[0]]) - 1)
            return Place(stream.covered_scn)
        finally:
            relay.close()

"""What a relay says about itself and its sources: small JSON documents."""

from __future__ import annotations

import asyncio
from typing import Any

from headrace.errors import (
    BadRequest,
    ChangeLogError,
    HeadraceError,
    NotServed,
    RelayUnavailable,
    StateError,
)
from headrace.model.schema import TableSchema
from headrace.relay.follow import FELL_OFF, REFUSED
from headrace.relay.server.admin import follow_status, source_state
from headrace.relay.server.feed import Feed
from headrace.wire.refusals import error_json

__all__ = ["buffer", "health", "schemas", "source"]


async def source(feed: Feed) -> dict[str, Any]:
    """Return one entry of ``/sources``; a source without a log, or whose log cannot be read, is listed too."""
    told: dict[str, Any] = {}
    try:
        feed.tail()
    except RelayUnavailable:
        # There is none yet.
        pass
    except ChangeLogError as error:
        told = {"error": error_json(error)}
    # Somebody may hold the state: that is no reason for the streams to wait.
    state = "unreadable" if told else await asyncio.to_thread(source_state, feed)
    tail = feed.reader.tail
    return {
        "name": feed.name,
        "state": state,
        "oldest_scn": tail.oldest_scn,
        "complete_scn": tail.complete_scn,
        "covered_scn": tail.covered_scn,
        "last_commit_us": tail.last_commit_us,
        "bytes": sum(link.length for link in feed.reader.links),
        **told,
    }


def schemas(feed: Feed, ids: str | None) -> dict[str, Any]:
    """Return ``/register``: every table version, or those whose ids are named.

    Raises:
        BadRequest: an id does not read.
        NotServed: an id was never kept.
        StateError: the registry is damaged.
    """
    if ids is None:
        found = feed.registry.all()
    else:
        found = [_version(feed, text) for text in ids.split(",") if text]
    return {
        "source": feed.name,
        "schemas": [
            {
                "id": f"{schema.schema_id:016x}",
                "table": str(schema.table),
                "schema": schema.to_json(),
            }
            for schema in found
        ],
    }


def buffer(feed: Feed) -> dict[str, Any]:
    """Return ``/buffer``: what the change log holds, segment by segment.

    Raises:
        RelayUnavailable: there is no log yet.
        ChangeLogLost: or another `ChangeLogError`: it cannot be read.
    """
    tail = feed.tail()
    links = feed.reader.links
    ends = [(link.header.complete_scn, link.header.commit_us) for link in links[1:]]
    if links:
        ends.append((tail.complete_scn, tail.last_commit_us))
    return {
        "source": feed.name,
        "oldest_scn": tail.oldest_scn,
        "complete_scn": tail.complete_scn,
        "covered_scn": tail.covered_scn,
        "bytes": sum(link.length for link in links),
        "segments": [
            {
                "name": str(link.name),
                "bytes": link.length,
                "first_scn": link.header.base_scn + 1,
                "last_scn": last_scn,
                "first_commit_us": feed.reader.first_commit_us(link),
                "last_commit_us": last_commit_us,
            }
            for link, (last_scn, last_commit_us) in zip(links, ends, strict=True)
        ],
    }


def health(feeds: list[Feed]) -> list[str]:
    """Return what is wrong, source by source; a source without a log is not."""
    wrong = []
    for feed in feeds:
        try:
            feed.reader.look()
        except HeadraceError as error:
            wrong.append(f"{feed.name}: {error.message}")
        status = follow_status(feed)
        if status is not None and status.state in (FELL_OFF, REFUSED):
            wrong.append(f"{feed.name}: {status.state}: {status.detail}")
    return wrong


def _version(feed: Feed, text: str) -> TableSchema:
    try:
        schema_id = int(text, 16)
        if len(text) != 16:
            raise ValueError("not 16 digits")
    except ValueError as error:
        raise BadRequest(
            "The parameter ids does not read: expected ids of 16 hex digits with commas between.",
            next_step="take them from the blocks, or leave ids out for all.",
        ) from error
    try:
        return feed.registry.get(schema_id)
    except StateError as error:
        raise NotServed(
            f"Source {feed.name} has no table version {schema_id:016x}.",
            next_step="ask another relay of the source; an id belongs to the log that named it.",
        ) from error

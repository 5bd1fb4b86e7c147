"""Where a transaction begins, on either kind of server."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headrace.sources.mysql.events import Begin, Event, EventType, parse_gtid
from headrace.sources.mysql.source_events import parse_source_gtid, parse_tagged_gtid

__all__ = ["BEGINS"]

BEGINS: Mapping[int, Callable[[Event], Begin]] = {
    EventType.GTID: parse_gtid,
    EventType.SOURCE_GTID: parse_source_gtid,
    EventType.TAGGED_GTID: parse_tagged_gtid,
}
"""What reads the event by which a transaction begins, by its type."""

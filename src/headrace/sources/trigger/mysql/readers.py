"""The pipelines that read the change tables: how far each has come, which triggers it needs, what it costs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.model.schema import TableId
from headrace.sources.mysql.connection import Session, quote_literal
from headrace.sources.trigger.cost import Cost, lost_place
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings

__all__ = ["Place", "enter", "note", "read_place", "read_places", "required_scn", "use_tables"]

# An older place never overwrites a newer one: another process may have taken over.
_NOTE = (
    "UPDATE headrace.txlog_readers SET scn = GREATEST(scn, {scn}), seen_at = SYSDATE(6), "
    "queries = queries + {queries}, fetched = fetched + {rows}, seconds = seconds + {seconds!r}, "
    "slow = slow + {slow} WHERE name = {name} AND scn IS NOT NULL"
)
_ENTER = (
    "INSERT INTO headrace.txlog_readers (name, scn, tables, seen_at, keep_s, abandon_s) "
    "VALUES ({name}, {scn}, {tables}, SYSDATE(6), {keep!r}, {abandon!r}) ON DUPLICATE KEY UPDATE "
    "scn = {scn}, tables = {tables}, seen_at = SYSDATE(6), keep_s = {keep!r}, abandon_s = {abandon!r}"
)
_USE = (
    "UPDATE headrace.txlog_readers SET tables = {tables}, keep_s = {keep!r}, abandon_s = {abandon!r} "
    "WHERE name = {name}"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline stands.

    Attributes:
        scn: everything up to here is durable with it; None where it was away for too long.
        tables: those on which it needs triggers.
    """

    scn: int | None
    tables: frozenset[TableId]


def read_places(session: Session) -> dict[str, Place]:
    """Return where each pipeline stands."""
    rows = session.texts("SELECT name, scn, tables FROM headrace.txlog_readers")
    return {
        name or "": Place(
            None if scn is None else int(scn),
            frozenset(TableId(*table) for table in json.loads(tables or "[]")),
        )
        for name, scn, tables in rows
    }


def read_place(session: Session, name: str) -> Place | None:
    """Return where a pipeline stands, None when it never had a place."""
    return read_places(session).get(name)


def required_scn(session: Session, name: str) -> int:
    """Return up to where everything is durable with a pipeline.

    Raises:
        SlotLost: it has no place.
    """
    place = read_place(session, name)
    if place is None or place.scn is None:
        raise lost_place(
            name, "somebody removed it" if place is None else "it was away for too long"
        )
    return place.scn


def note(session: Session, name: str, scn: int, cost: Cost) -> None:
    """Note how far a pipeline has come, and that it is alive.

    Raises:
        SlotLost: it has no place any more.
    """
    found = session.run(
        _NOTE.format(
            scn=scn,
            queries=cost.queries,
            rows=cost.rows,
            seconds=cost.seconds,
            slow=cost.slow,
            name=quote_literal(name),
        )
    )
    if found != 1:
        required_scn(session, name)


def enter(
    session: Session, settings: MysqlTriggerSettings, scn: int, tables: Iterable[TableId]
) -> None:
    """Give a pipeline a place, whether it has one or not."""
    session.run(_ENTER.format(scn=scn, **_told(settings, tables)))


def use_tables(session: Session, settings: MysqlTriggerSettings, tables: Iterable[TableId]) -> None:
    """Note which tables a pipeline needs triggers on, and how long what is to be kept for it."""
    session.run(_USE.format(**_told(settings, tables)))


def _told(settings: MysqlTriggerSettings, tables: Iterable[TableId]) -> dict[str, str | float]:
    return {
        "name": quote_literal(settings.name),
        "tables": quote_literal(json.dumps(sorted(list(table) for table in tables))),
        "keep": float(settings.keep_s),
        "abandon": float(settings.abandon_s),
    }

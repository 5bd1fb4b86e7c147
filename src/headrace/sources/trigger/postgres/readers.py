"""The pipelines that read the change tables: how far each has come, which triggers it needs, what it costs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from headrace.sources.postgres.connection import Session
from headrace.sources.trigger.cost import Cost, lost_place
from headrace.sources.trigger.postgres.settings import PostgresTriggerSettings

__all__ = [
    "Place",
    "enter",
    "note",
    "read_place",
    "required_scn",
    "use_table",
    "use_tables",
]

_READ = "SELECT scn, tables::text FROM headrace.txlog_readers WHERE name = $1"
# An older place never overwrites a newer one: another process may have taken over.
_NOTE = """
UPDATE headrace.txlog_readers SET scn = greatest(scn, $2::bigint), seen_at = clock_timestamp(),
       queries = queries + $3::bigint, rows = rows + $4::bigint, seconds = seconds + $5::float8,
       slow = slow + $6::bigint
 WHERE name = $1 AND scn IS NOT NULL
"""
_ENTER = """
INSERT INTO headrace.txlog_readers (name, scn, tables, seen_at, keep_s, abandon_s)
VALUES ($1, $2, $3, clock_timestamp(), $4, $5)
    ON CONFLICT (name) DO UPDATE SET scn = excluded.scn, tables = excluded.tables,
       seen_at = excluded.seen_at, keep_s = excluded.keep_s, abandon_s = excluded.abandon_s
"""
_USE = """
UPDATE headrace.txlog_readers SET tables = $2, keep_s = $3, abandon_s = $4 WHERE name = $1
"""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pipeline stands.

    Attributes:
        scn: everything up to here is durable with it; None where it was away for too long.
        tables: oids of those on which it needs triggers.
    """

    scn: int | None
    tables: frozenset[int]


def read_place(session: Session, name: str) -> Place | None:
    """Return where a pipeline stands, None when it never had a place."""
    rows = session.rows(_READ, name)
    if not rows:
        return None
    scn, tables = rows[0]
    oids = (tables or "{}").strip("{}")
    return Place(int(scn) if scn else None, frozenset(int(oid) for oid in oids.split(",") if oid))


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
    numbers = (str(scn), str(cost.queries), str(cost.rows), repr(cost.seconds), str(cost.slow))
    if session.run(_NOTE, name, *numbers) != "UPDATE 1":
        required_scn(session, name)


def enter(
    session: Session, settings: PostgresTriggerSettings, scn: int, tables: Iterable[int]
) -> None:
    """Give a pipeline a place, whether it has one or not."""
    session.run(_ENTER, settings.name, str(scn), _oids(tables), *_patience(settings))


def use_tables(session: Session, settings: PostgresTriggerSettings, tables: Iterable[int]) -> None:
    """Note which tables a pipeline needs triggers on, and how long what is to be kept for it."""
    session.run(_USE, settings.name, _oids(tables), *_patience(settings))


def _patience(settings: PostgresTriggerSettings) -> tuple[str, str]:
    return repr(float(settings.keep_s)), repr(float(settings.abandon_s))


def use_table(session: Session, name: str, oid: int) -> None:
    """Note that a pipeline needs triggers on one more table."""
    session.run(
        "UPDATE headrace.txlog_readers SET tables = tables || $2::oid "
        "WHERE name = $1 AND NOT $2::oid = ANY (tables)",
        name,
        str(oid),
    )


def _oids(tables: Iterable[int]) -> str:
    return "{" + ",".join(str(oid) for oid in sorted(tables)) + "}"

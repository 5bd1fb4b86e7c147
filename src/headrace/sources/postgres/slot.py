"""Slot and publication: made, found again, checked and removed.

What the configuration names belongs to the administrator and is only ever read. Our own publication carries a
comment from the moment its slot exists, so that a slot that vanished later is told from one never made.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from headrace.errors import SlotLost, SourceError, SourceUnavailable
from headrace.model.schema import TableId
from headrace.sources.base import HeldSlot
from headrace.sources.postgres import marks
from headrace.sources.postgres.catalog import TableFacts, read_tables
from headrace.sources.postgres.connection import (
    QueryFailed,
    Session,
    connect,
    quote,
    quote_literal,
)
from headrace.sources.postgres.publication import add_tables, listed
from headrace.sources.postgres.settings import MARKS_TABLE, PostgresSettings

__all__ = [
    "FAILOVER_VERSION",
    "RESYNC",
    "SlotState",
    "check_slot",
    "drop_former",
    "drop_own",
    "drop_statement",
    "ensure_publication",
    "ensure_slot",
    "read_slot",
]


FAILOVER_VERSION = 17
"""From here on a slot may be kept in step on standbys."""

RESYNC = (
    "RESYNC NEEDED: run `headrace resync FILE`, which makes a new slot, compares the tables and "
    "repairs what differs"
)
"""What to do about a position in the log that is lost."""


@dataclass(frozen=True, slots=True)
class SlotState:
    """A slot as the server shows it.

    Attributes:
        lost: why it cannot be read any more, empty when it can.
        failover: whether standbys may keep it in step.
        two_phase: whether it hands a transaction out at PREPARE TRANSACTION already.
    """

    plugin: str
    database: str
    active_pid: int | None
    confirmed: str | None
    lost: str
    failover: bool = False
    two_phase: bool = False


def read_slot(session: Session, name: str) -> SlotState | None:
    """Return a slot's state, None when there is no such slot."""
    newer = "NULL, false"
    if session.version >= FAILOVER_VERSION:
        newer = "invalidation_reason, failover"
    rows = session.rows(
        "SELECT plugin, database, active_pid, confirmed_flush_lsn, wal_status, "
        f"two_phase, {newer} FROM pg_replication_slots WHERE slot_name = $1",
        name,
    )
    if not rows:
        return None
    plugin, database, pid, confirmed, wal_status, two_phase, why, failover = rows[0]
    lost = why or ("its log was removed" if wal_status == "lost" else "")
    return SlotState(
        plugin or "",
        database or "",
        int(pid) if pid else None,
        confirmed,
        lost,
        failover == "t",
        two_phase == "t",
    )


def check_slot(session: Session, settings: PostgresSettings) -> SlotState:
    """Return the slot that will be read.

    Raises:
        SlotLost: it does not exist or was invalidated.
    """
    state = read_slot(session, settings.slot_name)
    if state is None:
        raise SlotLost(
            f"Slot {settings.slot_name} does not exist at the source.",
            next_step=f"{RESYNC}.",
        )
    if state.lost:
        raise SlotLost(
            f"Slot {settings.slot_name} was invalidated by the server ({state.lost}).",
            next_step=f"{RESYNC}; raise max_slot_wal_keep_size to keep the log longer.",
        )
    return state


def ensure_publication(
    session: Session,
    settings: PostgresSettings,
    tables: Iterable[TableFacts],
    *,
    fresh: bool = False,
) -> None:
    """Make our own publication hold nothing but ``tables`` (and the watermark table when marks use it).

    Those that it lacks, though it is there, come in when a look at the catalog finds that they join: they are new, or
    somebody took them out, and their changes passed by. A publication named in the configuration is left alone.

    Args:
        session: at the source.
        settings: name the publication.
        tables: the captured ones.
        fresh: nothing is captured yet, so all come in at once.
    """
    if settings.watermark == "table":
        _ensure_marks_table(session)
    if settings.publication is not None:
        return
    marked = read_tables(session, only=MARKS_TABLE) if settings.watermark == "table" else []
    captured = [*tables, *marked]
    wanted = {facts.table for facts in captured}
    name = quote(settings.publication_name)
    listing = _publication_tables(session, settings.publication_name)
    try:
        if listing is None:
            session.run(
                f"CREATE PUBLICATION {name} FOR TABLE {listed(session, settings, captured)} "
                "WITH (publish = 'insert, update, delete, truncate', "
                "publish_via_partition_root = true)"
            )
            return
        add_tables(session, settings, captured if fresh else marked)
        if removed := listing - wanted:
            session.run(f"ALTER PUBLICATION {name} DROP TABLE {_list(removed)}")
    except QueryFailed as error:
        raise SourceError(
            f"Publication {settings.publication_name} cannot be made: {error.message}",
            next_step="run `headrace preflight FILE`, or let an administrator make the publication "
            "and name it as source.publication.",
        ) from error


def ensure_slot(session: Session, settings: PostgresSettings, *, fresh: bool = False) -> None:
    """Make our own slot exist, at the log's present end when it is new.

    Args:
        session: at the source.
        settings: name the slot.
        fresh: our own slot is made anew when it was there before and is gone or invalid.

    Raises:
        SlotLost: it existed once and is gone or invalid.
        SourceUnavailable: transactions that are open kept the server from making it.
    """
    there = read_slot(session, settings.slot_name)
    if fresh and settings.slot is None and there is not None and there.lost:
        _drop_slot(session, settings.slot_name)
        there = None
    if settings.slot is not None or there is not None:
        state = check_slot(session, settings)
        # Whoever made it may have ended before he noted it; one without a place is not made yet.
        if settings.slot is None and settings.publication is None and state.confirmed is not None:
            # A publication of our name may be an administrator's, who lets nobody else write there.
            with contextlib.suppress(QueryFailed):
                _note_slot(session, settings)
        return
    if not fresh and settings.publication is None and _made_before(session, settings):
        check_slot(session, settings)
    try:
        options = ""
        if settings.failover and session.version >= FAILOVER_VERSION:
            options = ", false, false, true"
        session.rows(
            f"SELECT pg_create_logical_replication_slot($1, 'pgoutput'{options})",
            settings.slot_name,
            timeout_s=settings.slot_timeout_s,
        )
    except QueryFailed as error:
        raise SourceError(
            f"Slot {settings.slot_name} cannot be made: {error.message}",
            next_step="run `headrace preflight FILE`, which lists what is missing.",
        ) from error
    except SourceUnavailable as error:
        raise SourceUnavailable(
            f"Slot {settings.slot_name} was not made in {settings.slot_timeout_s:.0f} s: {error.message}",
            next_step="end the oldest open transaction (pg_stat_activity.xact_start, "
            "pg_prepared_xacts.prepared); a slot waits for all that were open when it was asked for.",
        ) from error
    if settings.publication is None:
        _note_slot(session, settings)


def drop_own(settings: PostgresSettings) -> None:
    """Remove slot, publication and watermark table as far as they are ours."""
    with connect(settings) as session:
        if settings.slot is None:
            _drop_slot(session, settings.slot_name)
        if settings.publication is None:
            session.run(f"DROP PUBLICATION IF EXISTS {quote(settings.publication_name)}")
        if settings.watermark == "table" and settings.publication is None:
            marks.drop_marks_table(session)


def drop_former(settings: PostgresSettings, slot: HeldSlot) -> str:
    """Remove a slot of an earlier configuration, with the publication that was made for it and is not used any more.

    Returns:
        why it stays, where it is not ours; empty where it is gone.

    Raises:
        SourceUnavailable: somebody reads it, or the server refuses.
    """
    with connect(settings) as session:
        if not slot.own:
            there = read_slot(session, slot.name) is not None
            return f"it is not ours to drop: {drop_statement(slot.name)}" if there else ""
        _drop_slot(session, slot.name)
        used = settings.publication_name == settings.own_name
        if not used and _made_for(session, settings.own_name, slot.name):
            session.run(f"DROP PUBLICATION {quote(settings.own_name)}")
    return ""


def drop_statement(name: str) -> str:
    """Return what drops a slot, for people."""
    return f"SELECT pg_drop_replication_slot({quote_literal(name)})"


def _drop_slot(session: Session, name: str) -> None:
    try:
        session.rows(
            "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
            "WHERE slot_name = $1",
            name,
        )
    except QueryFailed as error:
        raise SourceUnavailable(
            f"Slot {name} cannot be removed: {error.message}",
            next_step="stop the process that reads it, then try again.",
        ) from error


def _ensure_marks_table(session: Session) -> None:
    """Create the watermark table unless it is there already (an administrator may have made it)."""
    there = session.rows("SELECT to_regclass($1)", f"{quote(MARKS_TABLE.schema)}.watermarks")
    if there[0][0] is not None:
        return
    try:
        marks.create_marks_table(session)
    except QueryFailed as error:
        raise SourceError(
            f"The watermark table {MARKS_TABLE} cannot be made: {error.message}",
            next_step="let an administrator make it (docs/postgres.md), or use message watermarks.",
        ) from error


def _publication_tables(session: Session, name: str) -> set[TableId] | None:
    """Return the tables that a publication names, None when there is no such publication."""
    rows = session.rows(
        "SELECT n.nspname, c.relname FROM pg_publication p "
        "LEFT JOIN pg_publication_rel r ON r.prpubid = p.oid "
        "LEFT JOIN pg_class c ON c.oid = r.prrelid LEFT JOIN pg_namespace n ON n.oid = c.relnamespace "
        "WHERE p.pubname = $1",
        name,
    )
    if not rows:
        return None
    return {TableId(schema, table or "") for schema, table in rows if schema is not None}


def _list(tables: Iterable[TableId]) -> str:
    return ", ".join(f"ONLY {quote(t.schema)}.{quote(t.name)}" for t in sorted(tables))


def _note_slot(session: Session, settings: PostgresSettings) -> None:
    if _made_before(session, settings):
        return
    text = _note_of(settings.slot_name)
    session.run(
        f"COMMENT ON PUBLICATION {quote(settings.publication_name)} IS {quote_literal(text)}"
    )


def _note_of(slot: str) -> str:
    return f"headrace: slot {slot} was made"


def _made_before(session: Session, settings: PostgresSettings) -> bool:
    return _made_for(session, settings.publication_name, settings.slot_name)


def _made_for(session: Session, publication: str, slot: str) -> bool:
    """Whether a publication is there that says that a slot was made for it."""
    rows = session.rows(
        "SELECT obj_description(oid, 'pg_publication') FROM pg_publication WHERE pubname = $1",
        publication,
    )
    return bool(rows and rows[0][0] == _note_of(slot))

"""How a table that was not captured before joins the log, so that log and dump together miss no row.

A publication holds for what is written after it: the log leaves out what a transaction wrote to the table before the
table was added, also when the transaction commits later. Whoever wrote holds a lock on the table until its commit is
visible, so once all who held one when the table was added are gone, every read sees what the log left out.

Servers before 14.18, 15.13, 16.9 and 17.5 may remember from such a transaction that the table is not published, and
leave out what comes behind it too. Adding the table once more, when those transactions are gone, makes them look
again; what they left out in between is visible when the writers of that moment are gone as well.

Writers are never blocked: adding a table takes a lock that only maintenance waits for.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from headrace.errors import SourceUnavailable
from headrace.sources.base import Severity
from headrace.sources.postgres.catalog import TableFacts
from headrace.sources.postgres.connection import QueryFailed, Session
from headrace.sources.postgres.publication import (
    add_tables,
    add_tables_again,
    read_publication,
)
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.tables_check import check_table

__all__ = ["Joining", "Joins", "await_writers", "writers"]

_PAUSE_S = 0.05
# Undefined table or schema: it was dropped meanwhile.
_GONE = ("42P01", "3F000")

# By their locks, and where they have a number by that too: one that is prepared is known by nothing else once the
# server has started anew. One without a number has written nothing yet.
_WRITERS = """
SELECT DISTINCT unnest(ARRAY[l.virtualtransaction, '-1/' || x.transactionid::text])
  FROM pg_locks l LEFT JOIN pg_locks x
       ON x.locktype = 'transactionid' AND x.granted AND x.mode = 'ExclusiveLock'
      AND x.virtualtransaction = l.virtualtransaction
 WHERE l.locktype = 'relation' AND l.granted AND l.pid IS DISTINCT FROM pg_backend_pid()
   AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
   AND l.mode IN ('RowExclusiveLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock')
   AND l.relation IN (SELECT t.relid FROM unnest($1::oid[]) r(oid), pg_partition_tree(r.oid::regclass) t
                      UNION ALL SELECT unnest($1::oid[]))
"""


def writers(session: Session, oids: Iterable[int]) -> frozenset[str]:
    """Return the transactions that may have written to some tables and whose end is not visible yet."""
    listed = "{" + ",".join(map(str, oids)) + "}"
    return frozenset(row[0] for row in session.rows(_WRITERS, listed) if row[0])


def await_writers(session: Session, settings: PostgresSettings, oids: Iterable[int]) -> None:
    """Wait, as the making of a slot does, until the present writers of some tables are gone.

    Raises:
        SourceUnavailable: one of them was not done in time.
    """
    listed = list(oids)
    there = writers(session, listed)
    deadline = time.monotonic() + settings.slot_timeout_s
    while there & writers(session, listed):
        if time.monotonic() > deadline:
            raise SourceUnavailable(
                f"Transactions that write to captured tables did not end in {settings.slot_timeout_s:.0f} s.",
                next_step="end the oldest open transaction (pg_stat_activity.xact_start, "
                "pg_prepared_xacts.prepared); the log may lack a part of it.",
            )
        time.sleep(_PAUSE_S)


class Joins(Protocol):
    """Takes tables into the log, one step at each call; blocks for nobody."""

    def step(
        self, session: Session, tables: Iterable[TableFacts]
    ) -> tuple[set[int], dict[int, str]]:
        """Return the oids that have joined, and why others cannot.

        Args:
            session: outside a transaction.
            tables: those that want to join; one that is missing here starts anew next time.
        """
        ...


@dataclass(slots=True)
class _Wait:
    """A table on its way: how often it was added, and whose end is waited for."""

    added: int
    writers: frozenset[str]


class Joining:
    """`Joins` by the publication.

    Used from one thread. What it has begun is forgotten with the process, and begun anew by the next.
    """

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._waits: dict[int, _Wait] = {}

    def step(
        self, session: Session, tables: Iterable[TableFacts]
    ) -> tuple[set[int], dict[int, str]]:
        """See `Joins`."""
        wanted = {facts.oid: facts for facts in tables}
        self._waits = {oid: wait for oid, wait in self._waits.items() if oid in wanted}
        if not wanted:
            return set(), {}
        joined: set[int] = set()
        refused = self._refused(session, wanted.values())
        for oid, facts in wanted.items():
            if oid in refused:
                self._waits.pop(oid, None)
                continue
            try:
                if self._advance(session, facts):
                    joined.add(oid)
                    del self._waits[oid]
            except QueryFailed as error:
                if error.sqlstate not in _GONE:
                    refused[oid] = error.message
            except SourceUnavailable:
                # Maintenance holds the table; it is asked again at the next call.
                if not session.usable:
                    raise
        return joined, refused

    def _advance(self, session: Session, facts: TableFacts) -> bool:
        """Go as far as can be gone without waiting; return whether the table has joined."""
        own = self._settings.publication is None
        wait = self._waits.get(facts.oid)
        if wait is None:
            if own:
                add_tables(session, self._settings, [facts])
            wait = self._waits[facts.oid] = _Wait(1, writers(session, [facts.oid]))
        while not wait.writers & writers(session, [facts.oid]):
            if wait.added > 1 or not own:
                return True
            add_tables_again(session, self._settings, [facts])
            wait.added, wait.writers = 2, writers(session, [facts.oid])
        return False

    def _refused(self, session: Session, tables: Iterable[TableFacts]) -> dict[int, str]:
        """Return why tables cannot be captured: a table that is published without a key fails its updates."""
        publication = read_publication(session, self._settings.publication_name)
        own = self._settings.publication is None
        ((role, superuser),) = session.rows(
            "SELECT rolname, rolsuper FROM pg_roles WHERE rolname = current_user"
        )
        refused = {}
        for facts in tables:
            findings = check_table(
                facts,
                version=session.version,
                role=role or "",
                privileged=superuser == "t",
                adopted=None if own else publication,
                owns_publication=own,
                choice=self._settings.columns_of(facts.table),
            )
            errors = [f for f in findings if f.severity is Severity.ERROR]
            if errors:
                refused[facts.oid] = " ".join(f"{f.description} {f.suggestion}" for f in errors)
        return refused

"""What differs between the servers that speak this protocol, as a port; everything else here is the same for all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from headrace.model.snapshot import Visibility
from headrace.sources.base import Finding, Severity
from headrace.sources.mysql.connection import Session
from headrace.sources.mysql.events import Event
from headrace.sources.mysql.gtids import Gtid
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.position import Place, Resume

__all__ = ["PAUSE_S", "WAIT_S", "Check", "Log", "PlacedSnapshot", "Start", "Vendor"]

Start = str | tuple[str, int]
"""Where a log begins: behind ids as the server writes them, or at a place in a file."""

Log = Callable[[Start], Iterator[tuple[str, Event]]]
"""Reads a log from somewhere to its present end: file and event."""

WAIT_S, PAUSE_S = 60.0, 0.002
"""How long a moment is waited for in which a snapshot stands at a place, and how long between two looks."""


@dataclass(frozen=True, slots=True)
class Check:
    """A variable of the server that has to have a value.

    Attributes:
        variable: its name.
        wanted: the value that it must have, as the server shows it.
        why: what is wrong with another one.
        remedy: SQL; empty where setting the variable is all.
        severity: of the finding.
    """

    variable: str
    wanted: str
    why: str
    remedy: str = ""
    severity: Severity = Severity.ERROR


class PlacedSnapshot(Visibility, Protocol):
    """A snapshot that has seen everything up to a place of the log and nothing behind it."""

    @property
    def place(self) -> Place:
        """Where it stands, in the numbers of the server's own files."""
        ...


class Vendor(Protocol):
    """One kind of server."""

    name: str
    """What people call it."""
    collations: str
    """SQL: number and character set of each collation."""
    collated: frozenset[int]
    """Kinds of column for which a table map has a collation."""
    patient: str
    """SQL that lets a statement of the session take as long as it needs."""
    backreference: str
    """What stands for the first group in the replacement of a regular expression, inside a literal."""
    engine_tables: str
    """SQL: name and number of each table, as its engine has them."""
    engine_columns_made: str
    """SQL: name of each table and how often its columns came or went at once; empty where nobody counts."""
    checks: Sequence[Check]
    """Variables that a capture needs."""
    sees_place: str
    """Right to ask where the log is."""
    instant: bool
    """Whether a snapshot shows what was committed at one instant, also of commits that are in no log."""
    keyless: tuple[str, Severity]
    """Name of the finding of a table without a primary key, and how bad that is."""
    keyless_why: str
    """And why."""

    def refusal(self, version: str) -> Finding | None:
        """Return why a server of a version is not read at all, None when it is."""
        ...

    def incarnation(self, session: Session) -> str:
        """Return the server's own name for itself."""
        ...

    def is_itself(self, session: Session, resume: Resume) -> bool:
        """Return whether a server of another name is the one whose log was read up to a place."""
        ...

    def end(self, session: Session) -> tuple[str, int]:
        """Return file and position at which the log ends now.

        Raises:
            QueryFailed: we may not ask, or there is no log.
        """
        ...

    def filters(self, session: Session) -> tuple[str, str]:
        """Return the databases of which alone the log has changes, and those of which it has none; likewise."""
        ...

    def beginning(self, session: Session) -> Resume:
        """Return where a reader begins that has read nothing: what is committed later comes, whatever else comes too.

        Raises:
            QueryFailed: likewise.
        """
        ...

    def followed(self, session: Session, resume: Resume) -> Resume:
        """Return a place in this server's log that goes on behind ours.

        Raises:
            SlotLost: there is none; it was reset, restored, or is another server that lacks what we have.
        """
        ...

    def shift(self, session: Session, resume: Resume) -> int:
        """Return what is added to the numbers of this server's files, for one who comes from a place."""
        ...

    def start(self, resume: Resume) -> Start:
        """Return how to ask for the log behind a place."""
        ...

    def ask(self, session: Session, start: Start, server_id: int, *, follow: bool) -> bytes:
        """Prepare a session for the log and return the command that asks for it.

        Args:
            session: logged in.
            start: where the log begins.
            server_id: under which we are a replica.
            follow: whether the server waits for what comes.
        """
        ...

    def number(self, numbers: GtidNumbers) -> Callable[[Gtid], int] | None:
        """Return what gives transactions their numbers, None where their place does."""
        ...

    def snapshot(
        self, session: Session, numbers: GtidNumbers | None, read: Resume | None
    ) -> AbstractContextManager[Visibility]:
        """Open a snapshot in a read-only transaction of its own; it knows what it has surely seen.

        Args:
            session: logged in.
            numbers: of ids; None where nobody asks about the log.
            read: how far the log was read by now, and what was prepared there; None likewise.
        """
        ...

    def placed(
        self,
        session: Session,
        log: Log,
        numbers: GtidNumbers | None,
    ) -> AbstractContextManager[PlacedSnapshot]:
        """Open a snapshot likewise that stands at a place of the log.

        Args:
            session: logged in.
            log: reads it.
            numbers: of ids.

        Raises:
            SourceError: no such snapshot can be had.
        """
        ...

    def whole(
        self, session: Session, log: Log, numbers: GtidNumbers | None
    ) -> AbstractContextManager[Visibility]:
        """Open a snapshot likewise for a table without a key.

        Raises:
            SourceError: of such a table this server cannot say what was seen.
        """
        ...

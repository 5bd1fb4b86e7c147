"""What the state database holds, as values."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from headrace.model.schema import TableId
from headrace.state.pace import OwnPace

__all__ = [
    "OPEN",
    "RESTING",
    "Cause",
    "Certificate",
    "DumpProgress",
    "DumpRequest",
    "RequestState",
    "Scope",
    "Turn",
]

Key = tuple[str, ...]


class Scope(Enum):
    """What a request asks for."""

    ALL_TABLES = "ALL_TABLES"
    """Every captured table, one after the other."""
    TABLE = "TABLE"
    """One table."""
    PREDICATE = "PREDICATE"
    """The rows of one table for which a condition in SQL holds."""
    PRIMARY_KEYS = "PRIMARY_KEYS"
    """Some keys of one table."""
    REPAIR = "REPAIR"
    """What a comparison found to differ in one table behind a gap, which is complete afterwards; perhaps no key."""

    @property
    def is_whole(self) -> bool:
        """Whether tables are complete afterwards: read from their first row to their last, or compared."""
        return self in (Scope.ALL_TABLES, Scope.TABLE, Scope.REPAIR)


class RequestState(Enum):
    """Where a request stands.

    People move it to PAUSED, back to QUEUED, and to CANCELLED; capture does the rest.
    """

    QUEUED = "QUEUED"
    """Waits for its turn; what it has read before stays."""
    ACTIVE = "ACTIVE"
    """Capture works on it."""
    PAUSED = "PAUSED"
    """Rests where it is until it is resumed; no further chunk begins."""
    COMPLETED = "COMPLETED"
    """Everything it asked for is in the change log."""
    FAILED = "FAILED"
    """It cannot be carried out; the reason is kept."""
    CANCELLED = "CANCELLED"
    """Given up by a person; what it has read stays in the change log."""


OPEN = (RequestState.QUEUED, RequestState.ACTIVE, RequestState.PAUSED)
"""The states that are no end."""

RESTING = "resting"
"""Name of the value that says which request that people paused or cancelled capture has let go of last."""


class Cause(Enum):
    """Why a request exists."""

    ASKED = "ASKED"
    """A person or a program asked for it."""
    FIRST_COPY = "FIRST_COPY"
    """The table never had a finished dump."""
    LEFT_OUT = "LEFT_OUT"
    """The table was left out for a while; its changes passed by."""
    FILLED = "FILLED"
    """The source filled a column without a word in its log."""
    RETYPED = "RETYPED"
    """A column took a type that its values at the target do not fit, and the target copies the table again."""
    GAP = "GAP"
    """The source's log lacks changes."""
    ADOPTED = "ADOPTED"
    """The target holds a dump that was made elsewhere: nothing is read, the table is complete at the end mark."""


@dataclass(frozen=True, slots=True)
class DumpRequest:
    """One request.

    Attributes:
        table: None for all tables.
        keys: as the source renders them, empty unless the scope is PRIMARY_KEYS.
        missing: requested keys that do not exist at the source.
        reason: why it failed.
        priority: the highest goes first; equal ones in order of submission.
        predicate: SQL condition, empty unless the scope is PREDICATE.
        delete_missing: whether missing keys are deleted from the target.
        created_s: when it was asked for, seconds since 1970 UTC.
        updated_s: when its state, priority or pace last changed, likewise.
        pace: settings of its own.
        key_order: of the key that the keys were of when they were given, as the source names it; empty when whoever
            gave them does not know, and for requests of an older headrace.
    """

    request_id: str
    scope: Scope
    table: TableId | None
    keys: tuple[Key, ...]
    missing: tuple[Key, ...]
    state: RequestState
    reason: str
    priority: int = 0
    cause: Cause = Cause.ASKED
    predicate: str = ""
    delete_missing: bool = False
    created_s: float = 0.0
    updated_s: float = 0.0
    pace: OwnPace = field(default_factory=OwnPace)
    key_order: str = ""


@dataclass(frozen=True, slots=True)
class Turn:
    """The place of one request in the line; ``table`` is None for all tables."""

    request_id: str
    state: RequestState
    priority: int
    table: TableId | None


@dataclass(frozen=True, slots=True)
class DumpProgress:
    """How far one table of one request is.

    Attributes:
        state: ``waiting``, ``copying``, ``done``, ``failed`` or ``cancelled``; ``dropped`` when the log said that
            there is no such table any more; ``refused`` for a table that cannot be captured, and ``gone`` when that
            is no matter any more.
        until: largest key when the dump began, None when it has not begun or the table was empty.
        after: last key of the last finished chunk, None at the start.
        rows_read: rows of finished chunks; ``rows_voided``: rows read in vain.
        rows_estimated: what the catalog promised, 0 when it does not know.
        completed_scn: position of the completion, 0 before.
        keys_done: requested keys that were looked for.
        rows_per_s: rows read per second of late, pauses between chunks included; 0 when not known yet.
        first_scn: position of the rows of its first chunk, 0 before.
        key_order: by which ``until`` and ``after`` are compared, or of which the requested keys are, as the source
            names it; empty when it does not, or when they were kept before it was kept too.
    """

    request_id: str
    table: TableId
    state: str = "waiting"
    until: Key | None = None
    after: Key | None = None
    chunks: int = 0
    rows_read: int = 0
    rows_emitted: int = 0
    rows_voided: int = 0
    rows_estimated: int = 0
    completed_scn: int = 0
    keys_done: int = 0
    rows_per_s: float = 0.0
    first_scn: int = 0
    key_order: str = ""

    @property
    def seconds_left(self) -> float | None:
        """Estimated time to the end at the present rate; None when nobody can know."""
        if self.state != "copying" or not self.rows_per_s or not self.rows_estimated:
            return None
        return max(0, self.rows_estimated - self.rows_read) / self.rows_per_s


@dataclass(frozen=True, slots=True)
class Certificate:
    """What one finished chunk vouches for; ``digest`` is over the emitted rows."""

    request_id: str
    table: TableId
    after: Key | None
    last: Key | None
    low_scn: int
    high_scn: int
    snapshot: str
    rows: int
    emitted: int
    digest: str
    schema_id: int

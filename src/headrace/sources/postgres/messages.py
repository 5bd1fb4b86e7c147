"""What pgoutput says: the messages of a logical replication stream, as values."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

__all__ = [
    "POSTGRES_EPOCH_US",
    "UNCHANGED",
    "Begin",
    "Binary",
    "Cell",
    "Commit",
    "Delete",
    "Insert",
    "LogicalMessage",
    "Message",
    "Origin",
    "Relation",
    "RelationColumn",
    "StreamAbort",
    "StreamCommit",
    "StreamStart",
    "StreamStop",
    "Truncate",
    "TypeName",
    "Unchanged",
    "Update",
]

POSTGRES_EPOCH_US = 946_684_800_000_000
"""Microseconds from 1970-01-01 to 2000-01-01, where PostgreSQL's clock starts."""


class Unchanged(Enum):
    """The one cell that is neither null nor a value."""

    UNCHANGED = "unchanged"
    """An out-of-line value that the update did not touch and the log does not carry."""


UNCHANGED: Final = Unchanged.UNCHANGED


class Binary(bytes):
    """A value in its type's binary form."""

    __slots__ = ()


Cell = bytes | None | Unchanged
"""Text of a value, or `Binary`, null, or not sent."""


@dataclass(frozen=True, slots=True)
class Begin:
    """Start of a committed transaction: LSN of its commit record, commit time, 32-bit id."""

    commit_lsn: int
    commit_us: int
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """End of a transaction: LSN of the commit record and of the byte behind it."""

    commit_lsn: int
    end_lsn: int
    commit_us: int


@dataclass(frozen=True, slots=True)
class Origin:
    """The transaction came to the server from another one."""

    lsn: int
    name: str


@dataclass(frozen=True, slots=True)
class RelationColumn:
    """A column as the log describes it: whether it is part of the replica identity, type and modifier."""

    name: str
    identity: bool
    type_oid: int
    type_modifier: int


@dataclass(frozen=True, slots=True)
class Relation:
    """Shape of a table from here on. ``identity`` is ``d``, ``n``, ``f`` or ``i``."""

    oid: int
    schema: str
    name: str
    identity: str
    columns: tuple[RelationColumn, ...]


@dataclass(frozen=True, slots=True)
class TypeName:
    """Name of a type that the server did not bring."""

    oid: int
    schema: str
    name: str


# Messages of rows are the many: freezing them would double the cost of making one.


@dataclass(slots=True)
class Insert:
    """A new row."""

    oid: int
    new: list[Cell]


@dataclass(slots=True)
class Update:
    """A changed row. ``old_kind`` is ``K`` (key columns only), ``O`` (whole row) or empty (not sent)."""

    oid: int
    old_kind: str
    old: list[Cell] | None
    new: list[Cell]


@dataclass(slots=True)
class Delete:
    """A removed row. ``old_kind`` is ``K`` (key columns only) or ``O`` (whole row)."""

    oid: int
    old_kind: str
    old: list[Cell]


@dataclass(frozen=True, slots=True)
class Truncate:
    """Tables emptied by one statement."""

    oids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LogicalMessage:
    """What ``pg_logical_emit_message`` wrote."""

    transactional: bool
    lsn: int
    prefix: str
    content: bytes


@dataclass(frozen=True, slots=True)
class StreamStart:
    """From here on messages belong to an open transaction; ``first``: to its begin."""

    xid: int
    first: bool


@dataclass(frozen=True, slots=True)
class StreamStop:
    """End of such a stretch."""


@dataclass(frozen=True, slots=True)
class StreamCommit:
    """A streamed transaction has committed."""

    xid: int
    commit_lsn: int
    end_lsn: int
    commit_us: int


@dataclass(frozen=True, slots=True)
class StreamAbort:
    """A streamed transaction, or one of its subtransactions, was rolled back."""

    xid: int
    subxid: int


Message = (
    Begin
    | Commit
    | Origin
    | Relation
    | TypeName
    | Insert
    | Update
    | Delete
    | Truncate
    | LogicalMessage
    | StreamStart
    | StreamStop
    | StreamCommit
    | StreamAbort
)

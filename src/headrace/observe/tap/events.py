"""Every kind of event, one class each: the contract as types.

The JSON Schemas in ``schemas/`` and the tables in docs/tap.md are made from, and checked against, these classes. The
first thirteen kinds and their fields are those of DBLog's reference implementation; the others are ours, and a reader
that does not know a kind skips it. A field that is None is left out of the line. A key is a tuple of the texts of its
parts.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

__all__ = ["CONTRACT", "KINDS", "OURS", "OUT_OF_BAND", "VERSION", "Event", "Key"]

VERSION = 1
"""Rises when a field or kind goes away or changes its meaning; new ones may come without it."""

Key = tuple[str, ...]
"""A row's key as the source renders it; empty for a table without one."""

Op = Literal["INSERT", "UPDATE", "DELETE"]
Level = Literal["LOW", "HIGH"]
Mode = Literal["range", "keys", "table"]
VoidReason = Literal["schema changed", "rows let go", "connection lost", "read failed"]
Origin = Literal["LOG", "SELECT"]
KeyForm = Literal["plain", "hashed"]
ListReason = Literal["moved in", "unsettled in chunk"]
Lsn = Annotated[str, "SCN, in decimal digits."]
TxId = Annotated[str | None, "The source's own transaction id, where it has one."]
Table = Annotated[str, "schema.table."]
ChunkId = Annotated[int, "Number of the window in this run, from 1."]
Token = Annotated[str, "Token of the window, the same in both marks."]
RequestId = Annotated[str, "The request that the window belongs to."]
DumpId = Annotated[str, "Request and table."]
RowKey = Annotated[Key, "Key of the row, its parts as in CSV."]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """What all kinds share; each is also `headrace.observe.tap.port.Told` of itself."""

    kind: ClassVar[str]

    @property
    def count(self) -> int:
        """One."""
        return 1

    @property
    def nbytes(self) -> int:
        """About what an event takes."""
        return 512

    def events(self) -> Iterator[Event]:
        """Yield itself."""
        yield self


# -- the contract's thirteen --------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Cdc(Event):
    """One row change, as the source's log brought it."""

    kind = "cdc"
    lsn: Lsn
    op: Op
    table: Table
    pk: RowKey
    tx_id: TxId = None
    from_pk: Annotated[Key | None, "Key before the update, where it changed."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkEvent(Event):
    """One row that went into the change log, from the log or from a chunk."""

    kind = "sink.event"
    lsn: Lsn
    op: Op
    table: Table
    pk: RowKey
    origin: Annotated[Origin, "Where the row comes from."]
    tx_id: TxId = None
    dump_id: Annotated[str | None, "Request and table, for a row of a chunk."] = None
    chunk_id: Annotated[int | None, "The window that is open, or that the row belongs to."] = None
    sink_name: Annotated[str, "Always changelog."]
    from_pk: Annotated[Key | None, "Key before the update, where it changed."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkWritten(Event):
    """A mark was written to the source."""

    kind = "watermark.written"
    level: Level
    token: Token
    chunk_id: ChunkId


@dataclass(frozen=True, slots=True, kw_only=True)
class WatermarkReceived(Event):
    """A mark came back through the source's log."""

    kind = "watermark.received"
    level: Level
    token: Token
    chunk_id: ChunkId
    lsn: Lsn
    latency_ms: Annotated[int, "Milliseconds since it was written."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSelected(Event):
    """The select between the marks has ended; its rows wait for the high mark."""

    kind = "chunk.selected"
    chunk_id: ChunkId
    request_id: RequestId
    dump_id: DumpId
    table: Table
    mode: Annotated[Mode, "A stretch of keys, single keys, or a whole table without a key."]
    pk_min: Annotated[Key | None, "Key of the first row."] = None
    pk_max: Annotated[Key | None, "Key of the last row."] = None
    start_after_pk: Annotated[Key | None, "Where the chunk begins; absent for the first."] = None
    row_count: Annotated[int, "Rows that the select gave."]
    final_chunk: Annotated[bool, "Whether it is the last of its table."]
    fingerprint: Annotated[str, "Schema id of the table version, 16 hexadecimal digits."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCollision(Event):
    """A row of the chunk yields to a log event that the select did not surely see."""

    kind = "chunk.collision"
    chunk_id: ChunkId
    excluded_pk: RowKey
    cause_lsn: Annotated[str, "SCN of the last such event; a truncate counts as DELETE."]
    cause_op: Op
    cause_tx_id: TxId = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkCompleted(Event):
    """The high mark was received, the surviving rows are in the change log."""

    kind = "chunk.completed"
    chunk_id: ChunkId
    request_id: RequestId
    table: Table
    emitted: Annotated[int, "Rows that left."]
    excluded: Annotated[int, "Rows that yielded."]
    last_pk: Annotated[Key | None, "Where the next chunk begins."] = None
    lsn: Annotated[str, "SCN of the high mark, which the rows share."]
    duration_ms: Annotated[int, "Milliseconds since the low mark was written."]
    held_ms: Annotated[
        int, "Milliseconds since the high mark was received: so long the log stood still."
    ]
    final_chunk: Annotated[bool, "Whether it is the last of its table."]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointAdvanced(Event):
    """Change log and progress are durable, and the source was told that it may forget."""

    kind = "checkpoint.advanced"
    lsn: Annotated[str, "SCN up to which everything is durable."]
    reason: Annotated[Literal["boundary"], "Always at the end of a transaction."]
    position: Annotated[str, "The same place as the source itself counts."]
    buffered_events: Annotated[int, "Rows made durable since the checkpoint before."]


ScopeName = Literal["ALL_TABLES", "TABLE", "PREDICATE", "PRIMARY_KEYS", "REPAIR"]
"""What a request asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTransition(Event):
    """The durable state of a request changed."""

    kind = "request.transition"
    request_id: RequestId
    scope: ScopeName
    table: Annotated[str | None, "schema.table; absent for all tables."] = None
    state: Annotated[str, "QUEUED, ACTIVE, COMPLETED, FAILED, and what steering adds."]
    prev_state: Annotated[str | None, "State before; absent when this run first meets it."] = None
    reason: Annotated[str | None, "Why it failed."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Error(Event):
    """A boundary that failed closed: the capture stops."""

    kind = "error"
    boundary: Annotated[str, "Where: always capture."]
    class_: Annotated[str, "Name of the error; see docs/errors.md."]
    message: Annotated[str, "What happened to which object."]
    next_step: Annotated[str | None, "What a person does now."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamHeartbeat(Event):
    """The tap lives; how full its queue is."""

    kind = "stream.heartbeat"
    queue_depth: Annotated[int, "Events that wait to be written."]
    queue_capacity: Annotated[int, "Events that may wait."]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamStandby(Event):
    """Teaching mode: capture stands still until the reader goes on. Out of band."""

    kind = "stream.standby"
    queue_full_ms: Annotated[int, "Milliseconds it has stood still so far."]
    queue_capacity: Annotated[int, "Events that the reader may be behind."]
    reason: Literal["queue_full"] = "queue_full"
    message: Annotated[str, "The same for people."]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResumed(Event):
    """Teaching mode: capture goes on. Out of band."""

    kind = "stream.resumed"
    standby_total_ms: Annotated[int, "Milliseconds it stood still."]


# -- ours ---------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class TapOpened(Event):
    """A run begins: how to read what follows."""

    kind = "tap.opened"
    mode: Annotated[Literal["record", "teach", "scenario"], "Drops, blocks, or was scripted."]
    keys: Annotated[KeyForm, "Whether keys are what they look like."]
    rows: Annotated[bool, "Whether cdc and sink.event are told."]


@dataclass(frozen=True, slots=True, kw_only=True)
class TapDropped(Event):
    """The queue was full or the disk refused; the numbers between are missing."""

    kind = "tap.dropped"
    dropped: Annotated[int, "Events lost since the last of these."]
    total: Annotated[int, "Events lost in this run."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkVisibility(Event):
    """What the chunk's snapshot saw of the transactions that were streamed and not yet seen."""

    kind = "chunk.visibility"
    chunk_id: ChunkId
    table: Table
    snapshot: Annotated[str, "The snapshot, as xmin:xmax:running."]
    seen: Annotated[int, "Transactions that it surely saw."]
    not_seen: Annotated[int, "Transactions that it surely did not see; they decide."]
    unknown: Annotated[int, "Transactions of which nothing is known; they count as not seen."]
    unseen_tx_ids: Annotated[list[str], "The first 16 that are not surely seen."]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkPatched(Event):
    """A row of the chunk took columns from a log event that left others out; it leaves whole."""

    kind = "chunk.patched"
    chunk_id: ChunkId
    pk: RowKey
    columns: Annotated[list[str], "Columns that the log sent."]
    cause_lsn: Annotated[str, "SCN of the last event that patched it."]
    cause_tx_id: TxId = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowVoid(Event):
    """A window ended without rows; what it read is read again."""

    kind = "window.void"
    chunk_id: ChunkId
    table: Table
    reason: Annotated[
        VoidReason,
        "The table changed its shape; the memory bound was reached; the log was opened anew; the "
        "source refused the read.",
    ]
    row_count: Annotated[int | None, "Rows read in vain, where the read had ended."] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadListed(Event):
    """Keys were put on the re-read list: rows moved there that nobody has emitted whole."""

    kind = "reread.listed"
    table: Table
    pks: Annotated[list[Key], "The keys."]
    reason: Annotated[ListReason, "Streamed, or found in a chunk."]


@dataclass(frozen=True, slots=True, kw_only=True)
class RereadSettled(Event):
    """Keys were read again and left the list."""

    kind = "reread.settled"
    table: Table
    pks: Annotated[list[Key], "The keys."]
    left: Annotated[int, "Keys that are still on the list."]


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateIssued(Event):
    """What a finished chunk vouches for."""

    kind = "certificate"
    chunk_id: ChunkId
    table: Table
    after_pk: Annotated[Key | None, "Where the chunk began."] = None
    last_pk: Annotated[Key | None, "Where it ended."] = None
    low_lsn: Annotated[str, "SCN of the low mark."]
    high_lsn: Annotated[str, "SCN of the high mark."]
    rows: Annotated[int, "Rows read."]
    emitted: Annotated[int, "Rows that left."]
    digest: Annotated[str, "BLAKE3 over the rows that left."]


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotForgot(Event):
    """A snapshot has seen streamed transactions, which are no longer remembered."""

    kind = "snapshot.forgot"
    snapshot: Annotated[str, "The snapshot, as xmin:xmax:running."]
    forgotten: Annotated[int, "Transactions forgotten."]
    remembered: Annotated[int, "Transactions that are still not seen."]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaChanged(Event):
    """From here on a table has another version."""

    kind = "schema.changed"
    lsn: Lsn
    table: Table
    fingerprint: Annotated[str, "Schema id of the table version, 16 hexadecimal digits."]


@dataclass(frozen=True, slots=True, kw_only=True)
class TableTruncated(Event):
    """A table was truncated at the source."""

    kind = "table.truncated"
    lsn: Lsn
    table: Table
    tx_id: TxId = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableCompleted(Event):
    """A table's dump and its re-read list lie before this position."""

    kind = "table.completed"
    request_id: RequestId
    table: Table
    lsn: Lsn
    token: Token


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureWaiting(Event):
    """Capture waits for the source or for room on disk, and goes on by itself."""

    kind = "capture.waiting"
    state: Annotated[str, "waiting for source, or waiting for room."]
    message: Annotated[str, "Why."]


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamDropped(Event):
    """This listener was too slow, and lines were left out for it alone. Out of band."""

    kind = "stream.dropped"
    dropped: Annotated[int, "Numbered lines that were left out just before."]
    total: Annotated[int, "The same since it began to listen."]


CONTRACT: tuple[type[Event], ...] = (
    Cdc,
    SinkEvent,
    WatermarkWritten,
    WatermarkReceived,
    ChunkSelected,
    ChunkCollision,
    ChunkCompleted,
    CheckpointAdvanced,
    RequestTransition,
    Error,
    StreamHeartbeat,
    StreamStandby,
    StreamResumed,
)
"""The thirteen kinds of the contract."""

OURS: tuple[type[Event], ...] = (
    TapOpened,
    TapDropped,
    ChunkVisibility,
    ChunkPatched,
    WindowVoid,
    RereadListed,
    RereadSettled,
    CertificateIssued,
    SnapshotForgot,
    SchemaChanged,
    TableTruncated,
    TableCompleted,
    CaptureWaiting,
    StreamDropped,
)
"""What we tell beyond it."""

KINDS: dict[str, type[Event]] = {event.kind: event for event in (*CONTRACT, *OURS)}
"""Every kind by its name."""

OUT_OF_BAND = (StreamStandby, StreamResumed, StreamDropped)
"""Kinds that carry no number: they stand between two lines of the numbered stream."""

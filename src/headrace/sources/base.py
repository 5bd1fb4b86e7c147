"""The port of a source database.

An adapter turns its database's log into `Block`s of committed transactions, reads chunks of tables, and writes
watermarks. It knows nothing of windows, dumps, files or Spark. `headrace.relay.capture` is its only
caller: the log reader is used from one thread, the chunk reader and the watermark writer from one other.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import PreflightFailed
from headrace.model.block import Block
from headrace.model.mark import Mark
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import Visibility

__all__ = [
    "PASSWORD_CHANGED",
    "Bound",
    "CanonicalKeys",
    "CatalogEntry",
    "CatalogLook",
    "CatalogReader",
    "Chunk",
    "ChunkReader",
    "Finding",
    "FollowsOthers",
    "HeldSlot",
    "HoldsSlot",
    "LogItem",
    "LogReader",
    "Opening",
    "OpensAhead",
    "ReceivedMark",
    "SchemaStore",
    "Severity",
    "Source",
    "TableDump",
    "WatermarkWriter",
    "refuse",
]


PASSWORD_CHANGED = (
    "Where the password was changed: a new one in a file or keyring is taken by itself, one of the environment when "
    "headrace is started again with it."
)
"""What to do about a login that was refused with a password; a next step's second half."""


class Severity(Enum):
    """How bad a finding is."""

    ERROR = "ERROR"
    """Capture would be wrong or impossible: it does not start."""
    WARNING = "WARNING"
    """Capture works, with a cost that the finding names."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing preflight found; all are reported at once.

    Attributes:
        name: short, stable, kebab-case.
        description: the object and what is wrong with it.
        suggestion: what to do; exact SQL where there is any.
        severity: whether capture may start.
        table: ``schema.table`` it is about, empty for the server or the role.
    """

    name: str
    description: str
    suggestion: str
    severity: Severity = Severity.ERROR
    table: str = ""


def refuse(name: str, findings: Iterable[Finding]) -> None:
    """Raise when a finding forbids that a pipeline begins; all such are told at once.

    Args:
        name: of the pipeline.
        findings: of its preflight.

    Raises:
        PreflightFailed: at least one of them is an error.
    """
    errors = [finding for finding in findings if finding.severity is Severity.ERROR]
    if errors:
        raise PreflightFailed(
            f"{name} cannot be captured as it is: "
            + "; ".join(f"{finding.description} [{finding.name}]" for finding in errors),
            next_step=" ".join(dict.fromkeys(finding.suggestion for finding in errors)),
        )


@dataclass(frozen=True, slots=True)
class ReceivedMark:
    """A watermark read back from the log, with the SCN it has there."""

    mark: Mark
    scn: int
    commit_us: int


@dataclass(frozen=True, slots=True)
class LogItem:
    """What the log gave in one read.

    Attributes:
        block: committed transactions (or pieces of one that has committed), in commit order.
        mark: a watermark that directly follows the block's last transaction, if one does.
        position: opaque; hand it to `LogReader.acknowledge` when everything up to here is durable.
        more: more is under way, so that it is worth reading on while this is made durable.
        astray: identities of captured tables that had another name in the log than was known, or whose name another
            table had. A look tells whether that lasted.
    """

    block: Block
    position: str
    mark: ReceivedMark | None = None
    more: bool = False
    astray: frozenset[str] = frozenset()


class LogReader(Protocol):
    """An open log. Blocking, used from one thread."""

    def poll(self, timeout_s: float) -> LogItem | None:
        """Return what has arrived, or None when nothing came in time.

        Items come in commit order without gaps. Ends an item right after a watermark. An item without transactions
        whose ``covered_scn`` rose says that the log is quiet up to there. After a restart
        transactions that were not acknowledged come again, unchanged and with the same SCNs.

        Raises:
            SourceUnavailable: the connection is gone; open again.
            SlotLost: the log from our position on is gone.
        """
        ...

    def acknowledge(self, position: str) -> None:
        """Tell the source that everything up to ``position`` is durable here; never blocks for long."""
        ...

    def keep_alive(self) -> None:
        """Show the source that we are there while nothing is polled; cheap to call often.

        Raises:
            SourceUnavailable: the connection is gone; open again.
        """
        ...

    def close(self) -> None:
        """Release the connection; the slot stays."""
        ...


@dataclass(frozen=True, slots=True)
class Bound:
    """Where the rows of a table end now.

    Attributes:
        key: the largest key as the database renders it (text), None where there is no row.
        key_order: names the key's columns and how the database orders them, in a short opaque text: bounds taken
            under one such text mean nothing under another. Empty when the source's keys never change their order.
    """

    key: tuple[str, ...] | None
    key_order: str = ""


@dataclass(frozen=True, slots=True)
class Chunk:
    """Rows of one bounded select, in the database's key order.

    Attributes:
        schema: the table's shape as the select saw it.
        rows: the table's own columns (`headrace.model.change.table_arrow_schema`), no meta columns.
        visibility: which transactions the select saw; taken in the same snapshot as the rows.
        last_key: key of the last row as the database renders it (text), None for an empty chunk.
        cut: whether it ended before ``limit`` rows to stay within its bytes: there may be more.
        key_order: by which the select compared keys, as in `Bound`.
    """

    schema: TableSchema
    rows: pa.RecordBatch
    visibility: Visibility
    last_key: tuple[str, ...] | None
    cut: bool = False
    key_order: str = ""


@dataclass(frozen=True, slots=True)
class CanonicalKeys:
    """Keys as the database renders them, each once.

    Attributes:
        keys: in the order given.
        key_order: of the key whose values they are, as in `Bound`.
    """

    keys: tuple[tuple[str, ...], ...]
    key_order: str = ""


@dataclass(frozen=True, slots=True)
class TableDump:
    """A whole table under one snapshot, for tables without a key.

    ``batches`` is consumed once, from the thread that asked for it.
    """

    schema: TableSchema
    visibility: Visibility
    batches: Iterator[pa.RecordBatch]


class ChunkReader(Protocol):
    """Bounded selects. Blocking, used from one thread. Every call is a transaction of its own."""

    def describe(self, table: TableId) -> TableSchema:
        """Return the table's shape as the catalog has it now."""
        ...

    def estimate_rows(self, table: TableId) -> int:
        """Return the catalog's estimate of the number of rows, 0 when unknown."""
        ...

    def upper_bound(self, table: TableId, predicate: str | None = None) -> Bound:
        """Return the largest key, and by which order it is the largest; both of one moment.

        Args:
            table: whose.
            predicate: count only rows for which this condition holds, in the source's own language.

        Raises:
            SourceError: the source refuses the condition; the message has its reason.
        """
        ...

    def read(
        self,
        table: TableId,
        after: Sequence[str] | None,
        until: Sequence[str],
        limit: int,
        predicate: str | None = None,
    ) -> Chunk:
        """Return at most ``limit`` rows with ``after < key <= until``, ordered and compared by the database.

        With a predicate, only rows for which it holds.
        """
        ...

    def read_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> Chunk:
        """Return the rows of the given keys that exist; ``last_key`` is None."""
        ...

    def canonical_keys(self, table: TableId, keys: Sequence[Sequence[str]]) -> CanonicalKeys:
        """Return keys that people wrote as the database renders them, each once, in the order given.

        Two that are one key only under a row of the table are two while that is not there: the next call may return
        fewer or more.

        Raises:
            ConfigError: one is not a key of the table.
        """
        ...

    def key_rows(self, schema: TableSchema, keys: Sequence[Sequence[str]]) -> pa.RecordBatch:
        """Return a row for each rendered key, all other columns null; the reverse of `render_keys`."""
        ...

    def read_table(self, table: TableId) -> TableDump:
        """Return every row of a table under one snapshot; the snapshot stays open until the batches end."""
        ...

    def snapshot(self) -> Visibility:
        """Return what a read would see now."""
        ...

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as the database would render it, for `read_keys`."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


@runtime_checkable
class FollowsOthers(Protocol):
    """What a source also is that goes on on another server, where what it has read has other numbers."""

    @property
    def leaves_out(self) -> bool:
        """Whether the log, opened next, will not bring again what `holds` was told of."""
        ...

    def holds(self, xids: npt.NDArray[np.int64], scn: int) -> None:
        """Take note that the change log holds more than was acknowledged; called before `Source.departs`.

        Args:
            xids: of the transactions behind what was acknowledged, in order.
            scn: up to which it is complete; the source's own number, no offset added.
        """
        ...


@dataclass(frozen=True, slots=True)
class HeldSlot:
    """A slot: a place in its log that a server keeps for one reader, until somebody drops it.

    Attributes:
        server: which one; the same behind a promotion.
        name: of the slot there.
        own: whether we made it; what the configuration names is its administrator's.
    """

    server: str
    name: str
    own: bool


@runtime_checkable
class HoldsSlot(Protocol):
    """What a source also is whose log is read through a slot."""

    def held(self, incarnation: str) -> HeldSlot:
        """Return the slot that is read, in the source's present ``incarnation``; nothing is asked of the server."""
        ...

    def let_go(self, slot: HeldSlot, incarnation: str) -> str:
        """Remove a slot that another configuration had, if it is ours and within reach.

        Args:
            slot: not the one that is read.
            incarnation: that the source is in.

        Returns:
            why it stays and what a person is to do, in half a sentence; empty where it is gone.

        Raises:
            SourceUnavailable: it cannot be removed now.
        """
        ...


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """A table as the catalog had it at one moment.

    Attributes:
        table: its name then.
        shape: opaque text of the source; hand it back with the next look.
    """

    table: TableId
    shape: str


@dataclass(frozen=True, slots=True)
class CatalogLook:
    """What one look at the source's catalog found.

    Attributes:
        tables: by the source's own lasting identity, every known table that still exists, under whatever name, and
            the new ones that have joined.
        schemas: namespaces that captured tables may lie in, by their lasting identity.
        joining: new tables that are not in the log yet, or not wholly; also those that have just joined.
        joined: new identities; a read that begins now sees all that the log does not bring of them.
        restated: known identities whose rows changed in a way that no log event carries.
        refused: tables that match and cannot be captured, with the reason.
    """

    tables: Mapping[str, CatalogEntry]
    schemas: Mapping[str, str]
    joining: Mapping[str, TableId] = field(default_factory=dict)
    joined: frozenset[str] = frozenset()
    restated: frozenset[str] = frozenset()
    refused: Mapping[TableId, str] = field(default_factory=dict)


@runtime_checkable
class CatalogReader(Protocol):
    """What a chunk reader also is when its source's set of tables may change while it is captured."""

    def look(
        self,
        known: Mapping[str, CatalogEntry],
        settled: Collection[TableId],
        admitted: Collection[str],
    ) -> CatalogLook:
        """Compare the catalog with what was known of it; called every few seconds.

        Brings admitted tables into the log, as far as that is ours to do. That may take several looks; until
        it is done a table is in neither ``tables`` nor ``joined``.

        Args:
            known: the captured tables, as the last look that was worked off had them.
            settled: tables that have been in the log since it began: known under whatever identity they have.
            admitted: identities of new tables that an earlier look reported as joining.
        """
        ...


class WatermarkWriter(Protocol):
    """Writes marks into the source's log. Blocking, same thread as the chunk reader."""

    def write(self, mark: Mark) -> None:
        """Return when the mark is committed at the source; it will come back through the log once."""
        ...

    def close(self) -> None:
        """Release the connection."""
        ...


class SchemaStore(Protocol):
    """Where an adapter looks up and records table versions (`headrace.registry`)."""

    def put(self, schema: TableSchema) -> int:
        """Keep a schema for ever and return its id; durable when it returns."""
        ...

    def get(self, schema_id: int) -> TableSchema:
        """Return the schema of an id."""
        ...

    def all(self) -> Iterable[TableSchema]:
        """Return every version that was ever kept."""
        ...


class Source(Protocol):
    """One source database."""

    name: str

    def preflight(self) -> list[Finding]:
        """Return everything that stands in the way, not only the first; changes nothing."""
        ...

    def tables(self) -> list[TableSchema]:
        """Return the captured tables in a stable order."""
        ...

    def prepare(self, *, fresh: bool = False) -> None:
        """Create what capture needs at the source and does not exist yet (publication, slot, marks).

        Args:
            fresh: nothing was captured before under this state, so a log position that existed once and is gone
                is no loss.

        Raises:
            SlotLost: the position that the state goes on from is gone.
        """
        ...

    def incarnation(self) -> str:
        """Return the identity of the log's time line; a change means that positions start anew."""
        ...

    def departs(self, incarnation: str, scn: int) -> str:
        """Return why the present log does not hold all that another incarnation's, or its own, held up to an SCN.

        Args:
            incarnation: what `incarnation` returned when that was captured.
            scn: the source's own number, no offset added.

        Returns:
            empty when the log only goes on from there.
        """
        ...

    def open(self, schemas: SchemaStore) -> LogReader:
        """Start reading the log from what was last acknowledged."""
        ...

    def acknowledged_scn(self) -> int:
        """Return up to where the log will not be sent again; 0 when nothing was ever acknowledged.

        A watermark's own SCN may be the last; everything else at or below it must be in the change log.
        """
        ...

    def chunks(self) -> ChunkReader:
        """Open a chunk reader."""
        ...

    def watermarks(self) -> WatermarkWriter:
        """Open a watermark writer."""
        ...

    def drop(self) -> None:
        """Remove what `prepare` created; what was named in the configuration stays."""
        ...


class Opening(Protocol):
    """A log that is about to be opened."""

    def open(self, schemas: SchemaStore) -> LogReader:
        """See `Source.open`; once only."""
        ...

    def close(self) -> None:
        """Let go of what was made for it, where it is not opened."""
        ...


@runtime_checkable
class OpensAhead(Protocol):
    """What a source also is that can make the connections of its log while other things are asked and written."""

    def opening(self) -> Opening:
        """Begin to connect, on a thread; what goes wrong is told by `Opening.open`."""
        ...

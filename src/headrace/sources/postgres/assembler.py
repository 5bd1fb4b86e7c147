"""Frames to blocks: keeps what one hand-over will carry, in commit order, bounded in rows and bytes.

The decoder takes rows, begins and commits; what it leaves is decided here: descriptions of tables, truncates, marks,
streamed transactions, and everything that is broken. Pure but for `Versions`, which it asks when the log
describes a table, and for the spools of streamed transactions. A transaction's rows are added as they come; when the
bounds are reached in its middle, what is there leaves as a piece that is not the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from headrace.errors import ProtocolError
from headrace.model.block import Block, Body, SystemEvent, SystemKind
from headrace.model.mark import Mark
from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import LogItem, ReceivedMark
from headrace.sources.postgres import marks
from headrace.sources.postgres.columns import joined, narrowed_body
from headrace.sources.postgres.ddl import DDL_PREFIX
from headrace.sources.postgres.decoder import COLD, MAX_ORD, NEED, SPOOLED, Decoder, Rows
from headrace.sources.postgres.frames import FrameBuffer
from headrace.sources.postgres.lsn import format_lsn
from headrace.sources.postgres.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Relation,
    StreamAbort,
    StreamCommit,
    StreamStart,
    StreamStop,
    Truncate,
    Update,
)
from headrace.sources.postgres.pgoutput import decode
from headrace.sources.postgres.rows import ChangeRows
from headrace.sources.postgres.spools import Spool, Spools
from headrace.sources.postgres.types import Form

__all__ = ["Assembler", "Event", "TableVersion", "Versions"]

Event = tuple[SystemKind, TableId, dict[str, Any]]
"""A system event without its place."""


@dataclass(frozen=True, slots=True)
class TableVersion:
    """What became of a relation message.

    Attributes:
        schema: the table from here on; None when its rows are not ours to keep.
        schema_id: its id, registered.
        announce: payload of the system event that says so, None when nothing is new.
        marks: whether this is the table of watermarks.
        wire: the shape of its messages, where columns of theirs are left out of ``schema``.
        forms: how the binary form of each column of its messages is read; empty where they come as text.
        anew: payload of the truncate that begins the table's life, None when it only goes on.
        astray: identities of captured tables whose changes go by under another name, or under whose name others come.
    """

    schema: TableSchema | None = None
    schema_id: int = 0
    announce: dict[str, Any] | None = None
    marks: bool = False
    anew: dict[str, Any] | None = None
    wire: TableSchema | None = None
    forms: tuple[Form, ...] = ()
    astray: frozenset[str] = frozenset()


class Versions(Protocol):
    """Explains relation messages; may ask the catalog and the registry."""

    def resolve(self, relation: Relation) -> TableVersion:
        """Return what the relation's rows are from here on."""
        ...

    def misread(self, relation: Relation) -> frozenset[str]:
        """Return the identities of captured tables of which the copy is wrong by what a relation is described as.

        Asked for each description, also for one of which no row comes.
        """
        ...

    def migrated(self, content: bytes) -> Iterable[Event]:
        """Return what a message of the event trigger says."""
        ...


@dataclass(slots=True)
class _Relation:
    version: TableVersion
    names: tuple[str, ...]


@dataclass(slots=True)
class _Replay:
    """A streamed transaction that has committed and is read again from its spool.

    Attributes:
        spool: has what comes behind ``data``.
        data: a part of it, of which ``start`` to its end is not decoded yet.
    """

    spool: Spool
    data: memoryview = field(default_factory=lambda: memoryview(b""))
    start: int = 0

    def advance(self) -> bool:
        """Go on to the next part; return whether there is one."""
        part = self.spool.next_part()
        if part is not None:
            self.data, self.start = part, 0
        return part is not None


class Assembler:
    """Collects frames until `take`.

    Args:
        versions: explains relations.
        mark_prefix: prefix of the logical messages that are our marks.
        decoder: reads the frames.
        spools: where streamed transactions wait for their commit.
        on_frame: told of frames that are not of the copy stream: kind and bytes.
    """

    def __init__(
        self,
        versions: Versions,
        mark_prefix: str,
        decoder: Decoder,
        spools: Spools,
        on_frame: Callable[[bytes, bytes], None],
    ) -> None:
        self.decoder = decoder
        self._versions = versions
        self._mark_prefix = mark_prefix
        self._spools = spools
        self._on_frame = on_frame
        self._relations: dict[int, _Relation] = {}
        self._pending: dict[int, Relation] = {}
        self._rows: dict[tuple[int, tuple[Form, ...]], Rows] = {}
        self._narrow: dict[int, TableSchema] = {}
        self._system: list[SystemEvent] = []
        self._astray: frozenset[str] = frozenset()
        self._tx_mark: Mark | None = None
        self._mark: ReceivedMark | None = None
        self._streaming = 0
        self._replay: _Replay | None = None
        self._told = 0

    @property
    def covered(self) -> int:
        """SCN up to which everything was seen."""
        return self.decoder.covered

    @property
    def open(self) -> bool:
        """Whether a transaction has begun and not yet ended."""
        return self.decoder.scn != 0

    @property
    def spooling(self) -> bool:
        """Whether changes come that wait for the commit of their transaction."""
        return self.decoder.spooling

    @property
    def replaying(self) -> bool:
        """Whether more of a streamed transaction that has committed is to be read from its spool."""
        return self._replay is not None

    @property
    def has_output(self) -> bool:
        """Whether `take` would return transactions, a piece or a mark."""
        return bool(
            self.decoder.entries or self._mark or (self.decoder.scn and self.decoder.changes)
        )

    @property
    def full(self) -> bool:
        """Whether a hand-over is due: a mark ends it, or the bounds are reached."""
        return (
            self._mark is not None
            or self.decoder.rows >= self.decoder.max_rows
            or self.decoder.held_bytes >= self.decoder.max_bytes
        )

    def advance(self, frames: FrameBuffer) -> None:
        """Take in what the buffer holds, up to a hand-over.

        Raises:
            ProtocolError: the stream is broken.
            UndecodableValue: a value has no exact place in its column's type.
        """
        if self._replay is not None and not self._go_on(self._replay):
            return
        while not self.full:
            frames.start = self.decoder.walk(frames.data, frames.start, frames.end)
            if self.decoder.stop == SPOOLED:
                self._spools.add(self._streaming, self.decoder.take_spool())
            elif self.decoder.stop == COLD:
                self._cold(frames)
                if self._replay is not None and not self._go_on(self._replay):
                    return
            else:
                return

    def take(self, *, more: bool = False) -> LogItem:
        """Return everything so far and start anew; the open transaction leaves as a piece.

        Args:
            more: the item says that more is coming.
        """
        decoder = self.decoder
        if decoder.scn and decoder.changes:
            decoder.entry(False)
        filled = sorted((rows for rows in self._rows.values() if len(rows)), key=lambda r: r.first)
        block = Block(
            decoder.take_index(),
            tuple(self._bodies(filled)),
            tuple(self._system),
            decoder.covered,
        )
        item = LogItem(block, format_lsn(decoder.position), self._mark, more, self._astray)
        self._system, self._mark, self._astray = [], None, frozenset()
        decoder.rows = decoder.held_bytes = 0
        self._told = decoder.covered
        return item

    def _bodies(self, filled: Sequence[Rows]) -> Iterator[Body]:
        """Yield a body for each version; rows of two shapes may be of one once columns are left out."""
        if not self._narrow and len({rows.schema_id for rows in filled}) == len(filled):
            yield from (rows.body() for rows in filled)
            return
        found: dict[int, list[Body]] = {}
        for rows in filled:
            body = rows.body()
            schema = self._narrow.get(body.schema_id)
            if schema is not None:
                body = narrowed_body(body, schema)
            found.setdefault(body.schema_id, []).append(body)
        yield from (joined(bodies) for bodies in found.values())

    def quiet(self, wal_end: int) -> LogItem | None:
        """Return an item that says nothing of ours lies before ``wal_end``, None when that is not new."""
        covered = max(self.covered, wal_end - 1)
        if self.open or self.has_output or covered <= self._told:
            return None
        self.decoder.covered = covered
        self.decoder.position = max(self.decoder.position, wal_end)
        return self.take()

    # -- what the decoder leaves ------------------------------------------------------------------

    def _cold(self, frames: FrameBuffer | _Replay) -> None:
        """Take in the frame at which the decoder stopped."""
        decoder = self.decoder
        kind, data = decoder.cold_frame, decoder.cold
        assert kind is not None
        assert data is not None
        if kind != b"w":
            self._on_frame(kind, data)
            return
        message = decode(data)
        if isinstance(message, Relation):
            self._astray |= self._versions.misread(message)
        if isinstance(message, Insert | Update | Delete) and self._describe_pending(message.oid):
            # Now the decoder knows what to do with it.
            frames.start = decoder.cold_at
        elif isinstance(message, Relation) and decoder.prefixed:
            # It may be the work of a subtransaction that was rolled back: a row decides.
            self._pending[message.oid] = message
            decoder.set_table(message.oid, None, cold=True)
        else:
            self._message(message, frames.start - decoder.cold_at - 5)

    def _message(self, message: Message, size: int) -> None:
        if isinstance(message, Insert | Update | Delete):
            self._row(message)
        elif isinstance(message, Begin):
            self._refuse_begin(message)
        elif isinstance(message, Commit):
            self._commit(message)
        elif isinstance(message, Relation):
            self._describe(message, size)
        elif isinstance(message, Truncate):
            for oid in message.oids:
                self._truncate(self._relation(oid), size)
        elif isinstance(message, LogicalMessage):
            self._logical(message)
        elif isinstance(message, StreamStart):
            self._begin_stretch(message)
        elif isinstance(message, StreamStop):
            self._end_stretch()
        elif isinstance(message, StreamAbort):
            self._spools.abort(message.xid, message.subxid)
        elif isinstance(message, StreamCommit):
            self._commit_streamed(message)
        # Origins and names of types change nothing.

    # -- transactions -----------------------------------------------------------------------------

    def _refuse_begin(self, message: Begin | StreamCommit) -> None:
        if self.open:
            raise _broken("a transaction begins inside another")
        if message.commit_lsn <= self.decoder.last_scn:
            raise _broken("a transaction is not behind the one before it")
        if isinstance(message, Begin):
            raise _disagree()

    def _commit(self, message: Commit) -> None:
        self._needs_transaction()
        if message.commit_lsn != self.decoder.scn:
            raise _broken("a commit does not belong to its transaction")
        self._end_transaction()

    def _end_transaction(self) -> None:
        decoder, mark = self.decoder, self._tx_mark
        if mark is None:
            decoder.close()
            return
        if decoder.data:
            raise marks.foreign("a transaction with other changes wrote to")
        scn, commit_us, covered = decoder.scn, decoder.commit_us, decoder.covered
        decoder.close()
        # The window of this mark will have its SCN, so the log is not complete up to it yet.
        decoder.covered = max(covered, scn - 1)
        self._tx_mark = None
        self._mark = ReceivedMark(mark, scn, commit_us)

    def _needs_transaction(self) -> None:
        if not self.open:
            raise _broken("a change lies outside a transaction")

    # -- streamed transactions --------------------------------------------------------------------

    def _begin_stretch(self, message: StreamStart) -> None:
        if self.open:
            raise _broken("a streamed stretch begins inside a transaction")
        self._spools.begin(message.xid, first=message.first)
        self._streaming = message.xid
        self.decoder.spooling = True

    def _end_stretch(self) -> None:
        if not self.decoder.spooling:
            raise _broken("a streamed stretch ends that did not begin")
        self.decoder.spooling = False
        self._spools.add(self._streaming, self.decoder.take_spool())

    def _commit_streamed(self, message: StreamCommit) -> None:
        self._refuse_begin(message)
        spool = self._spools.take(message.xid)
        decoder = self.decoder
        decoder.open(message.commit_lsn, message.commit_us, decoder.widen(message.xid))
        decoder.set_aborted(spool.aborted)
        decoder.prefixed = True
        self._replay = _Replay(spool)

    def _go_on(self, replay: _Replay) -> bool:
        """Go on reading a spool; return whether it is read to its end."""
        decoder = self.decoder
        while not self.full:
            replay.start = decoder.walk(replay.data, replay.start, len(replay.data))
            if decoder.stop == COLD:
                if decoder.cold_frame != b"w":
                    raise _broken("a streamed transaction holds a foreign frame")
                self._cold(replay)
            elif decoder.stop == NEED:
                if replay.start != len(replay.data):
                    raise _broken("a streamed transaction ends inside a frame")
                if not replay.advance():
                    decoder.prefixed = False
                    replay.spool.close()
                    self._replay = None
                    self._end_transaction()
                    return True
        return False

    def _describe_pending(self, oid: int) -> bool:
        """Take a description into account that was put off; return whether there was one."""
        relation = self._pending.pop(oid, None)
        if relation is not None:
            self._describe(relation, 0)
        return relation is not None

    # -- rows -------------------------------------------------------------------------------------

    def _row(self, message: Insert | Update | Delete) -> None:
        """Take in a row of the marks' table, or say what is wrong with one that the decoder refused."""
        relation = self._relation(message.oid)
        self._needs_transaction()
        if relation.version.marks:
            self._mark_row(relation, message)
            return
        schema = relation.version.schema
        if schema is None:
            # Described only now, and not ours.
            return
        self._check_ord()
        shape = relation.version.wire or schema
        rows = ChangeRows(shape, shape.schema_id, relation.version.forms)
        rows.message(self.decoder.scn, self.decoder.ord, message)
        raise _disagree()

    def _check_ord(self) -> None:
        if self.decoder.ord > MAX_ORD:
            raise _broken("a transaction has more than 2,147,483,645 changes")

    # -- tables -----------------------------------------------------------------------------------

    def _relation(self, oid: int) -> _Relation:
        self._describe_pending(oid)
        try:
            return self._relations[oid]
        except KeyError:
            raise _broken(f"a change of the table {oid} comes before its description") from None

    def _describe(self, message: Relation, size: int) -> None:
        self._pending.pop(message.oid, None)
        version = self._versions.resolve(message)
        self._astray |= version.astray
        names = tuple(column.name for column in message.columns)
        self._relations[message.oid] = _Relation(version, names)
        rows: Rows | None = None
        if version.schema is not None:
            # Rows of one version share one body.
            shape = version.wire or version.schema
            shape_id = version.schema_id if version.wire is None else shape.schema_id
            if version.wire is not None:
                self._narrow[shape_id] = version.schema
            rows = self._rows.get((shape_id, version.forms))
            if rows is None:
                rows = self.decoder.rows_of(shape, shape_id, version.forms)
                self._rows[shape_id, version.forms] = rows
        self.decoder.set_table(message.oid, rows, cold=version.marks)
        if version.schema is not None and version.anew is not None:
            self._event(SystemKind.TRUNCATE, version.schema.table, version.anew, size)
        if version.schema is not None and version.announce is not None:
            self._event(SystemKind.SCHEMA, version.schema.table, version.announce, size)

    def _truncate(self, relation: _Relation, size: int) -> None:
        if relation.version.marks:
            raise marks.foreign("a TRUNCATE emptied")
        if relation.version.schema is not None:
            self._event(SystemKind.TRUNCATE, relation.version.schema.table, {}, size)

    def _event(self, kind: SystemKind, table: TableId, payload: dict[str, Any], size: int) -> None:
        self._needs_transaction()
        self._check_ord()
        decoder = self.decoder
        decoder.data = True
        self._system.append(SystemEvent(decoder.scn, decoder.ord, kind, table, payload))
        decoder.count(1, size)

    # -- marks ------------------------------------------------------------------------------------

    def _mark_row(self, relation: _Relation, message: Insert | Update | Delete) -> None:
        if isinstance(message, Insert):
            raise marks.foreign("a row was inserted into")
        if isinstance(message, Delete):
            raise marks.foreign("a row was deleted from")
        self._note_mark(marks.from_row(relation.names, message.new))

    def _logical(self, message: LogicalMessage) -> None:
        decoder = self.decoder
        ours = message.prefix == self._mark_prefix
        if message.transactional:
            self._needs_transaction()
            if ours:
                self._note_mark(marks.from_message(message.content))
            elif message.prefix == DDL_PREFIX and not self._doubtful:
                for kind, table, payload in self._versions.migrated(message.content):
                    self._event(kind, table, payload, len(message.content))
            return
        if self.open:
            raise _broken("a non-transactional message lies inside a transaction")
        # The server names the end of the message's record, which may be the start, and so the SCN, of the
        # commit right behind it. One byte before lies behind all earlier commits and before all later
        # ones. For the same reason nothing beyond the named position may be acknowledged.
        scn = message.lsn - 1
        if scn <= decoder.last_scn:
            raise _broken("a message is not behind the transaction before it")
        decoder.position = max(decoder.position, message.lsn)
        if not ours:
            decoder.covered = max(decoder.covered, scn)
            return
        decoder.last_scn = scn
        decoder.covered = max(decoder.covered, scn - 1)
        mark = marks.from_message(message.content)
        self._mark = ReceivedMark(mark, scn, decoder.sent_us)

    @property
    def _doubtful(self) -> bool:
        """Whether what the event trigger says may have been rolled back: the server names no subtransaction with it.

        A look at the catalog, and the tables' own descriptions, tell what is true.
        """
        return self._replay is not None and bool(self._replay.spool.aborted)

    def _note_mark(self, mark: Mark) -> None:
        if self._tx_mark is not None:
            raise marks.foreign("one transaction wrote twice to")
        self._tx_mark = mark
        self.decoder.cold_commit = True


def _broken(what: str) -> ProtocolError:
    return ProtocolError(
        f"pgoutput: {what}.",
        next_step="report it with the server's version; capture stops rather than guess.",
    )


def _disagree() -> ProtocolError:
    return _broken("a message was refused that holds nothing wrong")

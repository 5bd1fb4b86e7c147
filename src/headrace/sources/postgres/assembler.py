"""Messages to blocks: keeps what one hand-over will carry, in commit order, bounded in rows and bytes.

Pure but for `Versions`, which it asks when the log describes a table. A transaction's rows are added as they come;
when the bounds are reached in its middle, what is there leaves as a piece that is not the last one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from headrace.errors import ProtocolError
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.mark import Mark
from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import LogItem, ReceivedMark
from headrace.sources.postgres import marks
from headrace.sources.postgres.lsn import format_lsn
from headrace.sources.postgres.messages import (
    Begin,
    Commit,
    Delete,
    Insert,
    LogicalMessage,
    Message,
    Relation,
    Truncate,
    Update,
)
from headrace.sources.postgres.rows import ChangeRows

__all__ = ["Assembler", "TableVersion", "Versions"]

_MAX_ORD = (1 << 31) - 3


@dataclass(frozen=True, slots=True)
class TableVersion:
    """What became of a relation message.

    Attributes:
        schema: the table from here on; None when its rows are not ours to keep.
        schema_id: its id, registered.
        announce: payload of the system event that says so, None when nothing is new.
        marks: whether this is the table of watermarks.
    """

    schema: TableSchema | None = None
    schema_id: int = 0
    announce: dict[str, Any] | None = None
    marks: bool = False


class Versions(Protocol):
    """Explains relation messages; may ask the catalog and the registry."""

    def resolve(self, relation: Relation) -> TableVersion:
        """Return what the relation's rows are from here on."""
        ...


@dataclass(slots=True)
class _Open:
    """The transaction whose messages are coming in."""

    scn: int
    commit_us: int
    xid: int
    ord: int = 0
    changes: int = 0
    pieces: int = 0
    data: bool = False
    mark: Mark | None = None


@dataclass(slots=True)
class _Relation:
    version: TableVersion
    names: tuple[str, ...]
    rows: ChangeRows | None


@dataclass(slots=True)
class Assembler:
    """Collects messages until `take`.

    Args:
        versions: explains relations.
        mark_prefix: prefix of the logical messages that are our marks.
        epoch_xid: some recent 64-bit transaction id, by which 32-bit ids are widened.
        max_rows: see `full`.
        max_bytes: see `full`.
    """

    versions: Versions
    mark_prefix: str
    epoch_xid: int
    max_rows: int
    max_bytes: int
    covered: int = 0
    position: int = 0
    last_scn: int = 0
    _relations: dict[int, _Relation] = field(default_factory=dict)
    _bodies: dict[int, ChangeRows] = field(default_factory=dict)
    _index: list[tuple[int, int, int, int, int, int]] = field(default_factory=list)
    _system: list[SystemEvent] = field(default_factory=list)
    _open: _Open | None = None
    _mark: ReceivedMark | None = None
    _rows: int = 0
    _bytes: int = 0
    _told: int = 0

    @property
    def open(self) -> bool:
        """Whether a transaction has begun and not yet ended."""
        return self._open is not None

    @property
    def has_output(self) -> bool:
        """Whether `take` would return transactions, a piece or a mark."""
        return bool(self._index or self._mark or (self._open and self._open.changes))

    @property
    def full(self) -> bool:
        """Whether a hand-over is due: a mark ends it, or the bounds are reached."""
        return (
            self._mark is not None or self._rows >= self.max_rows or self._bytes >= self.max_bytes
        )

    def feed(self, message: Message, size: int, sent_us: int) -> None:
        """Take in one message.

        Args:
            message: in the order of the log.
            size: its bytes, for the bound.
            sent_us: when the server sent it; the time of a mark that has none of its own.
        """
        kind = type(message)
        if kind is Insert or kind is Update or kind is Delete:
            self._row(cast("Insert | Update | Delete", message), size)
        elif isinstance(message, Begin):
            self._begin(message)
        elif isinstance(message, Commit):
            self._commit(message)
        elif isinstance(message, Relation):
            self._describe(message, size)
        elif isinstance(message, Truncate):
            for oid in message.oids:
                self._truncate(self._relation(oid), size)
        elif isinstance(message, LogicalMessage):
            self._message(message, sent_us)
        # Origins and names of types change nothing.

    def take(self) -> LogItem:
        """Return everything fed so far and start anew; the open transaction leaves as a piece."""
        if self._open and self._open.changes:
            self._entry(self._open, last=False)
        block = Block(
            transaction_index(self._index),
            tuple(rows.body() for rows in self._bodies.values() if len(rows)),
            tuple(self._system),
            self.covered,
        )
        item = LogItem(block, format_lsn(self.position), self._mark)
        self._index, self._system, self._bodies = [], [], {}
        self._mark, self._rows, self._bytes = None, 0, 0
        self._told = self.covered
        return item

    def quiet(self, wal_end: int) -> LogItem | None:
        """Return an item that says nothing of ours lies before ``wal_end``, None when that is not new."""
        covered = max(self.covered, wal_end - 1)
        if self.open or self.has_output or covered <= self._told:
            return None
        self.covered = covered
        self.position = max(self.position, wal_end)
        return self.take()

    # -- transactions ---------------------------------------------------------------------------

    def _begin(self, message: Begin) -> None:
        if self._open is not None:
            raise _broken("a transaction begins inside another")
        if message.commit_lsn <= self.last_scn:
            raise _broken("a transaction is not behind the one before it")
        self._open = _Open(message.commit_lsn, message.commit_us, self._widen(message.xid))

    def _commit(self, message: Commit) -> None:
        tx = self._transaction()
        if message.commit_lsn != tx.scn:
            raise _broken("a commit does not belong to its transaction")
        self._open = None
        self.last_scn = tx.scn
        # Enough for the server to leave this transaction out next time, and no more: what the slot has
        # confirmed can then be compared with what the change log covers (`Source.acknowledged_scn`).
        self.position = max(self.position, tx.scn + 1)
        if tx.mark is not None:
            if tx.data:
                raise marks.foreign("a transaction with other changes wrote to")
            # The window of this mark will have its SCN, so the log is not complete up to it yet.
            self.covered = max(self.covered, tx.scn - 1)
            self._mark = ReceivedMark(tx.mark, tx.scn, tx.commit_us)
            return
        self.covered = tx.scn
        if tx.changes or tx.pieces:
            self._entry(tx, last=True)

    def _entry(self, tx: _Open, *, last: bool) -> None:
        self._index.append((tx.scn, tx.commit_us, tx.xid, tx.changes, ORIGIN_LOG, int(last)))
        tx.changes = 0
        tx.pieces += 1

    def _transaction(self) -> _Open:
        if self._open is None:
            raise _broken("a change lies outside a transaction")
        return self._open

    def _data(self) -> _Open:
        tx = self._transaction()
        tx.data = True
        if tx.ord > _MAX_ORD:
            raise _broken("a transaction has more than 2,147,483,645 changes")
        return tx

    def _count(self, tx: _Open, rows: int, size: int) -> None:
        tx.ord += rows
        tx.changes += rows
        self._rows += rows
        self._bytes += size

    def _widen(self, xid: int) -> int:
        """Return the 64-bit id of a 32-bit one: the nearest to the newest that we know."""
        wide = (self.epoch_xid & ~0xFFFFFFFF) | xid
        if wide > self.epoch_xid + (1 << 31):
            wide -= 1 << 32
        elif wide < self.epoch_xid - (1 << 31):
            wide += 1 << 32
        self.epoch_xid = max(self.epoch_xid, wide)
        return wide

    # -- rows -----------------------------------------------------------------------------------

    def _row(self, message: Insert | Update | Delete, size: int) -> None:
        relation = self._relation(message.oid)
        if relation.version.marks:
            self._mark_row(relation, message)
            return
        rows = self._target(relation)
        if rows is None:
            return
        tx = self._data()
        if isinstance(message, Insert):
            added = rows.insert(tx.scn, tx.ord, message.new)
        elif isinstance(message, Update):
            added = rows.update(tx.scn, tx.ord, message.old_kind, message.old, message.new)
        else:
            added = rows.delete(tx.scn, tx.ord, message.old_kind, message.old)
        self._count(tx, added, size)

    # -- tables ---------------------------------------------------------------------------------

    def _relation(self, oid: int) -> _Relation:
        try:
            return self._relations[oid]
        except KeyError:
            raise _broken(f"a change of the table {oid} comes before its description") from None

    def _describe(self, message: Relation, size: int) -> None:
        version = self.versions.resolve(message)
        names = tuple(column.name for column in message.columns)
        rows = None
        if version.schema is not None:
            rows = ChangeRows(version.schema, version.schema_id)
        self._relations[message.oid] = _Relation(version, names, rows)
        if version.schema is not None and version.announce is not None:
            self._event(SystemKind.SCHEMA, version.schema.table, version.announce, size)

    def _target(self, relation: _Relation) -> ChangeRows | None:
        """Return where the relation's rows go; rows of one version share one body."""
        if relation.rows is None:
            return None
        return self._bodies.setdefault(relation.version.schema_id, relation.rows)

    def _truncate(self, relation: _Relation, size: int) -> None:
        if relation.version.marks:
            raise marks.foreign("a TRUNCATE emptied")
        if relation.version.schema is not None:
            self._event(SystemKind.TRUNCATE, relation.version.schema.table, {}, size)

    def _event(self, kind: SystemKind, table: TableId, payload: dict[str, Any], size: int) -> None:
        tx = self._data()
        self._system.append(SystemEvent(tx.scn, tx.ord, kind, table, payload))
        self._count(tx, 1, size)

    # -- marks ----------------------------------------------------------------------------------

    def _mark_row(self, relation: _Relation, message: Insert | Update | Delete) -> None:
        if isinstance(message, Insert):
            raise marks.foreign("a row was inserted into")
        if isinstance(message, Delete):
            raise marks.foreign("a row was deleted from")
        self._transaction().mark = self._one_mark(marks.from_row(relation.names, message.new))

    def _message(self, message: LogicalMessage, sent_us: int) -> None:
        ours = message.prefix == self.mark_prefix
        if message.transactional:
            tx = self._transaction()
            if ours:
                tx.mark = self._one_mark(marks.from_message(message.content))
            return
        if self._open is not None:
            raise _broken("a non-transactional message lies inside a transaction")
        # The server names the end of the message's record, which may be the start, and so the SCN, of the
        # commit right behind it. One byte before lies behind all earlier commits and before all later
        # ones. For the same reason nothing beyond the named position may be acknowledged.
        scn = message.lsn - 1
        if scn <= self.last_scn:
            raise _broken("a message is not behind the transaction before it")
        self.position = max(self.position, message.lsn)
        if not ours:
            self.covered = max(self.covered, scn)
            return
        self.last_scn = scn
        self.covered = max(self.covered, scn - 1)
        mark = marks.from_message(message.content)
        self._mark = ReceivedMark(mark, scn, sent_us)

    def _one_mark(self, mark: Mark) -> Mark:
        if self._transaction().mark is not None:
            raise marks.foreign("one transaction wrote twice to")
        return mark


def _broken(what: str) -> ProtocolError:
    return ProtocolError(
        f"pgoutput: {what}.",
        next_step="report it with the server's version; capture stops rather than guess.",
    )

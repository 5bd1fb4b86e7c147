"""Events to blocks: keeps what one hand-over will carry, in commit order, bounded in rows and bytes.

Pure but for `Tables`, which it asks when the log describes a table. A transaction's rows are added as they come; when
the bounds are reached in its middle, what is there leaves as a piece that is not the last one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from headrace.errors import SlotLost, SourceError
from headrace.model.block import (
    ORIGIN_LOG,
    Block,
    SystemEvent,
    SystemKind,
    transaction_index,
)
from headrace.model.mark import Mark
from headrace.model.schema import TableId
from headrace.observe.failpoints import failpoint
from headrace.sources.base import LogItem, ReceivedMark
from headrace.sources.mysql import marks
from headrace.sources.mysql.events import (
    ROWS,
    Begin,
    Event,
    EventType,
    RowsHeader,
    parse_event,
    parse_heartbeat,
    parse_prepared,
    parse_query,
    parse_rotate,
    parse_rows_header,
)
from headrace.sources.mysql.gtids import Gtid
from headrace.sources.mysql.migrations import Migrations, refuse
from headrace.sources.mysql.ports import Described, Tables
from headrace.sources.mysql.position import UNREAD, Place, Resume
from headrace.sources.mysql.prepared import Held, HeldTransactions
from headrace.sources.mysql.reading import broken
from headrace.sources.mysql.repeated import Pattern
from headrace.sources.mysql.rows import TableRows
from headrace.sources.mysql.statements import Meaning, meaning_of
from headrace.sources.mysql.table_map import table_map_id
from headrace.sources.mysql.transactions import BEGINS

__all__ = ["Assembler"]

_MAX_ORD = (1 << 31) - 3
_LOW = 0xFFFFFFFF
_HELD = ROWS | {EventType.TABLE_MAP}

_PASSED_OVER = frozenset(
    {
        EventType.STOP,
        EventType.FORMAT_DESCRIPTION,
        EventType.HEARTBEAT,
        EventType.ANNOTATE,
        EventType.CHECKPOINT,
        EventType.GTID_LIST,
        EventType.PREVIOUS_GTIDS,
        EventType.ROWS_QUERY,
        EventType.CONTEXT,
        EventType.VIEW_CHANGE,
    }
)


class Assembler:
    """Collects events until `take`.

    Args:
        tables: explains table maps.
        resume: where the log begins.
        pipeline: whose watermarks are ours.
        max_rows: rows after which a hand-over is due.
        max_bytes: the same in bytes of rows as the log has them.
        held: keeps what distributed transactions changed until they end.
        number: the number of a transaction by its id; None where its SCN is its number.
    """

    def __init__(
        self,
        tables: Tables,
        resume: Resume,
        pipeline: str,
        max_rows: int,
        max_bytes: int,
        held: HeldTransactions,
        number: Callable[[Gtid], int] | None = None,
    ) -> None:
        self._tables = tables
        self._pipeline = pipeline
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._file = resume.place.file
        self._at = resume.place.position
        self._resume = resume
        self._migrations = Migrations(tables, resume.tables, self._event)
        self._at_head = True
        self._maps: dict[int, tuple[bytes, Described]] = {}
        self._rows: dict[int, TableRows] = {}
        self._system: list[SystemEvent] = []
        self._entries: list[tuple[int, int, int, int, int, int]] = []
        self._number = number
        self._held = held
        self._holding: Held | None = None
        self._recalled: Iterator[Event] | None = None
        self._begun: Begin | None = None
        self._alone = self._stated = False
        # How many of its changes have left, and how many there were when it set each of its savepoints.
        self._left = 0
        self._savepoints: dict[str, int] = {}
        self._scn = 0
        self._xid = 0
        self._commit_us = 0
        self._ord = 0
        self._changes = 0
        self._held_rows = 0
        self._held_bytes = 0
        self._alike: tuple[TableRows, bytes] | None = None
        self._begin_type = 0
        self._pattern: Pattern | None = None
        self._repeated: Pattern | None = None
        self._tx_mark: Mark | None = None
        self._mark: ReceivedMark | None = None
        self._last_scn = resume.place.scn
        self.covered = resume.place.scn
        # What was acknowledged last may have been a mark, behind which nobody has said yet that nothing else lies.
        self._told = resume.scn

    @property
    def resume(self) -> Resume:
        """How far the log was read, and what is prepared there; may be asked from another thread."""
        return self._resume

    @property
    def open(self) -> bool:
        """Whether a transaction has begun and not yet ended."""
        return self._begun is not None

    @property
    def has_output(self) -> bool:
        """Whether `take` would return transactions, a piece of one, or a mark."""
        return bool(self._entries or self._changes or self._mark)

    @property
    def full(self) -> bool:
        """Whether a hand-over is due: a mark ends it, or the bounds are reached."""
        if self._mark is not None:
            return True
        return self._held_rows >= self._max_rows or self._held_bytes >= self._max_bytes

    def take(self) -> LogItem:
        """Return everything so far and start anew; the open transaction leaves as a piece."""
        if self.open and self._changes:
            self._entry(last=False)
            self._left = self._ord
        if not self.open and self._mark is None and (place := self._place()) > self._resume.place:
            # Nothing of a transaction lies between: whoever goes on elsewhere asks how far we have come.
            self._resume = replace(self._resume, place=place)
        filled = sorted((rows for rows in self._rows.values() if len(rows)), key=lambda r: r.first)
        block = Block(
            transaction_index(self._entries),
            tuple(rows.body() for rows in filled),
            tuple(self._system),
            self.covered,
        )
        item = LogItem(block, self._resume.render(), self._mark)
        self._alike = None
        self._entries, self._system, self._mark = [], [], None
        self._held_rows = self._held_bytes = 0
        self._told = self.covered
        return item

    def quiet(self) -> LogItem | None:
        """Return an item that says that nothing of ours lies before here, None when that is not new."""
        if self.open or self.has_output or self.covered <= self._told:
            return None
        return self.take()

    def add(self, event: Event) -> None:
        """Take in one event.

        Raises:
            ProtocolError: the log is broken, or holds an event that is not known.
            SourceError: it holds what cannot be carried over; the message says what.
            UndecodableValue: a value has no exact place in its column's type.
        """
        self._move(event)
        self._alike = self._repeated = None
        if event.type == EventType.ROTATE:
            self._rotate(event)
        elif event.type in BEGINS:
            self._begin(BEGINS[event.type](event))
            self._begin_type, self._pattern = event.type, None
        elif self._holding is not None and event.type in _HELD:
            self._holding.add(event)
        elif event.type == EventType.TABLE_MAP:
            self._describe(event)
        elif event.type in ROWS:
            self._add_rows(event)
        elif event.type == EventType.XID:
            self._commit()
            self._repeated = self._pattern
        elif event.type in (EventType.QUERY, EventType.QUERY_COMPRESSED):
            self._statement(event)
        elif event.type == EventType.XA_PREPARE:
            self._end_of_xa(event)
        elif event.type == EventType.ANONYMOUS:
            raise SourceError(
                "A transaction in the log has no global id.",
                next_step="bring gtid_mode to ON, as the finding gtid-mode says, and dump every table again: "
                "headrace resync FILE.",
            )
        elif event.type == EventType.INCIDENT:
            raise SlotLost(
                "The server says itself that its log lacks changes (an incident).",
                next_step="dump every table again: headrace resync FILE.",
            )
        elif event.type not in _PASSED_OVER and not event.ignorable:
            raise broken(f"an event of the unknown type {event.type}")
        self._cover()

    @property
    def recalls(self) -> bool:
        """Whether `recall` is to be called before the next event is added."""
        return self._recalled is not None

    def recall(self) -> None:
        """Take in one more event of a distributed transaction that was held, or its end.

        Raises:
            HeadraceError: as for `add`.
        """
        assert self._recalled is not None
        event = next(self._recalled, None)
        if event is None:
            self._recalled = None
            self._commit()
        elif event.type == EventType.TABLE_MAP:
            self._describe(event)
        else:
            self._add_rows(event)
            failpoint("xa.recalled")
        # What follows on the line is none of it.
        self._alike = None
        self._cover()

    @property
    def expects_alike(self) -> bool:
        """Whether what was added last may be followed by what is like it, which `add_alike` takes."""
        return self._alike is not None or self._repeated is not None

    def add_alike(self, buffer: bytearray, at: int, end: int, checksum: bool) -> int:
        """Take in packets as long as no hand-over is due: events like the one with rows, or transactions like the one.

        Args:
            buffer: holds packets.
            at: where one begins.
            end: behind the last byte.
            checksum: whether events end with one.

        Returns:
            where the first packet begins that was left.

        Raises:
            ProtocolError: their images do not follow the protocol.
        """
        most = self._max_rows - self._held_rows
        if self._repeated is not None:
            return self._add_transactions(self._repeated, buffer, at, end, checksum, most)
        assert self._alike is not None
        rows, model = self._alike
        found = rows.add_alike(buffer, at, end, model, checksum, most)
        if found.images:
            self._follow(found.end_pos, found.size)
            self._hold(found.images, found.size)
        return found.at

    def _add_transactions(
        self, like: Pattern, buffer: bytearray, at: int, end: int, checksum: bool, most: int
    ) -> int:
        begin, described, model, rows, kind = like
        at, found = rows.walk_transactions(
            buffer, at, end, begin, described, model, kind, checksum, most
        )
        for one in found:
            event = parse_event(one.begin, checksum=checksum)
            self._follow(event.end_pos)
            self._begin(BEGINS[begin](event))
            if one.images:
                rows.note(self._scn, kind, one.images)
                self._hold(one.images, one.size)
            self._follow(one.end_pos)
            self._commit()
        self._cover()
        return at

    # -- places -----------------------------------------------------------------------------------

    def _move(self, event: Event) -> None:
        """Follow the place behind each event; the log says its low 32 bits only."""
        beat = event.type == EventType.HEARTBEAT
        if beat and (self.open or not event.end_pos or parse_heartbeat(event) != self._file):
            return
        if event.artificial and not beat:
            if self.open:
                self._follow(event.end_pos, len(event.data))
            return
        at = self._at
        if self._at_head:
            # What stands at the head of a file comes before the server goes to where we read on.
            reached = beat or event.type in BEGINS
            floor = self._resume.place
            at = floor.position if reached and floor.file == self._file else 4
        if beat:
            # How far the server has come where it passes over what we have; or only that it is there.
            self._at = max(at, at & ~_LOW | event.end_pos)
            return
        self._at_head = self._at_head and event.type not in BEGINS
        self._at = at
        self._follow(event.end_pos, len(event.data))

    def _follow(self, end_pos: int, size: int = 0) -> None:
        if not end_pos:
            # Amid a transaction MariaDB does not say it from 11.4 on. Less is no harm: the end says it again.
            self._at += size
            return
        low = self._at & ~_LOW | end_pos
        self._at = low if low >= self._at else low + _LOW + 1

    def _cover(self) -> None:
        if not self.open and self._mark is None:
            self.covered = max(self.covered, self._place().scn)

    def _place(self) -> Place:
        return Place.of(self._file, self._at, self._resume.shift)

    def _rotate(self, event: Event) -> None:
        if self.open:
            raise broken("a file ends inside a transaction")
        if event.artificial:
            rotate = parse_rotate(event)
            self._file, self._at, self._at_head = rotate.file, rotate.position, True

    # -- transactions -----------------------------------------------------------------------------

    def _begin(self, begin: Begin) -> None:
        if self.open:
            raise broken("a transaction begins inside another")
        scn = self._place().scn
        if scn <= self._last_scn:
            raise broken("a transaction is not behind the one before it")
        self._begun, self._scn, self._last_scn = begin, scn, scn
        self._xid = scn if self._number is None else self._number(begin.gtid)
        self._alone, self._stated = bool(begin.standalone), False
        self._commit_us = begin.commit_us
        self._ord = self._left = 0
        self._savepoints = {}
        if begin.prepares:
            self._begin_holding()

    def _needs_transaction(self) -> None:
        if not self.open:
            raise broken("a change lies outside a transaction")

    def _commit(self) -> None:
        self._needs_transaction()
        assert self._begun is not None
        if self._tx_mark is not None:
            if self._ord:
                raise marks.foreign("a transaction with other changes wrote to")
            # The window of this mark will have its SCN, so the log is not complete up to it yet.
            self.covered = max(self.covered, self._scn - 1)
            self._mark = ReceivedMark(self._tx_mark, self._scn, self._commit_us)
            self._tx_mark = None
        elif self._ord:
            self._entry(last=True)
        place, gtid = self._place(), self._begun.gtid
        self._resume = self._resume.behind(place, self._scn, gtid, self._migrations.versions)
        self._begun = None
        self._maps.clear()

    def _entry(self, *, last: bool) -> None:
        self._entries.append(
            (self._scn, self._commit_us, self._xid, self._changes, ORIGIN_LOG, int(last))
        )
        self._changes = 0

    def _count(self, changes: int) -> None:
        self._ord += changes
        self._changes += changes
        if self._ord > _MAX_ORD:
            raise broken("a transaction has more than 2,147,483,645 changes")

    # -- rows -------------------------------------------------------------------------------------

    def _describe(self, event: Event) -> None:
        self._needs_transaction()
        table_id, table, raw = table_map_id(event)
        known = self._maps.get(table_id)
        if known is not None and known[0] == raw:
            return
        described = self._tables.describe(event, self._migrations.versions)
        self._maps[table_id] = (raw, described)
        if described.schema is None or described.rows is None:
            return
        self._rows[described.schema_id] = described.rows
        self._migrations.described(table, described)

    def _add_rows(self, event: Event) -> None:
        self._needs_transaction()
        header = parse_rows_header(event)
        if header.table_id not in self._maps:
            raise broken(f"rows of the table {header.table_id} come before its description")
        raw, described = self._maps[header.table_id]
        if described.marks and described.rows is not None:
            self._mark_row(described.rows, event, header)
        elif described.schema is not None:
            rows = self._rows[described.schema_id]
            added = rows.add(self._scn, self._ord, event.type, header)
            self._hold(added, header.end - header.start)
            # Inflated rows, and such as hold changes of documents, are not as the event has them.
            plain = header.data is event.data and event.type != EventType.PARTIAL_UPDATE_ROWS
            if added and plain:
                model = event.data[: header.start]
                self._alike = rows, model
                number = header.table_id.to_bytes(6, "little")
                self._pattern = Pattern(self._begin_type, number + raw, model, rows, rows.last_kind)

    def _hold(self, images: int, size: int) -> None:
        self._held_rows += images
        self._held_bytes += size
        self._count(images)

    def _mark_row(self, rows: TableRows, event: Event, header: RowsHeader) -> None:
        if not rows.add(self._scn, 0, event.type, header):
            return
        mark = marks.mark_of(rows.body().batch.to_pylist(), self._pipeline)
        if mark is not None and self._tx_mark is not None:
            raise marks.foreign("one transaction wrote twice to")
        self._tx_mark = mark or self._tx_mark

    def _event(self, kind: SystemKind, table: TableId, payload: dict[str, Any]) -> None:
        self._system.append(SystemEvent(self._scn, self._ord, kind, table, payload))
        self._count(1)

    # -- statements -------------------------------------------------------------------------------

    def _statement(self, event: Event) -> None:
        self._needs_transaction()
        assert self._begun is not None
        query = parse_query(event, self._tables.charsets)
        meaning = meaning_of(query, folds=self._tables.folds)
        if self._begun.attempts:
            meaning = Meaning("other", word=meaning.word)
        if meaning.kind == "commit":
            self._commit()
            return
        if meaning.kind in ("xa commit", "xa rollback"):
            self._completed(meaning)
            return
        if meaning.kind == "xa start":
            self._begin_holding()
        if self._begun.standalone is None and not self._stated:
            self._alone = meaning.kind not in ("begin", "xa start")
        self._stated = True
        if meaning.kind == "savepoint":
            self._savepoints[meaning.xid] = self._ord
        since = self._since(meaning)
        if since is not None:
            self._undo(since)
        else:
            changed = bool(self._ord or (self._holding is not None and self._holding.rows))
            refuse(meaning, self._begun.gtid, self._tables.captures, changed=changed)
        self._migrations.stated(meaning)
        if self._alone or meaning.kind == "rollback":
            self._commit()

    def _since(self, meaning: Meaning) -> int | None:
        """Return from which change on a statement rolls the open transaction back, None where it cannot be followed."""
        since = 0 if meaning.kind == "rollback" else None
        if meaning.kind == "rollback to":
            since = self._savepoints.get(meaning.xid)
        return None if since is None or since < self._left or self._holding is not None else since

    def _undo(self, since: int) -> None:
        """Leave rows of the open transaction out, which are in the log though they were rolled back.

        A server logs them where a temporary table came or went, or one that is not transactional was written, none of
        which it rolls back. What was told of tables is true all the same.
        """
        self._savepoints = {n: ord_ for n, ord_ in self._savepoints.items() if ord_ <= since}
        rows = sum(rows.undo(self._scn, since, self._ord) for rows in self._rows.values())
        self._changes -= rows
        if not since:
            self._tx_mark = None
        if not (self._changes or self._left):
            self._ord = 0

    def _begin_holding(self) -> None:
        """Hold what follows: it counts only once the transaction is committed."""
        self._holding = self._held.begin(self._scn, self._is_held)

    def _is_held(self, table: TableId) -> bool:
        return table == marks.MARKS_TABLE or self._tables.captures(table)

    def _end_of_xa(self, event: Event) -> None:
        self._needs_transaction()
        holding, self._holding = self._holding, None
        if holding is None:
            raise broken("a transaction is prepared that was not begun as a distributed one")
        held = self._held.keep(self._scn, holding)
        prepared = parse_prepared(event)
        if prepared.one_phase:
            self._recall(held)
            return
        self._commit()
        self._resume = self._resume.prepares(prepared.xid, held)

    def _completed(self, meaning: Meaning) -> None:
        """Take in the commit or the rollback of what was prepared."""
        assert self._begun is not None
        held = 0
        if meaning.kind == "xa commit":
            held = self._resume.prepared.get(meaning.xid, UNREAD)
            if held == UNREAD:
                gtid = self._begun.gtid
                held = self._held.find(self._scn, meaning.xid, self._file, gtid, self._is_held)
            if self._number is None:
                # It became visible when it liked, not in the order of the log.
                self._xid = -self._scn
        # Whoever asks how far the log was read must not find it both read to the end and prepared.
        self._resume = self._resume.ends(meaning.xid)
        self._recall(held)

    def _recall(self, held: int) -> None:
        """Let the rows come that are held under a number, and then the commit."""
        self._recalled = self._held.events(held) if held else iter(())

"""Rows of the change tables to blocks, bounded in rows and bytes. Pure but for the versions, which may ask the catalog.

A transaction's rows are added as they come; when the bounds are reached in its middle, what is there leaves as a piece
that is not the last one.
"""

from __future__ import annotations

from typing import Any

from headrace.errors import ProtocolError
from headrace.model.block import ORIGIN_LOG, Block, SystemEvent, SystemKind, transaction_index
from headrace.model.mark import Mark
from headrace.model.schema import TableId
from headrace.sources.base import LogItem, ReceivedMark
from headrace.sources.trigger import marks
from headrace.sources.trigger.events import ANEW, EMPTIED, Begin, ChangeRow
from headrace.sources.trigger.ports import ImageRows, Version, Versions
from headrace.sources.trigger.settings import TriggerSettings

__all__ = ["Assembler"]

_MAX_ORD = (1 << 31) - 3
# Which of the images before and after a change has.
_IMAGES = {b"I": (False, True), b"U": (True, True), b"D": (True, False)}


class Assembler:
    """Collects rows until `take`.

    Args:
        settings: bounds, and whose marks are ours.
        versions: explains layouts.
        scn: everything up to here was handed over before.
    """

    def __init__(self, settings: TriggerSettings, versions: Versions, scn: int) -> None:
        self._settings = settings
        self._versions = versions
        self._layouts: dict[int, bytes] = {}
        self._current: dict[int, tuple[Version, ImageRows | None]] = {}
        self._rows: dict[int, ImageRows] = {}
        self._system: list[SystemEvent] = []
        self._entries: list[tuple[int, int, int, int, int, int]] = []
        self._begin: Begin | None = None
        self._ord = 0
        self._changes = 0
        self._held_rows = 0
        self._held_bytes = 0
        self._tx_mark: Mark | None = None
        self._mark: ReceivedMark | None = None
        self._covered = scn
        self._told = scn
        self.ended = scn

    @property
    def open(self) -> bool:
        """Whether a transaction has begun and not yet ended."""
        return self._begin is not None

    @property
    def full(self) -> bool:
        """Whether a hand-over is due: a mark ends it, or the bounds are reached."""
        if self._mark is not None:
            return True
        settings = self._settings
        return self._held_rows >= settings.block_rows or self._held_bytes >= settings.block_bytes

    @property
    def has_output(self) -> bool:
        """Whether `take` would return anything new."""
        return bool(self._entries or self._changes or self._mark) or self._covered > self._told

    def begin(self, begin: Begin) -> None:
        """A transaction begins."""
        self._begin = begin
        self._ord = 0

    def end(self) -> None:
        """The transaction ends.

        Raises:
            WatermarkOutOfOrder: it wrote a mark and other changes.
        """
        begin = self._begin
        assert begin is not None
        self._begin = None
        self.ended = begin.scn
        if self._tx_mark is not None:
            if self._ord:
                raise marks.foreign("a transaction with other changes wrote a mark to")
            # The window of this mark will have its SCN, so the log is not complete up to it yet.
            self._covered = begin.scn - 1
            self._mark = ReceivedMark(self._tx_mark, begin.scn, begin.commit_us)
            self._tx_mark = None
            return
        if self._ord:
            self._entry(begin, last=True)
        self._covered = begin.scn

    def covered(self, scn: int) -> None:
        """Everything up to an SCN was added."""
        self._covered = self.ended = scn

    def add(self, row: ChangeRow) -> None:
        """Take in one row of the open transaction.

        Raises:
            ProtocolError: our triggers did not write it.
            UndecodableValue: a value has no exact place in its column's type.
        """
        if row.op == marks.MARK:
            self._add_mark(row)
            return
        version, rows = self._version(row)
        if rows is None or (row.op != b"I" and self._settings.is_queue(version.table)):
            return
        if row.op in (EMPTIED, ANEW):
            anew = {"anew": True} if row.op == ANEW else {}
            self._event(SystemKind.TRUNCATE, version.table, anew)
            return
        self._add_images(row, version, rows)

    def take(self, *, more: bool) -> LogItem:
        """Return everything so far and start anew; the open transaction leaves as a piece."""
        if self._begin is not None and self._changes:
            self._entry(self._begin, last=False)
        filled = sorted((rows for rows in self._rows.values() if len(rows)), key=lambda r: r.first)
        block = Block(
            transaction_index(self._entries),
            tuple(rows.body() for rows in filled),
            tuple(self._system),
            self._covered,
        )
        item = LogItem(block, str(self.ended), self._mark, more)
        self._entries, self._system, self._mark = [], [], None
        self._held_rows = self._held_bytes = 0
        self._told = self._covered
        return item

    def _add_mark(self, row: ChangeRow) -> None:
        mark = marks.mark_of(row.after, self._settings.name)
        if mark is not None and self._tx_mark is not None:
            raise marks.foreign("one transaction wrote two marks to")
        self._tx_mark = mark or self._tx_mark

    def _version(self, row: ChangeRow) -> tuple[Version, ImageRows | None]:
        """Return what the row's table is, and where its rows are collected if they are ours to keep."""
        if row.layout is not None and self._layouts.get(row.relid) != row.layout:
            version = self._versions.resolve(row.relid, row.layout)
            self._layouts[row.relid] = row.layout
            self._current[row.relid] = version, self._described(version)
        found = self._current.get(row.relid)
        if found is None:
            raise ProtocolError(
                f"A row of the table of number {row.relid} comes without a layout.",
                next_step="find who writes to headrace.txlog_changes, which only headrace's triggers do.",
            )
        return found

    def _described(self, version: Version) -> ImageRows | None:
        if version.schema is None:
            return None
        if version.anew is not None:
            self._event(SystemKind.TRUNCATE, version.table, version.anew)
        if version.announce is not None:
            self._event(SystemKind.SCHEMA, version.table, version.announce)
        id_ = version.schema.schema_id
        if id_ not in self._rows:
            self._rows[id_] = version.rows()
        return self._rows[id_]

    def _add_images(self, row: ChangeRow, version: Version, rows: ImageRows) -> None:
        begin = self._begin
        assert begin is not None
        if row.op not in _IMAGES:
            raise ProtocolError(
                f"{version.table}: a change of the unknown kind {row.op!r}.",
                next_step="upgrade headrace, or make the triggers anew: headrace source triggers install FILE.",
            )
        for wanted, image in zip(_IMAGES[row.op], (row.before, row.after), strict=True):
            if wanted and image is None:
                raise ProtocolError(
                    f"{version.table}: a change without its row.",
                    next_step="find who writes to headrace.txlog_changes, which only headrace's triggers do; or "
                    "whether the row is larger than the server's max_allowed_packet.",
                )
        added = rows.add(begin.scn, self._ord, row.op, row.before, row.after)
        self._held_rows += added
        self._held_bytes += row.nbytes
        self._count(added)

    def _event(self, kind: SystemKind, table: TableId, payload: dict[str, Any]) -> None:
        assert self._begin is not None
        self._system.append(SystemEvent(self._begin.scn, self._ord, kind, table, payload))
        self._count(1)

    def _count(self, changes: int) -> None:
        self._ord += changes
        self._changes += changes
        if self._ord > _MAX_ORD:
            raise ProtocolError(
                "A transaction has more than 2,147,483,645 changes.",
                next_step="dump the tables again; and write them in smaller transactions.",
            )

    def _entry(self, begin: Begin, *, last: bool) -> None:
        self._entries.append(
            (begin.scn, begin.commit_us, begin.xid, self._changes, ORIGIN_LOG, int(last))
        )
        self._changes = 0

"""What the source did to each table, counted where a frontier is published.

In: for each table the stretch of the change log that its target has come to hold since the last count. Out: inserts,
updates, deletes and the rest of that stretch. The log is what is counted, before anything is folded, and a stretch
begins where the manifest says that the last count ended: no replay, crash or other cut of the batches changes a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from headrace.lake.counts import NO_DELAYS, NO_TOTALS, Delays, TableCounts, Totals
from headrace.lake.frontier import Manifest
from headrace.model.block import ORIGIN_LOG, SystemKind
from headrace.model.change import DELETE, INSERT, PATCH, READ, UPDATE_NEW
from headrace.model.schema import TableId
from headrace.spark.plan import Range
from headrace.wire.operations import CODES

__all__ = ["Tally"]

_AT_ONCE = 1_000_000
"""Rows whose operations are looked at together; ten bytes each."""
_CODES = max(CODES.values()) + 1
_DDL = (SystemKind.SCHEMA, SystemKind.DROP_TABLE, SystemKind.RENAME_TABLE)


@dataclass(slots=True)
class _Sum:
    """The count of one table while it grows."""

    upto_scn: int
    before: TableCounts
    by_code: npt.NDArray[np.int64] = field(default_factory=lambda: np.zeros(_CODES, np.int64))
    bytes: int = 0
    truncates: int = 0
    ddl: int = 0
    delays: Delays = NO_DELAYS
    scns: list[npt.NDArray[np.int64]] = field(default_factory=list)
    codes: list[npt.NDArray[np.uint16]] = field(default_factory=list)
    waiting: int = 0
    last_scn: int = -1

    def take(self, scns: npt.NDArray[np.int64], codes: npt.NDArray[np.uint16]) -> None:
        self.scns.append(scns)
        self.codes.append(codes)
        self.waiting += len(scns)

    def settle(self, after_scn: int, index: npt.NDArray[np.void], visible_us: int) -> None:
        """Count the rows that wait, those inside the stretch."""
        if not self.waiting:
            return
        scns, codes = np.concatenate(self.scns), np.concatenate(self.codes)
        begin, end = np.searchsorted(scns, (after_scn, self.upto_scn), side="right")
        scns, codes = scns[begin:end], codes[begin:end]
        self.scns, self.codes, self.waiting = [], [], 0
        if len(scns):
            self.by_code += np.bincount(_as_read(scns, codes, index), minlength=_CODES)
            self._time(scns, index, visible_us)

    def _time(
        self, scns: npt.NDArray[np.int64], index: npt.NDArray[np.void], visible_us: int
    ) -> None:
        """Take the delay of each transaction of the log, once."""
        ends = scns[np.flatnonzero(np.append(scns[1:] != scns[:-1], True))]
        # The last transaction of the rows before may go on in these.
        ends, self.last_scn = ends[ends != self.last_scn], int(ends[-1])
        places = np.searchsorted(index["scn"], ends)
        self.delays = self.delays.plus(delays_s(index[places], visible_us))

    def counts(self) -> TableCounts:
        of = {op: int(self.by_code[code]) for op, code in CODES.items()}
        more = TableCounts(
            scn=self.upto_scn,
            inserts=of[INSERT],
            updates=of[UPDATE_NEW] + of[PATCH],
            deletes=of[DELETE],
            truncates=self.truncates,
            ddl=self.ddl,
            copied=of[READ],
            rows=int(self.by_code.sum()),
            bytes=self.bytes,
            delays=self.delays,
        )
        return self.before.plus(more)


class Tally:
    """The numbers of one job: those of the newest frontier, and of the one that is about to be published."""

    def __init__(self, within_s: float | None) -> None:
        self._within_s = within_s
        self._tables: dict[TableId, TableCounts] = {}
        self._totals = NO_TOTALS
        self._next = (self._tables, self._totals)

    def begin(self, manifest: Manifest | None, tables: Iterable[TableId]) -> None:
        """Go on from the newest frontier; tables that it does not list had no change up to it."""
        entries = manifest.tables if manifest else {}
        nothing = TableCounts(scn=manifest.scn if manifest else 0)
        self._totals = manifest.totals if manifest else NO_TOTALS
        self._tables = {
            table: entries[str(table)].counts if str(table) in entries else nothing
            for table in tables
        }

    def learn(self, table: TableId, scn: int) -> None:
        """Begin to count a table of which the log said nothing up to an SCN."""
        self._tables[table] = TableCounts(scn=scn)

    def wanted_scn(self, oldest_scn: int) -> int:
        """Return from where on the log is still to be counted."""
        return max(oldest_scn, min((one.scn for one in self._tables.values()), default=2**62))

    def add(
        self,
        batch: Range,
        positions: Mapping[TableId, int],
        failures: Mapping[TableId, int],
        index: npt.NDArray[np.void],
        fresh: npt.NDArray[np.bool_],
        visible_us: int,
    ) -> tuple[Mapping[TableId, TableCounts], Totals]:
        """Return the numbers of the frontier that is about to be published; `published` makes them those that count.

        Args:
            batch: that the frontier ends.
            positions: of each table's target.
            failures: of each table since the frontier before.
            index: transactions up to the frontier, those of the batch at least.
            fresh: those of them that the frontier before did not show.
            visible_us: when the targets showed them, microseconds since 1970 UTC.

        Raises:
            ScnNotFound: the log lost a block meanwhile.
            CorruptSegment: a block does not read.
        """
        counts = dict(self._tables)
        for after, sums in self._stretches(batch, positions).items():
            part, known = batch, index
            if after < batch.after_scn:
                # A table that was left behind has caught up.
                part = Range(batch.reader, batch.registry, after, batch.upto_scn)
                known = batch.reader.index(after, max(one.upto_scn for one in sums.values()))
            _count(part, after, sums, known, visible_us)
            counts |= {table: one.counts() for table, one in sums.items()}
        counts = {table: one.failed(failures.get(table, 0)) for table, one in counts.items()}
        totals = self._totals.plus(delays_s(index[fresh], visible_us), self._within_s)
        self._next = (counts, totals)
        return self._next

    def published(self) -> None:
        """Take the numbers that `add` returned last: the frontier that holds them is durable."""
        self._tables, self._totals = dict(self._next[0]), self._next[1]

    def _stretches(
        self, batch: Range, positions: Mapping[TableId, int]
    ) -> dict[int, dict[TableId, _Sum]]:
        """Return what is to be counted, by begin. Nearly always that is one: the end of the batch before."""
        oldest = batch.reader.tail().oldest_scn
        found: dict[int, dict[TableId, _Sum]] = {}
        for table, upto in positions.items():
            before = self._tables[table]
            if before.scn < upto:
                sums = found.setdefault(max(before.scn, oldest), {})
                sums[table] = _Sum(upto, before, delays=before.delays)
        return found


def delays_s(index: npt.NDArray[np.void], visible_us: int) -> npt.NDArray[np.float64]:
    """Return the time from commit to visible of the transactions of the log in an index; chunk reads have none."""
    logged = index["commit_us"][index["origin"] == ORIGIN_LOG]
    delays: npt.NDArray[np.float64] = np.maximum(visible_us - logged, 0) / 1e6
    return delays


def _as_read(
    scns: npt.NDArray[np.int64], codes: npt.NDArray[np.uint16], index: npt.NDArray[np.void]
) -> npt.NDArray[np.uint16]:
    """Return operations, those of inserts that a dump wrote as what they are: rows that it read."""
    if not (index["origin"] != ORIGIN_LOG).any():
        return codes
    read = index["origin"][np.searchsorted(index["scn"], scns)] != ORIGIN_LOG
    found: npt.NDArray[np.uint16] = np.where(
        read & (codes == CODES[INSERT]), CODES[READ], codes
    ).astype(np.uint16)
    return found


def _count(
    part: Range,
    after_scn: int,
    sums: Mapping[TableId, _Sum],
    index: npt.NDArray[np.void],
    visible_us: int,
) -> None:
    """Count what a part of the log says of some tables behind an SCN."""
    refs = [ref for ref in part.refs if ref.last_scn > after_scn]
    ids = {schema_id for ref in refs for schema_id, _ in ref.tables if schema_id}
    of = {schema_id: part.registry.get(schema_id).table for schema_id in ids}
    of = {schema_id: table for schema_id, table in of.items() if table in sums}
    for ref, found in part.reader.operations(refs, of):
        one = sums[of[found.schema_id]]
        one.take(found.scns, found.codes)
        if ref.last_scn <= one.upto_scn:
            # A body is one number: the stretch that has the block's end has all of it.
            one.bytes += found.bytes
        if one.waiting > _AT_ONCE:
            one.settle(after_scn, index, visible_us)
    for one in sums.values():
        one.settle(after_scn, index, visible_us)
    for event in part.events:
        if event.table in sums and after_scn < event.scn <= sums[event.table].upto_scn:
            sums[event.table].ddl += event.kind in _DDL
            if event.kind is SystemKind.TRUNCATE and not event.payload.get("anew"):
                # A dump of a table without a key, and a gap, empty the target alone.
                origin = index["origin"][np.searchsorted(index["scn"], event.scn)]
                sums[event.table].truncates += int(origin == ORIGIN_LOG)

"""Goes on behind a gap: the source's log lacks changes that nobody will send any more.

In: a source whose position is valid again, and the change log and state from before. Out: one window in the change log
that says of each table that changes are missing before it, and an incarnation whose SCNs lie above everything that is
there. What the tables lack is found and read again afterwards; nothing here looks at rows.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from headrace.model.schema import TableId
from headrace.relay.log import Log
from headrace.sources.base import Source
from headrace.state.incarnation import Incarnation
from headrace.state.records import OPEN, Cause, RequestState, Scope
from headrace.state.store import StateStore
from headrace.state.writer import StateWriter
from headrace.watermark.catalog import forget_catalog
from headrace.watermark.emit import gap_block

__all__ = ["begin_again"]


def begin_again(
    source: Source,
    log: Log,
    state: StateStore,
    tables: Sequence[TableId],
    kept: Collection[TableId] = (),
    awaiting: Collection[TableId] = (),
    above: int = 0,
) -> Incarnation:
    """Make log and state go on where the source's position is now; may be repeated after a crash.

    Args:
        source: prepared; its log will be read from what is acknowledged now.
        log: opened for writing; nothing open at its end.
        state: of the capture.
        tables: every captured table.
        kept: tables whose rows at the target are kept and repaired; the others are emptied and copied from the start.
        awaiting: tables that a dump made elsewhere is still to fill: it has to be one from behind the gap.
        above: SCN that the tables show; below it they would take nothing.

    Returns:
        the incarnation that the capture follows from here on.
    """
    held = Incarnation.read(state) or Incarnation("")
    begin = source.acknowledged_scn()
    gap_scn = max(log.covered_scn, above) + 1
    # Every commit to come has a number above `begin`, and must have an SCN above the gap.
    offset = max(held.offset, gap_scn - begin)
    life = Incarnation(source.incarnation(), offset, begin + offset)
    touched = [table for table in tables if table not in awaiting]
    gap = gap_block(gap_scn, time.time_ns() // 1000, sorted(touched), kept)
    log.append(replace(gap, covered_scn=life.since_scn))
    log.sync()
    open_dumps = [
        request.request_id
        for request in state.requests()
        if request.state in OPEN and request.scope.is_whole
    ]
    _ask_for(state, [table for table in touched if table not in kept], of=tables)
    # In another life the source's identities may mean other tables.
    forgotten = [forget_catalog] if life.name != held.name else []
    state.write([life.keep, lambda w: _settle(w, life, open_dumps, touched, kept), *forgotten])
    return life


def _ask_for(state: StateStore, emptied: Sequence[TableId], of: Sequence[TableId]) -> None:
    if emptied and len(emptied) == len(of):
        state.submit(Scope.ALL_TABLES, cause=Cause.GAP)
        return
    for table in emptied:
        state.submit(Scope.TABLE, table, cause=Cause.GAP)


def _settle(
    writer: StateWriter,
    life: Incarnation,
    open_dumps: Sequence[str],
    tables: Sequence[TableId],
    kept: Collection[TableId],
) -> None:
    """End the dumps that were under way, whose rows are as old as the gap, and begin to count from it."""
    for request_id in open_dumps:
        reason = "superseded: the resync reads its tables again"
        writer.request_state(request_id, RequestState.COMPLETED, since=OPEN, reason=reason)
    for table in tables:
        writer.set_gap(table, open_=table in kept)
    # What was streamed before is no matter of snapshots any more: in another life its ids mean others.
    writer.set("seen_scn", str(life.since_scn))
    writer.set("log_scn", str(life.since_scn))

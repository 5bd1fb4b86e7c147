"""Whether source, change log and state are of one story, asked before anything is captured.

Each of them can be an older copy, restored from a backup, or another one altogether. What does not fit together is
refused by name: going on would leave out changes in silence.
"""

from __future__ import annotations

import logging
from dataclasses import replace

import numpy as np

from headrace.errors import ChangeLogLost, SlotLost, SourceReplaced
from headrace.model.block import SystemKind
from headrace.relay.again import SentAgain
from headrace.relay.log import Log, streamed
from headrace.relay.slots import note_slot
from headrace.sources.base import FollowsOthers, Source
from headrace.state.incarnation import Incarnation
from headrace.state.store import StateStore

__all__ = ["check_log", "life_of", "sent_again"]

_LOG = logging.getLogger(__name__)


def life_of(source: Source, log: Log, state: StateStore) -> Incarnation:
    """Return the source's life; follows a source that only goes on elsewhere.

    Raises:
        SourceReplaced: it was restored or promoted, and what the change log holds is not all in its log.
    """
    now, known = source.incarnation(), Incarnation.read(state)
    # Ahead of every refusal: whoever takes the configuration back leaves a slot here.
    note_slot(source, state, now)
    if known is None:
        life = Incarnation(now)
        state.write([life.keep])
        return life
    covered = log.covered_scn
    if covered and isinstance(source, FollowsOthers):
        # The crash that ended the capture may have come before its last acknowledgement.
        held = streamed(log, source.acknowledged_scn() + known.offset)["xid"].astype(np.int64)
        source.holds(held, covered - known.offset)
    why = source.departs(known.name, covered - known.offset) if covered else ""
    if why:
        raise SourceReplaced(
            f"The source {source.name} is not the database that was captured: it is {now}, was "
            f"{known.name}; {why}. RESYNC NEEDED.",
            next_step="`headrace resync FILE` compares the tables and repairs what differs; or point "
            "source.url at the database that was captured.",
        )
    if now != known.name:
        # A standby that had received everything we have: its numbers go on from ours.
        _LOG.warning("the source is %s now, was %s: nothing is lost", now, known.name)
        known = replace(known, name=now)
        state.write([known.keep])
    return known


def check_log(log: Log, state: StateStore) -> None:
    """Refuse a change log that is older than the state.

    Raises:
        ChangeLogLost: the state speaks of a log that is not there.
    """
    held = int(state.get("log_scn") or 0)
    if held > log.covered_scn:
        raise ChangeLogLost(
            f"The change log ends at SCN {log.covered_scn}, the state has seen {held}: RESYNC NEEDED.",
            next_step="restore the change log folder, or start a new state folder and copy the tables again: "
            "`headrace resync FILE`.",
        )


def sent_again(source: Source, log: Log, offset: int) -> SentAgain:
    """Return what the source has to send again; its log must be open, so that nobody else can move the position.

    Args:
        source: just opened.
        log: what is held.
        offset: from the source's own numbers to SCNs.

    Raises:
        SlotLost: the source was told of more than the change log holds, and will not send it again.
    """
    acknowledged, covered = source.acknowledged_scn() + offset, log.covered_scn
    # An empty log begins where the position is; the SCN behind what is covered may be a watermark.
    if covered and acknowledged > covered + 1:
        raise SlotLost(
            f"The source {source.name} will send nothing up to SCN {acknowledged} again, and the "
            f"change log ends at {covered}: the position was moved by somebody else, or the log is an older one.",
            next_step="RESYNC NEEDED: restore the newest change log, or run `headrace resync FILE`, which "
            "compares the tables and repairs what differs; let nobody else advance or read the slot.",
        )
    return SentAgain(
        streamed(log, acknowledged),
        log.complete_scn,
        source.name,
        lambda scn: _is_still_captured(source, log, scn),
    )


def _is_still_captured(source: Source, log: Log, scn: int) -> bool:
    """Whether a table that a held transaction changed is captured now, so that it has to come again."""
    captured = {schema.table for schema in source.tables()}
    for block in log.blocks(scn - 1):
        if block.first_scn > scn:
            break
        part = block.upto(scn)
        touched = {body.table for body in part.bodies}
        # What else is told of tables depends on what was known of the catalog then.
        touched |= {e.table for e in part.system if e.kind is SystemKind.TRUNCATE}
        if touched & captured:
            return True
    return False

"""Which life of a database a server continues: its system identifier, its timeline, and where timelines part.

Everything is asked over a replication connection, which every role that may read the log has.
"""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sources.postgres.connection import QueryFailed, Session
from headrace.sources.postgres.lsn import format_lsn, parse_lsn

__all__ = ["Life", "departs", "identify", "system_of"]


@dataclass(frozen=True, slots=True)
class Life:
    """What a server says about itself.

    Attributes:
        system: made once, when the data folder was.
        timeline: goes up with each promotion and each recovery to a point in time.
        end: flush position of its log.
    """

    system: str
    timeline: int
    end: int

    @property
    def name(self) -> str:
        """The incarnation: ``system/timeline``."""
        return f"{self.system}/{self.timeline}"


def identify(session: Session) -> Life:
    """Return which life a server is in."""
    (row,) = session.rows("IDENTIFY_SYSTEM")
    return Life(row[0] or "", int(row[1] or 0), parse_lsn(row[2] or ""))


def system_of(name: str) -> str:
    """Return the system identifier in the name of a life."""
    return name.partition("/")[0]


def departs(session: Session, known: str, scn: int) -> str:
    """Return why the server's log lacks something that was captured of the life ``known`` up to an SCN.

    Args:
        session: a replication connection.
        known: the name of the life that was captured.
        scn: the source's own number up to which the change log is whole.
    """
    now = identify(session)
    if now.name == known:
        if now.end >= scn:
            return ""
        return (
            f"its log ends at {format_lsn(now.end)}, and was captured up to {format_lsn(scn)}: an older "
            "state was restored"
        )
    system, _, timeline = known.partition("/")
    if system != now.system:
        return f"it is database system {now.system}, and {system} was captured"
    parted = _parted(session, now.timeline, int(timeline))
    if parted is None:
        return f"timeline {now.timeline} does not come from timeline {timeline}, which was captured"
    if scn >= parted:
        return (
            f"timeline {now.timeline} left timeline {timeline} at {format_lsn(parted)}, which was captured "
            f"up to {format_lsn(scn)}: what lies between is lost"
        )
    return ""


def _parted(session: Session, timeline: int, ancestor: int) -> int | None:
    """Return where a timeline's history leaves an ancestor, None when it never was on it."""
    if timeline == 1:
        return None
    try:
        (row,) = session.rows(f"TIMELINE_HISTORY {timeline}")
    except QueryFailed:
        # The history file was removed: nothing proves where this timeline comes from.
        return None
    for line in (row[1] or "").splitlines():
        fields = line.split("\t")
        if len(fields) >= 2 and fields[0].strip() == str(ancestor):
            return parse_lsn(fields[1].strip())
    return None

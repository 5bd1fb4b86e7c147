"""Looks into the log before our place, for the rows of a distributed transaction that was prepared there."""

from __future__ import annotations

from collections.abc import Iterator

from headrace.sources.mysql.connection import QueryFailed, connect
from headrace.sources.mysql.dump import stretch
from headrace.sources.mysql.events import ROWS, Event, EventType, parse_prepared
from headrace.sources.mysql.gtids import Gtid
from headrace.sources.mysql.prepared import Held
from headrace.sources.mysql.settings import MysqlSettings
from headrace.sources.mysql.transactions import BEGINS

__all__ = ["search"]

_KEPT = ROWS | {EventType.TABLE_MAP}


def search(settings: MysqlSettings, xid: str, file: str, gtid: Gtid, held: Held) -> bool:
    """Hand over the rows of a transaction that was prepared under a name last, before another one.

    Args:
        settings: of the source.
        xid: its name.
        file: of the log, in which the other one lies.
        gtid: of the other one.
        held: takes the rows.

    Returns:
        whether the server's log still has them.
    """
    with connect(settings) as session:
        try:
            files = [row[0] or "" for row in session.texts("SHOW BINARY LOGS")]
        except QueryFailed:
            return False
    # The newest first: what is prepared is ended soon, as a rule.
    for name in reversed(files[: files.index(file) + 1] if file in files else []):
        prepared = _prepared_last(settings, xid, name, gtid)
        if prepared is not None:
            for id_, event in _transactions(settings, name):
                if id_ == prepared and event.type in _KEPT:
                    held.add(event)
                elif id_ == prepared and event.type == EventType.XA_PREPARE:
                    return True
    return False


def _prepared_last(settings: MysqlSettings, xid: str, file: str, gtid: Gtid) -> Gtid | None:
    """Return the id of the last transaction of a file that was prepared under a name, before another id."""
    found = None
    for id_, event in _transactions(settings, file):
        if id_ == gtid:
            break
        if event.type == EventType.XA_PREPARE:
            prepared = parse_prepared(event)
            if prepared.xid == xid and not prepared.one_phase:
                found = id_
    return found


def _transactions(settings: MysqlSettings, file: str) -> Iterator[tuple[Gtid, Event]]:
    """Yield the events of a file's transactions, each with the id of its own."""
    id_ = None
    for name, event in stretch(settings, (file, 4)):
        if name != file:
            return
        if event.type in BEGINS:
            id_ = BEGINS[event.type](event).gtid
        elif id_ is not None:
            yield id_, event

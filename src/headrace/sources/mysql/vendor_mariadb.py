"""MariaDB: ids rise within a domain, and a snapshot tells at which place of the log it stands."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager

from headrace.errors import SlotLost, SourceError
from headrace.sources.base import Finding, Severity
from headrace.sources.mysql.connection import QueryFailed, Session, quote_literal
from headrace.sources.mysql.events import Event, EventType, parse_query
from headrace.sources.mysql.gtids import DomainGtids, Gtid
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.position import RESYNC, UNREAD, Place, Resume
from headrace.sources.mysql.snapshot import PlaceSnapshot, consistent_snapshot
from headrace.sources.mysql.statements import meaning_of
from headrace.sources.mysql.types import Kind
from headrace.sources.mysql.vendor import PAUSE_S, WAIT_S, Check, Log, Start

__all__ = ["MARIADB", "Mariadb"]

_OLDEST = (10, 5)
_COM_BINLOG_DUMP = 0x12
_NON_BLOCK = 1


class Mariadb:
    """MariaDB from 10.5 on; see `headrace.sources.mysql.vendor.Vendor`."""

    name = "MariaDB"
    collations = (
        "SELECT id, character_set_name FROM information_schema.collations WHERE id IS NOT NULL "
        "AND character_set_name IS NOT NULL UNION SELECT id, character_set_name "
        "FROM information_schema.collation_character_set_applicability WHERE id IS NOT NULL"
    )
    collated: frozenset[int] = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.BLOB, Kind.GEOMETRY})
    patient = "SET SESSION max_statement_time = 0"
    backreference = r"\\1"
    engine_tables = "SELECT name, table_id FROM information_schema.innodb_sys_tables"
    engine_columns_made = ""
    checks: Sequence[Check] = (
        Check(
            "binlog_format",
            "ROW",
            "changes come as statements, which do not say what they change",
        ),
        Check("binlog_row_metadata", "FULL", "the log does not name columns, types and keys"),
        Check("binlog_row_image", "FULL", "inserts leave out what they did not name"),
        Check("mysql56_temporal_format", "ON", "times are written in a form that is not decoded"),
    )
    sees_place = "BINLOG MONITOR"
    instant = False
    keyless = ("keyless", Severity.WARNING)
    keyless_why = "its copy is a multiset of rows, and is dumped in one read"

    def refusal(self, version: str) -> Finding | None:
        """Refuse what describes no columns in its log."""
        match = re.search(r"(?:5\.5\.5-)?(\d+)\.(\d+)", version)
        if match is not None and (int(match[1]), int(match[2])) >= _OLDEST:
            return None
        return Finding(
            "server-too-old",
            f"The server is {version}; logs describe their columns from 10.5 on.",
            "upgrade the server.",
        )

    def incarnation(self, session: Session) -> str:
        """Return its name for itself; servers of before 2024 have only a number."""
        try:
            return f"mariadb {session.value('SELECT @@GLOBAL.server_uid')}"
        except QueryFailed:
            return f"mariadb {session.value('SELECT @@GLOBAL.server_id')}"

    def is_itself(self, session: Session, resume: Resume) -> bool:
        """Return whether its log has our place, with the same ids up to there, some of which it committed itself.

        The server makes its name of its port and of its network card's address: one in a container that comes back
        has another. A replica that took over has the ids at other places, and committed none of them.
        """
        number = session.value("SELECT @@GLOBAL.server_id")
        found = DomainGtids.parse(_ids_at(session, resume.place))
        return found.among(resume.gtids) and number in (
            id_.split("-")[1] for id_ in found.last.values()
        )

    def end(self, session: Session) -> tuple[str, int]:
        """Return where the log ends."""
        (row,) = session.texts("SHOW MASTER STATUS")
        return row[0] or "", int(row[1] or 0)

    def filters(self, session: Session) -> tuple[str, str]:
        """Return which databases are logged, and which are not."""
        (row,) = session.texts("SHOW MASTER STATUS")
        return row[2] or "", row[3] or ""

    def beginning(self, session: Session) -> Resume:
        """Return the end of the log, and the ids up to there."""
        place = Place.of(*self.end(session))
        # What is prepared now and was before the place: its rows are looked for in the log once it is committed.
        prepared = dict.fromkeys(_prepared(session), UNREAD)
        gtids = DomainGtids.parse(_ids_at(session, place))
        return Resume(place, place.scn, gtids, {}, prepared=prepared)

    def followed(self, session: Session, resume: Resume) -> Resume:
        """Refuse a log that has other ids up to our place: it was reset, or is another server's.

        A server takes ids of a domain that it never had for nothing worth refusing, and may have forgotten one.
        """
        place = resume.place
        found = _ids_at(session, place)
        if found and not DomainGtids.parse(found).among(resume.gtids):
            raise SlotLost(
                f"The log at {place.file}:{place.position} is not the one that was read up to there: its ids "
                f"are {found}, were {resume.gtids.text}.",
                next_step=f"check that source.url is the same server, not reset or restored; else {RESYNC}.",
            )
        return resume

    def shift(self, session: Session, resume: Resume) -> int:
        """Return nothing: who captures does not go on to another server."""
        del session, resume
        return 0

    def start(self, resume: Resume) -> Start:
        """Return the ids, or the place where there are none yet."""
        return resume.gtids.text or (resume.place.file, resume.place.position)

    def ask(self, session: Session, start: Start, server_id: int, *, follow: bool) -> bytes:
        """Ask behind ids by variables, or at a place."""
        # Without it ids come rewritten as BEGIN, and distributed transactions end the stream.
        session.run("SET @mariadb_slave_capability = 4")
        file, position = ("", 4) if isinstance(start, str) else start
        if isinstance(start, str):
            session.run(
                f"SET @slave_connect_state = {quote_literal(start)}",
                "SET @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0",
            )
        flags = 0 if follow else _NON_BLOCK
        return struct.pack("<BIHI", _COM_BINLOG_DUMP, position, flags, server_id) + file.encode()

    def number(self, numbers: GtidNumbers) -> Callable[[Gtid], int] | None:
        """Return None: a snapshot stands at a place."""
        del numbers
        return None

    @contextmanager
    def snapshot(
        self, session: Session, numbers: GtidNumbers | None, read: Resume | None = None
    ) -> Iterator[PlaceSnapshot]:
        """Open a snapshot that knows its place.

        A distributed transaction whose commit was read in the log is still prepared for others until it is visible.
        So where nobody is prepared but those who are so in the log that was read, all that this log has was seen.
        """
        del numbers
        surely = 0
        if read is not None and not _prepared(session) - read.prepared.keys():
            surely = read.place.scn
        with consistent_snapshot(session, surely) as seen:
            yield seen

    @contextmanager
    def placed(
        self,
        session: Session,
        log: Log,
        numbers: GtidNumbers | None,
    ) -> Iterator[PlaceSnapshot]:
        """Open a snapshot that knows its place, while no distributed transaction is on its way; wait for that.

        None was prepared, and up to the snapshot's place none was committed: so those that were are visible.
        """
        del numbers
        deadline = time.monotonic() + WAIT_S
        while True:
            before = self.end(session)
            if not _prepared(session):
                with consistent_snapshot(session) as seen:
                    place = (seen.place.file, seen.place.position)
                    if before == place or not _distributed(log(before), seen.place):
                        yield seen
                        return
            if time.monotonic() > deadline:
                raise SourceError(
                    "There was always a distributed transaction (XA) prepared, so no snapshot stands at a place.",
                    next_step="XA RECOVER lists them: end those that nobody ends; or ask again when fewer are begun.",
                )
            time.sleep(PAUSE_S)

    def whole(
        self, session: Session, log: Log, numbers: GtidNumbers | None
    ) -> AbstractContextManager[PlaceSnapshot]:
        """Open a snapshot that stands at a place."""
        return self.placed(session, log, numbers)


def _prepared(session: Session) -> set[str]:
    """Return the names of the distributed transactions that are prepared, as the log writes them."""
    found = set()
    for kind, first, second, data in session.rows("XA RECOVER"):
        name, cut = data or b"", int(first or 0)
        found.add(
            f"X'{name[:cut].hex()}',X'{name[cut : cut + int(second or 0)].hex()}',{int(kind or 0)}"
        )
    return found


def _distributed(log: Iterator[tuple[str, Event]], end: Place) -> bool:
    """Return whether a distributed transaction was prepared or ended in a log before a place."""
    for file, event in log:
        if event.artificial:
            continue
        if Place.of(file, event.end_pos) > end:
            break
        if event.type == EventType.XA_PREPARE:
            return True
        if event.type == EventType.QUERY and meaning_of(parse_query(event)).kind == "xa commit":
            return True
    return False


def _ids_at(session: Session, place: Place) -> str:
    name = quote_literal(place.file)
    return session.value(f"SELECT BINLOG_GTID_POS({name}, {place.position})")


MARIADB = Mariadb()

"""MySQL itself: what came before is a set of ids, and what a snapshot has surely seen is one, too.

A commit is in the log, and sent to its readers, before it is visible, and its id joins ``gtid_executed`` once it is. So
the set that is read before a select holds only what the select sees; what else it sees nobody can say. A place of the
log says nothing of the kind.
"""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace

from headrace.errors import SlotLost, SourceError
from headrace.sources.base import Finding, Severity
from headrace.sources.mysql.connection import Session, quote_literal
from headrace.sources.mysql.events import Event
from headrace.sources.mysql.gtids import Gtid, GtidSet
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.position import RESYNC, Place, Resume
from headrace.sources.mysql.snapshot import GtidSnapshot, PlacedGtidSnapshot
from headrace.sources.mysql.transactions import BEGINS
from headrace.sources.mysql.types import Kind
from headrace.sources.mysql.vendor import PAUSE_S, WAIT_S, Check, Log, Start

__all__ = ["MYSQL", "Mysql"]

_OLDEST = (8, 0)
_NEW_WORDS = (8, 2)
"""From here on ``SHOW BINARY LOG STATUS``, and before ``SHOW MASTER STATUS``."""
_COM_BINLOG_DUMP, _COM_BINLOG_DUMP_GTID = 0x12, 0x1E
_NON_BLOCK, _BY_GTIDS = 1, 4
_EXECUTED = "SELECT @@GLOBAL.gtid_executed"
_THREAD = re.compile(r"#\d+")
"""Behind each id that is on its way, the number of who commits it."""

_GTID_STEPS = (
    "SET GLOBAL enforce_gtid_consistency = ON; SET GLOBAL gtid_mode = OFF_PERMISSIVE; "
    "SET GLOBAL gtid_mode = ON_PERMISSIVE; once SHOW GLOBAL STATUS LIKE 'Ongoing_anonymous_transaction_count' "
    "says 0: SET GLOBAL gtid_mode = ON; and the same in the server's configuration."
)


class Mysql:
    """MySQL from 8.0 on; see `headrace.sources.mysql.vendor.Vendor`."""

    name = "MySQL"
    collations = "SELECT id, character_set_name FROM information_schema.collations"
    collated: frozenset[int] = frozenset({Kind.CHAR, Kind.VARCHAR, Kind.BLOB, Kind.VECTOR})
    patient = "SET SESSION max_execution_time = 0"
    backreference = "$1"
    engine_tables = "SELECT name, table_id FROM information_schema.innodb_tables"
    engine_columns_made = (
        "SELECT name, total_row_versions FROM information_schema.innodb_tables "
        "WHERE total_row_versions > 0"
    )
    checks: Sequence[Check] = (
        Check(
            "gtid_mode",
            "ON",
            "transactions have no ids by which a select can say what it has seen",
            _GTID_STEPS,
        ),
        Check(
            "enforce_gtid_consistency",
            "ON",
            "statements that have no single id are let through",
            "see that WARN brings no warnings to the server's log; then SET GLOBAL enforce_gtid_consistency = ON; "
            "and the same in the server's configuration.",
        ),
        Check(
            "binlog_format",
            "ROW",
            "changes come as statements, which do not say what they change",
        ),
        Check("binlog_row_metadata", "FULL", "the log does not name columns, types and keys"),
        Check("binlog_row_image", "FULL", "inserts leave out what they did not name"),
        Check(
            "binlog_order_commits",
            "ON",
            "commits become visible in another order than that of the log, so that more chunk rows yield to changes",
            severity=Severity.WARNING,
        ),
        Check(
            "replica_preserve_commit_order",
            "ON",
            "as a replica it commits in another order than the server that it follows",
            "STOP REPLICA; SET GLOBAL replica_preserve_commit_order = ON; START REPLICA; and the same in the server's "
            "configuration.",
            Severity.WARNING,
        ),
    )
    sees_place = "REPLICATION CLIENT"
    instant = True
    keyless = ("keyless-refused", Severity.ERROR)
    keyless_why = "no read of MySQL says which changes such a table has already seen"

    def refusal(self, version: str) -> Finding | None:
        """Refuse what describes no columns in its log, and what is neither kind of server."""
        match = re.match(r"(\d+)\.(\d+)", version)
        if match is None:
            return Finding(
                "server-unknown",
                f"The server calls itself {version}, which is neither MySQL nor MariaDB.",
                "capture from MySQL or MariaDB.",
            )
        if _numbers(version) >= _OLDEST:
            return None
        return Finding(
            "server-too-old",
            f"The server is {version}; logs describe their columns from 8.0 on.",
            "upgrade the server.",
        )

    def incarnation(self, session: Session) -> str:
        """Return its name for itself."""
        return f"mysql {session.value('SELECT @@GLOBAL.server_uuid')}"

    def is_itself(self, session: Session, resume: Resume) -> bool:
        """Return False: its name lies beside its data."""
        del session, resume
        return False

    def end(self, session: Session) -> tuple[str, int]:
        """Return where the log ends."""
        row = _status(session)
        return row[0] or "", int(row[1] or 0)

    def filters(self, session: Session) -> tuple[str, str]:
        """Return which databases are logged, and which are not."""
        row = _status(session)
        return row[2] or "", row[3] or ""

    def beginning(self, session: Session) -> Resume:
        """Return the head of the newest file, and what is executed.

        Whatever is not executed then lies in that file or behind it: a file begins when all before it is executed.
        """
        file, _ = self.end(session)
        place = Place.of(file, 4)
        gtids = GtidSet.parse(session.value(_EXECUTED))
        return Resume(place, place.scn, gtids, {}, self.incarnation(session))

    def followed(self, session: Session, resume: Resume) -> Resume:
        """Return our place, or, on another server that has all that we have, one before whatever it has beside."""
        # Asked first: a commit that waits for its replica is in the log, and was perhaps read, before it is executed.
        owned = _THREAD.sub("", session.value("SELECT @@GLOBAL.gtid_owned"))
        ours = quote_literal(resume.gtids.text)
        (row,) = session.texts(
            f"SELECT GTID_SUBTRACT(GTID_SUBTRACT({ours}, {quote_literal(owned)}), @@GLOBAL.gtid_executed), "
            f"GTID_SUBTRACT(@@GLOBAL.gtid_purged, {ours})"
        )
        absent, purged = (re.sub(r"\s", "", cell or "") for cell in row)
        if absent:
            raise SlotLost(
                f"The server's log lacks transactions that were read: {absent}.",
                next_step=f"check that source.url is the same database, not reset or restored; else {RESYNC}.",
            )
        if purged:
            raise SlotLost(
                f"The server no longer has the log from our position on: it removed {purged}.",
                next_step=f"{RESYNC}; raise binlog_expire_logs_seconds.",
            )
        shift = self.shift(session, resume)
        if shift == resume.shift:
            return resume
        server = self.incarnation(session)
        return replace(resume, place=Place.of("none.0", 4, shift), server=server, shift=shift)

    def shift(self, session: Session, resume: Resume) -> int:
        """Return the same on the same server; another one's files are counted on from our place."""
        same = resume.server == self.incarnation(session)
        return resume.shift if same else resume.place.number + 1

    def start(self, resume: Resume) -> Start:
        """Return the ids."""
        return resume.gtids.text

    def ask(self, session: Session, start: Start, server_id: int, *, follow: bool) -> bytes:
        """Ask behind ids by the command that takes them, or at a place."""
        del session  # All of it is in the command.
        flags = 0 if follow else _NON_BLOCK
        if isinstance(start, str):
            gtids = GtidSet.parse(start).encoded()
            flags |= _BY_GTIDS
            head = struct.pack("<BHIIQ", _COM_BINLOG_DUMP_GTID, flags, server_id, 0, 4)
            return head + struct.pack("<I", len(gtids)) + gtids
        file, position = start
        return struct.pack("<BIHI", _COM_BINLOG_DUMP, position, flags, server_id) + file.encode()

    def number(self, numbers: GtidNumbers) -> Callable[[Gtid], int] | None:
        """Return numbers made of ids."""
        numbers.check()
        return numbers.number

    @contextmanager
    def snapshot(
        self, session: Session, numbers: GtidNumbers | None, read: Resume | None = None
    ) -> Iterator[GtidSnapshot]:
        """Open a snapshot behind the set of what is executed; a distributed transaction has the id of its commit."""
        del read
        seen = GtidSnapshot(GtidSet.parse(session.value(_EXECUTED)), numbers)
        session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
        try:
            yield seen
        finally:
            with suppress(Exception):
                session.run("ROLLBACK")

    @contextmanager
    def placed(
        self,
        session: Session,
        log: Log,
        numbers: GtidNumbers | None,
    ) -> Iterator[PlacedGtidSnapshot]:
        """Open a snapshot while nothing is in the log that is not executed; wait for one.

        What is visible is in the log, and what is executed is visible: so where both are one, the snapshot has seen
        just that.
        """
        deadline = time.monotonic() + WAIT_S
        while True:
            with self.snapshot(session, numbers) as seen:
                if GtidSet.parse(session.value(_EXECUTED)) == seen.gtids:
                    place = Place.of(*self.end(session))
                    beside = _first_begin(log(seen.gtids.text))
                    if beside is None or Place.of(*beside) > place:
                        yield PlacedGtidSnapshot(seen, place)
                        return
            if time.monotonic() > deadline:
                raise SourceError(
                    "There was always a commit in the log that was not yet visible, so no snapshot stands at a place.",
                    next_step="ask again when fewer commits wait: semi-synchronous replication without a replica lets "
                    "all of them wait.",
                )
            time.sleep(PAUSE_S)

    def whole(
        self, session: Session, log: Log, numbers: GtidNumbers | None
    ) -> AbstractContextManager[GtidSnapshot]:
        """Refuse."""
        del session, log, numbers
        raise SourceError(
            f"A table without a primary key cannot be copied from MySQL: {self.keyless_why}.",
            next_step="give it a primary key, or exclude it.",
        )


def _status(session: Session) -> tuple[str | None, ...]:
    words = "BINARY LOG" if _numbers(session.version) >= _NEW_WORDS else "MASTER"
    (row,) = session.texts(f"SHOW {words} STATUS")
    return row


def _first_begin(log: Iterator[tuple[str, Event]]) -> tuple[str, int] | None:
    """Return file and position behind the id of the first transaction of a log, None when it has none yet."""
    for file, event in log:
        if event.type in BEGINS:
            return file, event.end_pos
    return None


def _numbers(version: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


MYSQL = Mysql()

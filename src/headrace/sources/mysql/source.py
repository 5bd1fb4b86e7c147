"""One MariaDB server as a `headrace.sources.base.Source`."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa

from headrace.errors import ConfigError, PreflightFailed, ProtocolError, SlotLost, SourceError
from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import Finding, SchemaStore, Severity
from headrace.sources.description import SourceDescription
from headrace.sources.mysql import described
from headrace.sources.mysql.assembler import Assembler
from headrace.sources.mysql.catalog import TableFacts, facts_schema, read_collations, read_table
from headrace.sources.mysql.chunks import MysqlChunkReader
from headrace.sources.mysql.connection import QueryFailed, Session, connect, quote_literal
from headrace.sources.mysql.digest import MysqlView
from headrace.sources.mysql.dump import RESYNC, Dump
from headrace.sources.mysql.kept import BinlogWatch
from headrace.sources.mysql.marks import MarkWriter, create_marks, drop_marks, has_marks
from headrace.sources.mysql.position import Place, Resume, gtid_state
from headrace.sources.mysql.preflight import Preflight, captured_tables
from headrace.sources.mysql.rendering import key_texts
from headrace.sources.mysql.settings import MysqlSettings, ZeroDates
from headrace.sources.mysql.snapshot import PlaceSnapshot
from headrace.sources.mysql.stream import AcknowledgedPosition, MysqlLogReader
from headrace.sources.mysql.tables import LoggedTables

__all__ = ["MysqlSource", "end_of_log"]

_NAME_LIMIT = 64
# Heartbeats that a server may miss before it is taken for gone.
_BEATS = 6


class MysqlSource:
    """A MariaDB server from 10.5 on.

    Args:
        url: connection URL; secrets in it are never shown.
        folder: where the acknowledged place is kept; made if it is not there.
        tables: patterns such as ``shop.*``.
        exclude: patterns of tables left out.
        name: of the pipeline; two that read one server need different ones.
        zero_dates: what becomes of dates that are no days.
        block_rows: rows after which a block is handed over, in the middle of a transaction if need be.
        block_bytes: the same in bytes of the log.
        heartbeat_s: after so much silence the server says that it is there.

    Raises:
        ConfigError: the URL does not read, or the name is too long.
    """

    def __init__(
        self,
        url: str,
        folder: Path,
        tables: Sequence[str],
        exclude: Sequence[str] = (),
        name: str = "headrace",
        zero_dates: ZeroDates = "refuse",
        block_rows: int = 65_536,
        block_bytes: int = 8 << 20,
        heartbeat_s: float = 5.0,
    ) -> None:
        self.name = name
        self.settings = MysqlSettings(
            url=url,
            tables=tuple(tables),
            exclude=tuple(exclude),
            name=name,
            heartbeat_s=heartbeat_s,
            zero_dates=zero_dates,
        )
        self._address = self.settings.address
        if not 0 < len(name) <= _NAME_LIMIT:
            raise ConfigError(
                f"The pipeline's name has {len(name)} characters.",
                next_step=f"use 1 to {_NAME_LIMIT}.",
            )
        self._acknowledged = AcknowledgedPosition(folder / "binlog.json")
        self._folder = folder
        self._block_rows = block_rows
        self._block_bytes = block_bytes

    def __repr__(self) -> str:
        return f"MysqlSource(name={self.name!r}, tables={self.settings.tables!r})"

    @property
    def server_id(self) -> int:
        """The number under which we are a replica: by our name, above those that people give."""
        return zlib.crc32(self.name.encode()) | 1 << 31

    def preflight(self) -> list[Finding]:
        """Return everything that stands in the way; changes nothing."""
        with connect(self.settings) as session:
            # Not under the number of the reader, which would be thrown out.
            return Preflight(session, self.settings, self.server_id ^ 1).run()

    def tables(self) -> list[TableSchema]:
        """Return the captured tables by name."""
        with connect(self.settings) as session:
            collations = read_collations(session)
            found = (
                read_table(session, table, collations)
                for table in captured_tables(session, self.settings)
            )
            return [facts_schema(facts) for facts in found if facts is not None]

    def prepare(self, *, fresh: bool = False) -> None:
        """Create the watermark table and our row of it where they are missing, and note where the log begins for us.

        Args:
            fresh: there is no state yet that needs an older place.

        Raises:
            PreflightFailed: when a finding forbids it; then nothing was changed.
        """
        errors = [f for f in self.preflight() if f.severity is Severity.ERROR]
        if errors:
            raise PreflightFailed(
                f"{self.name} cannot be captured as it is: "
                + "; ".join(f"{f.description} [{f.name}]" for f in errors),
                next_step=" ".join(dict.fromkeys(f.suggestion for f in errors)),
            )
        with connect(self.settings) as session:
            if not has_marks(session, self.name):
                self._create_marks(session)
            if fresh or self._acknowledged.read() is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._acknowledged.write(end_of_log(session).render())

    def _create_marks(self, session: Session) -> None:
        try:
            create_marks(session, self.name)
        except QueryFailed as error:
            (finding,) = (f for f in self.preflight() if f.name == "no-watermark-row")
            raise PreflightFailed(
                f"{self.name} cannot be captured as it is: {finding.description} ({error.message})",
                next_step=finding.suggestion,
            ) from error

    def incarnation(self) -> str:
        """Return the server's own name for itself."""
        with connect(self.settings) as session:
            try:
                return f"mariadb {session.value('SELECT @@GLOBAL.server_uid')}"
            except QueryFailed:
                # Servers of before 2024 have no such name.
                return f"mariadb {session.value('SELECT @@GLOBAL.server_id')}"

    def departs(self, incarnation: str, scn: int) -> str:
        """Return why the server's log does not hold what another server's, or its own, held up to an SCN."""
        now = self.incarnation()
        if now != incarnation:
            return "another server's log has other files and places"
        with connect(self.settings) as session:
            end = end_of_log(session)
        if end.place.scn < scn:
            return (
                f"its log ends at {end.place.file}:{end.place.position}, before what was captured"
            )
        return ""

    def open(self, schemas: SchemaStore) -> MysqlLogReader:
        """Start reading the log from what was last acknowledged.

        Raises:
            SlotLost: nothing was ever acknowledged here, or the server no longer has the log from there on.
            SourceUnavailable: the server cannot be reached.
        """
        resume = self._resume()
        session = connect(self.settings)
        try:
            collations = read_collations(session)
            _check_place(session, resume)
            start = resume.start or (resume.place.file, resume.place.position)
            dump = Dump(session, self.settings, self.server_id, start)
        except BaseException as error:
            session.close()
            if isinstance(error, QueryFailed):
                raise SourceError(
                    f"The log cannot be opened: {error.message}",
                    next_step="run `headrace preflight FILE`, which lists what is missing.",
                ) from error
            raise

        def catalog(table: TableId) -> TableFacts | None:
            # Asked seldom: a session that is kept for it would be idle for hours, and cut.
            with connect(self.settings) as asked:
                return read_table(asked, table, collations)

        tables = LoggedTables(self.settings, collations, catalog, schemas)
        assembler = Assembler(tables, resume, self.name, self._block_rows, self._block_bytes)
        silence_s = _BEATS * self.settings.heartbeat_s
        return MysqlLogReader(dump, assembler, self._acknowledged, silence_s)

    def acknowledged_scn(self) -> int:
        """Return the SCN of the last transaction that will not come again."""
        return self._resume().scn

    def chunks(self) -> MysqlChunkReader:
        """Open a chunk reader."""
        return MysqlChunkReader(self.settings)

    def watermarks(self) -> MarkWriter:
        """Open a watermark writer."""
        return MarkWriter(self.settings)

    def described(
        self, patterns: Sequence[str] | None = None, only: TableId | None = None
    ) -> SourceDescription:
        """Return what the catalog and its statistics say; see `headrace.sources.description.Describes`."""
        with connect(self.settings) as session:
            asked = described.patterned(self.settings, patterns)
            return described.read_description(session, asked, only)

    def written_bytes(self) -> int:
        """Return how many bytes of log the server has written since its start; likewise."""
        with connect(self.settings) as session:
            return described.written_bytes(session)

    def view(self, tables: Sequence[TableId]) -> MysqlView:
        """Return a snapshot of tables; see `headrace.sources.database.Compared`."""
        return MysqlView(self.settings, tables)

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as the database would render it."""
        return key_texts(schema, rows)

    def end_scn(self) -> int:
        """Return where the log ends now."""
        with connect(self.settings) as session:
            return end_of_log(session).place.scn

    def scn_of(self, position: str) -> int:
        """Return the SCN of ``file:place``, which lies between two transactions.

        Raises:
            ValueError: the text is nothing of the kind.
        """
        try:
            return PlaceSnapshot.parse(position).place.scn
        except ProtocolError as error:
            raise ValueError("no place of a log") from error

    def log_watch(self) -> BinlogWatch:
        """Return what looks at the log that the server keeps behind our place."""
        return BinlogWatch(self.settings, self._acknowledged)

    def drop(self) -> None:
        """Remove our watermarks and forget our place."""
        with connect(self.settings) as session:
            drop_marks(session, self.name)
        self._acknowledged.forget()

    def _resume(self) -> Resume:
        resume = self._acknowledged.read()
        if resume is None:
            raise SlotLost(
                f"{self.name} has no place in the log of {self._address.host}.",
                next_step=f"restore the state folder from a backup; else {RESYNC}.",
            )
        return resume


def _check_place(session: Session, resume: Resume) -> None:
    """Refuse a log that has other ids up to our place: it was reset, or is another server's.

    A server takes ids of a domain that it never had for nothing worth refusing.
    """
    name = quote_literal(resume.place.file)
    found = session.value(f"SELECT BINLOG_GTID_POS({name}, {resume.place.position})")
    if found and gtid_state(found) != resume.gtids:
        raise SlotLost(
            f"The log at {resume.place.file}:{resume.place.position} is not the one that was read up to there: its ids "
            f"are {found}, were {resume.start}.",
            next_step=f"check that source.url is the same server, not reset or restored; else {RESYNC}.",
        )


def end_of_log(session: Session) -> Resume:
    """Return where the log ends now."""
    try:
        (row,) = session.texts("SHOW MASTER STATUS")
        file, position = row[0] or "", int(row[1] or 0)
        gtids = session.value(f"SELECT BINLOG_GTID_POS({quote_literal(file)}, {position})")
    except QueryFailed as error:
        raise SourceError(
            f"The server does not say where its log is: {error.message}",
            next_step="run `headrace preflight FILE`, which lists what is missing.",
        ) from error
    place = Place.of(file, position)
    return Resume(place, place.scn, gtid_state(gtids), {})

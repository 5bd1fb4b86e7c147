"""One server of MySQL or MariaDB as a `headrace.sources.base.Source`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import ConfigError, PreflightFailed, ProtocolError, SlotLost, SourceError
from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import Finding, SchemaStore, refuse
from headrace.sources.description import SourceDescription
from headrace.sources.mysql import described
from headrace.sources.mysql.assembler import Assembler
from headrace.sources.mysql.catalog import TableFacts, facts_schema, read_collations, read_table
from headrace.sources.mysql.chunks import MysqlChunkReader
from headrace.sources.mysql.connection import QueryFailed, Session, connect
from headrace.sources.mysql.digest import MysqlView
from headrace.sources.mysql.dump import Dump
from headrace.sources.mysql.gtids import GtidSet
from headrace.sources.mysql.history import keeps_history
from headrace.sources.mysql.kept import BinlogWatch
from headrace.sources.mysql.marks import MarkWriter, create_marks, drop_marks, has_marks
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.position import RESYNC, Place, Resume
from headrace.sources.mysql.preflight import (
    Preflight,
    acting_keys,
    captured_tables,
    logs_acting_keys,
)
from headrace.sources.mysql.prepared import HeldTransactions
from headrace.sources.mysql.rendering import key_texts
from headrace.sources.mysql.settings import MysqlSettings, ZeroDates
from headrace.sources.mysql.stream import AcknowledgedPosition, MysqlLogReader
from headrace.sources.mysql.tables import LoggedTables
from headrace.sources.mysql.unread import search
from headrace.sources.mysql.vendors import vendor_of

__all__ = ["MysqlSource"]

_NAME_LIMIT = 64
# Heartbeats that a server may miss before it is taken for gone.
_BEATS = 6


class MysqlSource:
    """A MySQL server from 8.0 on, or a MariaDB server from 10.5 on.

    Args:
        url: connection URL; secrets in it are never shown.
        folder: where the acknowledged place and the names in ids are kept; made if it is not there.
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
        self._numbers = GtidNumbers(folder / "gtid_sources.json")
        self._held = HeldTransactions(folder / "xa", partial(search, self.settings))
        self._assembler: Assembler | None = None
        self._beyond: Resume | None = None
        self._folder = folder
        self._block_rows = block_rows
        self._block_bytes = block_bytes

    def __repr__(self) -> str:
        return f"MysqlSource(name={self.name!r}, tables={self.settings.tables!r})"

    def preflight(self) -> list[Finding]:
        """Return everything that stands in the way; changes nothing."""
        with connect(self.settings) as session:
            return Preflight(session, self.settings).run()

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
        refuse(self.name, self.preflight())
        with connect(self.settings) as session:
            if not has_marks(session, self.name):
                self._create_marks(session)
            if fresh or self._acknowledged.read() is None:
                self._folder.mkdir(parents=True, exist_ok=True)
                self._numbers.begin()
                self._held.clear()
                beginning = _beginning(session).selecting(self.settings.selection)
                self._acknowledged.write(beginning.render())

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
            return vendor_of(session).incarnation(session)

    @property
    def leaves_out(self) -> bool:
        """Whether another server is gone on with, from behind what the change log holds."""
        return self._beyond is not None

    def holds(self, xids: npt.NDArray[np.int64], scn: int) -> None:
        """Take note of what the change log holds beyond our place; see `headrace.sources.base.FollowsOthers`.

        Only MySQL's numbers are ids by which another server is asked; it is not followed elsewhere.
        """
        resume = self._acknowledged.read()
        self._beyond = None
        if resume is None or not isinstance(resume.gtids, GtidSet) or resume.place.scn >= scn:
            return
        if self.incarnation() != resume.server:
            self._beyond = resume.beyond(self._numbers.ids(xids), scn)

    def departs(self, incarnation: str, scn: int) -> str:
        """Return why the server's log does not hold what another server's, or its own, held up to an SCN."""
        resume = self._beyond or self._acknowledged.read()
        with connect(self.settings) as session:
            vendor = vendor_of(session)
            now = vendor.incarnation(session)
            if resume is None or not resume.server:
                same = now == incarnation
                if not same and (resume is None or not vendor.is_itself(session, resume)):
                    return "another server's log has other files and places"
            elif now != resume.server:
                return self._departs_from(session, resume, scn)
            end = _end(session, 0 if resume is None else resume.shift)
        if end.scn < scn:
            return f"its log ends at {end.file}:{end.position}, before what was captured"
        return ""

    def _departs_from(self, session: Session, resume: Resume, scn: int) -> str:
        """Return why another server does not go on from our place."""
        if resume.place.scn < scn:
            return "the place that was acknowledged lies before what was captured"
        try:
            vendor_of(session).followed(session, resume)
        except SlotLost as error:
            return error.message
        return ""

    def open(self, schemas: SchemaStore) -> MysqlLogReader:
        """Start reading the log from what was last acknowledged.

        Raises:
            SlotLost: nothing was ever acknowledged here, or the server no longer has the log from there on.
            SourceUnavailable: the server cannot be reached.
        """
        resume, self._beyond = self._beyond or self._resume(), None
        resume = resume.selecting(self.settings.selection)
        session = connect(self.settings)
        try:
            vendor = vendor_of(session)
            collations = read_collations(session)
            folds = session.value("SELECT @@GLOBAL.lower_case_table_names") != "0"
            present = captured_tables(session, self.settings)
            logs_acting = logs_acting_keys(session)
            followed = vendor.followed(session, resume)
            if followed != resume:
                # Numbers go on from here whatever happens next.
                self._acknowledged.write(followed.render())
            start = vendor.start(followed)
            dump = Dump(session, self.settings, self.settings.server_id, start)
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

        def acting(table: TableId) -> bool:
            with connect(self.settings) as asked:
                return bool(acting_keys(asked, table))

        def historic(table: TableId) -> bool:
            with connect(self.settings) as asked:
                return keeps_history(asked, table)

        tables = LoggedTables(
            self.settings,
            collations,
            catalog,
            schemas,
            None if logs_acting else acting,
            historic,
            present,
            folds=folds,
        )
        bounds = (self._block_rows, self._block_bytes)
        number = vendor.number(self._numbers)
        assembler = Assembler(tables, followed, self.name, *bounds, self._held, number)
        self._assembler = assembler
        silence_s = _BEATS * self.settings.heartbeat_s
        return MysqlLogReader(dump, assembler, self._acknowledged, self._held, silence_s)

    def acknowledged_scn(self) -> int:
        """Return the SCN of the last transaction that will not come again."""
        return self._resume().scn

    def chunks(self) -> MysqlChunkReader:
        """Open a chunk reader."""
        self._numbers.reload()
        return MysqlChunkReader(self.settings, numbers=self._numbers, read=self._read)

    def _read(self) -> Resume:
        """Return how far the log was read by now."""
        return self._resume() if self._assembler is None else self._assembler.resume

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
        return MysqlView(self.settings, tables, self._numbers)

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as the database would render it."""
        return key_texts(schema, rows)

    def end_scn(self) -> int:
        """Return where the log ends now."""
        with connect(self.settings) as session:
            resume = self._acknowledged.read()
            shift = 0 if resume is None else vendor_of(session).shift(session, resume)
            return _end(session, shift).scn

    def scn_of(self, position: str) -> int:
        """Return the SCN of ``file:place``, which lies between two transactions.

        Raises:
            ValueError: the text is nothing of the kind.
        """
        try:
            file, _, place = position.rpartition(":")
            resume = self._acknowledged.read()
            return Place.of(file, int(place), 0 if resume is None else resume.shift).scn
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
        self._numbers.forget()
        self._held.clear()

    def _resume(self) -> Resume:
        resume = self._acknowledged.read()
        if resume is None:
            raise SlotLost(
                f"{self.name} has no place in the log of {self._address.host}.",
                next_step=f"restore the state folder from a backup; else {RESYNC}.",
            )
        return resume


def _beginning(session: Session) -> Resume:
    """Return where a reader begins that has read nothing."""
    try:
        return vendor_of(session).beginning(session)
    except (QueryFailed, ValueError) as error:
        raise _no_place(error) from error


def _end(session: Session, shift: int) -> Place:
    """Return where the log ends now."""
    try:
        return Place.of(*vendor_of(session).end(session), shift)
    except (QueryFailed, ValueError) as error:
        raise _no_place(error) from error


def _no_place(error: Exception) -> SourceError:
    why = error.message if isinstance(error, QueryFailed) else "it keeps none"
    return SourceError(
        f"The server does not say where its log is: {why}",
        next_step="run `headrace preflight FILE`, which lists what is missing.",
    )

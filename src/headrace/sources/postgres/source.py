"""One PostgreSQL database as a `headrace.sources.base.Source`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa

from headrace.errors import SourceError
from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import Finding, HeldSlot, SchemaStore, refuse
from headrace.sources.description import SourceDescription
from headrace.sources.postgres import described, slot, timeline
from headrace.sources.postgres.catalog import TypeCache, describe, published_types, read_tables
from headrace.sources.postgres.catalog_look import Seen
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.sources.postgres.connection import QueryFailed, Session, connect
from headrace.sources.postgres.digest import SourceView
from headrace.sources.postgres.joining import await_writers
from headrace.sources.postgres.lsn import parse_lsn
from headrace.sources.postgres.marks import MarkWriter
from headrace.sources.postgres.opening import Connections, PostgresOpening
from headrace.sources.postgres.preflight import Preflight
from headrace.sources.postgres.publication import all_as_published
from headrace.sources.postgres.relations import CatalogVersions, LogFormat
from headrace.sources.postgres.retained import SlotWatch
from headrace.sources.postgres.settings import ColumnChoice, PostgresSettings
from headrace.sources.postgres.side import SideSession
from headrace.sources.postgres.slot import drop_former, drop_statement
from headrace.sources.postgres.stream import PostgresLogReader
from headrace.sources.postgres.types import Form
from headrace.sources.postgres.values import render_text

__all__ = ["PostgresSource"]


class PostgresSource:
    """A PostgreSQL 14 to 18 database.

    Args:
        url: connection URL; secrets in it are never shown.
        tables: patterns such as ``public.*``.
        exclude: patterns of tables left out.
        slot: an existing slot to use; ours, called after ``name``, when None.
        publication: an existing publication to use; ours when None.
        watermark: ``message`` or ``table``.
        name: of the pipeline.
        columns: tables of which some columns are left out.
        ddl: what tells of migrations besides the log's own descriptions: looks at the ``catalog``, or a ``trigger``.
        text_columns: columns that are kept as the server renders them, by table.
        log_format: ``auto``, or ``text`` for a log that never comes in binary.

    Raises:
        ConfigError: when an argument cannot be used.
    """

    def __init__(
        self,
        url: str,
        tables: Sequence[str] = ("public.*",),
        exclude: Sequence[str] = (),
        slot: str | None = None,
        publication: str | None = None,
        watermark: Literal["message", "table"] = "message",
        name: str = "headrace",
        columns: Sequence[ColumnChoice] = (),
        ddl: Literal["catalog", "trigger"] = "catalog",
        text_columns: Mapping[TableId, frozenset[str]] | None = None,
        log_format: Literal["auto", "text"] = "auto",
    ) -> None:
        self.name = name
        self.settings = PostgresSettings(
            url=url,
            tables=tuple(tables),
            exclude=tuple(exclude),
            slot=slot,
            publication=publication,
            watermark=watermark,
            name=name,
            columns=tuple(columns),
            ddl=ddl,
            text_columns=text_columns or {},
            log_format=log_format,
        )
        self.settings.validate()
        self._types = TypeCache()
        self._seen = Seen()
        self._format = LogFormat()

    def __repr__(self) -> str:
        return f"PostgresSource(name={self.name!r}, tables={self.settings.tables!r})"

    def preflight(self) -> list[Finding]:
        """Return everything that stands in the way; changes nothing."""
        with connect(self.settings) as session:
            return Preflight(session, self.settings).run()

    def tables(self) -> list[TableSchema]:
        """Return the captured tables by name."""
        with connect(self.settings) as session:
            facts = read_tables(session, self.settings.filter)
            published = all_as_published(session, self.settings, facts)
            return [describe(session, self._types, one) for one in published]

    def described(
        self, patterns: Sequence[str] | None = None, only: TableId | None = None
    ) -> SourceDescription:
        """Return what the catalog and its statistics say; see `headrace.sources.description.Describes`."""
        settings = described.patterned(self.settings, patterns)
        with connect(settings) as session:
            return described.read_description(session, settings, self._types, only)

    def written_bytes(self) -> int:
        """Return how many bytes of log the server has written; likewise."""
        with connect(self.settings) as session:
            return described.written_bytes(session)

    def prepare(self, *, fresh: bool = False) -> None:
        """Create publication, slot and watermark table where they are missing and ours to create.

        Args:
            fresh: there is no state yet that needs the slot's old position.

        Raises:
            PreflightFailed: when a finding forbids it; then nothing was changed.
            SlotLost: when our slot was there before and is not any more.
        """
        with connect(self.settings) as session:
            refuse(self.name, Preflight(session, self.settings).run())
            facts = read_tables(session, self.settings.filter)
            there = slot.read_slot(session, self.settings.slot_name) is not None
            slot.ensure_publication(session, self.settings, facts, fresh=fresh)
            slot.ensure_slot(session, self.settings, fresh=fresh)
            if fresh and there:
                # A new slot begins behind everything that was open; an old one may begin before tables came.
                await_writers(session, self.settings, (f.oid for f in facts))

    def incarnation(self) -> str:
        """Return system identifier and timeline."""
        with connect(self.settings, replication=True) as session:
            return timeline.identify(session).name

    def departs(self, incarnation: str, scn: int) -> str:
        """Return why the server's log does not hold what another life's, or its own, held up to an SCN."""
        with connect(self.settings, replication=True) as session:
            return timeline.departs(session, incarnation, scn)

    def held(self, incarnation: str) -> HeldSlot:
        """Return the slot that is read."""
        name, own = self.settings.slot_name, self.settings.slot is None
        return HeldSlot(timeline.system_of(incarnation), name, own)

    def let_go(self, slot: HeldSlot, incarnation: str) -> str:
        """Remove a slot that another configuration had; see `headrace.sources.base.HoldsSlot`."""
        if slot.server != timeline.system_of(incarnation):
            statement = drop_statement(slot.name)
            return f"it is at another server, database system {slot.server}; there: {statement}"
        return drop_former(self.settings, slot)

    def open(self, schemas: SchemaStore) -> PostgresLogReader:
        """Start reading the log from what was last acknowledged.

        Raises:
            SlotLost: the slot does not exist or was invalidated.
            SourceUnavailable: the server cannot be reached, or another reader holds the slot.
        """
        return self._reading(self._connected(), schemas)

    def opening(self) -> PostgresOpening:
        """Begin to connect; see `headrace.sources.base.OpensAhead`."""
        return PostgresOpening(self._connected, self._reading)

    def _connected(self) -> Connections:
        """Make the connections of a log, and ask what is to be known of the server.

        Raises:
            HeadraceError: as `open`.
        """
        side = SideSession(self.settings)
        try:
            catalog = side.get()
            slot.check_slot(catalog, self.settings)
            xmax = int(catalog.value("SELECT pg_snapshot_xmax(pg_current_snapshot())"))
            feedback_s = _feedback_interval(catalog, self.settings)
            binary = self._comes_in_binary(catalog)
            session = connect(self.settings, replication=True)
        except BaseException as error:
            side.close()
            if isinstance(error, QueryFailed):
                raise SourceError(
                    f"The log cannot be opened: {error.message}",
                    next_step="run `headrace preflight FILE`, which lists what is missing.",
                ) from error
            raise
        return Connections(session, side, xmax, feedback_s, binary)

    def _reading(self, made: Connections, schemas: SchemaStore) -> PostgresLogReader:
        """Begin to stream; the connections are the reader's, or released."""
        self._format.binary = made.binary
        versions = CatalogVersions(
            self.settings, made.side, self._types, schemas, self._seen, self._format
        )
        try:
            return PostgresLogReader(
                made.session,
                made.side,
                self.settings,
                versions,
                made.xmax,
                made.feedback_s,
                binary=made.binary,
            )
        except BaseException:
            made.close()
            raise

    def _comes_in_binary(self, session: Session) -> bool:
        """Return whether the binary form of every captured column is known."""
        if self.settings.log_format == "text" or self._format.refused:
            return False
        facts = read_tables(session, self.settings.filter)
        tables = all_as_published(session, self.settings, facts)
        columns = [a for table in tables for a in table.published]
        types = published_types(session, self._types, columns)
        return all(type_.form is not Form.UNKNOWN for _, type_ in types)

    def acknowledged_scn(self) -> int:
        """Return the SCN below which the server leaves transactions out when the slot is read again.

        Raises:
            SlotLost: the slot does not exist or was invalidated.
        """
        with connect(self.settings) as session:
            confirmed = slot.check_slot(session, self.settings).confirmed
        return parse_lsn(confirmed) - 1 if confirmed else 0

    def chunks(self) -> PostgresChunkReader:
        """Open a chunk reader."""
        return PostgresChunkReader(self.settings, self._types, self._seen)

    def watermarks(self) -> MarkWriter:
        """Open a watermark writer."""
        return MarkWriter(self.settings)

    def view(self, tables: Sequence[TableId]) -> SourceView:
        """Return a snapshot of tables; see `headrace.sources.database.Compared`."""
        return SourceView(self.settings, tables)

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as the database would render it."""
        return list(zip(*(render_text(rows.column(name)) for name in schema.key), strict=True))

    def end_scn(self) -> int:
        """Return an SCN at or below which every commit of until now lies; the next record begins behind it."""
        with connect(self.settings) as session:
            return parse_lsn(session.value("SELECT pg_current_wal_insert_lsn()")) - 1

    def scn_of(self, position: str) -> int:
        """Return the SCN of an LSN: a commit is numbered by where its record begins, which is behind the snapshot."""
        return parse_lsn(position) - 1

    def log_watch(self) -> SlotWatch:
        """Return what looks at the log that our slot keeps."""
        return SlotWatch(self.settings)

    def drop(self) -> None:
        """Remove what `prepare` created; what was named in the configuration stays."""
        slot.drop_own(self.settings)


def _feedback_interval(session: Session, settings: PostgresSettings) -> float:
    """Return a third of the server's patience, at most our own setting."""
    patience_ms = float(
        session.value("SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'")
    )
    if patience_ms <= 0:
        return settings.feedback_s
    return min(settings.feedback_s, patience_ms / 3000)

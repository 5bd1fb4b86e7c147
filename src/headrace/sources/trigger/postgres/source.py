"""One PostgreSQL database, read by triggers, as a `headrace.sources.base.Source`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Self

import pyarrow as pa

from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import Finding, SchemaStore, refuse
from headrace.sources.description import SourceDescription
from headrace.sources.postgres import described
from headrace.sources.postgres.catalog import TableFacts, TypeCache, describe, read_tables
from headrace.sources.postgres.catalog_look import Seen
from headrace.sources.postgres.connection import Session, connect
from headrace.sources.postgres.digest import SourceView
from headrace.sources.postgres.publication import as_published
from headrace.sources.postgres.settings import PostgresSettings
from headrace.sources.postgres.side import SideSession
from headrace.sources.postgres.values import render_text
from headrace.sources.trigger.assembler import Assembler
from headrace.sources.trigger.cost import lost_triggers
from headrace.sources.trigger.postgres import installed, objects, readers
from headrace.sources.trigger.postgres.chunks import TriggerChunkReader
from headrace.sources.trigger.postgres.clock import Striker, head
from headrace.sources.trigger.postgres.marks import MarkWriter
from headrace.sources.trigger.postgres.preflight import preflight
from headrace.sources.trigger.postgres.refused import refusals
from headrace.sources.trigger.postgres.settings import PostgresTriggerSettings
from headrace.sources.trigger.postgres.store import PostgresChanges
from headrace.sources.trigger.postgres.versions import LayoutVersions
from headrace.sources.trigger.postgres.watch import TxlogWatch
from headrace.sources.trigger.queues import Delivered, refuse_queues
from headrace.sources.trigger.stream import TriggerLogReader

__all__ = ["PostgresTriggerSource"]

# The cluster, the database in it, and this making of the clock: ids of transactions mean nothing elsewhere.
_INCARNATION = """
SELECT (SELECT system_identifier FROM pg_control_system())::text || '/'
       || (SELECT oid FROM pg_database WHERE datname = current_database())::text || '/'
       || (SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
            WHERE n.nspname = 'headrace' AND c.relname = 'txlog_clock')::text
"""
# Small tables that grow and shrink: their statistics are always of another day.
_BY_INDEX = ("SET enable_seqscan = off", "SET enable_bitmapscan = off")
# A place that a crash sets back is only read from again.
_UNSYNCED = "SET synchronous_commit = off"


class PostgresTriggerSource:
    """A PostgreSQL 14 to 18 database whose log is not to be read.

    Args:
        url: connection URL; secrets in it are never shown.
        tables: patterns such as ``public.*``.
        exclude: patterns of tables left out.
        name: of the pipeline; two that read one database need different ones.
        text_columns: columns that are kept as the server renders them, by table.
        start: where a pipeline without a place begins: ``now``, or at the ``oldest`` change that is kept.
        poll_s: longest time between two looks while nothing comes.
        keep_s: how long changes stay that every pipeline has read.
        abandon_s: a pipeline that was not seen for so long is waited for no more.
        slow_query_s: a query of the change tables that takes longer is counted as slow.
        queues: patterns of tables into which events are inserted: what else becomes of their rows is no change.
        queue_rows: whether rows of queues are removed when they are delivered.

    Raises:
        ConfigError: when an argument cannot be used.
    """

    def __init__(
        self,
        url: str,
        tables: Sequence[str] = ("public.*",),
        exclude: Sequence[str] = (),
        name: str = "headrace",
        text_columns: Mapping[TableId, frozenset[str]] | None = None,
        start: Literal["now", "oldest"] = "now",
        poll_s: float = 0.25,
        keep_s: float = 86_400.0,
        abandon_s: float = 7 * 86_400.0,
        slow_query_s: float = 5.0,
        queues: Sequence[str] = (),
        queue_rows: Literal["keep", "delete"] = "keep",
    ) -> None:
        self.name = name
        database = PostgresSettings(
            url=url,
            tables=tuple(tables),
            exclude=tuple(exclude),
            name=name,
            text_columns=text_columns or {},
            summed=True,
        )
        self.settings = PostgresTriggerSettings(
            name=name,
            database=database,
            start=start,
            poll_s=poll_s,
            keep_s=keep_s,
            abandon_s=abandon_s,
            slow_query_s=slow_query_s,
            queues=tuple(queues),
            queue_rows=queue_rows,
        )
        database.validate()
        self.settings.validate()
        self._types = TypeCache()
        self._seen = Seen()
        self._wake = threading.Event()

    def __repr__(self) -> str:
        return (
            f"PostgresTriggerSource(name={self.name!r}, tables={self.settings.database.tables!r})"
        )

    @contextlib.contextmanager
    def _asked(self) -> Iterator[Session]:
        """Give a connection, and name what is refused there."""
        with connect(self.settings.database) as session, refusals():
            yield session

    def preflight(self) -> list[Finding]:
        """Return everything that stands in the way; changes nothing."""
        with self._asked() as session:
            return preflight(session, self.settings)

    def tables(self) -> list[TableSchema]:
        """Return the captured tables by name."""
        with self._asked() as session:
            return [
                describe(session, self._types, as_published(session, self.settings.database, one))
                for one in read_tables(session, self.settings.database.filter)
            ]

    def described(
        self, patterns: Sequence[str] | None = None, only: TableId | None = None
    ) -> SourceDescription:
        """Return what the catalog and its statistics say; see `headrace.sources.description.Describes`."""
        asked = described.patterned(self.settings.database, patterns)
        with connect(asked) as session:
            return described.read_description(session, asked, self._types, only)

    def written_bytes(self) -> int:
        """Return how many bytes of log the server has written, which is at least what we are to read; likewise."""
        with self._asked() as session:
            return described.written_bytes(session)

    # -- life -------------------------------------------------------------------------------------

    def prepare(self, *, fresh: bool = False) -> None:
        """Make change tables and triggers where they are missing, and give the pipeline its place.

        Args:
            fresh: there is no state yet that needs an older place.

        Raises:
            PreflightFailed: when a finding forbids it; then nothing was changed.
            SlotLost: our place is gone, or triggers were, of tables that are captured.
            SourceUnavailable: writers held a table for too long.
        """
        with self._asked() as session:
            refuse(self.name, preflight(session, self.settings))
            self._prepare(session, fresh=fresh)

    def _prepare(self, session: Session, *, fresh: bool) -> None:
        there = installed.has_objects(session)
        place = readers.read_place(session, self.name) if there else None
        facts = {one.oid: one for one in read_tables(session, self.settings.database.filter)}
        wrong = installed.wrong_triggers(session, facts)
        begins = fresh or place is None
        if place is not None and not fresh:
            readers.required_scn(session, self.name)
            if lost := wrong & place.tables:
                raise lost_triggers(facts[oid].table for oid in lost)
        if place is not None and not begins:
            # A table that came meanwhile joins by a look at the catalog: no start waits for its writers.
            readers.use_tables(session, self.settings, place.tables & facts.keys())
            installed.release(session, self.settings, place.tables - facts.keys())
            return
        if not there:
            installed.install(session)
        for oid in sorted(wrong):
            installed.install_table(session, self.settings, facts[oid].table)
        self._enter(session, facts)

    def _enter(self, session: Session, facts: Mapping[int, TableFacts]) -> None:
        """Give the pipeline a place: behind what every dump sees from now on, or at the oldest tick."""
        last = Striker().strike(session)
        session.run("BEGIN")
        try:
            # Nobody purges what we are about to need.
            session.run(objects.LOCK)
            scn = last.last_scn
            if self.settings.start == "oldest":
                scn = int(session.value("SELECT min(last_scn) FROM headrace.txlog_clock"))
            readers.enter(session, self.settings, scn, facts)
            session.run("COMMIT")
        finally:
            if session.usable and session.in_transaction:
                session.run("ROLLBACK")

    def incarnation(self) -> str:
        """Return cluster, database and clock."""
        with self._asked() as session:
            return session.value(_INCARNATION)

    def departs(self, incarnation: str, scn: int) -> str:
        """Return why the change tables do not hold what another clock's, or their own, held up to an SCN."""
        now = self.incarnation()
        if now != incarnation:
            return "transactions are numbered anew there"
        with self._asked() as session:
            last = head(session).last_scn
        if last < scn:
            return f"its clock ends at {last}, and was captured up to {scn}: an older state was restored"
        return ""

    def open(self, schemas: SchemaStore) -> TriggerLogReader:
        """Start reading from what was last acknowledged.

        Raises:
            SlotLost: our place is gone.
            SourceUnavailable: the server cannot be reached.
        """
        side = SideSession(self.settings.database)
        session: Session | None = None
        try:
            with refusals():
                side.get().run(_UNSYNCED)
                scn = readers.required_scn(side.get(), self.name)
            session = connect(self.settings.database)
            for setting in _BY_INDEX:
                session.run(setting)
            versions = LayoutVersions(self.settings, side, self._types, schemas, self._seen)
            assembler = Assembler(self.settings, versions, scn)
            store = PostgresChanges(session, side, self.settings)
            delivered = Delivered(self.settings, schemas, self.render_keys, store.remove)
            return TriggerLogReader(store, self.settings, assembler, scn, self._wake, delivered)
        except BaseException:
            side.close()
            if session is not None:
                session.close()
            raise

    def acknowledged_scn(self) -> int:
        """Return our place.

        Raises:
            SlotLost: it is gone.
        """
        with self._asked() as session:
            return readers.required_scn(session, self.name)

    def chunks(self) -> TriggerChunkReader:
        """Open a chunk reader."""
        return TriggerChunkReader(self.settings, self._types, self._seen)

    def watermarks(self) -> MarkWriter:
        """Open a watermark writer."""
        return MarkWriter(self.settings, self._wake)

    def view(self, tables: Sequence[TableId]) -> TriggerView:
        """Return a snapshot of tables; see `headrace.sources.database.Compared`.

        Raises:
            SourceError: one of them is a queue.
        """
        refuse_queues(self.settings, tables)
        return TriggerView(self.settings.database, tables)

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as the database would render it."""
        return list(zip(*(render_text(rows.column(name)) for name in schema.key), strict=True))

    def end_scn(self) -> int:
        """Return where the clock stands when everything has an SCN that is committed now.

        Before there is a clock nothing has one, and what is there comes by a dump.
        """
        with self._asked() as session:
            if not installed.has_objects(session):
                return 0
            return Striker().strike(session).last_scn

    def scn_of(self, position: str) -> int:
        """Return the SCN of a tick: its number, as ``last_scn`` in ``headrace.txlog_clock`` has it."""
        return int(position)

    def log_watch(self) -> TxlogWatch:
        """Return what looks at the change tables."""
        return TxlogWatch(self.settings)

    def install(self) -> list[TableId]:
        """Make change tables and missing triggers, and nothing else; return the tables that got some.

        Raises:
            SourceError: the role may not.
            SourceUnavailable: writers held a table for too long.
        """
        with self._asked() as session:
            facts = {one.oid: one for one in read_tables(session, self.settings.database.filter)}
            wrong = installed.wrong_triggers(session, facts)
            made = [facts[oid].table for oid in sorted(wrong)]
            installed.install(session)
            for table in made:
                installed.install_table(session, self.settings, table)
            return made

    def script(self) -> str:
        """Return the SQL of everything that an administrator would make for us."""
        with self._asked() as session:
            tables = [one.table for one in read_tables(session, self.settings.database.filter)]
            return objects.script(tables, session.value("SELECT current_user"))

    def drop(self) -> None:
        """Take the pipeline away: its place, and what no other one needs."""
        self.remove()

    def remove(self) -> list[TableId]:
        """Do the same, and return the tables whose triggers went."""
        with self._asked() as session:
            return installed.remove(session, self.settings)


class TriggerView(SourceView):
    """One snapshot of some tables, that knows how far the clock must have come to hold all it sees."""

    def __enter__(self) -> Self:
        super().__enter__()
        try:
            with connect(self._settings) as session, refusals():
                # After the snapshot: what this one sees is seen by that tick too.
                self._end_scn = Striker().strike(session).last_scn
        except BaseException:
            self._session.close()
            raise
        return self

    @property
    def end_scn(self) -> int:
        """The last SCN of a tick that was struck after the snapshot."""
        return self._end_scn

"""One MySQL or MariaDB server, read by triggers, as a `headrace.sources.base.Source`."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import pyarrow as pa

from headrace.errors import ConfigError, HeadraceError
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import Visibility
from headrace.sources.base import Finding, SchemaStore, refuse
from headrace.sources.description import SourceDescription
from headrace.sources.mysql import described
from headrace.sources.mysql.catalog import facts_schema, read_collations, read_table
from headrace.sources.mysql.connection import Session, connect
from headrace.sources.mysql.digest import MysqlView
from headrace.sources.mysql.preflight import captured_tables
from headrace.sources.mysql.rendering import key_texts
from headrace.sources.mysql.settings import MysqlSettings, ZeroDates
from headrace.sources.mysql.vendors import vendor_of
from headrace.sources.trigger.assembler import Assembler
from headrace.sources.trigger.cost import lost_triggers
from headrace.sources.trigger.mysql import installed, objects, readers
from headrace.sources.trigger.mysql.catalog import read_layouts
from headrace.sources.trigger.mysql.chunks import TriggerChunkReader
from headrace.sources.trigger.mysql.clock import Striker, TickSnapshot, head, struck
from headrace.sources.trigger.mysql.joining import lost
from headrace.sources.trigger.mysql.layout import Layout
from headrace.sources.trigger.mysql.marks import MarkWriter
from headrace.sources.trigger.mysql.preflight import TriggerPreflight
from headrace.sources.trigger.mysql.refused import refusals
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings
from headrace.sources.trigger.mysql.store import MysqlChanges
from headrace.sources.trigger.mysql.versions import LayoutVersions
from headrace.sources.trigger.mysql.watch import TxlogWatch
from headrace.sources.trigger.queues import Delivered, refuse_queues
from headrace.sources.trigger.stream import TriggerLogReader

__all__ = ["MysqlTriggerSource"]

_NAME_LIMIT = 64


class MysqlTriggerSource:
    """A MySQL server from 8.0 on, or a MariaDB server from 10.5 on, whose log is not to be read.

    Args:
        url: connection URL; secrets in it are never shown.
        tables: patterns such as ``shop.*``.
        exclude: patterns of tables left out.
        name: of the pipeline; two that read one server need different ones.
        zero_dates: what becomes of dates that are no days.
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
        tables: Sequence[str],
        exclude: Sequence[str] = (),
        name: str = "headrace",
        zero_dates: ZeroDates = "refuse",
        start: Literal["now", "oldest"] = "now",
        poll_s: float = 0.25,
        keep_s: float = 86_400.0,
        abandon_s: float = 7 * 86_400.0,
        slow_query_s: float = 5.0,
        queues: Sequence[str] = (),
        queue_rows: Literal["keep", "delete"] = "keep",
    ) -> None:
        self.name = name
        database = MysqlSettings(
            url=url, tables=tuple(tables), exclude=tuple(exclude), name=name, zero_dates=zero_dates
        )
        self.settings = MysqlTriggerSettings(
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
        self.settings.validate()
        _ = database.address
        if not 0 < len(name) <= _NAME_LIMIT:
            raise ConfigError(
                f"The pipeline's name has {len(name)} characters.",
                next_step=f"use 1 to {_NAME_LIMIT}.",
            )
        self._wake = threading.Event()

    def __repr__(self) -> str:
        return f"MysqlTriggerSource(name={self.name!r}, tables={self.settings.database.tables!r})"

    @contextlib.contextmanager
    def _asked(self) -> Iterator[Session]:
        """Give a connection, and name what is refused there."""
        with connect(self.settings.database) as session, refusals():
            yield session

    def preflight(self) -> list[Finding]:
        """Return everything that stands in the way; changes nothing."""
        with self._asked() as session:
            return TriggerPreflight(session, self.settings).run()

    def tables(self) -> list[TableSchema]:
        """Return the captured tables by name."""
        with self._asked() as session:
            collations = read_collations(session)
            found = (
                read_table(session, table, collations)
                for table in captured_tables(session, self.settings.database)
            )
            return [facts_schema(facts) for facts in found if facts is not None]

    def described(
        self, patterns: Sequence[str] | None = None, only: TableId | None = None
    ) -> SourceDescription:
        """Return what the catalog and its statistics say; see `headrace.sources.description.Describes`."""
        asked = described.patterned(self.settings.database, patterns)
        with self._asked() as session:
            return described.read_description(session, asked, only)

    def written_bytes(self) -> int:
        """Return how many bytes of log the server has written, 0 where it keeps none; likewise."""
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
            refuse(self.name, TriggerPreflight(session, self.settings).run())
            self._prepare(session, fresh=fresh)

    def _prepare(self, session: Session, *, fresh: bool) -> None:
        there = installed.has_objects(session)
        place = readers.read_place(session, self.name) if there else None
        if place is None or fresh:
            if not there:
                installed.install(session)
            self._enter(session, self._make(session))
            return
        readers.required_scn(session, self.name)
        kept, now = self._layouts(session)
        needed = {table: layout for table, layout in kept.items() if table in place.tables}
        if gone := lost(session, needed, now):
            raise lost_triggers(gone)
        # A table that came meanwhile, or is another one, joins by a look: no start waits for its writers.
        readers.use_tables(session, self.settings, place.tables & now.keys())
        installed.release(session, self.settings, place.tables - now.keys())

    def _layouts(self, session: Session) -> tuple[dict[TableId, Layout], dict[TableId, Layout]]:
        """Return the layouts that are kept, and what those of the captured tables are to be."""
        kept = installed.registered(session)
        tables = captured_tables(session, self.settings.database)
        return kept, read_layouts(session, tables, kept, installed.stale(session))

    def _make(self, session: Session) -> list[TableId]:
        """Make the triggers that are missing or for another layout; return all captured tables."""
        kept = installed.registered(session)
        for layout in self._wanting(session):
            before = kept.get(layout.table)
            collations = read_collations(session)
            installed.install_table(session, self.settings, collations, before, layout)
        return captured_tables(session, self.settings.database)

    def _wanting(self, session: Session) -> list[Layout]:
        kept, now = self._layouts(session)
        right = {table: layout for table, layout in now.items() if kept.get(table) == layout}
        have = installed.with_triggers(session, right)
        return [now[table] for table in sorted(now.keys() - have)]

    def _enter(self, session: Session, tables: Sequence[TableId]) -> None:
        """Give the pipeline a place: behind what every dump sees from now on, or at the oldest tick."""
        scn = struck(self.settings, session).last_scn
        with installed.held(session):
            # Nobody purges what we are about to need.
            if self.settings.start == "oldest":
                scn = int(session.value("SELECT MIN(last_scn) FROM headrace.txlog_clock"))
            readers.enter(session, self.settings, scn, tables)

    def incarnation(self) -> str:
        """Return this making of the clock."""
        with self._asked() as session:
            life = session.value("SELECT life FROM headrace.txlog_life WHERE one = 1")
            return f"{vendor_of(session).name} {life}"

    def departs(self, incarnation: str, scn: int) -> str:
        """Return why the change tables do not hold what another clock's, or their own, held up to an SCN."""
        if self.incarnation() != incarnation:
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
        session = connect(self.settings.database, patient=True)
        changes = MysqlChanges(session, self.settings)
        try:
            with refusals():
                scn = readers.required_scn(session, self.name)
                collations = read_collations(session)
        except HeadraceError:
            changes.close()
            raise
        versions = LayoutVersions(self.settings, changes.kept, collations, schemas)
        assembler = Assembler(self.settings, versions, scn)
        delivered = Delivered(self.settings, schemas, self.render_keys, changes.remove)
        return TriggerLogReader(changes, self.settings, assembler, scn, self._wake, delivered)

    def acknowledged_scn(self) -> int:
        """Return our place.

        Raises:
            SlotLost: it is gone.
        """
        with self._asked() as session:
            return readers.required_scn(session, self.name)

    def chunks(self) -> TriggerChunkReader:
        """Open a chunk reader."""
        return TriggerChunkReader(self.settings)

    def watermarks(self) -> MarkWriter:
        """Open a watermark writer."""
        return MarkWriter(self.settings, self._wake)

    def view(self, tables: Sequence[TableId]) -> TriggerView:
        """Return a snapshot of tables; see `headrace.sources.database.Compared`.

        Raises:
            SourceError: one of them is a queue.
        """
        refuse_queues(self.settings, tables)
        return TriggerView(self.settings, tables)

    def render_keys(self, schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
        """Return each row's key as the database would render it."""
        return key_texts(schema, rows)

    def end_scn(self) -> int:
        """Return where the clock stands when everything has an SCN that is committed now.

        Before there is a clock nothing has one, and what is there comes by a dump.
        """
        with self._asked() as session:
            if not installed.has_objects(session):
                return 0
            return struck(self.settings, session).last_scn

    def scn_of(self, position: str) -> int:
        """Return the SCN of a tick: its number, as ``last_scn`` in ``headrace.txlog_clock`` has it."""
        return int(position)

    def log_watch(self) -> TxlogWatch:
        """Return what looks at the change tables."""
        return TxlogWatch(self.settings)

    def install(self) -> list[TableId]:
        """Make change tables and missing triggers, and nothing else; return the tables that got some.

        Raises:
            SourceError: the user may not.
            SourceUnavailable: writers held a table for too long.
        """
        with self._asked() as session:
            installed.install(session)
            made = [layout.table for layout in self._wanting(session)]
            self._make(session)
            return made

    def script(self) -> str:
        """Return the SQL of everything that an administrator would make for us."""
        with self._asked() as session:
            collations = read_collations(session)
            kept: Mapping[TableId, Layout] = {}
            if installed.has_objects(session):
                kept = installed.registered(session)
            tables = captured_tables(session, self.settings.database)
            layouts = read_layouts(session, tables, kept, set()).values()
            _, grantee = TriggerPreflight(session, self.settings).user()
            return objects.script(
                [(layout, layout.rows.facts(collations).columns) for layout in layouts], grantee
            )

    def drop(self) -> None:
        """Take the pipeline away: its place, and what no other one needs."""
        self.remove()

    def remove(self) -> list[TableId]:
        """Do the same, and return the tables whose triggers went."""
        with self._asked() as session:
            return installed.remove(session, self.settings)


class TriggerView(MysqlView):
    """One snapshot of some tables, that strikes the clock and so knows how far it must have come to hold all it sees.

    Args:
        settings: of the source.
        tables: the tables to look at.
    """

    def __init__(self, settings: MysqlTriggerSettings, tables: Sequence[TableId]) -> None:
        super().__init__(settings.database, tables)
        self._triggers = settings

    @contextlib.contextmanager
    def seeing(self, session: Session) -> Iterator[Visibility]:
        """Open the snapshot, in a read-only transaction of its own, and note where it stands."""
        striker = Striker(self._triggers)
        try:
            with refusals(), striker.snapshot(session) as tick:
                self._end_scn = tick.last_scn
                yield TickSnapshot(tick.last_scn)
        finally:
            striker.close()

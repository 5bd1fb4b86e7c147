"""Apply: one batch of the change log into every table that it concerns, then the frontier.

In: two SCNs between which the change log is whole. Out: at most one data commit per table and step, each with its own
position, and one frontier manifest. Order of durability: tables, manifest, position for the log's retention.
Tables are worked on side by side, the first step of all of them at once, then the next; one that fails is left
behind with its own position while the others go on.

Called from one thread at a time, but for `Applier.tell`.
"""

from __future__ import annotations

import logging
import os
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from headrace.changelog.jobs import register_job
from headrace.changelog.reader import ChangeLogReader
from headrace.errors import FrontierLost, HeadraceError, UnfitSettings
from headrace.lake.copies import CopyNeeded
from headrace.lake.frontier import FrontierStore, Manifest
from headrace.lake.modes import Mode
from headrace.lake.policies import Dropped, Incompatible, Policies
from headrace.lake.rewrite import sorted_by
from headrace.lake.settings import settings_for
from headrace.model.block import ORIGIN_LOG, SystemEvent, SystemKind
from headrace.model.patterns import matches
from headrace.model.schema import TableId
from headrace.model.succession import NO_NUMBERS
from headrace.observe.failpoints import failpoint
from headrace.observe.spans import traced
from headrace.registry.file import FileRegistry
from headrace.spark.again import Again, Ask
from headrace.spark.apply_options import ApplyOptions
from headrace.spark.aside import Aside, Replayed
from headrace.spark.at_work import TableAtWork, Work, all_fail, end_if_hopeless, left_because
from headrace.spark.counting import Tally
from headrace.spark.failures import translate
from headrace.spark.forms import Forms
from headrace.spark.ledger import Position, Start, position_of, start_from
from headrace.spark.log import assure_reaches
from headrace.spark.maintenance import Maintenance
from headrace.spark.passed import to_pass
from headrace.spark.plan import Range, Step, version_for
from headrace.spark.same_log import SameLog
from headrace.spark.stated import Stated
from headrace.spark.status import ApplyStatus, FreshnessLog, MaintenanceCost
from headrace.spark.targets.base import TableBatch, Target, TargetState

__all__ = ["Applier", "ApplyOptions"]

_LOG = logging.getLogger(__name__)
_TIDY_EVERY = 20
"""Frontiers between two looks for files that nobody needs."""


class Applier:
    """Brings target tables forward, batch by batch.

    Args:
        options: where and how much.
        target: where the tables are.
        on_status: told after every batch.
        ask: asks for dumps of tables that are copied again, None where nobody can be asked.
        replayed: asked about replays of dead letters.
        clock: monotonic seconds, by which tables that failed are tried again.
    """

    def __init__(
        self,
        options: ApplyOptions,
        target: Target,
        on_status: Callable[[ApplyStatus], None] = lambda _status: None,
        ask: Ask | None = None,
        replayed: Replayed | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._options = options
        self._clock = clock
        self._target = target
        self._on_status = on_status
        self._again = Again(target.copies, ask)
        self._reader = ChangeLogReader(options.changelog)
        self._registry = FileRegistry(options.changelog / "schemas")
        self._stated = Stated(target, self._reader, self._registry)
        self._frontier = FrontierStore(options.lake, options.pipeline)
        self._forms = Forms(target, options.changelog, self._registry, options.settings)
        self._freshness = FreshnessLog(options.freshness)
        self._aside = Aside(
            options.dead_letters, self._reader, self._registry, options.settings, replayed
        )
        self._maintenance = Maintenance(
            target, options.maintenance, self._sorted_by, options.parallel_tables
        )
        self._pool = ThreadPoolExecutor(options.parallel_tables, "headrace-apply")
        self._tables: dict[TableId, TableAtWork] = {}
        self._log = SameLog(options.changelog, self._reader)
        # The newest frontier at the start, and now.
        self._manifest: Manifest | None = None
        self._newest: Manifest | None = None
        self._batch_at: float | None = None
        self._first_end = 0
        self._frontiers = 0
        self._commit_us = 0
        self._tally = Tally(options.within_s)
        self.status = ApplyStatus()

    def begin(self) -> Start:
        """Read the ledger and return where the first batch begins and must end.

        Raises:
            ChangeLogLost: the tables are ahead of the change log, or were filled from another.
            FrontierLost: no frontier says where to go on, and the change log is not whole.
            ScnNotFound: the change log no longer holds what a table lacks.
        """
        manifest = self._manifest = self._newest = self._frontier.latest()
        self._log.check(manifest, self._stands)
        tail = self._reader.tail()
        start = start_from(self._stated, manifest, self._known_tables(), tail.oldest_scn)
        assure_reaches(tail, start.first_end, f"The target tables of {self._options.pipeline}")
        stands = any(at.state or at.problem for at in start.tables.values())
        if manifest is None and stands and tail.oldest_scn:
            raise FrontierLost(
                f"There is no frontier in {self._frontier.folder}, and the change log begins at SCN {tail.oldest_scn} "
                f"by now: nobody knows what the target tables of {self._options.pipeline} lack.",
                next_step="restore that folder from a backup, or begin anew: stop, move the state folder and the "
                "target tables away, start.",
            )
        self._reader.refs(start.from_scn, start.from_scn)
        self._tables = {name: TableAtWork(name) for name in start.tables}
        for table in self._tables.values():
            self._settle(table, start.tables[table.id])
        self._first_end = start.first_end
        self._commit_us = manifest.commit_us if manifest else 0
        self._tally.begin(manifest, self._tables)
        self.status.frontier_scn = manifest.scn if manifest else 0
        self.status.frontier_changes = manifest.changes if manifest else 0
        # What was applied before a crash and not counted yet is still wanted.
        held = min(start.from_scn, self._tally.wanted_scn(tail.oldest_scn))
        register_job(self._options.changelog, self._options.pipeline, held)
        self._aside.look()
        for table in self._tables.values():
            table.aside = self._aside.lacking(table)
        self._report(self.status.frontier_scn)
        return start

    def process(self, from_scn: int, to_scn: int) -> None:
        """Apply everything up to ``to_scn``, of which each table has its own part.

        Raises:
            HeadraceError: no table can be applied, or one failed in a way that forbids to go on.
        """
        started = self._batch_at = time.monotonic()
        self._log.check(self._newest, self._stands)
        batch = Range(self._reader, self._registry, from_scn, to_scn)
        self._aside.look()
        self._learn(batch)
        before = sum(table.rows for table in self._tables.values())
        work = self._plan(batch)
        self._work_on(work)
        for table in self._tables.values():
            if table.error is None:
                self._end_copy(table)
            if table.error is None and not table.waits:
                # What no step spoke of has no change for the table; only the manifest records that.
                table.position = max(table.position, to_scn)
            table.aside = self._aside.lacking(table)
        self._end_of_batch(batch)
        rows = sum(table.rows for table in self._tables.values()) - before
        if rows:
            self.status.batches += 1
            self.status.rows_per_s = rows / max(time.monotonic() - started, 1e-9)
        self._batch_at = None
        self._report(to_scn)
        end_if_hopeless(list(self._tables.values()), self._options.patience)
        self.maintain()

    def retry(self, to_scn: int) -> None:
        """Try again the tables that failed and whose pause is over, when no batch does."""
        if any(table.error and table.retry_at <= self._clock() for table in self._tables.values()):
            self.process(to_scn, to_scn)

    def tell(self, silent_s: float) -> None:
        """Say beside a batch how old it is, and for how long Spark has answered nothing; may come from any thread."""
        began = self._batch_at
        self.status.batch_s = time.monotonic() - began if began is not None else 0.0
        self.status.silent_s = silent_s
        self._on_status(self.status)

    @property
    def failing(self) -> list[HeadraceError]:
        """What stands in the way of the tables that are left behind."""
        return [table.error for table in self._tables.values() if table.error is not None]

    def close(self) -> None:
        """Let the tables at work finish."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    # -- what a batch asks of each table ----------------------------------------------------------

    def _known_tables(self) -> list[TableId]:
        """Return every table that the log's registry knows and the options want."""
        folder = self._options.changelog / "schemas"
        ids = sorted(path.stem for path in folder.glob("*.json"))
        found = dict.fromkeys(self._registry.get(int(name, 16)).table for name in ids)
        return [table for table in found if self._wanted(table)]

    def _wanted(self, table: TableId) -> bool:
        patterns = self._options.tables
        return not patterns or any(matches(str(table), pattern) for pattern in patterns)

    def _learn(self, batch: Range) -> None:
        """Take note of new tables, of gaps, of dumps that end in the batch, and of tables that come and go."""
        for table in batch.tables():
            if table not in self._tables and self._wanted(table):
                self._learn_of(table, batch.after_scn)
        for event in batch.events:
            if event.table in self._tables and not self._tables[event.table].unseen:
                self._learn_event(self._tables[event.table], event)

    def _learn_event(self, entry: TableAtWork, event: SystemEvent) -> None:
        """Take note of what the log says of a table."""
        if event.kind is SystemKind.DUMP_COMPLETE:
            if entry.error is not None:
                # Its target may have been moved away for this dump.
                self._ask(entry)
            if self._again.completes(entry, event):
                entry.complete(event)
        elif event.kind is SystemKind.GAP and (entry.complete_scn or 0) < event.scn:
            entry.complete_scn = None
        elif event.kind is SystemKind.TRUNCATE and event.payload.get("anew"):
            entry.complete_scn, entry.left, entry.goes = None, "", False
        elif reason := left_because(event):
            entry.complete_scn, entry.left = None, reason
            dropped = self._policies(entry.id).dropped_table
            entry.goes = event.kind is SystemKind.DROP_TABLE and dropped is Dropped.DROP
        if entry.waits and (entry.complete_scn or entry.left or event.kind is SystemKind.GAP):
            self._wait_no_more(entry)

    def _learn_of(self, table: TableId, after_scn: int) -> None:
        """Take note of a table of which the log speaks for the first time."""
        found = self._stated.of(table)
        state = None if isinstance(found, HeadraceError) else found
        at = Position(max(state.applied_scn if state else 0, after_scn), None, state)
        entry = self._tables[table] = TableAtWork(table)
        entry.stand(at, None)
        if isinstance(found, HeadraceError):
            self._fail(entry, found)
        else:
            self._fits(entry, found)
            entry.waits = self._awaits_adoption(entry)
        self._tally.learn(table, after_scn)

    def _awaits_adoption(self, table: TableAtWork) -> bool:
        """Return whether a dump that is made elsewhere is still to bring a table's first rows."""
        adopted = settings_for(table.id, self._options.settings).adopted
        return adopted and table.version < 0 and not table.complete_scn and not table.left

    def _wait_no_more(self, table: TableAtWork) -> None:
        """Go on behind the dump that was adopted, or from where a table waited when headrace dumped it after all."""
        table.waits = False
        state = self._stated.of(table.id)
        if isinstance(state, HeadraceError):
            self._fail(table, state)
        elif state is not None:
            self._fits(table, state)
            # Up to where it waited the log has said nothing of it.
            table.position = max(table.position, state.applied_scn)
            table.version, table.schema_id = state.version, state.schema_id

    @traced("apply.plan")
    def _plan(self, batch: Range) -> list[Work]:
        """Return the tables that have something to do."""
        now = self._clock()
        work = []
        for table in self._tables.values():
            if table.error is not None and (table.retry_at > now or not self._back(table, batch)):
                continue
            if table.waits:
                table.recover()
                continue
            part = batch
            if table.position < batch.after_scn:
                part = Range(self._reader, self._registry, table.position, batch.upto_scn)
            most = 2**62 if table.heals_by_rows else self._options.max_rows
            current = self._registry.get(table.schema_id) if table.schema_id else None
            steps = self._aside.steps(part, table, most, current)
            if steps or table.error is not None:
                work.append(Work(table, deque(steps)))
        return work

    def _stands(self) -> bool:
        """Return whether there is any table of the newest frontier still."""
        names = self._newest.tables if self._newest else ()
        return any(self._stated.of(TableId.parse(name)) is not None for name in names)

    def _settle(self, table: TableAtWork, at: Position) -> bool:
        """Let a table go on from where it stands; False when it cannot be looked at, or is not what was asked for."""
        entry = self._manifest.tables.get(str(table.id)) if self._manifest else None
        table.stand(at, entry)
        if at.problem is not None:
            self._fail(table, at.problem)
            _LOG.warning("%s: %s", table.id, at.problem)
            return False
        table.waits = self._awaits_adoption(table)
        return self._fits(table, at.state) and self._resume(table)

    def _resume(self, table: TableAtWork) -> bool:
        """Go on with a table's copy; False when that failed."""
        try:
            self._again.resume(table)
        except Exception as error:  # noqa: BLE001 - the table's, no other's
            self._fail(table, translate(error, table.id, None))
            return False
        return True

    def _begin_late(self, table: TableAtWork, batch: Range) -> bool:
        """Do for a table that nobody could look at what a start does.

        Returns:
            False when it still cannot be looked at, or is not what was asked for.
        """
        begin, tail = table.position, self._reader.tail()
        said = self._stated.of(table.id)
        fits = self._settle(table, position_of(said, self._manifest, table.id, tail.oldest_scn))
        if table.unseen:
            return False
        assure_reaches(tail, table.position, f"The target table of {table.id}")
        # Behind its commit the others may not be yet: no frontier shows them apart.
        self._first_end = max(self._first_end, table.position)
        begin = min(begin, table.position)
        for event in Range(self._reader, self._registry, begin, batch.upto_scn).events:
            if event.table == table.id:
                self._learn_event(table, event)
        return fits

    def _back(self, table: TableAtWork, batch: Range) -> bool:
        """Return whether a table that failed may be tried again."""
        return self._begin_late(table, batch) if table.unseen else self._ask(table)

    def _ask(self, table: TableAtWork) -> bool:
        """Let a failed table say how far it is: it may have failed behind its commit, or have been moved away since.

        Returns:
            False when it cannot be asked, or is not what was asked for.
        """
        state = self._stated.of(table.id)
        if isinstance(state, HeadraceError):
            self._fail(table, state)
            return False
        if state is None and table.version >= 0:
            table.begin_anew()
            table.version, table.schema_id, table.copy = -1, 0, None
        elif state is None:
            table.waits = self._awaits_adoption(table)
        else:
            if state.applied_scn > table.position:
                table.position, table.version = state.applied_scn, state.version
            table.schema_id = state.schema_id
            # A copy may have begun or ended as the table failed, and its dump was given up since.
            table.copy = state.copy
        return self._fits(table, state) and self._resume(table)

    def _fits(self, table: TableAtWork, state: TargetState | None) -> bool:
        """Return whether a table is what was asked for; one that is not fails, alone."""
        try:
            self._forms.check(table.id, state)
        except HeadraceError as error:
            self._fail(table, error)
            _LOG.warning("%s: %s", table.id, error)
            return False
        return True

    @traced("apply.tables")
    def _work_on(self, work: list[Work]) -> None:
        """Bring tables forward; those that fail are marked."""
        left = work
        while left := [item for item in left if item.steps]:
            due = []
            for item, prepared in zip(left, self._pool.map(self._prepare, left), strict=True):
                if isinstance(prepared, HeadraceError):
                    self._failed(item, prepared)
                elif prepared is not None:
                    due.append((item, prepared))
            if not due:
                continue
            failpoint("apply.before_commit")
            outcomes = self._target.apply([batch for _, batch in due])
            for (item, _), outcome in zip(due, outcomes, strict=True):
                self._take(item, outcome)
        for item in work:
            if not item.failed and self._end_copy(item.table):
                item.table.recover()

    def _prepare(self, item: Work) -> TableBatch | HeadraceError | None:
        """Bring a table's columns to its next step.

        Returns:
            What the step changes, None when it is done with that, or what stands in the way.
        """
        table, step = item.table, item.steps[0]
        try:
            schema = version_for(step, table.schema_id, self._reader, self._registry)
            schema = replace(schema, numbers=step.numbers.get(schema.schema_id, NO_NUMBERS))
            policies = self._policies(table.id)
            # Rows of a transaction that changes a type on its way are read again.
            fitting = policies.incompatible is not Incompatible.STOP
            versions = step.versions(self._registry, schema, fitting=fitting)
            formed = self._forms.of(schema, step, versions, self._slices(step))
            try:
                state = self._target.evolve(formed.columns, policies)
            except CopyNeeded as needed:
                state = self._again.begin(table, formed.columns, step.after_scn, needed)
            if state.kept and formed.mode is Mode.MIRROR:
                schema = schema.keeping(state.kept)
                versions = step.versions(self._registry, schema, fitting=fitting)
                formed = self._forms.of(schema, step, versions, self._slices(step))
        except UnfitSettings as error:
            return None if table.version < 0 and self._passes(item) else error
        except Exception as error:  # noqa: BLE001 - the table's, no other's
            return translate(error, table.id, step.schema)
        if state.version < table.version:
            table.begin_anew()
        table.shows(state)
        table.schema_id = state.schema_id
        if not step.has_changes or state.applied_scn >= step.upto_scn:
            table.position = item.steps.popleft().upto_scn
            return None
        return TableBatch(
            formed.schema,
            formed.folded,
            step.upto_scn,
            complete=table.complete_scn is not None and table.complete_scn <= step.upto_scn,
            alone=table.error is not None,
            mode=formed.mode,
        )

    def _passes(self, item: Work) -> bool:
        """Leave out the steps of a table to be filled anew that settings cannot fit; False when there are none."""
        upto = to_pass(item.steps, self._forms.check_version, self._reader, self._registry)
        if upto:
            item.pass_by(upto)
        return upto > 0

    def _take(self, item: Work, outcome: TargetState | HeadraceError) -> None:
        """Take note of what came of a table's next step."""
        if isinstance(outcome, HeadraceError):
            self._failed(item, outcome)
            return
        step = item.steps.popleft()
        item.table.rows += step.committed_rows(self._reader)
        item.table.shows(outcome)
        item.table.position = step.upto_scn
        if outcome.cost is not None:
            item.table.last_batch = outcome.cost
            item.table.all_batches += outcome.cost
            _LOG.debug("%s: %s", item.table.id, outcome.cost)

    def _failed(self, item: Work, error: HeadraceError) -> None:
        try:
            if self._aside.takes(item, error):
                return
        except HeadraceError as unwritable:
            error = unwritable
        item.fail()
        self._fail(item.table, error)
        # Spark's own words may hold values of rows: only for those who ask for them.
        whole = error if os.environ.get("HEADRACE_DEBUG") else None
        _LOG.warning("%s: %s", item.table.id, error, exc_info=whole)

    def _fail(self, table: TableAtWork, error: HeadraceError) -> None:
        table.fail(error, self._options.patience, self._clock())

    def _policies(self, table: TableId) -> Policies:
        return settings_for(table, self._options.settings).policies

    def _end_copy(self, table: TableAtWork) -> bool:
        """Put the new copy of a table in its place, if it has one that is whole; False when that failed."""
        try:
            self._again.end(table)
        except Exception as error:  # noqa: BLE001 - the table's, no other's
            self._fail(table, translate(error, table.id, None))
            return False
        return True

    def _slices(self, step: Step) -> int:
        """Return how many tasks fold a step."""
        options = self._options
        return max(1, min(options.max_slices, round(step.rows / options.slice_rows)))

    # -- the end of a batch -----------------------------------------------------------------------

    @traced("apply.frontier")
    def _end_of_batch(self, batch: Range) -> None:
        """Publish the frontier, unless a table stands above it, and let the log move on."""
        scn = batch.upto_scn
        # After a restart a batch begins below the frontier, and those that follow publish none for a while.
        index = self._reader.index(min(batch.after_scn, self.status.frontier_scn), scn)
        if len(index):
            self._commit_us = int(index["commit_us"][-1])
        if scn < self._first_end or scn < self.status.frontier_scn:
            return
        fresh = index["scn"] > self.status.frontier_scn
        changes = self.status.frontier_changes + int(index["changes"][fresh].sum())
        failpoint("apply.before_manifest")
        now_us = time.time_ns() // 1_000
        going = [table for table in self._tables.values() if table.goes]
        for table in going:
            # Said first: a table that is gone and not said to go would be taken for one that somebody removed.
            table.recover()
            table.version, table.schema_id, table.copy = -1, 0, None
            table.position = max(table.position, scn)
        counts, totals = self._tally.add(
            batch,
            {table.id: table.position for table in self._tables.values()},
            {table.id: table.failures for table in self._tables.values()},
            index,
            fresh,
            now_us,
        )
        entries = {str(table.id): table.entry(counts[table.id]) for table in self._tables.values()}
        self._newest = Manifest(
            scn, self._commit_us, entries, now_us, changes, totals, self._log.identity
        )
        self._frontier.write(self._newest)
        failpoint("apply.after_manifest")
        for table in going:
            self._drop(table)
        self.status.frontier_scn, self.status.frontier_changes = scn, changes
        self._tally.published()
        for table in self._tables.values():
            table.failures = 0
        logged = index[fresh & (index["origin"] == ORIGIN_LOG)]
        self._freshness.add(scn, logged["commit_us"], now_us)
        self._tidy()
        held = min([scn, *(table.position for table in self._tables.values())])
        register_job(self._options.changelog, self._options.pipeline, held)

    def _drop(self, table: TableAtWork) -> None:
        """Remove the target of a table that was dropped; what refuses is tried again with the next frontier."""
        try:
            self._target.drop(table.id)
            table.goes = False
            _LOG.warning("%s: its target table was removed", table.left.removesuffix("."))
        except HeadraceError as error:
            _LOG.warning("%s: its target table cannot be removed: %s", table.id, error)

    def _tidy(self) -> None:
        """Now and then, have the target let go of what no frontier names any more."""
        self._frontiers += 1
        if self._frontiers % _TIDY_EVERY:
            return
        oldest = self._frontier.oldest()
        promised = {name: entry.version for name, entry in oldest.tables.items()} if oldest else {}
        for table in self._tables.values():
            if (version := promised.get(str(table.id), -1)) >= 0:
                self._target.tidy(table.id, version)

    def maintain(self) -> None:
        """Have the target bring some files into order, if it is time; for when no batch is at work."""
        if not self._maintenance.is_due:
            return
        tables = {
            table.id: table.version
            for table in self._tables.values()
            if table.error is None and table.copy is None and table.schema_id and table.version >= 0
        }
        changed = self._maintenance.between_batches(tables)
        for table, done in changed.items():
            self._tables[table].version = done.version
            self._tables[table].maintenance += MaintenanceCost.of(done)
        if changed:
            self._report(self.status.frontier_scn)

    def _sorted_by(self, table: TableId) -> tuple[str, ...]:
        """Return the columns that a table's files are sorted by."""
        settings = settings_for(table, self._options.settings)
        schema = self._registry.get(self._tables[table].schema_id)
        return sorted_by(settings.renamed(schema), settings.mode)

    def _report(self, scn: int) -> None:
        status = self.status
        tail = self._reader.tail()
        status.covered_scn, status.batch_s = tail.covered_scn, 0.0
        behind = tail.complete_scn > scn
        status.lag_s = max(0.0, time.time() - tail.last_commit_us / 1e6) if behind else 0.0
        status.freshness_s = self._freshness.percentiles()
        failed_at = [table.failed_at for table in self._tables.values() if table.error is not None]
        stuck = all_fail(self._tables.values())
        status.stuck_s = self._clock() - max(failed_at) if stuck else 0.0
        status.tables = {str(table.id): table.status() for table in self._tables.values()}
        self._on_status(status)

"""Drives dumps: opens windows, has chunks read, and turns each received high mark into a window of rows.

The log thread calls `observe` for every streamed block, `receive` for every watermark and `tick` in between; none of
them waits for the database. Reads run in an executor, one at a time. What must become durable after the
change log is collected in `pending`.

Source: DBLog, Algorithm 1; the order of durability is design invariant 2.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Executor, Future
from typing import Any

import pyarrow as pa

from headrace.errors import ConfigError, HeadraceError, Retry, SourceUnavailable
from headrace.model.block import Block, SystemEvent, SystemKind
from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import CatalogLook, Chunk, ReceivedMark, SchemaStore
from headrace.state.pace import Pace
from headrace.state.records import Cause
from headrace.watermark.asked_keys import begin_keys
from headrace.watermark.catalog import Catalog, catalog_block, ends, read_anew
from headrace.watermark.closing import Closing, Job, LogBlocks
from headrace.watermark.pace import DumpPace, Pacer
from headrace.watermark.reads import KeysStart, Reads, Spool, TableStart
from headrace.watermark.reconciler import Reconciler, moved_in
from headrace.watermark.settings import DumpSettings
from headrace.watermark.tasks import Change, Phase, Task, TaskQueue
from headrace.watermark.telling import SILENT, Telling
from headrace.watermark.versions import TableVersions
from headrace.watermark.window import Window, WindowState

__all__ = ["Coordinator"]

_LOG = logging.getLogger(__name__)

_SEEN_S = 0.01
"""How often a dump that waits until everything streamed is visible asks whether it is."""

READ_DEADLINE_S = 60.0
"""How long a received high mark waits for the reader thread to hand over its chunk: it has only to return."""


class Coordinator:
    """Dumps by watermark windows.

    Args:
        reads: the reading side, called through ``executor``.
        executor: runs one read at a time; an inline executor makes everything deterministic.
        queue: what is to be dumped.
        reconciler: what was streamed and not seen.
        registry: keeps table versions.
        log_blocks: yields what the change log holds above an SCN, everything appended so far included.
        settings: bounds, and the pace to begin with.
        window: validates marks.
        start_scn: last SCN that the change log held at the start.
        catalog: what is known of the source's catalog, None when its tables do not change.
        clock: monotonic seconds.
        telling: is told of every step.
    """

    def __init__(
        self,
        *,
        reads: Reads,
        executor: Executor,
        queue: TaskQueue,
        reconciler: Reconciler,
        registry: SchemaStore,
        log_blocks: LogBlocks,
        settings: DumpSettings,
        window: Window,
        start_scn: int = 0,
        catalog: Catalog | None = None,
        clock: Callable[[], float] = time.monotonic,
        telling: Telling = SILENT,
    ) -> None:
        self._telling = telling
        self._reads = reads
        self._executor = executor
        self._queue = queue
        self._reconciler = reconciler
        self._registry = registry
        self._settings = settings
        self._window = window
        self._clock = clock
        self._pacer = Pacer(settings.pace(Pace()))
        self._pace = self._pacer.pace
        self.own_paces: Mapping[str, DumpPace] = {}
        """What single requests are held to in place of `pace`, by request; replace it at any time."""
        self._job: Job | None = None
        self._versions = TableVersions()
        self._closing = Closing(
            reads=reads,
            queue=queue,
            reconciler=reconciler,
            registry=registry,
            versions=self._versions,
            log_blocks=log_blocks,
            piece_rows=settings.piece_rows,
            pacer=self._pacer,
            clock=clock,
            telling=telling,
        )
        self._not_before = 0.0
        self._snapshot_at = 0.0
        self._last_scn = start_scn
        self._catalog = catalog
        # What the log said is gone, where no catalog is looked at; a start asks the server itself.
        self._gone: set[TableId] = set()
        queue.away = self._gone.intersection if catalog is None else catalog.away
        if catalog is not None:
            queue.has_yet_to_join, queue.refusal = catalog.has_yet_to_join, catalog.refusal
        self._look_at = 0.0
        self._looked: CatalogLook | None = None

    # -- the log side -----------------------------------------------------------------------------

    def observe(self, block: Block) -> None:
        """Take note of streamed transactions; they pass on at once, only chunk rows wait."""
        self._last_scn = max(self._last_scn, block.last_scn)
        self._reconciler.remember(block, idle=self._queue.is_idle)
        if self._job is not None and block.rows:
            self._job.heard = True
        for event in block.system:
            if event.kind is SystemKind.SCHEMA:
                self._note_schema(event, block)
            elif self._catalog is not None:
                self._note_catalog(self._catalog, event)
            elif ends(event):
                self._give_up(event)
        for body in block.bodies:
            dumps = self._queue.dumps_of(body.table)
            for task in dumps:
                # Before the bound is fixed the reconciler remembers them; `_started` asks it.
                if task.phase is not Phase.START or task.progress.state == "copying":
                    self._note_moves(
                        self._registry.get(body.schema_id), body.batch, every=task.reads_on
                    )
            if body.table in self._queue.gaps and not any(
                task.repairs and not task.reads_on for task in dumps
            ):
                self._note_moves(self._registry.get(body.schema_id), body.batch, every=True)

    def _note_schema(self, event: SystemEvent, block: Block) -> None:
        """Follow a table's version; rows that got values no log event carries are dumped again."""
        schema_id: int = event.payload["schema_id"]
        filled = set(event.payload.get("filled", ()))
        before = self._queue.last_schemas.get(event.table, 0)
        if before and filled:
            # The table changed while nobody watched: only columns that are new to us were filled behind our back.
            filled -= set(self._registry.get(before).names)
        # Looks at the catalog find the same, and also when no change of the table follows.
        if self._catalog is None and (event.payload.get("needs_dump") or (before and filled)):
            if self._queue.awaits_adoption(event.table):
                # What the log does not carry has to lie in the dump that is made elsewhere.
                self._queue.whole_from(event.scn, [event.table])
            elif event.table not in self._queue.tables:
                self._queue.add(event.table)
            else:
                self._queue.request_again(event.table)
        if self._versions.tell(event, block.index):
            self._telling.schema_changed(event.scn, event.table, schema_id)
        joining = self._catalog is not None and event.table not in self._catalog.names
        if not joining:
            # A table that has not joined yet is no captured one.
            self._queue.note_schema(event.table, schema_id)

    def _note_moves(self, schema: TableSchema, changes: pa.RecordBatch, *, every: bool) -> None:
        """Put rows that moved in with missing columns on the re-read list.

        While chunks are read or differing keys are sought, every such row. After that the target holds every row
        whole but those on the list, so only rows that come from a listed key; else a busy table would never be done.
        """
        old, new = moved_in(schema, changes)
        if not new.num_rows:
            return
        moves = zip(
            self._reads.render_keys(schema, old), self._reads.render_keys(schema, new), strict=True
        )
        listed = self._queue.rereads[schema.table]
        for came_from, key in moves:
            if every or came_from in listed:
                self._queue.add_reread(schema.table, [key])
                self._telling.listed(schema.table, [key], "moved in")

    def receive(self, mark: ReceivedMark, *, reads_on: bool = False) -> Iterator[Block]:
        """Take a watermark from the log; yields the window that it closes, if any.

        Args:
            mark: the received one.
            reads_on: start the next read as soon as this window is decided, not only at the next `tick`.

        Raises:
            WatermarkOutOfOrder: the mark breaks a rule.
        """
        self._telling.met(mark)
        if not self._window.receive(mark.mark):
            if self._job and mark.mark.token == self._window.token:
                self._job.low_scn = mark.scn
            return
        job, self._job = self._job, None
        if job is not None and job.look is not None and self._catalog is not None:
            yield from self._tell(self._catalog, job.look, mark)
            return
        if job is None or job.task is None:
            return
        if job.void:
            job.future.add_done_callback(_discard)
            self._telling.voided("schema changed")
            return
        try:
            result = job.future.result(READ_DEADLINE_S)
        except SourceUnavailable:
            self._telling.voided("read failed")
            self._back_off()
            return
        if isinstance(result, Chunk):
            closed = self._closing.chunk(job, job.task, result, mark)
            # While these rows are encoded and written the source selects the next.
            self._read_on(reads_on)
            begun = self._clock()
            if closed.block is not None:
                yield closed.block()
            closed.told()
            self._pacer.emitted(result.rows.num_rows, self._clock() - begun)
            return
        if result is None:
            yield from self._closing.complete(job.task, mark)
        else:
            yield from self._closing.table(job, job.task, result, mark)
        self._read_on(reads_on)

    def reconnected(self, held_scn: int) -> None:
        """Void the open window before the log is opened again: its marks may be gone or come twice.

        Args:
            held_scn: last whole transaction that the change log holds; later ones come again.
        """
        self._window.reconnected()
        self._telling.voided("connection lost")
        self._queue.reload()
        self._looked = None
        if self._catalog is not None:
            self._catalog.reload()
        if self._job is not None and (self._job.task is not None or self._job.look is not None):
            self._job.future.add_done_callback(_discard)
            self._job = None
        self._reconciler.rewind(held_scn)

    def close(self) -> None:
        """Release what runs beside the log thread; state changes are to be taken before."""
        self._closing.close()

    @property
    def pace(self) -> DumpPace:
        """What dumps are held to; replace it at any time."""
        return self._pace

    @pace.setter
    def pace(self, pace: DumpPace) -> None:
        self._pace = pace

    @property
    def chunk_rows(self) -> int:
        """Rows of the next chunk of a table without a size of its own."""
        return self._pacer.rows

    @property
    def needed_scn(self) -> int:
        """The change log is needed above this SCN: a keyless dump or a restart reads it from there."""
        floors = [self._reconciler.unseen_floor, self._job.floor_scn if self._job else None]
        return min((floor for floor in floors if floor), default=self._last_scn + 1) - 1

    @property
    def has_pending(self) -> bool:
        """Whether state changes wait to be written."""
        return bool(self._queue.pending)

    @property
    def awaits_answer(self) -> bool:
        """Whether the source was asked something whose answer no mark in the log announces."""
        return self._job is not None and self._window.state is WindowState.NONE

    @property
    def may_owe(self) -> bool:
        """Whether state changes wait to be written, and need not be at once: until they are, people are not heard."""
        return self.has_pending and not self._queue.is_to_look

    def stand_still(self) -> None:
        """Take note that the log is held back: the time until it goes on is none that a chunk took."""
        self._queue.forget_time()

    def take_pending(self) -> list[Change]:
        """Return state changes to write once the change log is durable."""
        changes = self._queue.take_pending()
        if changes:
            seen = (self._reconciler.unseen_floor or self._last_scn + 1) - 1
            changes.append(lambda w: w.set("seen_scn", str(seen)))
        return changes

    # -- the reading side -------------------------------------------------------------------------

    def tick(self) -> None:
        """Start the next read when none is under way; take the result of one that has no window."""
        if self._job is not None:
            # Now, so that the next chunk need not wait for it.
            self._queue.listen()
            self._collect()
        if self._job is not None:
            return
        now = self._clock()
        resting = now < self._not_before
        # First, because a task may be given up for what a look found.
        if not resting and self._catalog is not None and self._look(self._catalog, now):
            return
        # Asked also while the source rests, so that nobody waits for the end of a rest to be heard.
        task = self._queue.current()
        own = self.own_paces.get(task.request.request_id) if task else None
        self._pacer.pace = own or self._pace
        if resting:
            return
        if now < self._pacer.ready_at:
            # However long the rest, what snapshots have seen may be forgotten, and the change log dropped behind it.
            task = None
        if self._wants_snapshot(task, now):
            self._snapshot_at = now + self._settings.snapshot_interval_s
            self._job = Job(self._executor.submit(self._reads.snapshot), None)
            return
        if task is None or not self._reconciler.can_reconcile:
            return
        self._start(task)

    def _read_on(self, wanted: bool) -> None:
        """Start the next read while the last window is still on its way to the disk.

        What that window changed is not written yet, so people cannot be heard: when that is due, it waits for `tick`.
        """
        if wanted and not self._queue.is_to_look:
            self.tick()

    def _wants_snapshot(self, task: Task | None, now: float) -> bool:
        if task is not None:
            # Every chunk brings its own snapshot; only rows that were let go need one before it.
            interval = self._settings.snapshot_interval_s
            soon = self._snapshot_at - interval + min(interval, _SEEN_S)
            return now >= soon and not self._reconciler.can_reconcile
        # The time first: whatever is remembered, block by block, would be counted in every round.
        return now >= self._snapshot_at and self._reconciler.remembered > 0

    def _start(self, task: Task) -> None:
        table = task.progress.table
        if task.since is None and not task.progress.rows_per_s:
            # A rate that is known waits for a chunk with the rest before it: one without would look faster.
            task.since = self._clock()
        request = task.request
        if task.repairs and table not in self._queue.gaps:
            # The table began anew after it was compared, and is copied: it is not complete with these keys.
            self._queue.update(task, state="done")
            self._queue.finish(task)
            return
        if task.phase is Phase.START and task.repairs and not request.keys:
            # The comparison found no difference.
            task.schema = self._registry.get(self._queue.last_schemas[table])
            self._queue.end_chunks(task)
            return
        if task.phase is Phase.START and self._is_to_be_emptied(task):
            task.phase = Phase.EMPTY
        if task.phase is Phase.START and request.keys:
            keys = self._executor.submit(self._reads.start_keys, table, request.keys)
            self._job = Job(keys, task)
            return
        if task.phase is Phase.START:
            start = self._executor.submit(self._reads.start, table, request.predicate or None)
            self._job = Job(start, task)
            return
        token = uuid.uuid4().hex
        # Before the read begins: its marks may come back while it is still running.
        chunk = task.phase not in (Phase.EMPTY, Phase.END)
        self._window.open(token, chunk=chunk)
        if chunk:
            self._telling.opened(token, task, self._pacer.rows_of(table))
        job = Job(Future(), task)
        job.floor_scn = self._reconciler.unseen_floor or self._last_scn + 1
        self._job = job
        if not chunk:
            job.future = self._executor.submit(self._reads.end, token)
        elif task.phase is Phase.CHUNKS and task.schema and not task.schema.key:
            job.future = self._executor.submit(self._reads.table, token, table)
        elif task.phase is Phase.CHUNKS:
            until, after = task.progress.until or (), task.progress.after
            job.limit = self._pacer.rows_of(table)
            bounds = (table, after, until, job.limit, request.predicate or None)
            job.future = self._executor.submit(self._reads.chunk, token, *bounds)
        else:
            job.keys = self._next_keys(task)
            job.future = self._executor.submit(self._reads.keys, token, table, job.keys)

    def _next_keys(self, task: Task) -> tuple[tuple[str, ...], ...]:
        limit = min(self._pacer.rows_of(task.progress.table), 1_000)
        if task.phase is Phase.REREAD:
            return tuple(sorted(self._queue.rereads[task.progress.table])[:limit])
        done = task.progress.keys_done
        return task.keys[done : done + limit]

    def _collect(self) -> None:
        """Take a finished read; those between marks are taken when their high mark arrives."""
        job = self._job
        if job is None or not job.future.done():
            return
        error = job.future.exception()
        if error is not None:
            self._job = None
            self._window.give_up()
            self._telling.voided("read failed")
            # Of a table that is gone nobody asks why it cannot be read.
            if not (job.void and isinstance(error, HeadraceError)):
                self._failed(job.task, error)
        elif job.look is not None:
            return
        elif job.void and isinstance(job.future.result(), TableStart | KeysStart):
            self._job = None
        elif isinstance(look := job.future.result(), CatalogLook):
            self._job = None
            self._compare(look)
        elif job.task is None:
            self._job = None
            self._closing.forget(job.future.result())
        elif isinstance(start := job.future.result(), TableStart):
            self._job = None
            self._started(job.task, start)
        elif isinstance(start, KeysStart):
            self._job = None
            begin_keys(self._queue, job.task, start)

    def _failed(self, task: Task | None, error: BaseException) -> None:
        """Try again later, or give the request up when trying again changes nothing."""
        if isinstance(error, HeadraceError) and error.retry is Retry.TIMED:
            what = f"a read of {task.progress.table}" if task else "a read"
            _LOG.warning("%s is tried again: %s", what, error)
            self._back_off()
        elif isinstance(error, ConfigError) and task and task.may_relist:
            # Keys of before are on the list, once: by the time of its chunks the log has told all moves of before.
            self._queue.read_anew(task)
            task.relisted = True
        elif (
            isinstance(error, ConfigError) and task and task.progress.key_order and not task.refused
        ):
            # Bounds, or keys, that were some when they were taken: whether the key is another one, a new start tells.
            task.phase, task.refused = Phase.START, str(error)
        elif isinstance(error, HeadraceError) and task is not None:
            self._queue.fail(task, str(error))
        else:
            raise error

    def _back_off(self) -> None:
        self._not_before = self._clock() + 1.0

    def _started(self, task: Task, start: TableStart) -> None:
        if task.is_keyed_otherwise(start.key_order, keyless=not start.schema.key):
            self._queue.read_anew(task)
            return
        if task.refused:
            self._queue.fail(task, task.refused)
            return
        resumed = task.progress.state == "copying" and task.progress.until is not None
        if not resumed and not self._reconciler.can_reconcile:
            # Rows let go while the bound was read may have moved past it; the next start reads a new bound.
            return
        task.schema = start.schema
        if task.adopts:
            # The target has the rows, and above their position the log has all changes.
            self._queue.update(task, state="copying", rows_estimated=start.rows_estimated)
            self._queue.end_chunks(task)
            return
        task.phase = Phase.CHUNKS
        if resumed:
            if start.key_order and not task.progress.key_order:
                # Bounds kept by an older headrace: the order of now is taken for theirs.
                self._queue.update(task, key_order=start.key_order)
            return
        if task.is_whole:
            # The bound's snapshot may have missed a row that moved past it, streamed before or while it was read:
            # no chunk reaches there.
            for schema, changes in self._reconciler.changes_of(start.schema.table):
                self._note_moves(schema, changes, every=True)
        self._queue.update(
            task,
            state="copying",
            until=start.until,
            rows_estimated=start.rows_estimated,
            key_order=start.key_order,
        )
        if start.schema.key and start.until is None:
            self._queue.end_chunks(task)

    # -- tables that come and go ------------------------------------------------------------------

    def begin(self) -> None:
        """Look at the catalog before the first block: whoever waits for what happened meanwhile sees it wait."""
        if self._catalog is None:
            return
        catalog = self._catalog
        self._look_at = self._clock() + self._settings.look_interval_s
        self._compare(self._reads.look(*catalog.ask(self._queue.tables)))
        if self._looked is not None:
            self._carry_out(catalog, self._looked)

    def _look(self, catalog: Catalog, now: float) -> bool:
        """Carry out what the last look found; return whether another one was begun."""
        if self._looked is not None:
            self._carry_out(catalog, self._looked)
        catalog.give_up_gone(self._queue)
        if now < self._look_at:
            return False
        self._look_at = now + self._settings.look_interval_s
        self._job = Job(
            self._executor.submit(self._reads.look, *catalog.ask(self._queue.tables)), None
        )
        return True

    def _compare(self, look: CatalogLook) -> None:
        """Have the look's events written at a mark of their own; one without events is worked off at once.

        So does a look from which on the log has all changes of a table that awaits adoption: the mark tells the SCN.
        """
        assert self._catalog is not None
        awaited = any(map(self._queue.awaits_adoption, read_anew(look)))
        if not awaited and not self._catalog.told(look, self._queue.was_captured):
            self._looked = look
            return
        token = uuid.uuid4().hex
        self._window.open(token, chunk=False)
        self._job = Job(Future(), None, look=look)
        self._job.future = self._executor.submit(self._reads.end, token)

    def _tell(self, catalog: Catalog, look: CatalogLook, mark: ReceivedMark) -> Iterator[Block]:
        """Say what the log has not said itself before the mark."""
        told = catalog.told(look, self._queue.was_captured)
        if told:
            yield catalog_block(mark, told)
        self._queue.whole_from(mark.scn, read_anew(look))
        for kind, table, _ in told:
            if kind is SystemKind.TRUNCATE:
                # What was streamed of the table until here is gone with it: chunks have to hold all of that.
                self._reconciler.hold_chunks()
            if kind in (SystemKind.TRUNCATE, SystemKind.DROP_TABLE, SystemKind.RENAME_TABLE):
                catalog.gone.add(table)
        self._looked = look

    def _carry_out(self, catalog: Catalog, look: CatalogLook) -> None:
        self._looked = None
        admitted, known = catalog.admitted, catalog.tables.keys()
        self._queue.pending += catalog.work_off(look, self._queue)
        # From its end on, so that chunks have their turn however long a look takes; a table that may join now does.
        soon = catalog.admitted - admitted or known - catalog.tables.keys()
        self._look_at = self._clock() + (0 if soon else self._settings.look_interval_s)

    def _note_catalog(self, catalog: Catalog, event: SystemEvent) -> None:
        """Follow what the log itself says; the catalog is looked at soon."""
        if "identity" in event.payload:
            catalog.note(event)
            self._look_at = 0.0
            if event.kind is SystemKind.RENAME_TABLE:
                # Until a look is worked off, only this outlives the process.
                self.note_astray([event.payload["identity"]])
            if ends(event):
                self._void(event.table)

    def note_astray(self, identities: Collection[str]) -> None:
        """Take note of tables that had another name in the log than was known; the catalog is looked at soon."""
        if self._catalog is not None and identities:
            self._queue.pending += self._catalog.note_astray(identities)
            self._look_at = 0.0

    def _void(self, table: TableId) -> None:
        """Let nothing come of what is being read of a table: it is no more what it was."""
        job = self._job
        if job is not None and job.task is not None and job.task.progress.table == table:
            job.void = True

    def _give_up(self, event: SystemEvent) -> None:
        """Follow what the log says of a table, where no catalog is looked at."""
        table = event.table
        self._void(table)
        if event.kind is SystemKind.TRUNCATE:
            self._gone.discard(table)
            self._queue.begin_anew(table)
        else:
            self._gone.add(table)
            self._queue.give_up(table, f"{table} was dropped or renamed.")

    def _is_to_be_emptied(self, task: Task) -> bool:
        """Whether a table with a gap is copied from the start; one without a key is emptied by its own window."""
        table = task.progress.table
        if table not in self._queue.gaps or task.request.cause is not Cause.GAP or task.repairs:
            return False
        return bool(self._registry.get(self._queue.last_schemas[table]).key)


def _discard(future: Future[Any]) -> None:
    """Remove what a read left on disk for a window that was given up."""
    if not future.cancelled() and future.exception() is None:
        result = future.result()
        if isinstance(result, Spool):
            result.discard()

"""Capture: one source's log and its dumps become one change log.

The order of every round must not change (design invariant 2): blocks are appended, then synced (readable only now),
then dump progress is written, then the source is acknowledged. A crash between any two repeats work and loses none.
While much comes, the next round is read from the source, and appended where it changes no state, while the disk still
works on this one.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor

from headrace.errors import (
    DiskBudgetReached,
    DiskFull,
    HeadraceError,
    SourceUnavailable,
)
from headrace.model.block import Block, transaction_index
from headrace.model.schema import TableId, TableSchema
from headrace.observe.failpoints import failpoint
from headrace.observe.spans import span
from headrace.observe.tap import NO_TAP, Tap
from headrace.relay.again import SentAgain
from headrace.relay.continuity import check_log, life_of, sent_again
from headrace.relay.counted import Counted
from headrace.relay.large import LargeValues
from headrace.relay.log import Log, streamed
from headrace.relay.renumbered import RenumberedReader
from headrace.relay.settings import CaptureSettings
from headrace.relay.slots import let_go_of_others
from headrace.relay.status import CaptureStatus
from headrace.sources.base import (
    FollowsOthers,
    LogItem,
    LogReader,
    Opening,
    OpensAhead,
    SchemaStore,
    Source,
)
from headrace.state.incarnation import Incarnation
from headrace.state.pace import Pace
from headrace.state.store import DumpProgress, StateStore
from headrace.watermark.catalog import Catalog
from headrace.watermark.coordinator import Coordinator
from headrace.watermark.reads import Reads
from headrace.watermark.reconciler import Reconciler
from headrace.watermark.slow import SlowQueries
from headrace.watermark.tasks import TaskQueue
from headrace.watermark.telling import SILENT, Telling
from headrace.watermark.window import Window

__all__ = ["Capture"]

_LOG = logging.getLogger(__name__)

_PROGRESS_S = 5.0
"""How old the progress of dumps in a report may be, where this process has not changed it."""

_RETAIN_S = 5.0
"""How often the change log is asked to drop what nobody needs."""

_SETTLE_WITHIN_S = 0.002
"""Longest wait for more, while a round is not settled."""

_ANSWER_S = 0.002
"""How often an answer of the source is looked for that does not come through the log; a dump begins with several."""


class Capture:
    """Runs one source.

    Args:
        source: prepared source.
        log: its change log, opened for writing.
        registry: keeps table versions.
        state: dump requests and progress.
        settings: pace.
        tables: captured tables in the order in which they are dumped.
        executor: runs reads; one thread of its own by default.
        on_status: told how it goes, at most twice a second.
        clock: monotonic seconds.
        tap: told every step of the algorithm.
    """

    def __init__(
        self,
        *,
        source: Source,
        log: Log,
        registry: SchemaStore,
        state: StateStore,
        settings: CaptureSettings,
        tables: list[TableSchema],
        executor: Executor | None = None,
        on_status: Callable[[CaptureStatus], None] = lambda _status: None,
        clock: Callable[[], float] = time.monotonic,
        tap: Tap = NO_TAP,
    ) -> None:
        self._tap = tap
        self._telling = SILENT
        self._source = source
        self._log = log
        self._registry = registry
        self._state = state
        self._settings = settings
        self._clock = clock
        self._on_status = on_status
        self._executor = executor or ThreadPoolExecutor(1, "headrace-chunks")
        self._owns_executor = executor is None
        self._opening: Opening | None = None
        self._reader: LogReader | None = None
        self._reads: Reads | None = None
        self._pace = Pace()
        self._steer_at = 0.0
        self._deliver_at = 0.0
        self._status_at = 0.0
        self._waits = ""
        self._retain_at = 0.0
        self._progress: list[DumpProgress] = []
        self._progress_until = 0.0
        self._counted = Counted()
        self._slow = SlowQueries(source.name, settings.slow_query_s, clock)
        self._large = LargeValues(source.name, settings.large_value_bytes)
        self._unsettled: LogItem | None = None
        self._unobserved: Block | None = None
        self._owed: str | None = None
        self._life = Incarnation("")
        self._again = SentAgain(transaction_index(()), 0, source.name, lambda _scn: False)
        self.run_id = uuid.uuid4().hex
        self._queue = TaskQueue(
            state,
            [schema.table for schema in tables],
            settings.dump.request_interval_s,
            clock,
            settings.adopted,
            self._hear_pace,
        )
        self._reconciler = Reconciler(registry.get, settings.dump.memory_bytes)
        self._window = Window(self.run_id)
        self.coordinator: Coordinator | None = None

    # -- life -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Check that the log belongs to the source, recall what was streamed, queue missing dumps.

        Raises:
            ChangeLogLost: the state speaks of a log that is not there.
            SourceReplaced: the source lacks what the log holds.
        """
        if isinstance(self._source, OpensAhead):
            self._opening = self._source.opening()
        self._life = life_of(self._source, self._log, self._state)
        check_log(self._log, self._state)
        self._recall_streamed()
        chunks = self._source.chunks()
        self._tap.begin(self.run_id, self._source.name)
        self._telling = Telling(self._tap, chunks.render_keys, self._registry.get, self._clock)
        self._reads = Reads(
            chunks,
            self._source.watermarks(),
            self.run_id,
            self._settings.spool_folder,
            self._telling,
            self._clock,
            self._slow,
        )
        catalog = Catalog(self._state) if self._reads.looks else None
        self.coordinator = Coordinator(
            reads=self._reads,
            executor=self._executor,
            queue=self._queue,
            reconciler=self._reconciler,
            registry=self._registry,
            log_blocks=self._log_blocks,
            settings=self._settings.dump,
            window=self._window,
            start_scn=self._log.complete_scn,
            catalog=catalog,
            clock=self._clock,
            telling=self._telling,
        )
        self._ensure_dumped(catalog)
        self.coordinator.begin()
        self._telling.requests(self._state.requests)
        # Before the first block: moves into tables under dump must find their dump running.
        self._queue.current()
        self.open_connections()
        self._let_go_of_others()

    def _ensure_dumped(self, catalog: Catalog | None) -> None:
        is_first = self._state.get("tables") is None
        if catalog is None or not catalog.begun:
            self._queue.ensure_dumped()
            if catalog is None or is_first:
                self._note_whole(self._queue.not_noted())
            return
        # The others join first, and are dumped then.
        catalog.forget(self._queue.returned())
        self._queue.ensure_dumped(catalog.names)
        self._note_whole(self._queue.not_noted(catalog.names))

    def _note_whole(self, tables: Sequence[TableId]) -> None:
        """Note that from here on the log lacks no change of tables that await adoption."""
        if tables:
            begin = self._source.acknowledged_scn() + self._life.offset
            self._queue.whole_already(max(begin, self._log.covered_scn), tables)

    def run(self, stop: threading.Event) -> None:
        """Work until ``stop`` is set; waits for a lost source and for room on disk by itself."""
        with contextlib.closing(self):
            self.start()
            try:
                while not stop.is_set():
                    try:
                        self.step(self._settings.poll_s)
                        self._waits = ""
                        self._report(self.doing, "")
                    except SourceUnavailable as error:
                        self._wait("waiting for source", error)
                        self._reopen(stop)
                    except (DiskFull, DiskBudgetReached) as error:
                        self._wait("waiting for room", error)
                        self._reopen(stop)
                self._settle()
                self._pay()
            except Exception as error:
                self._telling.failed(error)
                raise

    def close(self) -> None:
        """Release connections; bounded."""
        if self._owns_executor:
            self._executor.shutdown(wait=False, cancel_futures=True)
        if self.coordinator is not None:
            self.coordinator.close()
        if self._opening is not None:
            self._opening.close()
            self._opening = None
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        if self._reads is not None:
            self._reads.close()
            self._reads = None

    def _let_go_of_others(self) -> None:
        """Leave no slot behind that another configuration had; one that stays for now holds nothing up."""
        try:
            let_go_of_others(self._source, self._state, self._life.name)
        except SourceUnavailable as error:
            _LOG.warning("tried again at the next start: %s", error)

    def _recall_streamed(self) -> None:
        """Hold chunks back until a snapshot has seen what was streamed before this start."""
        logged = streamed(self._log, int(self._state.get("seen_scn") or 0))
        self._reconciler.remember_unseen(logged["scn"].copy(), logged["xid"].copy())

    def _reopen(self, stop: threading.Event) -> None:
        """Open the log and the reading side again, after a pause, until it works or we are stopped.

        Raises:
            SourceUnavailable: it does not work as we ask, and the source is to be asked otherwise by now.
        """
        assert self.coordinator is not None
        while not stop.wait(self._settings.retry_s):
            try:
                self.close_connections()
                # Somebody may make room by having less retained.
                self._steer()
                with contextlib.suppress(DiskBudgetReached):
                    self._log.retain(self.coordinator.needed_scn)
                # Another server may answer under the same name by now; or from the next moment on.
                self._life = life_of(self._source, self._log, self._state)
                self.open_connections()
                self._life = life_of(self._source, self._log, self._state)
            except SourceUnavailable as error:
                if self._settings.renewed():
                    # Who starts it again has it ask the source in the new way.
                    raise
                self._wait("waiting for source", error)
            except (DiskFull, DiskBudgetReached) as error:
                self._wait("waiting for room", error)
            else:
                return

    def _wait(self, state: str, error: HeadraceError) -> None:
        if state != self._waits:
            self._waits = state
            # The report may be what there is no room for.
            _LOG.warning("%s: %s: %s", self._source.name, state, error)
        self._telling.waiting(state, error)
        self._report(state, str(error), at_once=True)

    def close_connections(self) -> None:
        """Drop the log connection and void the open window."""
        if self._reader is not None:
            self._reader.close()
            self._reader = None
        self._unsettled = self._unobserved = self._owed = None
        self._log.rewind()
        self._counted.rewind(self._log.complete_scn)
        if self.coordinator is not None:
            self.coordinator.reconnected(self._log.complete_scn)

    def open_connections(self) -> None:
        """Open the log; what was not acknowledged comes again.

        Raises:
            SlotLost: the source was told of more than the change log holds, and will not send it again.
        """
        self._observe_again()
        opening, self._opening = self._opening, None
        reader = (opening or self._source).open(self._registry)
        offset = self._life.offset
        self._reader = RenumberedReader(reader, offset) if offset else reader
        # Only now: while the log is open nobody else can move the position.
        self._again = sent_again(self._source, self._log, offset)

    def _observe_again(self) -> None:
        """Take note again of what the log holds and the source, which goes on elsewhere, will not bring again."""
        assert self.coordinator is not None
        source = self._source
        if isinstance(source, FollowsOthers) and source.leaves_out:
            for block in self._log_blocks(source.acknowledged_scn() + self._life.offset):
                self.coordinator.observe(block)
            # Before the source's position moves behind it.
            self._write_pending()

    # -- one round --------------------------------------------------------------------------------

    def step(self, timeout_s: float) -> bool:
        """Do one round; return whether the log gave anything."""
        assert self._reader is not None
        assert self.coordinator is not None
        # Windows close by marks in the log: while it stands still none is opened.
        if not self._pace.log_paused:
            # First, so that snapshots are taken and let go of the log even while it has no room.
            self.coordinator.tick()
        self._steer()
        if self._held_back(timeout_s):
            self._settle()
            self._pay()
            return False
        item = self._reader.poll(self._patience(timeout_s))
        failpoint("capture.after_poll")
        if item is None or not self._may_go_beside(item):
            self._settle()
        if item is not None:
            with span("capture.round", scn=item.block.covered_scn):
                self._take(item)
        else:
            self._pay()
        return item is not None

    def _may_go_beside(self, item: LogItem) -> bool:
        """Whether a round may be appended while the disk still works on the one before.

        State changes of the earlier round would be written with those of this one, which is not durable yet; and a
        window reads the log as it is.
        """
        assert self.coordinator is not None
        return item.more and item.mark is None and not self.coordinator.has_pending

    def _patience(self, timeout_s: float) -> float:
        """Return how long the log may be waited for."""
        if self._unsettled is not None:
            return _SETTLE_WITHIN_S
        if self._owed is not None:
            return 0.0
        assert self.coordinator is not None
        return min(timeout_s, _ANSWER_S) if self.coordinator.awaits_answer else timeout_s

    def _steer(self) -> None:
        """Take up what people did to the pace, when it is time to."""
        if self._clock() >= self._steer_at:
            self._hear_pace()

    def _hear_pace(self) -> None:
        """Take up what people did to the pace.

        Also whenever requests were heard, and after them: who sets the pace and then asks for a dump finds no chunk of
        it read at the pace before.
        """
        assert self.coordinator is not None
        self._steer_at = self._clock() + self._settings.dump.request_interval_s
        pace = self._state.pace()
        if pace.log_rows_per_s != self._pace.log_rows_per_s:
            self._deliver_at = 0.0
        retained = pace.retain_bytes, pace.retain_s
        if retained != (self._pace.retain_bytes, self._pace.retain_s):
            self._log.keep(*retained)
            self._retain_at = 0.0
        self._pace = pace
        self.coordinator.pace = self._settings.dump.pace(pace)
        self.coordinator.own_paces = {
            request: self._settings.dump.pace(pace.with_own(own))
            for request, own in self._state.own_paces().items()
        }

    def _held_back(self, timeout_s: float) -> bool:
        """Whether log delivery is paused, or ahead of its rate; waits a while if so, and nothing is polled.

        The source keeps its log meanwhile.
        """
        assert self._reader is not None
        if self._pace.log_paused:
            assert self.coordinator is not None
            self.coordinator.stand_still()
        left = timeout_s if self._pace.log_paused else self._deliver_at - self._clock()
        if left <= 0 and not self._pace.log_paused:
            return False
        self._reader.keep_alive()
        time.sleep(max(0.0, min(timeout_s, left)))
        return True

    def _take(self, item: LogItem) -> None:
        assert self._reader is not None
        assert self.coordinator is not None
        if self._pace.log_rows_per_s:
            now, took_s = self._clock(), item.block.rows / self._pace.log_rows_per_s
            self._deliver_at = max(now, self._deliver_at) + took_s
        held = self._log.complete_scn
        self._telling.received(item.block)
        self._again.check(item.block)
        # What it puts into the state is written before anything behind it is acknowledged.
        self.coordinator.note_astray(item.astray)
        if item.mark is None and not item.more:
            # Readers wait for the sync, and only a mark asks what was observed. What a crash or a lost connection
            # leaves unobserved was not acknowledged either, and comes again.
            self._unobserved = item.block
        else:
            self._observe(item.block)
        fresh = item.block.after(held)
        if len(fresh.index) or fresh.covered_scn > self._log.covered_scn:
            self._append(fresh)
        failpoint("capture.after_append")
        # A mark at or below what the log holds was taken before a reconnect.
        if item.mark is not None and item.mark.scn > held:
            reads_on = not self._pace.log_paused
            for block in self.coordinator.receive(item.mark, reads_on=reads_on):
                failpoint("window.before_emit")
                self._append(block)
                self._large.append(block)
            failpoint("window.after_emit")
        before, self._unsettled = self._unsettled, item
        if item.more:
            # The disk works while the next round is read, and appended where it changes no state.
            self._log.begin_sync()
            if before is not None:
                # Its own sync has ended, and it left nothing else to write.
                self._acknowledge(before.position)
        else:
            # Once: what waited behind a window is to be read before the window's progress is written.
            self._settle(owe=self._owed is None)

    def _settle(self, *, owe: bool = False) -> None:
        """End the round whose blocks are appended: durable, its progress written, acknowledged.

        Args:
            owe: leave the last two to the end of the next round, where the progress can wait.
        """
        assert self.coordinator is not None
        item, self._unsettled = self._unsettled, None
        if item is None:
            return
        with span("capture.sync", scn=item.block.covered_scn):
            self._log.sync()
        failpoint("capture.after_sync")
        self._owed = item.position
        block, self._unobserved = self._unobserved, None
        if block is not None:
            self._observe(block)
        if not (owe and self.coordinator.may_owe):
            self._pay()

    def _pay(self) -> None:
        """Write the progress of what is durable, and acknowledge that."""
        self._write_pending()
        position, self._owed = self._owed, None
        if position is not None:
            self._acknowledge(position)

    def _acknowledge(self, position: str) -> None:
        assert self._reader is not None
        self._reader.acknowledge(position)
        self._telling.checkpoint(self._log.covered_scn, position)
        failpoint("capture.after_acknowledge")

    def _write_pending(self) -> None:
        assert self.coordinator is not None
        changes = self.coordinator.take_pending()
        if changes:
            scn = str(self._log.covered_scn)
            self._state.write([*changes, lambda w: w.set("log_scn", scn)])
            self._progress_until = 0.0
            self._telling.requests(self._state.requests)
            failpoint("capture.after_progress")

    def _observe(self, block: Block) -> None:
        assert self.coordinator is not None
        self.coordinator.observe(block)
        self._large.append(block)

    def _append(self, block: Block) -> None:
        self._log.append(block)
        self._telling.appended(block)
        self._counted.append(block.index, self._log.complete_scn)

    def _log_blocks(self, after_scn: int) -> Iterator[Block]:
        self._log.sync()
        return self._log.blocks(after_scn)

    def _report(self, state: str, detail: str, *, at_once: bool = False) -> None:
        now = self._clock()
        if now < self._status_at and not at_once:
            return
        self._status_at = now + 0.5
        if not at_once and self.coordinator is not None and now >= self._retain_at:
            # What capture needs is written down for that: two syncs beside those of the log, which wait for them.
            self._retain_at = now + _RETAIN_S
            self._log.retain(self.coordinator.needed_scn)
        if now >= self._progress_until:
            # Asking the state holds up the log for milliseconds, and while no dump runs only people change it.
            self._progress_until = now + _PROGRESS_S
            self._progress = self._state_progress()
        self._on_status(self._status(state, detail, self._progress))

    @property
    def is_idle(self) -> bool:
        """Whether no dump is under way."""
        return self._queue.is_idle

    @property
    def doing(self) -> str:
        """What a capture does that waits neither for its source nor for room."""
        return "log paused" if self._pace.log_paused else "streaming"

    def status(self, state: str = "streaming", detail: str = "") -> CaptureStatus:
        """Return what the capture is doing."""
        return self._status(state, detail, self._state_progress())

    def _state_progress(self) -> list[DumpProgress]:
        return [copy.progress for copy in self._state.copies().values()]

    def _status(self, state: str, detail: str, progress: list[DumpProgress]) -> CaptureStatus:
        self._counted.durable(self._log.complete_scn)
        chunk_rows = self.coordinator.chunk_rows if self.coordinator else 0
        return CaptureStatus(
            state,
            detail,
            self._log.complete_scn,
            self._log.covered_scn,
            self._counted.commit_us,
            self._counted.changes,
            progress,
            self._reconciler.remembered,
            chunk_rows,
            self._pace.log_rows_per_s,
            self._slow.seen,
            self._large.seen,
        )

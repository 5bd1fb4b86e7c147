"""What a received high mark makes of the read between its marks: a window of rows, the next step of its task.

Runs on the log thread, at the place of the mark in the log: everything streamed before it is remembered.

Source: DBLog, Algorithm 1 steps 6 and 7.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.fold import fold, promote
from headrace.model.block import ORIGIN_LOG, Block, SystemKind
from headrace.model.schema import TableSchema
from headrace.model.snapshot import YES, Visibility
from headrace.observe.failpoints import failpoint
from headrace.sources.base import CatalogLook, Chunk, ReceivedMark, SchemaStore
from headrace.state.records import Certificate
from headrace.watermark.asked_keys import fail_keyed_otherwise, names_keys
from headrace.watermark.digest import rows_digest
from headrace.watermark.emit import (
    chunk_block,
    complete_block,
    gap_block,
    multiset_rows,
    table_blocks,
)
from headrace.watermark.pace import Chunked, Pacer
from headrace.watermark.reads import Reads, Spool
from headrace.watermark.reconciler import Reconciler
from headrace.watermark.tasks import Phase, Task, TaskQueue
from headrace.watermark.telling import Telling
from headrace.watermark.versions import TableVersions

__all__ = ["Closed", "Closing", "Job", "LogBlocks"]

_NEWEST = 0.3
"""Share of the newest chunk in the rate that is shown."""

LogBlocks = Callable[[int], Iterator[Block]]


@dataclass(slots=True)
class Job:
    """One read under way.

    Attributes:
        heard: whether the log brought a change since it began.
        void: whether its table is no more what it was: nothing may come of it.
    """

    future: Future[Any]
    task: Task | None
    keys: tuple[tuple[str, ...], ...] = ()
    limit: int = 0
    low_scn: int = 0
    floor_scn: int = 0
    look: CatalogLook | None = None
    heard: bool = False
    void: bool = False


@dataclass(frozen=True, slots=True)
class Closed:
    """What became of a chunk.

    Attributes:
        block: makes the window of its rows, None without any. It takes its time, in which the source may select the
            next chunk.
        told: certifies the window and says so; to be called once the rows are in the change log.
    """

    block: Callable[[], Block] | None
    told: Callable[[], None]


class Closing:
    """Closes windows.

    Args:
        reads: renders keys, and says how long the last select took.
        queue: moves tasks on.
        reconciler: what was streamed and not seen.
        registry: keeps table versions.
        versions: the version of each table at this place of the log; kept up to date by both sides.
        log_blocks: yields what the change log holds above an SCN, everything appended so far included.
        piece_rows: rows of a block of a table without a key.
        pacer: follows what chunks take.
        clock: monotonic seconds.
        telling: is told of every step.
    """

    def __init__(
        self,
        *,
        reads: Reads,
        queue: TaskQueue,
        reconciler: Reconciler,
        registry: SchemaStore,
        versions: TableVersions,
        log_blocks: LogBlocks,
        piece_rows: int,
        pacer: Pacer,
        clock: Callable[[], float],
        telling: Telling,
    ) -> None:
        self._reads = reads
        self._queue = queue
        self._reconciler = reconciler
        self._registry = registry
        self._versions = versions
        self._log_blocks = log_blocks
        self._piece_rows = piece_rows
        self._pacer = pacer
        self._clock = clock
        self._telling = telling
        self._beside = ThreadPoolExecutor(1, "headrace-digest")

    def close(self) -> None:
        """End the thread of digests."""
        self._beside.shutdown()

    def chunk(self, job: Job, task: Task, chunk: Chunk, mark: ReceivedMark) -> Closed:
        """Return the rows of a chunk that the log does not contradict, none for a void window; moves the task on."""
        received = self._clock()
        changed = self._versions.has_left(chunk.schema, chunk.visibility)
        keyed_otherwise = task.is_keyed_otherwise(chunk.key_order)
        if changed or keyed_otherwise or not self._reconciler.can_reconcile:
            self._telling.voided(
                "schema changed" if changed or keyed_otherwise else "rows let go",
                chunk.rows.num_rows,
            )
            self._queue.update(task, rows_voided=task.progress.rows_voided + chunk.rows.num_rows)
            if keyed_otherwise and names_keys(task):
                fail_keyed_otherwise(self._queue, task)
            elif keyed_otherwise:
                # What its bounds leave out by one order is not what they leave out by the other.
                self._queue.read_anew(task)
            self._took(job, chunk, received)
            return Closed(None, lambda: None)
        result = self._reconciler.reconcile(chunk.schema, chunk.rows, chunk.visibility)
        absent = self._absent(job, task, chunk)
        gone = self._gone(task, chunk, absent)
        self._telling.reconciled(chunk, result, self._reconciler)
        self._registry.put(chunk.schema)
        announce = not self._versions.tells(chunk.schema)
        emitted = result.rows.num_rows + gone.num_rows
        block: Callable[[], Block] | None = None
        if emitted:
            was = self._versions.before(chunk.schema)
            self._adopt(chunk.schema)
            block = partial(
                chunk_block,
                mark,
                chunk.schema,
                result.rows,
                gone,
                announce=announce,
                by_key=task.phase is not Phase.CHUNKS,
                before=was,
            )
        request_id, after = task.request.request_id, task.progress.after
        before = self._reconciler.remembered
        self._reconciler.forget(chunk.visibility)
        left = self._reconciler.remembered

        def told() -> None:
            # Beside the log thread, which syncs these rows and goes on; it is asked for when progress is written.
            digest = self._beside.submit(rows_digest, result.rows)

            def certificate() -> Certificate:
                return Certificate(
                    request_id,
                    chunk.schema.table,
                    after,
                    chunk.last_key,
                    job.low_scn,
                    mark.scn,
                    repr(chunk.visibility),
                    chunk.rows.num_rows,
                    result.rows.num_rows,
                    digest.result(),
                    chunk.schema.schema_id,
                )

            self._queue.pending.append(lambda w: w.add_certificate(certificate()))
            self._telling.completed(mark, emitted, result.dropped, chunk.last_key, certificate)
            self._telling.forgot(chunk.visibility, before, left)

        self._took(job, chunk, received)
        task.schema = chunk.schema
        if task.phase is Phase.CHUNKS:
            if result.unsettled.num_rows and task.is_whole:
                keys = self._reads.render_keys(chunk.schema, result.unsettled)
                self._queue.add_reread(chunk.schema.table, keys)
                self._telling.listed(chunk.schema.table, keys, "unsettled in chunk")
            self._advance(job, task, chunk, emitted, mark.scn)
        elif task.phase is Phase.REREAD:
            self._settle_rereads(job, task, chunk, result.unsettled)
        else:
            self._settle_keys(job, task, chunk, absent, emitted)
        return Closed(block, told)

    def _absent(self, job: Job, task: Task, chunk: Chunk) -> list[tuple[str, ...]]:
        """Return the requested keys for which the chunk has no row."""
        if task.phase is not Phase.KEYS:
            return []
        found = set(self._reads.render_keys(chunk.schema, chunk.rows))
        return [key for key in job.keys if key not in found]

    def _gone(self, task: Task, chunk: Chunk, absent: list[tuple[str, ...]]) -> pa.RecordBatch:
        """Return the absent keys to delete from the target: asked for, and the log says nothing else of them."""
        if not (absent and task.request.delete_missing):
            return chunk.rows.slice(0, 0)
        keys = self._reads.key_rows(chunk.schema, absent)
        return self._reconciler.untouched(chunk.schema, keys, chunk.visibility)

    def _took(self, job: Job, chunk: Chunk, received: float) -> None:
        """Let the pace follow what the chunk took."""
        rows, now = chunk.rows, self._clock()
        written = now + self._pacer.emit_s(rows.num_rows)
        # One that was cut for its bytes had all the rows that it might have.
        asked = rows.num_rows if chunk.cut else job.limit or len(job.keys)
        times = (*self._reads.selected, received, written)
        took = Chunked(asked, rows.num_rows, rows.nbytes, *times, quiet=not job.heard)
        self._pacer.took(took, chunk.schema.table if job.limit else None)

    def _adopt(self, schema: TableSchema) -> None:
        self._versions.adopt(schema)
        self._queue.note_schema(schema.table, schema.schema_id)

    def _advance(self, job: Job, task: Task, chunk: Chunk, emitted: int, scn: int) -> None:
        p = task.progress
        self._queue.update(
            task,
            after=chunk.last_key or p.after,
            chunks=p.chunks + 1,
            rows_read=p.rows_read + chunk.rows.num_rows,
            rows_emitted=p.rows_emitted + emitted,
            rows_per_s=self._rate(task, chunk.rows.num_rows),
            first_scn=p.first_scn or scn,
        )
        short = chunk.rows.num_rows < job.limit and not chunk.cut
        if short or chunk.last_key in (None, p.until):
            self._queue.end_chunks(task)

    def _rate(self, task: Task, rows: int) -> float:
        """Return rows per second, the newest chunk weighing most of all; the pause before it counts."""
        now, since = self._clock(), task.since
        task.since = now
        if since is None or now <= since:
            return task.progress.rows_per_s
        fresh = rows / (now - since)
        held = task.progress.rows_per_s or fresh
        return held + _NEWEST * (fresh - held)

    def _settle_rereads(
        self, job: Job, task: Task, chunk: Chunk, unsettled: pa.RecordBatch
    ) -> None:
        """Take read keys off the list; keys whose move was not seen stay."""
        schema = chunk.schema
        late = set(self._reads.render_keys(schema, unsettled)) if unsettled.num_rows else set()
        settled = [key for key in job.keys if key not in late]
        self._queue.remove_reread(schema.table, settled)
        self._telling.settled(schema.table, settled, len(self._queue.rereads[schema.table]))
        self._queue.end_chunks(task)

    def _settle_keys(
        self,
        job: Job,
        task: Task,
        chunk: Chunk,
        absent: list[tuple[str, ...]],
        emitted: int,
    ) -> None:
        """Count requested keys, and keep those that do not exist."""
        p = task.progress
        self._queue.note_missing(task, absent)
        self._queue.update(
            task,
            chunks=p.chunks + 1,
            keys_done=p.keys_done + len(job.keys),
            rows_read=p.rows_read + chunk.rows.num_rows,
            rows_emitted=p.rows_emitted + emitted,
            rows_per_s=self._rate(task, len(job.keys)),
        )
        if task.progress.keys_done >= len(task.keys):
            self._queue.end_chunks(task)

    def table(self, job: Job, task: Task, spool: Spool, mark: ReceivedMark) -> Iterator[Block]:
        """Yield a table without a key: its snapshot and the net of what was streamed before the mark and not seen."""
        try:
            keyed = bool(spool.schema.key)
            if keyed or self._versions.has_left(spool.schema, spool.visibility):
                self._telling.voided("schema changed", spool.rows)
                self._queue.update(task, rows_voided=task.progress.rows_voided + spool.rows)
                if keyed:
                    # What the snapshot did not see is no sum of rows then; and it can be read in chunks by now.
                    self._queue.read_anew(task)
                return
            self._registry.put(spool.schema)
            unseen = self._unseen_of(spool, job.floor_scn, mark.scn)
            rows = multiset_rows(spool.schema, spool.batches(), unseen)
            was = self._versions.before(spool.schema)
            self._adopt(spool.schema)
            emitted = 0
            for block in table_blocks(mark, spool.schema, rows, self._piece_rows, was):
                emitted += block.rows
                yield block
        finally:
            spool.discard()
        self._telling.completed(mark, emitted, 0)
        self.forget(spool.visibility)
        task.schema, task.phase = spool.schema, Phase.END
        self._queue.update(
            task, chunks=1, rows_read=spool.rows, rows_emitted=emitted, first_scn=mark.scn
        )

    def _unseen_of(self, spool: Spool, floor_scn: int, high_scn: int) -> pa.Table:
        """Return the folded effect of the streamed transactions before the mark that the snapshot did not see."""
        schema = spool.schema
        batches: list[pa.RecordBatch] = []
        truncates: list[tuple[int, int]] = []
        for block in self._log_blocks(floor_scn - 1):
            hidden = _hidden_scns(block, spool.visibility, high_scn)
            if not len(hidden):
                continue
            for body in block.bodies:
                if body.table == schema.table:
                    keep = np.isin(body.batch.column("_scn").to_numpy(), hidden)
                    rows = body.batch.filter(pa.array(keep))
                    batches.append(promote(rows, self._registry.get(body.schema_id), schema))
            truncates += [
                (e.scn, e.ord)
                for e in block.system
                if e.kind is SystemKind.TRUNCATE and e.table == schema.table and e.scn in hidden
            ]
        return fold(schema, batches, truncates)

    def complete(self, task: Task, mark: ReceivedMark) -> Iterator[Block]:
        """Yield what a mark without a chunk says: the table is complete, or is to be emptied."""
        if task.phase is Phase.EMPTY:
            yield gap_block(mark.scn, mark.commit_us, [task.progress.table])
            self._queue.close_gap(task.progress.table)
            task.phase = Phase.START
            return
        if task.schema is None:
            return
        table = task.progress.table
        if self._queue.rereads[table]:
            # A row moved in between the last window and the end mark.
            task.phase = Phase.REREAD
            return
        if table in self._queue.gaps and task.schema.key and not task.repairs:
            # Rows that vanished meanwhile are still to be removed; the repair says when the table is complete.
            self._queue.update(task, state="done", completed_scn=mark.scn)
            self._queue.finish(task)
            return
        self._registry.put(task.schema)
        failpoint("dump.before_complete")
        # A repair reads no row that the target has: of one that has none it makes nothing whole.
        first_scn = 0 if task.repairs else task.progress.first_scn or mark.scn
        yield complete_block(mark, task.schema, task.request.request_id, first_scn)
        failpoint("dump.after_complete")
        self._queue.close_gap(table)
        self._telling.table_completed(task, mark)
        self._queue.update(task, state="done", completed_scn=mark.scn)
        self._queue.finish(task)

    def forget(self, saw: Visibility) -> None:
        """Let go of transactions that a snapshot saw."""
        before = self._reconciler.remembered
        self._reconciler.forget(saw)
        self._telling.forgot(saw, before, self._reconciler.remembered)


def _hidden_scns(
    block: Block, saw: Visibility, high_scn: int
) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return the SCNs of streamed transactions up to the mark that the snapshot did not see."""
    index = block.index
    hidden = (index["origin"] == ORIGIN_LOG) & (index["scn"] <= high_scn)
    hidden &= saw.sees(index["xid"], index["scn"]) != YES
    return np.asarray(index["scn"][hidden], np.int64)

"""Tells the tap what capture and coordinator do: the only place that knows both.

Each method is one sentence about something that has just happened, and does nothing when the tap is off. What costs
time per row is put together later, in the tap's own thread, from columns that are kept until then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Never

import numpy as np
import pyarrow as pa

from headrace.errors import HeadraceError
from headrace.model.block import ORIGIN_LOG, Block
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import TableId, TableSchema
from headrace.model.snapshot import NO, UNKNOWN, YES, Visibility
from headrace.observe.tap import NO_TAP, Later, Tap, events
from headrace.observe.tap.events import Event, Key
from headrace.sources.base import Chunk, ReceivedMark
from headrace.state.records import OPEN
from headrace.state.store import Certificate, DumpRequest
from headrace.watermark.reconciler import Reconciled, Reconciler
from headrace.watermark.tasks import Phase, Task
from headrace.watermark.told_rows import Fates, RenderKeys, RowChanges, truncates_of

__all__ = ["SILENT", "Telling"]

SINK = "changelog"
SHOWN_TRANSACTIONS = 16
"""Transaction ids that one event lists at most."""

_LEVELS: dict[MarkKind, events.Level] = {MarkKind.LOW: "LOW", MarkKind.HIGH: "HIGH"}


@dataclass(slots=True)
class _Window:
    """The window that is told of; there is one at a time."""

    number: int
    token: str
    request_id: str
    table: TableId
    mode: events.Mode
    after: Key | None
    until: Key | None
    limit: int
    final: bool
    written: dict[events.Level, float] = field(default_factory=dict)
    low_received: bool = False
    closed_at: float = 0.0

    @property
    def dump_id(self) -> str:
        return f"{self.request_id}/{self.table}"


def _unasked(*_: object) -> Never:
    """Stand where `SILENT` has nobody to ask: with a tap that is off there are no questions."""
    raise AssertionError("a tap that is off asks nothing")


class Telling:
    """What one run tells.

    Args:
        tap: who listens.
        render_keys: renders keys as the source does; pure.
        schema_of: looks table versions up.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        tap: Tap = NO_TAP,
        render_keys: RenderKeys = _unasked,
        schema_of: Callable[[int], TableSchema] = _unasked,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tap = tap
        self._render_keys = render_keys
        self._schema_of = schema_of
        self._clock = clock
        # The reading thread tells too, and a mark may come back before its write has returned.
        self._lock = threading.Lock()
        self._window: _Window | None = None
        self._closing: _Window | None = None
        self._windows = 0
        self._buffered = 0
        self._requests: dict[str, str] = {}

    # -- the log ----------------------------------------------------------------------------------

    def received(self, block: Block) -> None:
        """The source's log brought a block."""
        if not self._tap.on:
            return
        xids = (
            {int(entry["scn"]): int(entry["xid"]) for entry in block.index} if block.system else {}
        )
        for scn, table in truncates_of(block):
            tx_id = str(xids[scn]) if xids[scn] else None
            self._tap.emit(events.TableTruncated(lsn=str(scn), table=table, tx_id=tx_id))
        if self._tap.rows and block.rows:
            changes = RowChanges(block, self._schema_of, self._render_keys)
            self._tap.emit(Later(changes.count, changes.nbytes, lambda: _cdc(changes)))

    def appended(self, block: Block) -> None:
        """A block went into the change log."""
        if not self._tap.on:
            return
        self._buffered += block.rows
        if not self._tap.rows or not block.rows:
            return
        changes = RowChanges(block, self._schema_of, self._render_keys)
        selected = bool((block.index["origin"] != ORIGIN_LOG).all())
        window = self._closing if selected else self._window
        if window is not None and not (selected or window.low_received):
            window = None
        number = window.number if window else None
        dump_id = window.dump_id if window and selected else None
        origin: events.Origin = "SELECT" if selected else "LOG"

        def rows() -> Iterator[Event]:
            for change in changes:
                yield events.SinkEvent(
                    lsn=str(change.scn),
                    op=change.op,
                    table=change.table,
                    pk=change.key,
                    origin=origin,
                    tx_id=change.xid,
                    dump_id=dump_id,
                    chunk_id=number,
                    sink_name=SINK,
                    from_pk=change.from_key,
                )

        self._tap.emit(Later(changes.count, changes.nbytes, rows))

    def checkpoint(self, covered_scn: int, position: str) -> None:
        """The source was told that it may forget."""
        if not self._tap.on:
            return
        self._tap.emit(
            events.CheckpointAdvanced(
                lsn=str(covered_scn),
                reason="boundary",
                position=position,
                buffered_events=self._buffered,
            )
        )
        self._buffered = 0

    def schema_changed(self, scn: int, table: TableId, schema_id: int) -> None:
        """The log announced another version of a table."""
        if self._tap.on:
            self._tap.emit(
                events.SchemaChanged(
                    lsn=str(scn), table=str(table), fingerprint=f"{schema_id:016x}"
                )
            )

    # -- windows ----------------------------------------------------------------------------------

    def opened(self, token: str, task: Task, limit: int) -> None:
        """A window is about to be opened; its marks and its select are told by the reading thread."""
        if not self._tap.on:
            return
        keyless = task.schema is not None and not task.schema.key
        if task.phase is Phase.CHUNKS:
            mode: events.Mode = "table" if keyless else "range"
            final = keyless
        else:
            mode = "keys"
            final = task.phase is Phase.KEYS and task.progress.keys_done + limit >= len(task.keys)
        self._windows += 1
        progress = task.progress
        self._window = _Window(
            self._windows,
            token,
            task.request.request_id,
            progress.table,
            mode,
            progress.after if mode == "range" else None,
            progress.until,
            limit,
            final,
        )

    def wrote(self, mark: Mark) -> None:
        """A mark was written to the source."""
        window = self._window
        if self._tap.on and window is not None and window.token == mark.token:
            with self._lock:
                self._say_written(window, mark.kind)

    def _say_written(self, window: _Window, kind: MarkKind) -> None:
        level = _LEVELS[kind]
        if level not in window.written:
            window.written[level] = self._clock()
            self._tap.emit(
                events.WatermarkWritten(level=level, token=window.token, chunk_id=window.number)
            )

    def selected(
        self,
        token: str,
        schema: TableSchema,
        count: int,
        keys: pa.RecordBatch | None = None,
        last_key: Key | None = None,
        *,
        cut: bool = False,
    ) -> None:
        """The select between the marks has ended; ``keys`` are its rows, unless the table has no key."""
        window = self._window
        if not self._tap.on or window is None or window.token != token:
            return
        if window.mode == "range":
            short = count < window.limit and not cut
            window.final = last_key is None or short or last_key == window.until
        ends: list[Key] = []
        if keys is not None and count:
            edges = pa.array([0, count - 1])
            ends = self._render_keys(schema, keys.select(list(schema.key)).take(edges))
        self._tap.emit(
            events.ChunkSelected(
                chunk_id=window.number,
                request_id=window.request_id,
                dump_id=window.dump_id,
                table=str(window.table),
                mode=window.mode,
                pk_min=ends[0] if ends else None,
                pk_max=ends[1] if ends else None,
                start_after_pk=window.after,
                row_count=count,
                final_chunk=window.final,
                fingerprint=f"{schema.schema_id:016x}",
            )
        )

    def met(self, mark: ReceivedMark) -> None:
        """A mark came back through the log."""
        window = self._window
        if not self._tap.on or window is None or window.token != mark.mark.token:
            return
        level = _LEVELS[mark.mark.kind]
        with self._lock:
            self._say_written(window, mark.mark.kind)
        self._tap.emit(
            events.WatermarkReceived(
                level=level,
                token=window.token,
                chunk_id=window.number,
                lsn=str(mark.scn),
                latency_ms=self._since(window, level),
            )
        )
        if level == "LOW":
            window.low_received = True
        else:
            window.closed_at = self._clock()
            self._window, self._closing = None, window

    def _since(self, window: _Window, level: events.Level) -> int:
        return round((self._clock() - window.written[level]) * 1000)

    def reconciled(self, chunk: Chunk, result: Reconciled, reconciler: Reconciler) -> None:
        """A chunk met what its select did not surely see."""
        window = self._closing
        if not self._tap.on or window is None:
            return
        scn, xid = reconciler.transactions()
        scn, first = np.unique(scn, return_index=True)
        xid = xid[first]
        saw = chunk.visibility.sees(xid, scn)
        self._tap.emit(
            events.ChunkVisibility(
                chunk_id=window.number,
                table=str(window.table),
                snapshot=str(chunk.visibility),
                seen=int((saw == YES).sum()),
                not_seen=int((saw == NO).sum()),
                unknown=int((saw == UNKNOWN).sum()),
                unseen_tx_ids=[str(x) for x in xid[saw != YES][:SHOWN_TRANSACTIONS]],
            )
        )
        render = self._render_keys
        told = Fates(window.number, chunk.schema, chunk.rows, result, (scn, xid), render)
        if told.count:
            self._tap.emit(Later(told.count, told.nbytes, told.__iter__))

    def completed(
        self,
        mark: ReceivedMark,
        emitted: int,
        excluded: int,
        last_key: Key | None = None,
        certify: Callable[[], Certificate] | None = None,
    ) -> None:
        """The rows of a window are in the change log."""
        window, self._closing = self._closing, None
        if not self._tap.on or window is None:
            return
        self._tap.emit(
            events.ChunkCompleted(
                chunk_id=window.number,
                request_id=window.request_id,
                table=str(window.table),
                emitted=emitted,
                excluded=excluded,
                last_pk=last_key,
                lsn=str(mark.scn),
                duration_ms=self._since(window, "LOW"),
                held_ms=round((self._clock() - window.closed_at) * 1000),
                final_chunk=window.final,
            )
        )
        if certify is not None:
            certificate = certify()
            self._tap.emit(
                events.CertificateIssued(
                    chunk_id=window.number,
                    table=str(window.table),
                    after_pk=certificate.after,
                    last_pk=certificate.last,
                    low_lsn=str(certificate.low_scn),
                    high_lsn=str(certificate.high_scn),
                    rows=certificate.rows,
                    emitted=certificate.emitted,
                    digest=certificate.digest,
                )
            )

    def voided(self, reason: events.VoidReason, rows: int | None = None) -> None:
        """The window under way ends without rows."""
        window = self._closing or self._window
        self._closing = self._window = None
        if self._tap.on and window is not None:
            self._tap.emit(
                events.WindowVoid(
                    chunk_id=window.number,
                    table=str(window.table),
                    reason=reason,
                    row_count=rows,
                )
            )

    # -- around windows ---------------------------------------------------------------------------

    def listed(self, table: TableId, keys: Sequence[Key], reason: events.ListReason) -> None:
        """Keys were put on the re-read list."""
        if self._tap.on and keys:
            self._tap.emit(events.RereadListed(table=str(table), pks=list(keys), reason=reason))

    def settled(self, table: TableId, keys: Sequence[Key], left: int) -> None:
        """Keys left the re-read list."""
        if self._tap.on and keys:
            self._tap.emit(events.RereadSettled(table=str(table), pks=list(keys), left=left))

    def forgot(self, saw: Visibility, before: int, after: int) -> None:
        """A snapshot has seen streamed transactions."""
        if self._tap.on and after < before:
            self._tap.emit(
                events.SnapshotForgot(snapshot=str(saw), forgotten=before - after, remembered=after)
            )

    def table_completed(self, task: Task, mark: ReceivedMark) -> None:
        """A table's end mark was received."""
        if self._tap.on:
            self._tap.emit(
                events.TableCompleted(
                    request_id=task.request.request_id,
                    table=str(task.progress.table),
                    lsn=str(mark.scn),
                    token=mark.mark.token,
                )
            )

    def requests(self, now: Callable[[], Iterable[DumpRequest]]) -> None:
        """The durable state of requests may have changed; ``now`` reads it."""
        if not self._tap.on:
            return
        first = not self._requests
        for request in now():
            before = self._requests.get(request.request_id)
            if before == request.state.value:
                continue
            self._requests[request.request_id] = request.state.value
            if first and request.state not in OPEN:
                # It ended before this run began.
                continue
            self._tap.emit(
                events.RequestTransition(
                    request_id=request.request_id,
                    scope=request.scope.value,
                    table=str(request.table) if request.table else None,
                    state=request.state.value,
                    prev_state=before,
                    reason=request.reason or None,
                )
            )

    # -- trouble ----------------------------------------------------------------------------------

    def waiting(self, state: str, error: HeadraceError) -> None:
        """Capture waits, and goes on by itself."""
        if self._tap.on:
            self._tap.emit(events.CaptureWaiting(state=state, message=error.message))

    def failed(self, error: BaseException) -> None:
        """Capture stops; the message of an error that is not ours may hold anything and is not told."""
        if not self._tap.on:
            return
        message, next_step = "unexpected", ""
        if isinstance(error, HeadraceError):
            message, next_step = error.message, error.next_step
        self._tap.emit(
            events.Error(
                boundary="capture",
                class_=type(error).__name__,
                message=message,
                next_step=next_step or None,
            )
        )


def _cdc(changes: RowChanges) -> Iterator[Event]:
    for change in changes:
        yield events.Cdc(
            lsn=str(change.scn),
            op=change.op,
            table=change.table,
            pk=change.key,
            tx_id=change.xid,
            from_pk=change.from_key,
        )


SILENT = Telling()
"""Tells nobody anything."""

"""What is to be dumped: requests broken down to tables, with the progress of each.

Holds the same facts as the state database, one step ahead of it: changes are collected and written after the
change log is durable, before the source is acknowledged.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto

from headrace.model.schema import TableId, TableSchema
from headrace.state.store import (
    DumpProgress,
    DumpRequest,
    RequestState,
    Scope,
    StateStore,
    StateWriter,
)

__all__ = ["Phase", "Task", "TaskQueue"]

Key = tuple[str, ...]
Change = Callable[[StateWriter], None]


class Phase(Enum):
    """What a table's dump does next."""

    START = auto()
    """Fix the shape and the upper bound."""
    CHUNKS = auto()
    """Read the next chunk, or the whole table when it has no key."""
    REREAD = auto()
    """Read keys of the re-read list."""
    END = auto()
    """Write the end mark."""
    KEYS = auto()
    """Read the requested keys."""


@dataclass(slots=True)
class Task:
    """One table of one request."""

    request: DumpRequest
    progress: DumpProgress
    position: int
    phase: Phase
    schema: TableSchema | None = None
    keys_done: int = 0
    missing: tuple[Key, ...] = ()


class TaskQueue:
    """Walks through requests in order of submission, table by table.

    Args:
        store: the state database.
        tables: captured tables, in the order in which they are dumped.
        interval_s: how often the store is asked for new requests when there is nothing to do.
        clock: monotonic seconds.
    """

    def __init__(
        self,
        store: StateStore,
        tables: Sequence[TableId],
        interval_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_s
        self._clock = clock
        self._look_at = 0.0
        self._store = store
        self._tables = list(tables)
        self.pending: list[Change] = []
        self._reasons: list[str] = []
        self._tasks: list[Task] = []
        self.rereads: dict[TableId, set[Key]] = {}
        self.last_schemas: dict[TableId, int] = {}
        self._recall()

    def _recall(self) -> None:
        self.rereads = {t: set(self._store.reread(t)) for t in self._tables}
        self.last_schemas = {t: int(self._store.get(f"schema {t}") or 0) for t in self._tables}

    def reload(self) -> None:
        """Go back to what is durable: what was ahead of it may be missing from the change log."""
        self.pending.clear()
        self._tasks.clear()
        self._reasons.clear()
        self._look_at = 0.0
        self._recall()
        self.current()

    @property
    def tables(self) -> Sequence[TableId]:
        """The captured tables."""
        return self._tables

    def add(self, table: TableId) -> None:
        """Take a table in that came while capture runs, and queue its dump."""
        if table not in self._tables:
            self._tables.append(table)
            self.rereads.setdefault(table, set())
            self.last_schemas.setdefault(table, int(self._store.get(f"schema {table}") or 0))
        self.request_again(table)

    def refuse(self, table: TableId, reason: str) -> None:
        """Show that a table cannot be captured, as a request that failed."""
        request_id = self._store.submit(Scope.TABLE, table)
        progress = DumpProgress(request_id, table, state="refused")
        self._store.write([_failure(request_id, reason), lambda w: w.put_progress(progress, 0)])

    def withdraw(self, table: TableId) -> None:
        """Show no more that a table cannot be captured: it is gone."""
        refused = [p for p in self._store.progress() if p.table == table and p.state == "refused"]
        for progress in refused:
            gone = replace(progress, state="gone")
            self._store.write([_placed(gone)])

    def give_up(self, table: TableId, reason: str) -> None:
        """Give up what is under way or waits for a table that is no more what it was."""
        for task in [task for task in self._tasks if task.progress.table == table]:
            self.fail(task, reason)
        for request in self._store.requests():
            if request.state is RequestState.QUEUED and request.table == table:
                # At once: it must not be taken for the dump that the table's next life asks for.
                self._store.write([_failure(request.request_id, reason)])

    def was_captured(self, table: TableId) -> bool:
        """Return whether the log may hold rows of a table."""
        if self._store.get(f"schema {table}") is not None or self.last_schemas.get(table):
            return True
        never = ("waiting", "refused", "gone")
        return any(p.table == table and p.state not in never for p in self._store.progress())

    def returned(self) -> set[TableId]:
        """Return the captured tables that were left out of the last run."""
        names = self._store.get("tables")
        last = {str(t) for t in self._tables} if names is None else set(json.loads(names))
        return {table for table in self._tables if str(table) not in last}

    def ensure_dumped(self, settled: Collection[TableId] | None = None) -> None:
        """Queue a dump for every table that never had one and waits for none, and for those that come back.

        While a table was left out its changes passed by: what was read of it before is out of date.

        Args:
            settled: the only tables to look at; the others are queued when they have joined. None: all.
        """
        waiting = [
            r
            for r in self._store.requests()
            if r.state in (RequestState.QUEUED, RequestState.ACTIVE)
        ]
        progress = self._store.progress()
        returned = self._left_out({p.table for p in progress if p.state != "waiting"})
        if not any(r.scope is Scope.ALL_TABLES for r in waiting):
            done = {p.table for p in progress if p.completed_scn}
            done |= {r.table for r in waiting if r.scope is Scope.TABLE and r.table}
            fresh = [
                table
                for table in self._tables
                if table not in done | returned and (settled is None or table in settled)
            ]
            if len(fresh) == len(self._tables):
                self._store.submit(Scope.ALL_TABLES)
            else:
                for table in fresh:
                    self._store.submit(Scope.TABLE, table)
        for table in sorted(returned if settled is None else ()):
            self._store.submit(Scope.TABLE, table)
        names = json.dumps(sorted(str(table) for table in self._tables))
        self._store.write([lambda w: w.set("tables", names)])

    def _left_out(self, begun: set[TableId]) -> set[TableId]:
        """Return the tables whose dump had begun before they were left out of the last run."""
        names = self._store.get("tables")
        last = self._tables if names is None else [TableId.parse(n) for n in json.loads(names)]
        return {table for table in self._tables if table in begun and table not in last}

    def request_again(self, table: TableId) -> None:
        """Queue a dump of a table whose stored rows cannot follow from the log alone."""
        queued = any(
            r.state is RequestState.QUEUED and r.scope is Scope.TABLE and r.table == table
            for r in self._store.requests()
        )
        if not queued:
            self._store.submit(Scope.TABLE, table)

    def note_schema(self, table: TableId, schema_id: int) -> None:
        """Keep the table's newest version across restarts."""
        if self.last_schemas.get(table) != schema_id:
            self.last_schemas[table] = schema_id
            self.pending.append(lambda w: w.set(f"schema {table}", str(schema_id)))

    def current(self) -> Task | None:
        """Return the task to work on, taking the next request when there is none."""
        while not self._tasks:
            if self.pending:
                # The last request's end is not written yet; it would be found again.
                return None
            now = self._clock()
            if now < self._look_at:
                return None
            request = self._store.next_request()
            if request is None:
                self._look_at = now + self._interval_s
                return None
            self._begin(request)
        return self._tasks[0]

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way and nothing waits to be written."""
        return not self._tasks and not self.pending

    def dump_of(self, table: TableId) -> Task | None:
        """Return the task that dumps the table, under way or waiting in the active request."""
        for task in self._tasks:
            if task.progress.table == table and task.phase is not Phase.KEYS:
                return task
        return None

    def _begin(self, request: DumpRequest) -> None:
        tables = self._tables if request.scope is Scope.ALL_TABLES else [request.table]
        unknown = [str(table) for table in tables if table not in self._tables]
        if unknown:
            reason = f"{unknown[0]} is not captured; add it to the configuration."
            self._close(request.request_id, RequestState.FAILED, reason)
            return
        known = {p.table: p for p in self._store.progress(request.request_id)}
        for position, table in enumerate(t for t in tables if t):
            progress = known.get(table, DumpProgress(request.request_id, table))
            if progress.completed_scn:
                continue
            phase = Phase.KEYS if request.scope is Scope.PRIMARY_KEYS else Phase.START
            self._tasks.append(Task(request, progress, position, phase))
            if table not in known:
                self._put(self._tasks[-1])
        self.pending.append(lambda w: w.request_state(request.request_id, RequestState.ACTIVE))
        if not self._tasks:
            self._close(request.request_id, RequestState.COMPLETED)

    def update(self, task: Task, **changes: object) -> None:
        """Move a task's progress; written with the next batch of pending changes."""
        task.progress = replace(task.progress, **changes)  # type: ignore[arg-type]
        self._put(task)

    def _put(self, task: Task) -> None:
        if task.phase is Phase.KEYS:
            # Keys are read anew after a restart, and say nothing about how far the table is.
            return
        progress, position = task.progress, task.position
        self.pending.append(lambda w: w.put_progress(progress, position))

    def finish(self, task: Task) -> None:
        """Take a finished task off; the request is completed with its last one."""
        self._tasks.remove(task)
        if self._tasks:
            return
        state = RequestState.FAILED if self._reasons else RequestState.COMPLETED
        reason, self._reasons = " ".join(self._reasons), []
        self._close(task.request.request_id, state, reason, task.missing)

    def fail(self, task: Task, reason: str) -> None:
        """Give a table up, go on with the others; the request fails at its end with every reason."""
        self._reasons.append(reason)
        self.update(task, state="failed")
        self.finish(task)

    def _close(
        self, request_id: str, state: RequestState, reason: str = "", missing: tuple[Key, ...] = ()
    ) -> None:
        self.pending.append(lambda w: w.request_state(request_id, state, reason, missing))

    def add_reread(self, table: TableId, keys: Sequence[Key]) -> None:
        """Put keys on a table's re-read list."""
        fresh = [key for key in keys if key not in self.rereads.setdefault(table, set())]
        if fresh:
            self.rereads[table].update(fresh)
            self.pending.append(lambda w: w.add_reread(table, fresh))

    def remove_reread(self, table: TableId, keys: Sequence[Key]) -> None:
        """Take keys off a table's re-read list."""
        gone = [key for key in keys if key in self.rereads[table]]
        if gone:
            self.rereads[table].difference_update(gone)
            self.pending.append(lambda w: w.remove_reread(table, gone))

    def take_pending(self) -> list[Change]:
        """Return the changes to write now."""
        changes, self.pending = self.pending, []
        return changes


def _failure(request_id: str, reason: str) -> Change:
    return lambda w: w.request_state(request_id, RequestState.FAILED, reason)


def _placed(progress: DumpProgress) -> Change:
    return lambda w: w.put_progress(progress, 0)

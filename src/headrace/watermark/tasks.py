"""What is to be dumped: requests broken down to tables, with the progress of each.

Holds the same facts as the state database, one step ahead of it: changes are collected and written after the
change log is durable, before the source is acknowledged. People steer requests by moving them in that database; what
they did is taken up between two chunks, so a chunk that was begun is always finished.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from headrace.model.schema import TableId, TableSchema
from headrace.state.records import (
    OPEN,
    RESTING,
    Cause,
    DumpProgress,
    DumpRequest,
    RequestState,
    Scope,
    Turn,
)
from headrace.state.store import StateStore
from headrace.state.writer import StateWriter

__all__ = ["Change", "Phase", "Task", "TaskQueue"]

_LOG = logging.getLogger(__name__)

Key = tuple[str, ...]
Change = Callable[[StateWriter], object]


class Phase(Enum):
    """What a table's dump does next."""

    EMPTY = auto()
    """Empty the table first: so much of it differs behind a gap that it is copied from the start."""
    START = auto()
    """Fix the shape and the upper bound, or how the source writes the requested keys."""
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
    """One table of one request.

    Attributes:
        keys: the requested keys as the source writes them, empty unless keys are asked for.
        since: when the last chunk ended, None while nothing is under way.
        refused: why the source refused its keys, empty unless it did.
        relisted: whether it was begun anew because the source refused a key of the re-read list.
    """

    request: DumpRequest
    progress: DumpProgress
    position: int
    phase: Phase = Phase.START
    schema: TableSchema | None = None
    keys: tuple[Key, ...] = ()
    missing: tuple[Key, ...] = ()
    since: float | None = None
    refused: str = ""
    relisted: bool = False

    @property
    def may_relist(self) -> bool:
        """Whether it can do without its re-read list, by reading every row again."""
        return self.phase is Phase.REREAD and not self.repairs and not self.relisted

    @property
    def is_whole(self) -> bool:
        """Whether the table is complete when this is done."""
        return self.request.scope.is_whole

    @property
    def adopts(self) -> bool:
        """Whether the target has the table's rows from elsewhere."""
        return self.request.cause is Cause.ADOPTED

    @property
    def repairs(self) -> bool:
        """Whether this closes a gap."""
        return self.request.scope is Scope.REPAIR

    @property
    def reads_on(self) -> bool:
        """Whether the target may lack rows that are not on the re-read list."""
        return self.phase in (Phase.EMPTY, Phase.START, Phase.CHUNKS, Phase.KEYS)

    def is_keyed_otherwise(self, key_order: str, *, keyless: bool = False) -> bool:
        """Return whether its bounds, or the keys it reads, are of another key than the table's, or of another order.

        Args:
            key_order: of now, empty where a source does not tell.
            keyless: the table has no key any more.
        """
        kept = self.progress.key_order
        return bool(kept and (key_order or keyless)) and kept != key_order


@dataclass(slots=True)
class _Begun:
    """A request that has begun and not ended: under way, overtaken or paused."""

    request: DumpRequest
    tasks: list[Task] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)


class TaskQueue:
    """Walks through requests, table by table: by priority, then in order of submission.

    Args:
        store: the state database.
        tables: captured tables, in the order in which they are dumped.
        interval_s: how often the store is asked what people did to requests.
        clock: monotonic seconds.
        adopted: whether a table's first copy is a dump made elsewhere.
        on_heard: is called whenever the store was asked, before anything that it said is acted upon.
    """

    def __init__(
        self,
        store: StateStore,
        tables: Sequence[TableId],
        interval_s: float = 0.0,
        clock: Callable[[], float] = time.monotonic,
        adopted: Callable[[TableId], bool] = lambda _table: False,
        on_heard: Callable[[], None] = lambda: None,
    ) -> None:
        self._adopted = adopted
        self._on_heard = on_heard
        self._interval_s = interval_s
        self._clock = clock
        self._look_at = 0.0
        self._store = store
        self._tables = list(tables)
        self.away: Callable[[Collection[TableId]], Collection[TableId]] = lambda _tables: ()
        """Returns which captured tables are not there: gone, or yet to join. Replace it before the first turn."""
        self.has_yet_to_join: Callable[[TableId], bool] = lambda _table: False
        """Returns whether requests for a table have to wait: its changes pass by until it has joined. Likewise."""
        self.refusal: Callable[[TableId], str] = lambda _table: ""
        """Returns why a table cannot be captured, empty for any other. Likewise."""
        self.pending: list[Change] = []
        self._line: list[Turn] = []
        self._heard: list[Turn] | None = None
        self._begun: dict[str, _Begun] = {}
        self._closed: set[str] = set()
        self._active: _Begun | None = None
        self.rereads: dict[TableId, set[Key]] = {}
        self.last_schemas: dict[TableId, int] = {}
        self.gaps: set[TableId] = set()
        self._recall()

    def _recall(self) -> None:
        self.rereads = {t: set(self._store.reread(t)) for t in self._tables}
        self.last_schemas = {t: int(self._store.get(f"schema {t}") or 0) for t in self._tables}
        self.gaps = self._store.gaps()
        # Also those that wait or rest: rows that move into their tables must find them.
        for turn in self._store.line():
            known = {p.table: p for p in self._store.progress(turn.request_id)}
            request = self._store.request(turn.request_id) if known else None
            if request is not None and not self._unknown(request):
                self._begun[request.request_id] = _Begun(request, self._tasks_of(request, known))
        for table in self._tables:
            self._drop_list(table)
        # What people cancelled while nobody heard them, too.
        self._store.write([lambda w: w.end_cancelled(), *self.take_pending()])

    def reload(self) -> None:
        """Go back to what is durable: what was ahead of it may be missing from the change log."""
        self.pending.clear()
        self._begun.clear()
        self._closed.clear()
        self._active = None
        self._look_again()
        self._recall()
        self.current()

    # -- tables that come and go ------------------------------------------------------------------

    @property
    def tables(self) -> Sequence[TableId]:
        """The captured tables."""
        return self._tables

    def add(self, table: TableId) -> None:
        """Take a table in that came while capture runs, and queue its dump unless a person cancelled its copy."""
        if table not in self._tables:
            self._tables.append(table)
            self.rereads.setdefault(table, set())
            self.last_schemas.setdefault(table, int(self._store.get(f"schema {table}") or 0))
            # Or the next start would take it for one that was left out until then.
            self.pending.append(self._captured())
        self.copy_again(table, Cause.FIRST_COPY)

    def copy_again(self, table: TableId, cause: Cause = Cause.FILLED) -> None:
        """Queue a dump of a table, for what a look at the catalog found.

        One whose copy a person cancelled stays, and so does one that is still to be adopted.
        """
        if self.awaits_adoption(table):
            return
        copy = self._store.copies().get(table)
        if copy is None or not copy.is_cancelled:
            self.request_again(table, cause)

    def refuse(self, table: TableId, reason: str) -> None:
        """Show that a table cannot be captured, as a request that failed."""
        request_id = self._store.submit(Scope.TABLE, table, cause=Cause.FIRST_COPY)
        progress = DumpProgress(request_id, table, state="refused")
        self._store.write([_failure(request_id, reason), lambda w: w.put_progress(progress, 0)])

    def withdraw(self, table: TableId) -> None:
        """Show no more that a table cannot be captured: it is gone."""
        refused = [p for p in self._store.progress() if p.table == table and p.state == "refused"]
        for progress in refused:
            gone = replace(progress, state="gone")
            self._store.write([_placed(gone)])

    def give_up(self, table: TableId, reason: str) -> None:
        """Give up what is under way, rests or waits for a table that is no more what it was."""
        copy = self._store.copies().get(table)
        if copy is not None and copy.progress.state == "failed":
            # Its select may have found no table before the log told why.
            dropped = replace(copy.progress, state="dropped")
            self._store.write([_placed(dropped)])
        # What it lacked it needs no more: it is gone, or is emptied and copied.
        self.close_gap(table)
        begun = [task for one in self._begun.values() for task in one.tasks]
        for task in [task for task in begun if task.progress.table == table]:
            self.fail(task, reason, "dropped")
        self._drop_list(table)
        for request in self._store.requests():
            waits = request.state in OPEN and request.request_id not in self._begun
            if waits and request.table == table:
                # At once: it must not be taken for the dump that the table's next life asks for.
                dropped = DumpProgress(request.request_id, table, state="dropped")
                self._store.write([_failure(request.request_id, reason), _placed(dropped)])
        self._look_again()

    def begin_anew(self, table: TableId) -> None:
        """Read a table from its first row on again in whatever has begun: it is another one by now."""
        for begun in self._begun.values():
            for task in begun.tasks:
                if task.progress.table == table:
                    task.phase, task.schema, task.keys = Phase.START, None, ()
                    self.update(
                        task,
                        state="waiting",
                        until=None,
                        after=None,
                        keys_done=0,
                        first_scn=0,
                        key_order=task.request.key_order,
                    )

    def read_anew(self, task: Task) -> None:
        """Read a table from its first row on again: its key, or the order of that, is another one by now.

        Every dump of the whole table does: the list that they share holds keys of before.
        """
        table = task.progress.table
        _LOG.warning(
            "%s: its key or the key's order was changed during its dump, which begins anew.", table
        )
        anew = self.dumps_of(table) if task.is_whole else [task]
        if task.is_whole and not any(one.repairs for one in anew):
            self.remove_reread(table, sorted(self.rereads[table]))
        for one in anew:
            one.phase, one.schema, one.refused = Phase.START, None, ""
            given = one.request.key_order
            self.update(one, state="waiting", until=None, after=None, first_scn=0, key_order=given)

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

    # -- what headrace itself asks for ------------------------------------------------------------

    def ensure_dumped(self, settled: Collection[TableId] | None = None) -> None:
        """Queue a dump for every table that never had one and waits for none, and for those that come back.

        While a table was left out its changes passed by: what was read of it before is out of date. A table whose
        copy a person cancelled stays without.

        Args:
            settled: the only tables to look at; the others are queued when they have joined. None: all.
        """
        waiting = [r for r in self._store.requests() if r.state in OPEN]
        copies = self._store.copies()
        cancelled = {table for table, copy in copies.items() if copy.is_cancelled}
        begun = {table for table, copy in copies.items() if copy.progress.state != "waiting"}
        returned = self._left_out(begun) - cancelled
        if not any(r.scope is Scope.ALL_TABLES for r in waiting):
            done = {table for table, copy in copies.items() if copy.progress.completed_scn}
            done |= {r.table for r in waiting if r.scope.is_whole and r.table} | self.gaps
            done |= returned | cancelled | {t for t in self._tables if self._adopted(t)}
            fresh = [
                table
                for table in self._tables
                if table not in done and (settled is None or table in settled)
            ]
            if len(fresh) == len(self._tables):
                self._store.submit(Scope.ALL_TABLES, cause=Cause.FIRST_COPY)
            else:
                for table in fresh:
                    self._store.submit(Scope.TABLE, table, cause=Cause.FIRST_COPY)
        for table in sorted(returned if settled is None else ()):
            self._store.submit(Scope.TABLE, table, cause=Cause.LEFT_OUT)
        self._store.write([self._captured()])

    # -- tables whose first copy is made elsewhere -------------------------------------------------

    def awaits_adoption(self, table: TableId) -> bool:
        """Return whether a dump that is made elsewhere is still to fill a table."""
        return self._adopted(table) and table not in self._store.spoken_for()

    def whole_from(self, scn: int, tables: Iterable[TableId]) -> None:
        """Note that the log lacks no change of tables that await adoption above an SCN, in place of what was noted."""
        for table in tables:
            if self.awaits_adoption(table):
                self.pending.append(_whole_from(table, scn))

    def whole_already(self, scn: int, tables: Iterable[TableId]) -> None:
        """Note the same of tables that are captured already."""
        self._store.write([_whole_from(table, scn) for table in tables])

    def not_noted(self, settled: Collection[TableId] | None = None) -> list[TableId]:
        """Return the tables that await adoption of which it was never noted from where on the log has all of them."""
        return [
            table
            for table in self._tables
            if (settled is None or table in settled)
            and self.awaits_adoption(table)
            and self._store.since(table) is None
        ]

    def _captured(self) -> Change:
        """Return the change that keeps which tables are captured."""
        names = json.dumps(sorted(str(table) for table in self._tables))
        return lambda w: w.set("tables", names)

    def _left_out(self, begun: set[TableId]) -> set[TableId]:
        """Return the tables whose dump had begun before they were left out of the last run."""
        names = self._store.get("tables")
        last = self._tables if names is None else [TableId.parse(n) for n in json.loads(names)]
        return {table for table in self._tables if table in begun and table not in last}

    def request_again(self, table: TableId, cause: Cause = Cause.FILLED) -> None:
        """Queue a dump of a table whose stored rows cannot follow from the log alone."""
        queued = any(
            r.state in OPEN
            and r.request_id not in self._begun
            and r.request_id not in self._closed
            and (r.scope, r.table) == (Scope.TABLE, table)
            # Of two that are asked for a person may cancel the one that the table needs; an adoption reads no row.
            and r.cause not in (Cause.ASKED, Cause.ADOPTED)
            for r in self._store.requests()
        )
        if not queued:
            self._store.submit(Scope.TABLE, table, cause=cause)

    def note_schema(self, table: TableId, schema_id: int) -> None:
        """Keep the table's newest version across restarts."""
        if self.last_schemas.get(table) != schema_id:
            self.last_schemas[table] = schema_id
            self.pending.append(lambda w: w.set(f"schema {table}", str(schema_id)))

    # -- whose turn it is -------------------------------------------------------------------------

    def current(self) -> Task | None:
        """Return the task to work on, taking the next request when there is none.

        Call it between two chunks only: it takes up what people did to the requests.
        """
        self._look()
        while task := self._first():
            if not self.has_yet_to_join(task.progress.table):
                return task
            self._put_off(task)
        return None

    def _first(self) -> Task | None:
        while self._active is None or not self._active.tasks:
            if self.pending:
                return None
            turn = next((turn for turn in self._line if self._may_run(turn)), None)
            request = self._store.request(turn.request_id) if turn else None
            if request is None or request.state not in (RequestState.QUEUED, RequestState.ACTIVE):
                return None
            self._take_up(request)
        return self._active.tasks[0]

    def _put_off(self, task: Task) -> None:
        """Let a table wait that was taken up before anybody knew that it has yet to join."""
        if task.request.table is None:
            # It is dumped when it has joined, for that reason.
            self.finish(task)
        else:
            self._rest()
            self._say_waiting(task.request.request_id)

    def _may_run(self, turn: Turn) -> bool:
        """Return whether a request is neither paused nor waits for its table."""
        waits = turn.table is not None and self.has_yet_to_join(turn.table)
        return turn.state is not RequestState.PAUSED and not waits

    @property
    def is_to_look(self) -> bool:
        """Whether it is time to ask what people did."""
        return self._clock() >= self._look_at

    def listen(self) -> None:
        """Ask what people did, when it is time to; `current` takes it up. May be called while a chunk is read."""
        if self.pending or not self.is_to_look:
            # What is not written yet would be found as it was before.
            return
        self._look_at = self._clock() + self._interval_s
        self._heard = self._store.line()
        self._on_heard()

    def _look_again(self) -> None:
        """Ask at the next opportunity: what was heard is out of date."""
        self._look_at, self._heard = 0.0, None

    def _look(self) -> None:
        """Take up what people did; take the work from requests that were paused, cancelled or overtaken."""
        self.listen()
        if self._heard is None:
            return
        self._line, self._heard = self._heard, None
        turns = {turn.request_id: turn for turn in self._line}
        for request_id in [r for r in self._begun if r not in turns]:
            self._drop(self._begun.pop(request_id))
        if self._active is None:
            return
        turn = turns.get(self._active.request.request_id)
        if turn is None or turn.state is RequestState.PAUSED:
            resting = self._active.request.request_id
            self._rest()
            self.pending.append(lambda w: w.set(RESTING, resting))
        elif any(t.priority > turn.priority and self._may_run(t) for t in self._line):
            self._rest()
            self._say_waiting(turn.request_id)
        elif turn.state is RequestState.QUEUED:
            # It was paused and resumed before either was heard.
            self._say_active(turn.request_id)

    def _say_active(self, request_id: str) -> None:
        waiting, runs = [RequestState.QUEUED], RequestState.ACTIVE
        self.pending.append(lambda w: w.request_state(request_id, runs, since=waiting))

    def _say_waiting(self, request_id: str) -> None:
        waiting, ran = RequestState.QUEUED, [RequestState.ACTIVE]
        self.pending.append(lambda w: w.request_state(request_id, waiting, since=ran))

    def _rest(self) -> None:
        """Let the active request go; what it has read stays, and its tables go on being watched."""
        self.forget_time()
        self._active = None

    def forget_time(self) -> None:
        """Measure the rate of what is under way from its next chunk on."""
        for task in self._active.tasks if self._active else ():
            task.since = None

    def _drop(self, begun: _Begun) -> None:
        """Forget a request that a person cancelled."""
        for task in begun.tasks:
            self.update(task, state="cancelled")
            self._drop_list(task.progress.table)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way and nothing waits to be written."""
        return self._active is None and not self.pending

    def dumps_of(self, table: TableId) -> list[Task]:
        """Return the tasks that dump the whole table: under way, waiting in their request, overtaken or paused."""
        return [
            task
            for begun in self._begun.values()
            for task in begun.tasks
            if task.progress.table == table and task.is_whole
        ]

    def _take_up(self, request: DumpRequest) -> None:
        """Begin a request, or go on with it."""
        if unknown := self._unknown(request):
            reason = f"{unknown} is not captured; add it to the configuration."
            self._close(request.request_id, RequestState.FAILED, reason)
            return
        if request.table and (reason := self.refusal(request.table)):
            self._close(request.request_id, RequestState.FAILED, reason)
            return
        begun = self._begun.get(request.request_id)
        if begun is None:
            begun = self._begun[request.request_id] = _Begun(request, self._tasks_of(request, {}))
            for task in begun.tasks:
                self._put(task)
        self._active = begun
        self._say_active(request.request_id)
        if not begun.tasks:
            self._end(begun)

    def _unknown(self, request: DumpRequest) -> TableId | None:
        """Return the table of a request that is not captured."""
        return request.table if request.table and request.table not in self._tables else None

    def _tasks_of(self, request: DumpRequest, known: dict[TableId, DumpProgress]) -> list[Task]:
        """Return what is left to do of a request.

        One for all tables leaves those out that are not there: whoever comes later is dumped for that reason.
        """
        away = () if request.table else set(self.away(self._tables)) - known.keys()
        tables = [request.table] if request.table else [t for t in self._tables if t not in away]
        tasks = []
        for position, table in enumerate(tables):
            fresh = DumpProgress(request.request_id, table, key_order=request.key_order)
            progress = known.get(table, fresh)
            if progress.state != "done":
                tasks.append(Task(request, progress, position, missing=request.missing))
        return tasks

    # -- how it goes ------------------------------------------------------------------------------

    def update(self, task: Task, **changes: object) -> None:
        """Move a task's progress; written with the next batch of pending changes."""
        task.progress = replace(task.progress, **changes)  # type: ignore[arg-type]
        self._put(task)

    def _put(self, task: Task) -> None:
        progress, position = task.progress, task.position
        self.pending.append(lambda w: w.put_progress(progress, position))

    def note_missing(self, task: Task, keys: Sequence[Key]) -> None:
        """Keep requested keys that do not exist at the source."""
        if keys:
            task.missing += tuple(keys)
            request_id, missing = task.request.request_id, task.missing
            self.pending.append(lambda w: w.request_missing(request_id, missing))

    def end_chunks(self, task: Task) -> None:
        """Go on behind the last chunk: a part of a table is done, a whole one needs its re-read list and its end."""
        if task.is_whole:
            task.phase = Phase.REREAD if self.rereads[task.progress.table] else Phase.END
        else:
            self.update(task, state="done")
            self.finish(task)

    def finish(self, task: Task) -> None:
        """Take a finished task off; the request is completed with its last one."""
        begun = self._begun[task.request.request_id]
        begun.tasks.remove(task)
        if not begun.tasks:
            self._end(begun)

    def fail(self, task: Task, reason: str, state: str = "failed") -> None:
        """Give a table up, go on with the others; the request fails at its end with every reason."""
        table = task.progress.table
        if task.repairs and table in self.gaps:
            # The comparison that follows finds these rows too, perhaps by another key.
            self.remove_reread(table, list(self.rereads[table]))
        self._begun[task.request.request_id].reasons.append(reason)
        self.update(task, state=state)
        self.finish(task)
        self._drop_list(table)

    def _end(self, begun: _Begun) -> None:
        del self._begun[begun.request.request_id]
        if self._active is begun:
            self._active = None
        state = RequestState.FAILED if begun.reasons else RequestState.COMPLETED
        self._close(begun.request.request_id, state, " ".join(begun.reasons))

    def _close(self, request_id: str, state: RequestState, reason: str = "") -> None:
        self._closed.add(request_id)
        # Whoever paused or cancelled it during its last chunk came too late to stop it; a cancelled one stays so.
        self.pending.append(lambda w: w.request_state(request_id, state, since=OPEN, reason=reason))
        self._look_again()

    def close_gap(self, table: TableId) -> None:
        """Take note that a table lacks nothing any more."""
        if table in self.gaps:
            self.gaps.remove(table)
            self.pending.append(lambda w: w.set_gap(table, open_=False))

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

    def _drop_list(self, table: TableId) -> None:
        """Forget a re-read list by which no dump goes any more: the next one reads the table from its first row.

        That of a table with a gap is for the repair.
        """
        if table not in self.gaps and not self.dumps_of(table):
            self.remove_reread(table, sorted(self.rereads.get(table, ())))

    def take_pending(self) -> list[Change]:
        """Return the changes to write now."""
        changes, self.pending = self.pending, []
        return changes


def _failure(request_id: str, reason: str) -> Change:
    return lambda w: w.request_state(request_id, RequestState.FAILED, since=OPEN, reason=reason)


def _whole_from(table: TableId, scn: int) -> Change:
    return lambda w: w.set_since(table, scn)


def _placed(progress: DumpProgress) -> Change:
    return lambda w: w.put_progress(progress, 0)

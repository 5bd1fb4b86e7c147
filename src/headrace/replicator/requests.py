"""Dump requests of a replicator, and its pace: ask, look, steer. The command line does nothing else.

Everything is durable in the state database. A running replicator takes it up within a second, one that does not run
when it starts::

    with Requests(config) as requests:
        asked = requests.start("public.orders", where="placed_at > '2026-01-01'")
        requests.pause(asked)
        requests.resume(asked)
        print(requests.show(asked).seconds_left)
        requests.set_pace(load=0.5)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from headrace.errors import ConfigError, RequestEnded, StateError
from headrace.model.schema import TableId
from headrace.registry.file import FileRegistry
from headrace.replicator.config import Config, DatabaseConfig
from headrace.replicator.keys import parse_keys
from headrace.replicator.paths import StatePaths
from headrace.replicator.roles import is_run, read_role, reads, unheard
from headrace.state.pace import Pace
from headrace.state.records import (
    OPEN,
    RESTING,
    DumpProgress,
    DumpRequest,
    RequestState,
    Scope,
)
from headrace.state.store import StateStore

__all__ = ["ALL", "LOG_PAUSED", "PRIORITIES", "Requests", "Shown", "scope_of", "wait_for"]

ALL = "all"
"""Said in place of a table's name: every captured table."""

LOG_PAUSED = "log delivery is paused, and dumps wait with it"

PRIORITIES = range(-100, 101)

_POLL_S = 0.2
_HEARD_POLL_S = 0.02
_HEARD_WITHIN_S = 10.0


@dataclass(frozen=True, slots=True)
class Shown:
    """A request with how far it is, table by table in the order of work."""

    request: DumpRequest
    progress: tuple[DumpProgress, ...]

    @property
    def rows_read(self) -> int:
        """Rows read so far."""
        return sum(entry.rows_read for entry in self.progress)

    @property
    def rows_estimated(self) -> int:
        """Rows that the catalog promised for the tables begun, 0 when it knows none of them."""
        return sum(max(p.rows_estimated, p.rows_read) for p in self.progress if p.rows_estimated)

    @property
    def rows_per_s(self) -> float:
        """Rows read per second of late, 0 while nothing is read."""
        return next((p.rows_per_s for p in self.progress if p.state == "copying"), 0.0)

    @property
    def seconds_left(self) -> float | None:
        """Estimated time to the end of the table that is being read; None when nobody can know."""
        return next((p.seconds_left for p in self.progress if p.state == "copying"), None)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for programs."""
        request = self.request
        return {
            "request": request.request_id,
            "scope": request.scope.value,
            "table": str(request.table) if request.table else None,
            "where": request.predicate or None,
            "state": request.state.value,
            "priority": request.priority,
            "pace": request.pace.settings,
            "cause": request.cause.value,
            "reason": request.reason or None,
            "created_s": request.created_s,
            "keys": len(request.keys),
            "delete_missing": request.delete_missing,
            "missing": [list(key) for key in request.missing],
            "rows_read": self.rows_read,
            "rows_estimated": self.rows_estimated,
            "rows_per_s": self.rows_per_s,
            "seconds_left": self.seconds_left,
            "tables": [
                {
                    "table": str(entry.table),
                    "state": entry.state,
                    "chunks": entry.chunks,
                    "rows_read": entry.rows_read,
                    "rows_emitted": entry.rows_emitted,
                    "rows_voided": entry.rows_voided,
                    "rows_estimated": entry.rows_estimated,
                    "rows_per_s": entry.rows_per_s,
                    "seconds_left": entry.seconds_left,
                }
                for entry in self.progress
            ],
        }


class Requests:
    """The dump requests of one replicator; use it in a ``with`` block.

    Requests are named by their id or by the beginning of it.

    Raises:
        ConfigError: the replicator reads from a relay.
    """

    def __init__(self, config: Config) -> None:
        if not isinstance(config.source, DatabaseConfig):
            raise ConfigError(
                f"{config.name} reads its changes from a relay, which takes no requests from here.",
                next_step="ask where the source's capture runs, or the relay: POST /admin/dump.",
            )
        self._paths = StatePaths.of(config)
        self._name = config.name
        self._registry = FileRegistry(self._paths.registry)
        self._store = StateStore(self._paths.database)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._store.close()

    # -- ask --------------------------------------------------------------------------------------

    def start(
        self,
        table: str,
        *,
        keys: Sequence[str] = (),
        where: str = "",
        delete_missing: bool = False,
        priority: int = 0,
    ) -> str:
        """Queue a request and return its id.

        Args:
            table: ``schema.table``, or `ALL`.
            keys: only these rows; as in `headrace.replicator.keys`.
            where: only rows for which this condition holds, in the source's SQL.
            delete_missing: delete from the target those of the keys that the source does not hold.
            priority: the highest goes first, and overtakes what is under way.

        Raises:
            ConfigError: the arguments do not fit together; nothing was asked for.
        """
        _check_priority(priority)
        scope = scope_of(table, keys=keys, where=where, delete_missing=delete_missing)
        chosen = None if table == ALL else self._captured(table)
        parsed = parse_keys(keys, self._key_of(chosen)) if chosen and keys else []
        try:
            return self._store.submit(
                scope,
                chosen,
                parsed,
                predicate=where,
                delete_missing=delete_missing,
                priority=priority,
            )
        except ValueError as error:
            raise ConfigError(
                f"dump: {error}.", next_step="write it in letters; nothing was asked for."
            ) from error

    def _captured(self, name: str) -> TableId:
        if "." not in name:
            raise ConfigError(
                f"dump: {name} is no name of a table.", next_step="write schema.table, or all."
            )
        table = TableId.parse(name)
        captured = self._store.captured()
        if captured and table not in captured:
            raise ConfigError(
                f"dump: {table} is not a table of replicator {self._name}.",
                next_step=f"choose one of {', '.join(sorted(str(one) for one in captured))}.",
            )
        return table

    def _key_of(self, table: TableId) -> tuple[str, ...] | None:
        """Return the key's columns of the newest version that we know, None before the first."""
        schema_id = int(self._store.get(f"schema {table}") or 0)
        return self._registry.get(schema_id).key if schema_id else None

    # -- look -------------------------------------------------------------------------------------

    def all(self, *, ended: bool = True) -> list[Shown]:
        """Return the requests in order of submission, with or without those that have ended."""
        progress, is_read = self._store.progress(), self._is_read()
        return [
            _shown(r, [p for p in progress if p.request_id == r.request_id], is_read)
            for r in self._store.requests()
            if ended or r.state in OPEN
        ]

    def show(self, request: str) -> Shown:
        """Return one request.

        Raises:
            ConfigError: no request, or more than one, is called so.
        """
        found = self._find(request)
        return _shown(found, self._store.progress(found.request_id), self._is_read())

    def _is_read(self) -> bool:
        return reads(read_role(self._paths, "capture"), self._store.pace())

    def _find(self, name: str) -> DumpRequest:
        found = [r for r in self._store.requests() if name and r.request_id.startswith(name)]
        if len(found) != 1:
            raise ConfigError(
                f"dump: {len(found) or 'no'} requests of {self._name} begin with {name or 'nothing'}.",
                next_step="see their names: headrace dump list FILE.",
            )
        return found[0]

    def incomplete(self) -> list[TableId]:
        """Return the tables whose copy was cancelled, and which stay incomplete until another is asked for."""
        return [table for table, copy in self._store.copies().items() if copy.is_cancelled]

    def held_up(self) -> str:
        """Return why nobody carries requests out at present, and what to do; empty where somebody does."""
        if not is_run(self._paths):
            return "nobody runs the replicator, so no request is carried out: headrace run FILE"
        if self._store.pace().log_paused:
            return f"{LOG_PAUSED}: headrace log resume FILE"
        why = unheard(read_role(self._paths, "capture"), time.time_ns() // 1000)
        return f"{why}: headrace status FILE" if why else ""

    def wait(
        self,
        request: str,
        timeout_s: float = 24 * 3600.0,
        *,
        look: Callable[[], None] = lambda: None,
    ) -> Shown:
        """Return the request once it is completed.

        Args:
            request: its name, or the beginning of it.
            timeout_s: longest wait.
            look: called again and again while it is waited for.

        Raises:
            StateError: it failed, was cancelled, or did not end in time.
        """
        return wait_for(self.show, request, look, timeout_s)

    # -- steer ------------------------------------------------------------------------------------

    def pause(self, request: str, *, within_s: float = _HEARD_WITHIN_S) -> DumpRequest:
        """Let a request rest after its present chunk; what it has read stays.

        Returns when the capture has heard it and reads nothing of it any more.

        Args:
            request: its name, or the beginning of it.
            within_s: longest wait for that. A capture that does not run hears nothing, and reads nothing either.

        Raises:
            RequestEnded: it has ended.
        """
        found = self._find(request)
        reads = found.state is RequestState.ACTIVE
        if reads:
            self._store.write([lambda w: w.set(RESTING, "")])
        paused = self._move(
            found.request_id, RequestState.PAUSED, (RequestState.QUEUED, RequestState.ACTIVE)
        )
        deadline = time.monotonic() + within_s
        while reads and self._store.get(RESTING) != found.request_id:
            if time.monotonic() > deadline or not is_run(self._paths):
                break
            time.sleep(_HEARD_POLL_S)
        return paused

    def resume(self, request: str) -> DumpRequest:
        """Let a paused request go on with its next chunk when its turn comes.

        Raises:
            RequestEnded: it has ended.
        """
        return self._move(request, RequestState.QUEUED, (RequestState.PAUSED,))

    def cancel(self, request: str) -> DumpRequest:
        """Give a request up after its present chunk.

        A table that is complete stays complete; one whose first copy it was stays incomplete: see `incomplete`.

        Raises:
            RequestEnded: it has ended otherwise.
        """
        return self._move(request, RequestState.CANCELLED, OPEN)

    def steer(self, request: str, *, priority: int | None = None, **pace: Any) -> DumpRequest:
        """Change the priority of a request, or settings of `headrace.state.pace.OwnPace` that it has of its own.

        Args:
            request: its name, or the beginning of it.
            priority: the new one: the highest goes first, and overtakes what is under way; None leaves it.
            pace: settings to change; None gives one back to the replicator's pace.

        Raises:
            RequestEnded: it has ended.
            ConfigError: a value is out of bounds; nothing was changed.
        """
        if priority is not None:
            _check_priority(priority)
        found = self._find(request)
        try:
            if not self._store.steer(found.request_id, priority=priority, pace=pace):
                raise _ended(found)
        except ValueError as error:
            raise ConfigError(f"pace: {error}.", next_step="choose another value.") from error
        return self._find(found.request_id)

    def _move(
        self, request: str, state: RequestState, since: Sequence[RequestState]
    ) -> DumpRequest:
        request_id = self._find(request).request_id
        moved = self._store.move(request_id, state, since=since)
        found = self._find(request_id)
        # Asked for twice, or resumed while it runs: it is as it was asked to be.
        as_asked = found.state is state or (
            state is RequestState.QUEUED and found.state is RequestState.ACTIVE
        )
        if not moved and not as_asked:
            raise _ended(found)
        return found

    # -- the pace ---------------------------------------------------------------------------------

    def pace(self) -> Pace:
        """Return what was set while running; the configuration holds for everything else."""
        return self._store.pace()

    def set_pace(self, **settings: float | bool | None) -> Pace:
        """Change settings of `headrace.state.pace.Pace`; None gives one back to the configuration.

        Raises:
            ConfigError: a value is out of bounds; nothing was changed.
        """
        try:
            return self._store.set_pace(**settings)
        except ValueError as error:
            raise ConfigError(f"pace: {error}.", next_step="choose another value.") from error


def _shown(request: DumpRequest, progress: Iterable[DumpProgress], is_read: bool) -> Shown:
    """Return a request; a rate of before its rest, or of a capture that is gone, is none of now."""
    if not (is_read and request.state is RequestState.ACTIVE):
        progress = (replace(p, rows_per_s=0.0) if p.state == "copying" else p for p in progress)
    return Shown(request, tuple(progress))


def scope_of(
    table: str, *, keys: Sequence[str] = (), where: str = "", delete_missing: bool = False
) -> Scope:
    """Return what kind of request `Requests.start` makes of its arguments.

    Raises:
        ConfigError: they do not fit together.
    """
    if table == ALL and (keys or where):
        raise ConfigError(
            "dump: keys and conditions belong to one table, and all were asked for.",
            next_step="name the table: --table schema.table.",
        )
    if keys and where:
        raise ConfigError(
            "dump: either keys or a condition choose the rows.", next_step="ask twice."
        )
    if delete_missing and not keys:
        raise ConfigError(
            "dump: only rows that are named by their keys can be found missing.",
            next_step="name them: --keys KEY; headrace verify FILE tells which tables differ.",
        )
    if keys or where:
        return Scope.PRIMARY_KEYS if keys else Scope.PREDICATE
    return Scope.ALL_TABLES if table == ALL else Scope.TABLE


def wait_for(
    show: Callable[[str], Shown],
    request: str,
    look: Callable[[], None],
    timeout_s: float = 24 * 3600.0,
) -> Shown:
    """Return a request once it is completed.

    Args:
        show: gives it by its name.
        request: its name.
        look: called again and again while it is waited for.
        timeout_s: longest wait.

    Raises:
        StateError: it failed, was cancelled, or did not end in time.
    """
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        shown = show(request)
        found = shown.request
        if found.state is RequestState.COMPLETED:
            return shown
        if found.state is RequestState.FAILED:
            raise StateError(
                f"request {found.request_id}: {found.reason}",
                next_step="correct the cause, then ask again.",
            )
        if found.state is RequestState.CANCELLED:
            raise StateError(
                f"request {found.request_id} was cancelled.",
                next_step="ask again when its rows are wanted: headrace dump start FILE …",
            )
        look()
        time.sleep(_POLL_S)
    raise StateError(
        f"request {request}: not finished after {timeout_s:.0f} s.",
        next_step="see whether the replicator runs: headrace status FILE.",
    )


def _check_priority(priority: int) -> None:
    if priority not in PRIORITIES:
        raise ConfigError(
            f"dump: priority {priority} is out of bounds.",
            next_step=f"choose one from {PRIORITIES[0]} to {PRIORITIES[-1]}; 0 is usual.",
        )


def _ended(request: DumpRequest) -> RequestEnded:
    return RequestEnded(
        f"request {request.request_id} is {request.state.value}: it has ended.",
        next_step="ask again: headrace dump start FILE …",
    )

"""How a replicator stands right now, put together from what its parts left on disk.

In: the state folder and the lake, which other processes write. Out: values for ``headrace status``, the live
display and the end of ``run --once``. Reading never disturbs a writer, and a part that has written
nothing yet is a part that waits.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import ChangeLogError, Retry, ScnNotFound, SlotLost, SourceReplaced, StateError
from headrace.lake import FrontierStore, Manifest, TableEntry
from headrace.lake.counts import NO_COUNTS, OnTime, TableCounts
from headrace.lake.settings import settings_for
from headrace.model.block import ORIGIN_LOG
from headrace.observe.status import ProcessStatus
from headrace.registry.file import FileRegistry
from headrace.relay.follow import FELL_OFF, REFUSED
from headrace.replicator import resync
from headrace.replicator.asked import table_settings
from headrace.replicator.config import Config
from headrace.replicator.drops import Drop, noted
from headrace.replicator.minutes import ends_of
from headrace.replicator.objective import Attainment, attained
from headrace.replicator.paths import StatePaths
from headrace.replicator.roles import held_up, read_role, reads, unheard
from headrace.state.copies import Copy
from headrace.state.incarnation import Incarnation
from headrace.state.minutes import ALL, MINUTE_S, MinuteStore
from headrace.state.pace import Pace
from headrace.state.store import DumpProgress, DumpRequest, StateStore

__all__ = ["Observer", "Picture", "TablePicture"]

ROLES = ("capture", "apply", "relay")

_FORSAKEN = (
    "it is captured no more: the source has it no longer, or the configuration leaves it out."
)
_RESYNC_NEEDED = (SlotLost.__name__, SourceReplaced.__name__)


@dataclass(frozen=True, slots=True)
class TablePicture:
    """One table.

    Attributes:
        name: ``schema.table``.
        phase: ``waiting``, ``copying``, ``paused``, ``incomplete`` (its copy was cancelled), ``live``, ``failing``, or
            ``left``: dropped or renamed at the source, or captured no more.
        rows_read: rows that the running or last dump has read.
        rows_estimated: rows the catalog promised, 0 when it does not know.
        lag_changes: change rows in the log that the target does not show yet.
        applied_scn: position of the target table, 0 before the first commit.
        error: why the table is failing or incomplete, why it left, or what it waits for if that is a person; empty
            otherwise.
        rows_per_s: rows read per second of late, 0 when nothing is read.
        seconds_left: estimated time to the end of the copy, None when nobody can know.
        lag_s: age of the oldest change in the log that the target does not show, to the change log's block; 0 when
            there is none, None before its first frontier.
        counts: what of its history the target has.
    """

    name: str
    phase: str
    rows_read: int
    rows_estimated: int
    lag_changes: int
    applied_scn: int
    error: str = ""
    rows_per_s: float = 0.0
    seconds_left: float | None = None
    lag_s: float | None = None
    counts: TableCounts = NO_COUNTS

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``status --json``."""
        plain = {f.name: getattr(self, f.name) for f in fields(self)}
        return {**plain, "counts": self.counts.to_json()}


@dataclass(frozen=True, slots=True)
class Picture:
    """The whole replicator.

    Attributes:
        tables: in a stable order.
        captured_scn: last complete transaction of the change log, 0 when it is empty.
        covered_scn: the source has nothing up to here that the change log lacks.
        frontier_scn: the tables show the source as of this position, 0 before the first.
        lag_changes: change rows between the two.
        lag_s: age of the oldest transaction that is not in the tables, 0 when there is none, None
            before the first frontier.
        log_bytes: what the change log takes on disk.
        log_budget_bytes: what it may take before capture waits for the tables.
        roles: state and error of each process, by name.
        log_paused: whether people stopped log delivery.
        log_rows_per_s: most change rows delivered per second, 0 for no limit.
        resync: ``needed``, ``ordered`` or ``repairing``, with the reason; empty when the tables only follow the log.
        frontier_changes: changes that the tables show, counted since the log's first.
        frontier: the newest one itself, None before the first.
        objective: how far it is met, None where none is set, or its minutes cannot be read.
        restarts: of each process in this run.
        drops: tables whose operations have fallen, None where nobody watches or can.
        unheard: why the change log, and so the lag, may lack what the source did since; empty while capture follows it.
        held_up: what apply has been waiting for, or busy with, for long; empty while nothing is amiss.
    """

    tables: tuple[TablePicture, ...]
    captured_scn: int
    covered_scn: int
    frontier_scn: int
    lag_changes: int
    lag_s: float | None
    log_bytes: int
    log_budget_bytes: int
    roles: Mapping[str, ProcessStatus]
    log_paused: bool = False
    log_rows_per_s: float = 0.0
    resync: Mapping[str, Any] = field(default_factory=dict)
    frontier_changes: int = 0
    frontier: Manifest | None = None
    objective: Attainment | None = None
    restarts: Mapping[str, int] = field(default_factory=dict)
    drops: tuple[Drop, ...] | None = None
    unheard: str = ""
    held_up: str = ""

    @property
    def slot(self) -> Mapping[str, Any]:
        """What the source keeps for us, as capture last measured it; empty before the first time."""
        capture = self.roles.get("capture")
        slot: Mapping[str, Any] = capture.detail.get("slot", {}) if capture else {}
        return slot

    @property
    def slow_queries(self) -> tuple[int, str, float]:
        """How many queries were slow at the source since capture started, what the slowest was, and its seconds."""
        capture = self.roles.get("capture")
        detail = capture.detail if capture else {}
        count = sum(detail.get("slow_queries", {}).values())
        return count, str(detail.get("slowest_query", "")), float(detail.get("slowest_query_s", 0))

    @property
    def refused(self) -> str:
        """Why relays that are read in place of a database give nothing more until a person sees to it; empty else."""
        capture = self.roles.get("capture")
        detail = capture.detail if capture else {}
        return str(detail["detail"]) if detail.get("state") in (FELL_OFF, REFUSED) else ""

    @property
    def for_people(self) -> Mapping[str, str]:
        """What a person does for each table that fails and that trying again has not mended."""
        errors = _said_of_tables(self.roles.get("apply"))
        return {
            name: error["next_step"]
            for name, error in errors.items()
            if error.get("retry") == Retry.MANUAL.value
        }

    def shows(self, scn: int) -> bool:
        """Whether the tables hold everything up to a position.

        An idle database gives the log nothing to apply above its last transaction, so a log that
        covers the position and has nothing left to apply counts as well.
        """
        return self.frontier_scn >= scn or (self.covered_scn >= scn and not self.lag_changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``status --json``."""
        return {
            "tables": [table.to_json() for table in self.tables],
            "captured_scn": self.captured_scn,
            "covered_scn": self.covered_scn,
            "frontier_scn": self.frontier_scn,
            "frontier_changes": self.frontier_changes,
            "lag_changes": self.lag_changes,
            "lag_s": self.lag_s,
            "unheard": self.unheard,
            "held_up": self.held_up,
            "log_bytes": self.log_bytes,
            "log_budget_bytes": self.log_budget_bytes,
            "log_paused": self.log_paused,
            "log_rows_per_s": self.log_rows_per_s,
            "slot": dict(self.slot),
            "resync": dict(self.resync),
            "objective": self.objective.to_json() if self.objective else None,
            "drops": None if self.drops is None else [drop.to_json() for drop in self.drops],
            "restarts": dict(self.restarts),
            "roles": {
                name: {
                    "state": role.state.value,
                    "pid": role.pid,
                    "updated_us": role.updated_us,
                    "error": role.error,
                    "detail": role.detail,
                }
                for name, role in self.roles.items()
            },
        }


@dataclass(frozen=True, slots=True)
class _Backlog:
    """What the log holds above the frontier.

    Attributes:
        per_table: rows above each table's own position.
        oldest_of: commit time of the oldest of them.
        commit_us: of the source's transactions, in order of time.
    """

    captured_scn: int = 0
    covered_scn: int = 0
    changes: int = 0
    oldest_us: int | None = None
    per_table: Mapping[str, int] = field(default_factory=dict)
    oldest_of: Mapping[str, int] = field(default_factory=dict)
    commit_us: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


class Observer:
    """Takes pictures; keeps its readers open between them."""

    def __init__(self, config: Config) -> None:
        self._paths = StatePaths.of(config)
        self._budget_bytes = config.changelog.budget
        self._settings = table_settings(config)
        self._frontiers = FrontierStore(config.lake, config.name)
        self._registry = FileRegistry(self._paths.registry)
        self._log = ChangeLogReader(self._paths.changelog)
        self._counted = _Backlog()
        self._counted_from = -1
        self._count_at = 0.0
        self._state: StateStore | None = None
        wanted = config.objective
        self._wanted = (wanted.share, wanted.within_s, wanted.over_s) if wanted else None
        self._ends: list[tuple[int, OnTime]] = []
        self._ends_read = 0
        self._watches_drops = config.activity.drop is not None

    def frontier(self) -> Manifest | None:
        """Return the newest frontier."""
        return self._frontiers.latest()

    def progress(self) -> dict[str, DumpProgress]:
        """Return the dump that says how each table's copy stands."""
        return {name: copy.progress for name, copy in self._copies().items()}

    def _copies(self) -> dict[str, Copy]:
        state = self._opened()
        return {str(table): copy for table, copy in state.copies().items()} if state else {}

    def requests(self) -> list[DumpRequest]:
        """Return every dump request, oldest first."""
        state = self._opened()
        return state.requests() if state else []

    def read_scn(self) -> int:
        """Return the position of the rows that a dump or a repair brought last, 0 before the first."""
        state = self._opened()
        return state.read_scn() if state else 0

    def _opened(self) -> StateStore | None:
        """Return the state database, None before there is one."""
        if self._state is None and self._paths.database.exists():
            self._state = StateStore(self._paths.database)
        return self._state

    def look(self) -> Picture:
        """Return the picture of this moment."""
        manifest = self.frontier()
        roles = {name: read_role(self._paths, name) for name in ROLES}
        backlog = self._backlog(manifest)
        state = self._opened()
        pace = state.pace() if state else Pace()
        lag_s = None
        if manifest is not None:
            oldest = backlog.oldest_us
            lag_s = _age_s(oldest)
        now_us = time.time_ns() // 1000
        return Picture(
            self._tables(
                manifest, backlog, _table_errors(roles["apply"]), reads(roles["capture"], pace)
            ),
            backlog.captured_scn,
            backlog.covered_scn,
            manifest.scn if manifest else 0,
            backlog.changes,
            lag_s,
            self._log.used_bytes(),
            self._budget_bytes,
            {name: role for name, role in roles.items() if role is not None},
            pace.log_paused,
            pace.log_rows_per_s,
            self._resync(roles["capture"]),
            manifest.changes if manifest else 0,
            manifest,
            self._objective(manifest, backlog),
            _restarts(self._paths),
            self._fallen(),
            unheard(roles["capture"], now_us),
            held_up(roles["apply"], now_us),
        )

    def _objective(self, manifest: Manifest | None, backlog: _Backlog) -> Attainment | None:
        """Return how far the objective is met, None where that is not known."""
        if self._wanted is None:
            return None
        now_s = time.time()
        try:
            self._read_ends(int(now_s))
        except StateError:
            # Without the minutes nobody knows; the run says in its log that they are not kept.
            return None
        due_us = int((now_s - self._wanted[1]) * 1e6)
        overdue = int(np.searchsorted(backlog.commit_us, due_us))
        newest = manifest.totals.on_time if manifest else None
        return attained(self._wanted, now_s, newest, self._ends, overdue)

    def _fallen(self) -> tuple[Drop, ...] | None:
        """Return what the run has noted of tables whose operations fell."""
        if not self._watches_drops:
            return None
        if not self._paths.activity.exists():
            return ()
        try:
            with contextlib.closing(MinuteStore(self._paths.activity)) as store:
                return tuple(noted(store).values())
        except StateError:
            # As of the objective.
            return None

    def _read_ends(self, now_s: int) -> None:
        """Read the minutes of the window, once a minute."""
        if self._wanted is None or self._ends_read == now_s // MINUTE_S:
            return
        if self._paths.activity.exists():
            from_minute = (now_s - self._wanted[2]) // MINUTE_S
            with contextlib.closing(MinuteStore(self._paths.activity)) as store:
                self._ends = ends_of(store.read(from_minute, ALL))
        self._ends_read = now_s // MINUTE_S

    def offset(self) -> int:
        """Return what is added to the source's own numbers to make SCNs of them."""
        state = self._opened()
        life = Incarnation.read(state) if state else None
        return life.offset if life else 0

    def _resync(self, capture: ProcessStatus | None) -> Mapping[str, Any]:
        state = self._opened()
        under_way = resync.read(state) if state else None
        if under_way is not None:
            return under_way.to_json()
        error = capture.error if capture else None
        if error and error["name"] in _RESYNC_NEEDED:
            return {"state": "needed", "reason": error["message"], "next_step": error["next_step"]}
        return {}

    def close(self) -> None:
        """Release the readers."""
        if self._state is not None:
            self._state.close()

    def _tables(
        self,
        manifest: Manifest | None,
        backlog: _Backlog,
        errors: Mapping[str, str],
        is_read: bool,
    ) -> tuple[TablePicture, ...]:
        copies = self._copies()
        entries = manifest.tables if manifest else {}
        shown = {n for n, copy in copies.items() if copy.progress.state not in ("gone", "dropped")}
        awaited, forsaken = self._awaiting_adoption(), self._forsaken(copies, entries)
        pictures = []
        for name in sorted({*shown, *entries, *awaited} - (forsaken - entries.keys())):
            copy, entry = copies.get(name), entries.get(name)
            dump = copy.progress if copy else None
            phase, error = _phase(entry, copy), ""
            if name in forsaken and phase not in ("failing", "left"):
                phase, errors = "left", {**errors, name: _FORSAKEN}
            goes_on = is_read and phase == "copying"
            if copy is not None and _is_refused(copy):
                error = copy.request.reason
            elif phase in ("failing", "left"):
                error = errors.get(name, "")
            elif phase == "waiting" and name in awaited:
                error = (
                    f"it is filled elsewhere; headrace adopt FILE --table {name} takes the dump in."
                )
            elif phase == "incomplete":
                error = f"its copy was cancelled; headrace dump start FILE --table {name} begins another."
            pictures.append(
                TablePicture(
                    name,
                    phase,
                    dump.rows_read if dump else 0,
                    dump.rows_estimated if dump else 0,
                    backlog.per_table.get(name, 0),
                    entry.applied_scn if entry else 0,
                    error,
                    dump.rows_per_s if dump and goes_on else 0.0,
                    dump.seconds_left if dump and goes_on else None,
                    _age_s(backlog.oldest_of.get(name)) if entry else None,
                    entry.counts if entry else NO_COUNTS,
                )
            )
        return tuple(pictures)

    def _forsaken(self, copies: Mapping[str, Copy], entries: Mapping[str, TableEntry]) -> set[str]:
        """Return the tables that were captured once, and were not when capture last began."""
        state = self._opened()
        captured = {str(table) for table in state.captured()} if state else set()
        # Where a relay is read, and before the first start, nobody has said which ones are.
        if not captured:
            return set()
        refused = {name for name, copy in copies.items() if _is_refused(copy)}
        return {*copies, *entries} - captured - refused

    def _awaiting_adoption(self) -> set[str]:
        """Return the captured tables that a dump made elsewhere is still to fill."""
        state = self._opened()
        captured = state.captured() if state else []
        wanted = {t for t in captured if settings_for(t, self._settings).adopted}
        return {str(t) for t in wanted - state.spoken_for()} if state and wanted else set()

    def _backlog(self, manifest: Manifest | None) -> _Backlog:
        """Return what the log holds above the frontier, counted anew at most a twentieth of the time.

        A large backlog takes long to count, and whoever watches it must not take the cores from those who work it off.
        """
        begun = time.monotonic()
        frontier_scn = manifest.scn if manifest else 0
        if begun >= self._count_at or frontier_scn != self._counted_from:
            self._counted = self._count(frontier_scn, manifest.tables if manifest else {})
            self._counted_from = frontier_scn
            self._count_at = time.monotonic() + 20 * (time.monotonic() - begun)
        return self._counted

    def _count(self, frontier_scn: int, entries: Mapping[str, TableEntry]) -> _Backlog:
        try:
            tail = self._log.tail()
            # A table that was left behind lacks more than the frontier does.
            behind = [e.applied_scn for e in entries.values() if e.state == "failing"]
            after = max(min([frontier_scn, *behind]), tail.oldest_scn)
            refs = list(self._log.refs(after, tail.complete_scn))
            index = self._log.index(after, tail.complete_scn)
        except (ChangeLogError, FileNotFoundError, ScnNotFound):
            # No log yet, or its retention moved on between two calls: the next look sees more.
            return _Backlog()
        per_table: Counter[str] = Counter()
        oldest: dict[str, int] = {}
        for ref in refs:
            for schema_id, rows in ref.tables:
                name = str(self._registry.get(schema_id).table) if schema_id else ""
                entry = entries.get(name)
                shown = entry.applied_scn if entry and entry.state == "failing" else frontier_scn
                if name and ref.last_scn > shown:
                    per_table[name] += rows
                    oldest.setdefault(name, max(ref.first_scn, shown + 1))
        # A block may end with a transaction that is not whole yet: it is as old as the last that is.
        at = np.searchsorted(index["scn"], list(oldest.values())).clip(max=max(len(index) - 1, 0))
        times = index["commit_us"][at].tolist() if len(index) else []
        lacked = index[index["scn"] > frontier_scn]
        return _Backlog(
            tail.complete_scn,
            tail.covered_scn,
            int(lacked["changes"].sum()),
            int(lacked["commit_us"].min()) if len(lacked) else None,
            per_table,
            dict(zip(oldest, times, strict=False)),
            np.sort(lacked["commit_us"][lacked["origin"] == ORIGIN_LOG]),
        )


def _age_s(commit_us: int | None) -> float:
    return 0.0 if commit_us is None else max(0.0, time.time() - commit_us / 1e6)


def _restarts(paths: StatePaths) -> Mapping[str, int]:
    run = ProcessStatus.read(paths.status("run"))
    restarts: Mapping[str, int] = run.detail.get("restarts", {}) if run else {}
    return restarts


def _phase(entry: TableEntry | None, copy: Copy | None) -> str:
    """Return the phase of a table from what the target says of it, and what became of its copy."""
    phase: str = entry.state if entry else "copying"
    if copy is not None and _is_refused(copy):
        return "failing"
    if copy is not None and copy.is_cancelled and phase not in ("failing", "left"):
        return "incomplete"
    if phase != "copying":
        return phase
    if copy is not None and copy.is_paused:
        return "paused"
    return "copying" if copy is not None and copy.progress.rows_read else "waiting"


def _is_refused(copy: Copy) -> bool:
    """Return whether a table cannot be captured; its request holds the reason."""
    return copy.progress.state == "refused"


def _table_errors(apply: ProcessStatus | None) -> dict[str, str]:
    """Return what the apply job says about the tables it left behind."""
    return {
        name: f"{error['name']}: {error['message']}"
        for name, error in _said_of_tables(apply).items()
    }


def _said_of_tables(apply: ProcessStatus | None) -> dict[str, dict[str, str]]:
    tables = apply.detail.get("tables", {}) if apply else {}
    return {name: table["error"] for name, table in tables.items() if table.get("error")}

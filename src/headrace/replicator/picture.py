"""How a replicator stands right now, put together from what its parts left on disk.

In: the state folder and the lake, which other processes write. Out: values for ``headrace status``, the live
display and the end of ``run --once``. Reading never disturbs a writer, and a part that has written
nothing yet is a part that waits.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import ChangeLogError, ScnNotFound, SlotLost, SourceReplaced
from headrace.lake import FrontierStore, Manifest, TableEntry
from headrace.lake.settings import settings_for
from headrace.observe.status import ProcessStatus
from headrace.registry.file import FileRegistry
from headrace.relay.follow import FELL_OFF, REFUSED
from headrace.replicator import resync
from headrace.replicator.asked import table_settings
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.state.copies import Copy
from headrace.state.incarnation import Incarnation
from headrace.state.pace import Pace
from headrace.state.store import DumpProgress, DumpRequest, StateStore

__all__ = ["Observer", "Picture", "TablePicture"]

ROLES = ("capture", "apply", "relay")

_RESYNC_NEEDED = (SlotLost.__name__, SourceReplaced.__name__)


@dataclass(frozen=True, slots=True)
class TablePicture:
    """One table.

    Attributes:
        name: ``schema.table``.
        phase: ``waiting``, ``copying``, ``paused``, ``incomplete`` (its copy was cancelled), ``live``, ``failing``, or
            ``left``: dropped or renamed at the source.
        rows_read: rows that the running or last dump has read.
        rows_estimated: rows the catalog promised, 0 when it does not know.
        lag_changes: change rows in the log that the target does not show yet.
        applied_scn: position of the target table, 0 before the first commit.
        error: why the table is failing or incomplete, why it left, or what it waits for if that is a person; empty
            otherwise.
        rows_per_s: rows read per second of late, 0 when nothing is read.
        seconds_left: estimated time to the end of the copy, None when nobody can know.
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

    def shows(self, scn: int) -> bool:
        """Whether the tables hold everything up to a position.

        An idle database gives the log nothing to apply above its last transaction, so a log that
        covers the position and has nothing left to apply counts as well.
        """
        return self.frontier_scn >= scn or (self.covered_scn >= scn and not self.lag_changes)

    def to_json(self) -> dict[str, Any]:
        """Return plain values for ``status --json``."""
        return {
            "tables": [asdict(table) for table in self.tables],
            "captured_scn": self.captured_scn,
            "covered_scn": self.covered_scn,
            "frontier_scn": self.frontier_scn,
            "frontier_changes": self.frontier_changes,
            "lag_changes": self.lag_changes,
            "lag_s": self.lag_s,
            "log_bytes": self.log_bytes,
            "log_budget_bytes": self.log_budget_bytes,
            "log_paused": self.log_paused,
            "log_rows_per_s": self.log_rows_per_s,
            "slot": dict(self.slot),
            "resync": dict(self.resync),
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
    """What the log holds above the frontier."""

    captured_scn: int = 0
    covered_scn: int = 0
    changes: int = 0
    oldest_us: int | None = None
    per_table: Mapping[str, int] | None = None


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

    def _opened(self) -> StateStore | None:
        """Return the state database, None before there is one."""
        if self._state is None and self._paths.database.exists():
            self._state = StateStore(self._paths.database)
        return self._state

    def look(self) -> Picture:
        """Return the picture of this moment."""
        manifest = self.frontier()
        roles = {name: ProcessStatus.read(self._paths.status(name)) for name in ROLES}
        backlog = self._backlog(manifest.scn if manifest else 0)
        state = self._opened()
        pace = state.pace() if state else Pace()
        lag_s = None
        if manifest is not None:
            oldest = backlog.oldest_us
            lag_s = 0.0 if oldest is None else max(0.0, time.time() - oldest / 1e6)
        return Picture(
            self._tables(manifest, backlog.per_table or {}, _table_errors(roles["apply"])),
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
        )

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
        self, manifest: Manifest | None, lag: Mapping[str, int], errors: Mapping[str, str]
    ) -> tuple[TablePicture, ...]:
        copies = self._copies()
        entries = manifest.tables if manifest else {}
        shown = {name for name, copy in copies.items() if copy.progress.state != "gone"}
        awaited = self._awaiting_adoption()
        pictures = []
        for name in sorted({*shown, *entries, *awaited}):
            copy, entry = copies.get(name), entries.get(name)
            dump = copy.progress if copy else None
            phase, error = _phase(entry, copy), ""
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
                    lag.get(name, 0),
                    entry.applied_scn if entry else 0,
                    error,
                    dump.rows_per_s if dump and phase == "copying" else 0.0,
                    dump.seconds_left if dump and phase == "copying" else None,
                )
            )
        return tuple(pictures)

    def _awaiting_adoption(self) -> set[str]:
        """Return the captured tables that a dump made elsewhere is still to fill."""
        state = self._opened()
        captured = state.captured() if state else []
        wanted = {t for t in captured if settings_for(t, self._settings).adopted}
        return {str(t) for t in wanted - state.spoken_for()} if state and wanted else set()

    def _backlog(self, frontier_scn: int) -> _Backlog:
        """Return what the log holds above the frontier, counted anew at most a twentieth of the time.

        A large backlog takes long to count, and whoever watches it must not take the cores from those who work it off.
        """
        begun = time.monotonic()
        if begun >= self._count_at or frontier_scn != self._counted_from:
            self._counted = self._count(frontier_scn)
            self._counted_from = frontier_scn
            self._count_at = time.monotonic() + 20 * (time.monotonic() - begun)
        return self._counted

    def _count(self, frontier_scn: int) -> _Backlog:
        try:
            tail = self._log.tail()
            after = max(frontier_scn, tail.oldest_scn)
            index = self._log.index(after)
            per_table: Counter[str] = Counter()
            for ref in self._log.refs(after, tail.complete_scn):
                for schema_id, rows in ref.tables:
                    if schema_id:
                        per_table[str(self._registry.get(schema_id).table)] += rows
        except (ChangeLogError, FileNotFoundError, ScnNotFound):
            # No log yet, or its retention moved on between two calls: the next look sees more.
            return _Backlog()
        return _Backlog(
            tail.complete_scn,
            tail.covered_scn,
            int(index["changes"].sum()),
            int(index["commit_us"].min()) if len(index) else None,
            per_table,
        )


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
    tables = apply.detail.get("tables", {}) if apply else {}
    return {
        name: f"{table['error']['name']}: {table['error']['message']}"
        for name, table in tables.items()
        if table.get("error")
    }

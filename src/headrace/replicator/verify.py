"""Prove that source and target agree, while writes go on.

The source side is one snapshot of the server, hashed by the server. The target side is the newest frontier below
any transaction that the snapshot does not see, plus the change log's rows of exactly the later transactions that
it sees. Nothing is stopped and no recent row is left out; when no such frontier exists yet, a new snapshot is
taken. Equal sums are a proof whatever the log holds; unequal ones count only once the log has reached the
snapshot.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import ChangeLogLost
from headrace.lake.frontier import Manifest, TableEntry
from headrace.model.schema import TableId
from headrace.registry.file import FileRegistry
from headrace.replicator.replicas import Replicas, Shown
from headrace.replicator.verify_compare import TargetTable, compare
from headrace.replicator.verify_report import TableReport, VerifyReport
from headrace.replicator.verify_tail import LogView, fold_tail
from headrace.sources.database import Compared, View
from headrace.state.incarnation import Incarnation

__all__ = ["TableReport", "VerifyReport", "verify"]

_POLL_S = 0.05
_QUIET_S = 3.0
"""A log that stands still for this long is compared as it is: equal sums need no more of it. One that nobody writes
stands still."""


def verify(
    source: Compared,
    tables: Sequence[TableId | str],
    changelog: Path,
    replicas: Replicas,
    timeout_s: float = 120.0,
    progress: Callable[[str], None] | None = None,
    life: Incarnation | None = None,
    fed: Callable[[], bool] = lambda: True,
) -> VerifyReport:
    """Compare tables of a source with their replicas.

    Args:
        source: what is captured; the role needs SELECT on the tables.
        tables: names, ``schema.table``.
        changelog: folder of the change log.
        replicas: the target tables.
        timeout_s: how long to wait for dumps, log and frontier; comparing itself has no limit.
        progress: called with one line about what is being done.
        life: of the source that the log follows; its first when None.
        fed: whether somebody writes the log, as far as anybody can tell.

    Raises:
        SourceError: the source cannot be read.
        ChangeLogLost: the log ends before what the target shows.
        ScnNotFound: the log no longer holds the changes since the target's frontier.
        TargetError: a target table cannot be read.
    """
    names = tuple(t if isinstance(t, TableId) else TableId.parse(t) for t in tables)
    run = _Run(
        source=source,
        tables=names,
        changelog=changelog,
        reader=ChangeLogReader(changelog),
        registry=FileRegistry(changelog / "schemas"),
        replicas=replicas,
        deadline=time.monotonic() + timeout_s,
        say=_once(progress),
        life=life or Incarnation(""),
        fed=fed,
    )
    return run.execute(copy_deadline=time.monotonic() + timeout_s / 2)


def _scn(entry: TableEntry, manifest: Manifest) -> int:
    """Return the position that an entry's version reflects: the frontier, also without changes, when live."""
    return max(entry.applied_scn, manifest.scn) if entry.state == "live" else entry.applied_scn


def _once(progress: Callable[[str], None] | None) -> Callable[[str], None]:
    """Return a function that passes a line on when it is not the one before it."""
    last = ""

    def say(line: str) -> None:
        nonlocal last
        if progress is not None and line != last:
            progress(line)
        last = line

    return say


@dataclass(frozen=True, slots=True)
class _Run:
    source: Compared
    tables: tuple[TableId, ...]
    changelog: Path
    reader: ChangeLogReader
    registry: FileRegistry
    replicas: Replicas
    deadline: float
    say: Callable[[str], None]
    life: Incarnation
    fed: Callable[[], bool]

    def execute(self, copy_deadline: float) -> VerifyReport:
        self._require_log()
        copying = self._await_copies(copy_deadline)
        while True:
            # The target first: what it shows is then older than what the source does.
            with self.replicas.opened() as shown, self.source.view(self.tables) as view:
                for table in self.tables:
                    view.narrow(table, self.replicas.alike(view.schemas[table]))
                # Asked before the log is read: whoever has ended by then has written all that it will.
                quiet_s = _QUIET_S if self.fed() else 0.0
                covered = self._await_log(view, quiet_s)
                log = LogView.of(self.reader, view.snapshot, self.life.since_scn)
                manifest = self._frontier(shown, log)
                ready = self._complete(manifest, log)
                late = time.monotonic() > self.deadline
                if late or set(ready) | set(copying) >= set(self.tables):
                    return self._report(view, shown, log, manifest, ready, covered)
            self.say("waiting for a frontier that the source's snapshot sees whole")
            time.sleep(_POLL_S)

    def _require_log(self) -> None:
        """Refuse a log that ends before what the target shows: it is not the one that the target is fed from."""
        manifest = self.replicas.latest()
        covered = self.reader.tail().covered_scn
        if manifest is not None and manifest.scn > covered:
            raise ChangeLogLost(
                f"The change log in {self.changelog} ends at SCN {covered}, and the target shows SCN {manifest.scn}.",
                next_step="name the replicator that feeds this target: by its own file, or, if a control plane runs "
                "it, by its name: headrace verify NAME.",
            )

    def _await_copies(self, deadline: float) -> list[TableId]:
        """Wait until every dump is complete; return the tables whose dump is not, and will not be soon."""
        while True:
            # Asked first: whoever has ended by then has written all that it will.
            fed = self.fed()
            ready = self._complete(self.replicas.latest())
            copying = [table for table in self.tables if table not in ready]
            if not copying or time.monotonic() > deadline:
                return copying
            names = ", ".join(map(str, copying))
            if not fed:
                self.say(
                    f"not waiting for the dump of {names}: nobody runs the replicator; headrace run FILE completes it"
                )
                return copying
            self.say(f"waiting for the dump of {names}")
            time.sleep(_POLL_S)

    def _complete(self, manifest: Manifest | None, log: LogView | None = None) -> list[TableId]:
        """Return the tables that a frontier shows whole, and whose rows a view sees if one is given."""
        if manifest is None:
            return []
        top = 2**63 - 1 if log is None or log.first_unseen is None else log.first_unseen - 1
        entries = ((table, manifest.tables.get(str(table))) for table in self.tables)
        return [
            table
            for table, entry in entries
            if entry
            and entry.complete_scn is not None
            and entry.state != "copying"
            and entry.complete_scn <= _scn(entry, manifest) <= top
        ]

    def _await_log(self, view: View, quiet_s: float) -> bool:
        """Wait until the log holds all that the view sees, or stands still; return whether it does."""
        moved, last = time.monotonic(), -1
        end = view.end_scn + self.life.offset
        while (covered := self.reader.tail().covered_scn) < end:
            now = time.monotonic()
            if covered != last:
                moved, last = now, covered
            if now > self.deadline or now - moved >= quiet_s:
                return False
            self.say("waiting for the change log to reach the source's snapshot")
            time.sleep(_POLL_S)
        return True

    @staticmethod
    def _frontier(shown: Shown, log: LogView) -> Manifest | None:
        """Return the newest frontier that holds no transaction the view does not see."""
        top = 2**63 - 1 if log.first_unseen is None else log.first_unseen - 1
        return shown.at_or_below(top)

    def _report(
        self,
        view: View,
        shown: Shown,
        log: LogView,
        manifest: Manifest | None,
        ready: list[TableId],
        covered: bool,
    ) -> VerifyReport:
        reports = self._compare(view, shown, log, manifest, ready)
        unequal = [t for t in ready if reports[t].comparable and not reports[t].equal]
        if unequal and not covered:
            # What differs may still be on its way, where somebody brings it.
            rest_s = self.deadline - time.monotonic()
            covered = self._await_log(view, rest_s if self.fed() else 0.0)
            log = LogView.of(self.reader, view.snapshot, self.life.since_scn)
            reports |= self._compare(view, shown, log, manifest, unequal)
        newest = self._complete(self.replicas.latest())
        for table in self.tables:
            if table not in reports:
                reports[table] = TableReport.unread(
                    str(table), "behind" if table in newest else "copying"
                )
            elif table in unequal and not reports[table].equal and not covered:
                reports[table] = replace(reports[table], state="behind")
        ordered = tuple(reports[table] for table in self.tables)
        return VerifyReport(ordered, view.snapshot_text, manifest.scn if manifest else None)

    def _compare(
        self,
        view: View,
        shown: Shown,
        log: LogView,
        manifest: Manifest | None,
        tables: Iterable[TableId],
    ) -> dict[TableId, TableReport]:
        if manifest is None:
            return {}
        entries = {table: manifest.tables[str(table)] for table in tables}
        scns = {table: _scn(entry, manifest) for table, entry in entries.items()}
        schemas = {table: view.schemas[table] for table in entries}
        tails = fold_tail(self.reader, self.registry, schemas, scns, log)
        reports = {}
        for table, entry in entries.items():
            self.say(f"comparing {table}")
            version = shown.version(table, entry)
            target = TargetTable(shown, version, scns[table], tails[table])
            if reason := target.uncompared(table):
                reports[table] = TableReport.unread(str(table), reason)
            else:
                found = compare(view, table, target)
                reports[table] = replace(found, left_out=view.left_out(table))
        return reports

"""Brings tables back behind a gap, beside the capture that goes on.

In: the tables that `headrace.relay.recovery` left with a gap. Each is compared with one snapshot of the source as
``headrace verify`` does it; only the keys that differ are asked for, to be read through watermark windows, and those
that are gone to be removed. Out: one request per table, with which its gap is closed.

A comparison at any moment behind the gap is enough: what is equal then stays equal, because the change log lacks
nothing from there on.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headrace.changelog.reader import ChangeLogReader
from headrace.errors import HeadraceError
from headrace.lake.digest import digest_rows
from headrace.lake.frontier import FrontierStore
from headrace.model.schema import TableId
from headrace.registry.file import FileRegistry
from headrace.replicator import resync
from headrace.replicator.paths import StatePaths
from headrace.replicator.replicas import Replicas
from headrace.replicator.resync import Resync, ResyncState
from headrace.replicator.verify_compare import TargetTable, drill, passes, range_sums
from headrace.replicator.verify_tail import LogView, fold_tail
from headrace.sources.database import Compared, View
from headrace.state.incarnation import Incarnation
from headrace.state.records import OPEN, Cause, Scope
from headrace.state.store import StateStore
from headrace.store import Location

__all__ = ["Repair", "comparable", "repaired"]

_LOG = logging.getLogger(__name__)

Key = tuple[str, ...]

MOST_KEYS = 50_000
"""Differing keys past which a table is emptied and copied from the start."""
_POLL_S = 0.2
_RETRY_S = 10.0
LOG_WAIT_S = 20.0
"""How long a comparison waits for the change log; what it lacks then is read again for nothing."""
_STOP_S = 5.0


def comparable(
    lake: Location, pipeline: str, state: StateStore, shapes: dict[TableId, int]
) -> set[TableId]:
    """Return the tables whose rows at the target are worth comparing: whole before the gap, and of the same shape.

    Args:
        lake: root folder of the target tables.
        pipeline: name of the pipeline.
        state: of the capture.
        shapes: schema id of each captured table now.
    """
    manifest = FrontierStore(lake, pipeline).latest()
    if manifest is None:
        return set()
    gaps, copies = state.gaps(), state.copies()
    found = set()
    for table, schema_id in shapes.items():
        entry, copy = manifest.tables.get(str(table)), copies.get(table)
        # One that has a gap already was whole before that.
        whole = table in gaps or bool(copy and copy.progress.completed_scn)
        held = entry is not None and entry.state != "failing"
        complete = table in gaps or (entry is not None and entry.complete_scn is not None)
        same = int(state.get(f"schema {table}") or 0) == schema_id
        if whole and held and complete and same:
            found.add(table)
    return found


@contextlib.contextmanager
def repaired(paths: StatePaths, source: Compared, replicas: Replicas) -> Iterator[None]:
    """Bring the tables back while the block runs, if a resync is under way."""
    with contextlib.closing(StateStore(paths.database)) as state:
        under_way = resync.read(state)
        if under_way is None or under_way.state is not ResyncState.REPAIRING:
            yield
            return
        repair, stop = Repair(state, source, paths.changelog, replicas), threading.Event()
        thread = threading.Thread(target=repair.run, args=(stop,), name="repair", daemon=True)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(_STOP_S)


@dataclass(frozen=True, slots=True)
class Repair:
    """Compares one table after the other and asks for what differs.

    Attributes:
        state: of the capture, which carries the requests out.
        source: that is captured.
        changelog: folder of the change log.
        replicas: the target tables.
    """

    state: StateStore
    source: Compared
    changelog: Path
    replicas: Replicas

    def run(self, stop: threading.Event) -> None:
        """Work until every table is whole or ``stop`` is set."""
        pause = 0.0
        while not stop.wait(pause):
            pause = _POLL_S
            try:
                if not self.step(stop):
                    return
            except HeadraceError as error:
                _LOG.warning("a comparison is tried again: %s", error)
                pause = _RETRY_S
            except Exception as error:  # noqa: BLE001 - the top of the thread
                # Its message may hold anything.
                _LOG.error("a comparison failed (%s) and is tried again", type(error).__name__)
                pause = _RETRY_S

    def step(self, stop: threading.Event) -> bool:
        """Compare the next table; false when nothing is left to do."""
        requests = [r for r in self.state.requests() if r.state in OPEN and r.scope.is_whole]
        asked = {r.table for r in requests if r.cause is Cause.GAP}
        gaps = sorted(self.state.gaps())
        waiting = [table for table in gaps if table not in asked]
        if waiting:
            self._compare(waiting[0], stop)
            return True
        if not gaps and not requests:
            self.state.write([Resync.done])
            _LOG.info("the resync is done")
            return False
        return True

    def _compare(self, table: TableId, stop: threading.Event) -> None:
        life, reader = Incarnation.read(self.state), ChangeLogReader(self.changelog)
        assert life is not None
        with self.replicas.opened() as shown, self.source.view([table]) as view:
            # What the log lacks yet would look like a difference.
            end, deadline = view.end_scn + life.offset, time.monotonic() + LOG_WAIT_S
            while reader.tail().covered_scn < end and time.monotonic() < deadline:
                if stop.wait(_POLL_S):
                    return
            log = LogView.of(reader, view.snapshot, life.since_scn)
            top = 2**63 - 1 if log.first_unseen is None else log.first_unseen - 1
            manifest = shown.at_or_below(top)
            entry = manifest.tables.get(str(table)) if manifest else None
            if entry is None:
                return
            view.narrow(table, self.replicas.alike(view.schemas[table]))
            schema, order = view.schemas[table], view.key_order(table)
            registry = FileRegistry(self.changelog / "schemas")
            tails = fold_tail(reader, registry, {table: schema}, {table: entry.applied_scn}, log)
            version = shown.version(table, entry)
            target = TargetTable(shown, version, entry.applied_scn, tails[table])
            # Without rows to compare, what was missed comes with all others.
            keys = None if target.uncompared(table) else self._differing(view, table, target)
        # Another gap may have come meanwhile, of which this comparison knows nothing.
        if not stop.is_set():
            self._ask_for(table, keys, order)

    def _ask_for(self, table: TableId, keys: Sequence[Key] | None, order: str) -> None:
        """Have keys read by the key that they are of, or the whole table."""
        if keys is None:
            _LOG.info("%s differs in much: it is copied from the start", table)
            self.state.submit(Scope.TABLE, table, cause=Cause.GAP)
            return
        _LOG.info("%s differs in %d keys", table, len(keys))
        self.state.submit(
            Scope.REPAIR,
            table,
            keys,
            delete_missing=bool(keys),
            cause=Cause.GAP,
            key_order=order,
        )

    def _differing(self, view: View, table: TableId, target: TargetTable) -> list[Key] | None:
        """Return the keys that differ, None when the table is better copied as a whole."""
        source, ours = range_sums(view, table, target)
        ranges = source.differing(ours)
        if not ranges:
            return []
        if not view.schemas[table].key:
            return None
        there: set[bytes] = set()
        gone: set[bytes] = set()
        for part in passes(source, ours):
            found = drill(view, table, target, part)
            for key, copies in zip(
                found["key"].to_pylist(), found["source"].to_pylist(), strict=True
            ):
                (there if copies else gone).add(key)
            if len(there) + len(gone) > MOST_KEYS:
                return None
        found = list(view.keys(table, sorted(there))) if there else []
        return found + list(self._gone(view, table, target, ranges, gone))

    def _gone(
        self,
        view: View,
        table: TableId,
        target: TargetTable,
        ranges: Sequence[int],
        digests: set[bytes],
    ) -> Iterator[Key]:
        """Yield the keys of the target's rows with some key digests, as the source would render them."""
        schema = view.schemas[table]
        if not digests:
            return
        for batch, _ in target.rows(view, table):
            hashed = digest_rows(schema, batch, view.form)
            places = [
                int(place)
                for place in np.flatnonzero(np.isin(hashed.ranges, ranges))
                if hashed.keys[place].tobytes() in digests
            ]
            if places:
                yield from self.source.render_keys(schema, batch.take(places))

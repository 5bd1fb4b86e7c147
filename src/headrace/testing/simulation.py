"""One random history through capture, change log, fold and a model target, with crashes, against the truth.

The database is scripted, everything else is the product: reconciler, coordinator, capture, change log on disk, state
store, fold. After every applied batch each complete table must equal the source as of the batch's end, and the change
log must satisfy the ledger oracle.

Source: scenario F1, test A-17.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from headrace.errors import SourceUnavailable
from headrace.fold import fold, promote
from headrace.model.block import Block, SystemKind
from headrace.model.schema import TableId, TableSchema
from headrace.observe import failpoints
from headrace.registry.file import FileRegistry
from headrace.relay.capture import Capture
from headrace.relay.log import Log
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.state.store import RequestState, Scope, StateStore
from headrace.testing.histories import TABLES, RandomHistory
from headrace.testing.oracle import LedgerOracle
from headrace.testing.scripted import ROUNDS, run_dry, scripted_capture
from headrace.testing.steering import SteeringHand
from headrace.testing.target import ModelTable
from headrace.watermark.settings import DumpSettings

__all__ = ["Crash", "Simulation", "SimulationFailed"]

CAPTURE_FAILPOINTS = tuple(
    name
    for name in failpoints.FAILPOINTS
    if not name.startswith(
        ("apply.", "maintenance.", "adopt.", "control.", "letters.", "rewind.", "xa.")
    )
)
"""Those that a capture of any source passes; distributed transactions are a binary log's own."""
BACKLOG = 20
"""Transactions that may wait for the reader before the history holds its breath."""
CUTS = (
    "capture.after_poll",
    "capture.after_append",
    "capture.after_sync",
    "capture.after_progress",
)
"""Where a connection may be lost: what came is not acknowledged, and comes again."""
CALM = 150
"""Rounds after which a history calms down: rows that keep changing their keys keep being re-read."""


class Crash(BaseException):
    """The process dies here; not an `Exception`, so that nothing in the product can catch it."""


def _cut() -> None:
    raise SourceUnavailable("scripted: the connection was cut.", next_step="open it again.")


class SimulationFailed(AssertionError):
    """The copy differs from the source, or the run is stuck."""


class Simulation:
    """One seed, one run.

    Args:
        seed: decides everything.
        folder: empty folder for change log and state.
        open_log: opens the change log in a folder for writing, and returns it with a function that simulates the
            loss of everything that was not synced when the process died.
        coverage: counts what happened, over many runs.
        capture_type: a subclass with a fault switched on, in mutation tests.
        steered: let somebody pause, resume, cancel and overtake dumps, and hold the log back. Decided by a
            generator of its own, so that the history of a seed stays what it is without.
    """

    def __init__(
        self,
        seed: int,
        folder: Path,
        open_log: Callable[[Path], tuple[Log, Callable[[], None]]],
        coverage: Counter[str],
        capture_type: type[Capture] = Capture,
        *,
        steered: bool = False,
    ) -> None:
        self.hand = SteeringHand(seed, coverage) if steered else None
        self.rng = random.Random(seed)
        self.folder = folder
        self.open_log = open_log
        self.coverage = coverage
        self.capture_type = capture_type
        self.storm = self.rng.choice((3, 10, 25))
        self.database = ScriptedDatabase(TABLES)
        self.history = RandomHistory(self.database, self.rng, coverage)
        self.source = ScriptedSource(self.database, self._weather, most=self.rng.choice((1, 3, 10)))
        self.registry = FileRegistry(folder / "schemas")
        self.targets = {schema.table: ModelTable(schema) for schema in TABLES}
        self.complete: dict[TableId, int] = {}
        self.frontier = self.noted = 0
        self.first_end: int | None = None
        self.extra_requests = self.rng.randrange(3)
        self.log: Log | None = None
        self.armed = False
        self.now = 0.0

    def _clock(self) -> float:
        """Seconds that pass by being asked for: the same seed gives the same run."""
        self.now += 0.05
        return self.now

    def _weather(self) -> None:
        # A reader that falls ever further behind would never see its marks.
        if self.database.backlog < BACKLOG:
            for _ in range(self.rng.randrange(self.storm)):
                self.history.step()

    # -- the whole run ----------------------------------------------------------------------------

    def run(self) -> None:
        """Run to the end.

        Raises:
            SimulationFailed: the copy is wrong somewhere.
            OracleViolation: the change log contradicts itself.
        """
        self.history.load()
        if self.rng.random() < 0.3:
            self.history.pin()
        for _ in range(self.rng.randrange(4)):
            self._life(crashes=True)
        self._life(crashes=False)
        self._check_log()

    def _life(self, *, crashes: bool) -> None:
        """Run one process until it crashes, or until everything is copied and quiet."""
        self.log, lose = self.open_log(self.folder)
        state = StateStore(self.folder / "state.db")
        capture = self._capture(state)
        if crashes:
            self._arm()
        try:
            capture.start()
            self._work(capture, state)
            if not crashes:
                self._drain(capture, state)
        except Crash as crash:
            self.coverage[f"crash at {crash.args[0]}"] += 1
        finally:
            failpoints.disarm()
            self.armed = False
            state.close()
            lose()
        if self.rng.random() < 0.5:
            self._restart_apply()

    def _capture(self, state: StateStore) -> Capture:
        assert self.log is not None
        dump = DumpSettings(
            chunk_rows=self.rng.choice((1, 2, 3, 5)),
            snapshot_interval_s=0.0,
            piece_rows=3,
            # Where people are not heard after each chunk, the next one is read before the last is durable.
            request_interval_s=self.rng.choice((0.0, 1.0)),
        )
        return scripted_capture(
            *(self.source, self.folder, self.log, state, dump, self.capture_type),
            clock=self._clock,
        )

    def _arm(self) -> None:
        self.armed = True
        name = self.rng.choice(CAPTURE_FAILPOINTS)
        left = self.rng.choice((1, 1, 2, 3, 5, 8))

        def die() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash(name)

        failpoints.arm(name, die)

    def _work(self, capture: Capture, state: StateStore) -> None:
        """Let capture and history run side by side until all requests are carried out."""
        idle = 0
        for number in range(ROUNDS):
            if number == CALM:
                self.storm = 2
            if number > CALM and self.database.hidden:
                # No commit stays invisible for ever.
                self.database.reveal(self.rng.choice(self.database.hidden))
            gave = self._step(capture)
            if self.rng.random() < 0.1:
                self._apply()
            self._maybe_request(state)
            if self.hand is not None:
                self.hand.act(state, calm=number > CALM)
            done = capture.is_idle and self._all_completed(state)
            idle = idle + 1 if done and not gave else 0
            if done and (idle > 2 or self.rng.random() < 0.05):
                return
        raise SimulationFailed("the dumps do not end")

    def _all_completed(self, state: StateStore) -> bool:
        states = {request.state for request in state.requests()}
        if self.hand is None or RequestState.CANCELLED not in states:
            return states <= {RequestState.COMPLETED}
        over = states <= {RequestState.COMPLETED, RequestState.CANCELLED}
        return over and not any(copy.is_cancelled for copy in state.copies().values())

    def _step(self, capture: Capture) -> bool:
        """Do one round, in which the connection may be cut before anything is acknowledged."""
        place = self.rng.choice(CUTS)
        cut = self.rng.random() < 0.03 and not self.armed
        if cut:
            failpoints.arm(place, _cut)
        try:
            return capture.step(0.0)
        except SourceUnavailable:
            self.coverage[f"connections cut at {place}"] += 1
            capture.close_connections()
            capture.open_connections()
            return True
        finally:
            if cut:
                failpoints.disarm(place)

    def _maybe_request(self, state: StateStore) -> None:
        if not self.extra_requests or self.rng.random() > 0.03:
            return
        self.extra_requests -= 1
        schema = self.rng.choice(TABLES)
        if schema.key and self.rng.random() < 0.5:
            keys = [(str(key),) for key in self.rng.sample(range(1, 15), 3)]
            # Under a steering hand those that are not there are deleted, which must never hit one that is.
            state.submit(
                Scope.PRIMARY_KEYS, schema.table, keys, delete_missing=self.hand is not None
            )
            self.coverage["requests for keys"] += 1
        else:
            state.submit(Scope.TABLE, schema.table)
            self.coverage["re-dumps"] += 1

    def _drain(self, capture: Capture, state: StateStore) -> None:
        """Let the history settle, the log run dry, and compare everything at the end."""
        self.history.settle()
        if self.hand is not None:
            self.hand.let_go(state)
        if not run_dry(capture, state):
            raise SimulationFailed("the log does not run dry")
        while self._apply():
            pass
        truth = self.database.state_at(1 << 60)
        for table, target in self.targets.items():
            if target.content() != truth[table]:
                raise SimulationFailed(f"{table} differs at the end")
            if table not in self.complete:
                raise SimulationFailed(f"{table} never became complete")

    # -- the applying side ------------------------------------------------------------------------

    def _restart_apply(self) -> None:
        """Forget the frontier; the ledgers stay with the tables."""
        applied = [target.applied_scn for target in self.targets.values()]
        self.frontier = min(applied)
        self.first_end = max(applied)
        self.coverage["apply restarts"] += 1

    def _apply(self) -> bool:
        """Apply one batch, cut at a random window end; return whether there was one."""
        assert self.log is not None
        index = self.log.streamed(self.frontier)
        ends = [int(s) for s in index["scn"] if s > self.frontier and s <= self.log.complete_scn]
        if not ends:
            return False
        end = self.rng.choice(ends)
        if self.first_end is not None:
            end = max(self.first_end, ends[0])
            self.first_end = None
        # Completions are noted with the frontier; a run that died before noting looks again from there.
        blocks = list(self.log.blocks(min(self.frontier, self.noted)))
        for table, target in self.targets.items():
            self._apply_table(table, target, blocks, end)
            if self.rng.random() < 0.1 and end < ends[-1]:
                # Died between two tables: their ledgers differ now.
                self.coverage["apply died between tables"] += 1
                self._restart_apply()
                return True
        self.frontier = self.noted = end
        self._note_complete(blocks, end)
        self._check_frontier(end)
        return True

    def _apply_table(
        self, table: TableId, target: ModelTable, blocks: list[Block], end: int
    ) -> None:
        after = target.applied_scn
        if end <= after:
            return
        schema: TableSchema = target.schema
        batches, truncates = [], []
        for block in blocks:
            for body in block.bodies:
                if body.table != table:
                    continue
                scn = body.batch.column("_scn").to_numpy()
                rows = body.batch.filter((scn > after) & (scn <= end))
                batches.append(promote(rows, self.registry.get(body.schema_id), schema))
            truncates += [
                (e.scn, e.ord)
                for e in block.system
                if e.kind is SystemKind.TRUNCATE and e.table == table and after < e.scn <= end
            ]
        folded = fold(schema, batches, truncates)
        target.apply(folded, end, complete=self.complete.get(table, end + 1) <= after)
        self.coverage["batches applied"] += 1

    def _note_complete(self, blocks: list[Block], end: int) -> None:
        for block in blocks:
            for event in block.system:
                if event.kind is SystemKind.DUMP_COMPLETE and event.scn <= end:
                    self.complete.setdefault(event.table, event.scn)

    def _check_frontier(self, end: int) -> None:
        truth = self.database.state_at(end)
        for table in self.complete:
            if self.targets[table].content() != truth[table]:
                raise SimulationFailed(f"{table} differs from the source at SCN {end}")
            self.coverage["frontiers compared"] += 1

    def _check_log(self) -> None:
        assert self.log is not None
        oracle = LedgerOracle(self.registry.get)
        for block in self.log.blocks(0):
            oracle.feed(block)
        expected = [t.scn for t in self.database.log if not t.mark]
        if oracle.log_transactions != expected:
            raise SimulationFailed("the change log does not hold every transaction once, in order")
        self.coverage["windows of chunk rows"] += sum(oracle.read_rows.values())

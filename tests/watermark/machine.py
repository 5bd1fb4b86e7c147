"""A scripted database with ten rows in each of three tables, and captures that come and go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from headrace.model.block import SystemEvent, SystemKind
from headrace.model.mark import MarkKind
from headrace.model.schema import TableId, TableSchema
from headrace.observe import failpoints
from headrace.relay.capture import Capture
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.sources.scripted.database import Change
from headrace.state.store import DumpProgress, DumpRequest, Scope, StateStore
from headrace.testing.notation import table_of
from headrace.testing.scripted import scripted_capture
from headrace.watermark.settings import DumpSettings
from tests.scenarios.crashing_log import open_log

__all__ = ["CHUNK", "ONE", "THREE", "TWO", "Crash", "Machine", "windows"]

ONE, TWO, THREE = (table_of(2, name=name) for name in ("one", "two", "three"))
CHUNK = 3
ROUNDS = 500


class Crash(BaseException):
    """The process dies here."""


class Machine:
    """The database, its source, and a folder with change log and state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = ScriptedDatabase([ONE, TWO, THREE])
        for schema in (ONE, TWO, THREE):
            self.database.load(schema.table, [(key, f"v{key}") for key in range(10)])
        self.weather: Callable[[], None] = lambda: None
        self.source = ScriptedSource(self.database, lambda: self.weather())
        self.dump = DumpSettings(chunk_rows=CHUNK, snapshot_interval_s=0.0, request_interval_s=0.0)
        self.clock: Callable[[], float] = time.monotonic

    @contextmanager
    def state(self) -> Iterator[StateStore]:
        """Open the state database."""
        with closing(StateStore(self.folder / "state.db")) as state:
            yield state

    def submit(self, scope: Scope, table: TableSchema, *keys: int, **more: object) -> str:
        with self.state() as state:
            texts = [(str(key),) for key in keys]
            return state.submit(scope, table.table, texts, **more)  # type: ignore[arg-type]

    @contextmanager
    def capture(self) -> Iterator[tuple[Capture, StateStore]]:
        """Run one process for as long as the block lasts, or until it dies."""
        log, lose = open_log(self.folder)
        with self.state() as state:
            capture = scripted_capture(
                self.source, self.folder, log, state, self.dump, clock=self.clock
            )
            try:
                capture.start()
                yield capture, state
            except Crash:
                pass
            finally:
                failpoints.disarm()
                lose()

    def run(self) -> None:
        """Run one process until it has nothing left to do, or until it dies."""
        with self.capture() as (capture, state):
            self.work(capture, state)

    def work(
        self,
        capture: Capture,
        state: StateStore,
        until: Callable[[], bool] = lambda: False,
    ) -> None:
        """Let a capture work until a condition holds or nothing is left to do."""
        for _ in range(ROUNDS):
            if until():
                return
            if not capture.step(0.0) and capture.is_idle and state.next_request() is None:
                return
        raise AssertionError("the requests are never done")

    def progress(self) -> dict[TableId, DumpProgress]:
        """Return how the copy of each table stands."""
        with self.state() as state:
            return {table: copy.progress for table, copy in state.copies().items()}

    def request(self, request_id: str) -> DumpRequest:
        with self.state() as state:
            found = state.request(request_id)
        assert found is not None
        return found

    def ops(self, schema: TableSchema, after_scn: int = 0) -> list[tuple[str, int, str]]:
        """Return operation, key and value of every change row of a table, in the log's order."""
        log, _ = open_log(self.folder)
        rows = [
            (row["_op"], row["k"], row["c1"])
            for block in log.blocks(after_scn)
            for body in block.bodies
            if body.table == schema.table
            for row in body.batch.to_pylist()
        ]
        log.close()  # type: ignore[attr-defined]
        return rows

    def read_rows(self, schema: TableSchema, after_scn: int = 0) -> list[tuple[int, str]]:
        """Return the chunk rows that the change log holds of a table, in its order."""
        return [(key, value) for op, key, value in self.ops(schema, after_scn) if op == "+R"]

    def completions(self) -> list[TableId]:
        """Return the tables that the change log says are complete, in its order."""
        return [event.table for event in self.ends()]

    def ends(self) -> list[SystemEvent]:
        """Return the ends of dumps that the change log holds, in its order."""
        log, _ = open_log(self.folder)
        found = [
            event
            for block in log.blocks(0)
            for event in block.system
            if event.kind is SystemKind.DUMP_COMPLETE
        ]
        log.close()  # type: ignore[attr-defined]
        return found

    def end_scn(self) -> int:
        """Return the last position of the log."""
        log, _ = open_log(self.folder)
        scn = log.complete_scn
        log.close()  # type: ignore[attr-defined]
        return scn

    def write(self, *changes: Change, puts: list[tuple[TableId, str, tuple[object, ...]]]) -> None:
        """Commit a transaction, visible at once."""
        transaction = self.database.begin()
        transaction.changes = list(changes)
        transaction.puts = puts
        self.database.commit(transaction)
        self.database.reveal(transaction)

    def update(self, schema: TableSchema, key: int, value: str) -> None:
        """Commit an update of one row."""
        old, new = self.row(schema, key), (key, value)
        table = schema.table
        self.write(
            Change(table, "-U", old),
            Change(table, "+U", new),
            puts=[(table, "remove", old), (table, "add", new)],
        )

    def row(self, schema: TableSchema, key: int) -> tuple[object, ...]:
        """Return a visible row."""
        return next(row for row in self.database.visible(schema.table) if row[0] == key)


def windows(machine: Machine) -> list[tuple[str, list[MarkKind]]]:
    """Return the marks of the source's log by token, in order of appearance."""
    found: dict[str, list[MarkKind]] = {}
    for transaction in machine.database.log:
        if transaction.mark:
            found.setdefault(transaction.mark.token, []).append(transaction.mark.kind)
    return list(found.items())

"""Requests carried out by capture and coordinator over a scripted database: what is read, and in which windows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.mark import MarkKind
from headrace.model.schema import TableId, TableSchema
from headrace.observe import failpoints
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.sources.scripted.database import Change
from headrace.state.store import DumpProgress, DumpRequest, RequestState, Scope, StateStore
from headrace.testing.notation import table_of
from headrace.testing.scripted import run_dry, scripted_capture
from headrace.watermark.settings import DumpSettings
from tests.requirements import req
from tests.scenarios.crashing_log import open_log

ONE, TWO, THREE = (table_of(2, name=name) for name in ("one", "two", "three"))
CHUNK = 3


class Crash(BaseException):
    """The process dies here."""


class Machine:
    """A scripted database with ten rows in each of three tables, and captures that come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = ScriptedDatabase([ONE, TWO, THREE])
        for schema in (ONE, TWO, THREE):
            self.database.load(schema.table, [(key, f"v{key}") for key in range(10)])
        self.weather: Callable[[], None] = lambda: None
        self.source = ScriptedSource(self.database, lambda: self.weather())

    def state(self) -> StateStore:
        return StateStore(self.folder / "state.db")

    def submit(self, scope: Scope, table: TableSchema, *keys: int) -> str:
        state = self.state()
        try:
            return state.submit(scope, table.table, [(str(key),) for key in keys])
        finally:
            state.close()

    def run(self) -> None:
        """Run one process until it has nothing left to do, or until it dies."""
        log, lose = open_log(self.folder)
        state = self.state()
        dump = DumpSettings(chunk_rows=CHUNK, snapshot_interval_s=0.0, request_interval_s=0.0)
        capture = scripted_capture(self.source, self.folder, log, state, dump)
        try:
            capture.start()
            assert run_dry(capture, state), "the requests are never done"
        except Crash:
            pass
        finally:
            failpoints.disarm()
            state.close()
            lose()

    def progress(self) -> dict[TableId, DumpProgress]:
        """Return the newest dump of each table."""
        state = self.state()
        try:
            return {entry.table: entry for entry in state.progress()}
        finally:
            state.close()

    def request(self, request_id: str) -> DumpRequest:
        state = self.state()
        try:
            return next(r for r in state.requests() if r.request_id == request_id)
        finally:
            state.close()

    def read_rows(self, schema: TableSchema, after_scn: int = 0) -> list[tuple[int, str]]:
        """Return the chunk rows that the change log holds of a table, in its order."""
        rows = []
        for block in ChangeLogReader(self.folder / "changelog").blocks(after_scn):
            for body in block.bodies:
                if body.table == schema.table:
                    for row in body.batch.to_pylist():
                        if row["_op"] == "+R":
                            rows.append((row["k"], row["c1"]))
        return rows

    def update(self, schema: TableSchema, key: int, value: str) -> None:
        """Commit an update of one row, visible at once."""
        transaction = self.database.begin()
        old = next(row for row in self.database.visible(schema.table) if row[0] == key)
        transaction.changes = [
            Change(schema.table, "-U", old),
            Change(schema.table, "+U", (key, value)),
        ]
        transaction.puts = [(schema.table, "remove", old), (schema.table, "add", (key, value))]
        self.database.commit(transaction)
        self.database.reveal(transaction)


def windows(machine: Machine) -> list[tuple[str, list[MarkKind]]]:
    """Return the marks of the source's log by token, in order of appearance."""
    found: dict[str, list[MarkKind]] = {}
    for transaction in machine.database.log:
        if transaction.mark:
            found.setdefault(transaction.mark.token, []).append(transaction.mark.kind)
    return list(found.items())


@req("H08", "P19")
@pytest.mark.parametrize("windows_before", range(1, 12))
def test_a_dump_over_all_tables_goes_on_where_a_crash_left_it(
    tmp_path: Path, windows_before: int
) -> None:
    machine = Machine(tmp_path)
    left = windows_before

    def die() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Crash

    failpoints.arm("window.after_emit", die)
    machine.run()
    machine.run()

    progress = machine.progress()
    assert list(progress) == [ONE.table, TWO.table, THREE.table]
    for schema in (ONE, TWO, THREE):
        assert progress[schema.table].state == "done"
        # Ten rows in chunks of three, none read twice but those of the window that died.
        assert progress[schema.table].rows_read == 10
        assert set(machine.read_rows(schema)) == {(key, f"v{key}") for key in range(10)}
    total = sum(len(machine.read_rows(schema)) for schema in (ONE, TWO, THREE))
    assert 30 <= total <= 30 + CHUNK
    ends = [entry.completed_scn for entry in progress.values()]
    assert ends == sorted(ends)


@req("H10", "T10")
@pytest.mark.parametrize(
    "place",
    ["window.after_emit", "log.before_sync", "capture.after_sync", "capture.after_progress"],
)
def test_progress_is_never_ahead_of_the_rows_in_the_change_log(tmp_path: Path, place: str) -> None:
    machine = Machine(tmp_path)
    deaths = 0
    died = True
    # Each process comes one pass further than the one before, so every kind of write is hit.
    while died:
        left, died = deaths + 1, False

        def die() -> None:
            nonlocal left, died
            left -= 1
            died = left == 0
            if died:
                raise Crash

        failpoints.arm(place, die)
        machine.run()
        deaths += died

    assert deaths > 3
    for schema in (ONE, TWO, THREE):
        assert machine.progress()[schema.table].state == "done"
        assert set(machine.read_rows(schema)) == {(key, f"v{key}") for key in range(10)}
    total = sum(len(machine.read_rows(schema)) for schema in (ONE, TWO, THREE))
    assert total <= 30 + deaths * CHUNK


@req("T5")
def test_two_dumps_never_share_a_window(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    before = len(windows(machine))
    for schema in (ONE, TWO):
        machine.submit(Scope.TABLE, schema)
    machine.run()

    found = windows(machine)[before:]
    # Four chunks and an end for each of the two, every one under a token of its own.
    chunk, end = [MarkKind.LOW, MarkKind.HIGH], [MarkKind.END]
    assert [kinds for _, kinds in found] == [chunk, chunk, chunk, chunk, end] * 2
    open_tokens: set[str] = set()
    for transaction in machine.database.log:
        if transaction.mark and transaction.mark.kind is MarkKind.LOW:
            assert not open_tokens
            open_tokens.add(transaction.mark.token)
        elif transaction.mark and transaction.mark.kind is MarkKind.HIGH:
            open_tokens.remove(transaction.mark.token)


@req("H09", "A-14", "P44")
def test_a_repair_by_key_is_a_window_and_lists_the_keys_that_are_gone(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.run()
    copied = machine.progress()[ONE.table].completed_scn
    before = machine.source.statements
    calls = Counter[int]()

    def weather() -> None:
        statement = machine.source.statements - before
        calls[statement] += 1
        # The second statement is the select; it is over when the weather changes again.
        if statement == 2 and calls[statement] == 2:
            machine.update(ONE, 4, "newer")

    request = machine.submit(Scope.PRIMARY_KEYS, ONE, 3, 4, 77)
    machine.weather = weather
    machine.run()

    done = machine.request(request)
    assert done.state is RequestState.COMPLETED
    assert done.missing == (("77",),)
    assert [kinds for _, kinds in windows(machine)][-1] == [MarkKind.LOW, MarkKind.HIGH]
    # Key 4 changed inside the window: its log row counts, the row that was read does not.
    later = machine.read_rows(
        ONE, max(entry.completed_scn for entry in machine.progress().values())
    )
    assert later == [(3, "v3")]
    assert machine.progress()[ONE.table].completed_scn == copied

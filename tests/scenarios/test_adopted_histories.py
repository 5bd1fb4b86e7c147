"""Random histories whose tables begin with a dump made elsewhere, cut at a random position, against the truth.

The database is scripted and the files of the dump come from its truth at the position; capture, change log, adoption,
fold and the kernels of the Delta commit are the product. After every batch, cut anywhere, each table must equal the
source as of the batch's end.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from headrace.changelog import ChangeLogReader, ChangeLogSettings
from headrace.errors import FoldError, ScnNotFound
from headrace.fold import fold
from headrace.lake.batch import commit_batch
from headrace.lake.commit import put_commit, transaction
from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import app_id, applied_scn, table_path
from headrace.lake.modes import Mode
from headrace.model.block import ORIGIN_SELECT, SystemKind
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId, TableSchema
from headrace.observe import failpoints
from headrace.relay.capture import Capture
from headrace.replicator.adopt import adopt
from headrace.replicator.capture_log import CaptureLog
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.state.store import StateStore
from headrace.testing.histories import TABLES, RandomHistory
from headrace.testing.oracle import LedgerOracle
from headrace.testing.scripted import run_dry, scripted_capture
from headrace.watermark.settings import DumpSettings
from tests.requirements import req

SEEDS = 40
STEPS = ("adopt.files_written", "adopt.after_commit", "adopt.after_request")


class Crash(BaseException):
    """The process ends here."""


class Story:
    """One seed: a database that is captured from its first transaction on, and its tables elsewhere."""

    def __init__(self, seed: int, folder: Path, coverage: Counter[str]) -> None:
        self.rng = random.Random(seed)
        self.coverage = coverage
        self.folder = folder
        file = folder / "story.yaml"
        file.write_text(
            "name: story\n"
            'source: {type: postgres, url: "postgresql://nobody@nowhere/x", tables: ["*.*"]}\n'
            "target: {type: delta, path: ./lake}\n"
            'tables: {"*.*": {first_copy: adopted}}\n'
        )
        self.config = load(file)
        self.paths = StatePaths.of(self.config)
        self.paths.create()
        self.database = ScriptedDatabase(TABLES)
        self.history = RandomHistory(self.database, self.rng, coverage)
        self.source = ScriptedSource(self.database, self._weather, most=self.rng.choice((1, 3, 10)))

    def _weather(self) -> None:
        if self.database.backlog < 20:
            for _ in range(self.rng.randrange(8)):
                self.history.step()

    @contextmanager
    def captured(self) -> Iterator[tuple[Capture, StateStore]]:
        """Give a capture that has started, as after a restart."""
        with (
            closing(StateStore(self.paths.database)) as state,
            closing(CaptureLog(self.paths.changelog, ChangeLogSettings())) as log,
        ):
            capture = scripted_capture(
                *(
                    self.source,
                    self.paths.changelog,
                    log,
                    state,
                    DumpSettings(snapshot_interval_s=0, request_interval_s=0),
                ),
                adopted=lambda _table: True,
            )
            capture.start()
            yield capture, state

    def position(self) -> int:
        """Return a random position that the log covers; it may lie on a transaction's SCN or between two."""
        covered = ChangeLogReader(self.paths.changelog).tail().covered_scn
        scns = [t.scn for t in self.database.log if t.scn <= covered]
        return min(covered, self.rng.choice([90, *scns]) + self.rng.choice((0, 0, 0, 7)))

    def dumped(self, table: TableId, position: int) -> Path:
        """Write the rows of a table as of a position, as somebody else would."""
        schema = self.database.schemas[table]
        rows = list(self.database.state_at(position)[table].elements())
        self.rng.shuffle(rows)
        folder = self.folder / f"{table.name}-dump"
        folder.mkdir()
        for number in range(2):
            part = rows[number::2]
            cells = [[row[at] for row in part] for at in range(len(schema.names))]
            arrays = [
                pa.array(c, f.type) for c, f in zip(cells, table_arrow_schema(schema), strict=True)
            ]
            pq.write_table(pa.table(arrays, names=schema.names), folder / f"{number}.parquet")
        self.coverage["rows adopted"] += len(rows)
        return folder

    def adopt(self, table: TableId, files: Path, position: int) -> None:
        """Call the command until it is done; it may die at any of its steps."""
        for step in self.rng.sample(STEPS, self.rng.randrange(3)):
            self._call(table, files, position, step)
        self._call(table, files, position, "")

    def _call(self, table: TableId, files: Path, position: int, dies_at: str) -> None:
        def die() -> None:
            raise Crash

        if dies_at:
            failpoints.arm(dies_at, die)
        try:
            schema = self.database.schemas[table]
            adopt(self.config, table, files, str(position), _no_lsn, lambda: schema, 0.0)
        except Crash:
            self.coverage[f"crash at {dies_at}"] += 1
        finally:
            failpoints.disarm()

    def run(self, off_by: int = 0) -> dict[TableId, int]:
        """Live through all of it; return where each table began.

        Args:
            off_by: transactions by which the told positions are too late, or too early if negative.
        """
        self.history.load()
        with self.captured() as (capture, _):
            for _ in range(self.rng.randrange(5, 60)):
                capture.step(0.0)
        begins = {}
        told = self.rng.random() < 0.5
        with self.captured() as (capture, state):
            for _ in range(self.rng.randrange(30)):
                capture.step(0.0)
            for table in self.database.schemas:
                begins[table] = self.position()
                files = self.dumped(table, begins[table])
                self.adopt(table, files, self._shifted(table, begins[table], off_by))
                for _ in range(self.rng.randrange(10)):
                    capture.step(0.0)
            if told:
                self._end(capture, state)
        if not told:
            # The replicator is started again before it has heard of the adoption.
            with self.captured() as (capture, state):
                self._end(capture, state)
        return begins

    def _end(self, capture: Capture, state: StateStore) -> None:
        self.history.settle()
        assert run_dry(capture, state)

    def _shifted(self, table: TableId, position: int, off_by: int) -> int:
        if not off_by:
            return position
        own = [t.scn for t in self.database.log if any(c.table == table for c in t.changes)]
        if off_by > 0:
            own = [scn for scn in own if scn > position]
            return own[off_by - 1] if own else position
        own = [scn for scn in own if scn <= position]
        return own[off_by] - 1 if own else position

    def follow(self, schema: TableSchema) -> None:
        """Apply the log to one table at random cuts, and compare it with the source at each.

        Raises:
            FoldError: the log does not go with the table's rows.
            AssertionError: the table differs from the source.
        """
        reader = ChangeLogReader(self.paths.changelog)
        folder, name = table_path(self.config.lake, schema.table), app_id("story", schema.table)
        ends = [int(scn) for scn in reader.index(0)["scn"]]
        blocks = list(reader.blocks(0))
        while True:
            held = DeltaTable(folder).snapshot()
            after = applied_scn(held, "story", schema.table)
            found = Counter(tuple(row.values()) for row in held.to_table().to_pylist())
            assert found == self.database.state_at(after)[schema.table], after
            later = [end for end in ends if end > after]
            if not later:
                return
            end = self.rng.choice(later)
            parts = [block.after(after).upto(end) for block in blocks]
            batches = [b.batch for part in parts for b in part.bodies if b.table == schema.table]
            truncates = [
                (event.scn, event.ord)
                for part in parts
                for event in part.system
                if event.kind is SystemKind.TRUNCATE and event.table == schema.table
            ]
            folded = fold(schema, batches, truncates)
            actions = commit_batch(held, schema, Mode.MIRROR, folded, complete=True)
            put_commit(folder, held.version + 1, [transaction(name, end), *actions])
            self.coverage["batches applied"] += 1

    def check_log(self) -> None:
        """The log holds each transaction once, no row of a select, and one completion of each table."""
        oracle, ends = LedgerOracle(lambda schema_id: self._schema(schema_id)), Counter[TableId]()
        for block in ChangeLogReader(self.paths.changelog).blocks(0):
            oracle.feed(block)
            selected = block.index[block.index["origin"] == ORIGIN_SELECT]
            assert int(selected["changes"].sum()) == sum(
                e.kind is SystemKind.DUMP_COMPLETE for e in block.system
            )
            ends.update(e.table for e in block.system if e.kind is SystemKind.DUMP_COMPLETE)
        assert oracle.log_transactions == [t.scn for t in self.database.log if not t.mark]
        # A crash between the end mark and its progress repeats it.
        assert set(ends) == set(self.database.schemas)

    def _schema(self, schema_id: int) -> TableSchema:
        return next(s for s in TABLES if s.schema_id == schema_id)


def _no_lsn(text: str, offset: int) -> int:
    raise ValueError(text)


@req("D34")
def test_any_history_goes_on_from_a_dump_of_any_position(
    tmp_path: Path,
) -> None:
    coverage: Counter[str] = Counter()
    for seed in range(SEEDS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        story = Story(seed, folder, coverage)
        begins = story.run()
        for schema in TABLES:
            story.follow(schema)
            late = [t for t in story.database.log if t.scn > begins[schema.table]]
            coverage[f"changes behind the dump of {schema.table.name}"] += len(late)
        story.check_log()
    for wanted in (
        *(f"crash at {step}" for step in STEPS),
        *(f"changes behind the dump of {schema.table.name}" for schema in TABLES),
        *("rows adopted", "truncates", "swaps", "key changes with missing columns"),
        *("deferred key shifts", "keyless deletes and updates", "updates in place (minimal)"),
    ):
        assert coverage[wanted] >= 10, json.dumps(coverage, indent=1)


@req("D34")
@pytest.mark.parametrize("off_by", [-1, 1])
def test_a_position_that_is_off_by_one_transaction_is_found_out(
    off_by: int, tmp_path: Path
) -> None:
    """What the comparison is worth: without the exact position a change is missed, or counts twice."""
    coverage: Counter[str] = Counter()
    wrong: Counter[str] = Counter()
    for seed in range(12):
        folder = tmp_path / str(seed)
        folder.mkdir()
        story = Story(seed, folder, coverage)
        try:
            story.run(off_by)
        except ScnNotFound:
            # The transaction that the position is off by is not in the log yet.
            continue
        for schema in TABLES:
            try:
                story.follow(schema)
            except (AssertionError, FoldError):
                wrong[schema.table.name] += 1
    assert all(wrong[schema.table.name] >= 3 for schema in TABLES), wrong

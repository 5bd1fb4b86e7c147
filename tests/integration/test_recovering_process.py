"""The capture process itself, its slot lost: stopped for a person, recovered on a word, recovered by policy."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headrace.changelog import ChangeLogReader
from headrace.lake import FrontierStore, Manifest, TableEntry, table_path
from headrace.model.change import table_arrow_schema
from headrace.observe.status import ProcessStatus
from headrace.registry.file import FileRegistry
from headrace.replicator import resync
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.replicator.worker import EXIT_OK, EXIT_STOP
from headrace.sources.postgres import PostgresSource
from headrace.state.records import Cause, Scope
from headrace.state.store import StateStore
from tests.faults.faulty import PUBLIC_T, rows_of
from tests.faults.test_slot import drop_under
from tests.fixtures_postgres import Sql
from tests.integration.running import Running, carried_out_in
from tests.lake.handmade import HandmadeTable
from tests.places import local
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.long]

SLOT = "headrace_lone"


class Lone:
    """A capture process without an apply beside it."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url, self.file, self.log = url, folder / "lone.yaml", folder / "lone.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.configure("stop")

    def configure(self, on_lost_slot: str) -> None:
        self.file.write_text(
            "name: lone\n"
            f"source: {{type: postgres, url: {json.dumps(self.url)}, tables: ['public.*'],"
            f" on_lost_slot: {on_lost_slot}}}\n"
            "target: {type: delta, path: ./lake}\n"
        )
        self.config = load(self.file)
        self.paths = StatePaths.of(self.config)

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "headrace.replicator.capture_process", str(self.file)],
                stdout=log,
                stderr=log,
            )

    def end(self) -> int:
        """Ask it to end and return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(60)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def until(self, condition: str) -> None:
        """Wait for one of the conditions below while the process lives."""

        def look() -> bool:
            assert self.process is not None
            assert self.process.poll() is None, self.log.read_text()
            return bool(getattr(self, condition)())

        until(look, condition)

    def dumped(self) -> bool:
        return carried_out_in(self.paths.database)

    def whole(self) -> bool:
        with closing(StateStore(self.paths.database)) as state:
            return resync.read(state) is None and not state.gaps() and bool(state.requests())

    def follows(self) -> bool:
        running = Running(self.paths.root)
        running.registry = FileRegistry(self.paths.registry)
        with closing(running.state):
            return running.content(PUBLIC_T) == rows_of(self.url, "t")

    def apply(self) -> None:
        """Write what apply would have written by now."""
        scn = ChangeLogReader(self.paths.changelog).tail().covered_scn
        reader = PostgresSource(self.url, name="lone").chunks()
        dump = reader.read_table(PUBLIC_T)
        rows = pa.Table.from_batches(dump.batches, schema=table_arrow_schema(dump.schema))
        reader.close()
        version = HandmadeTable(table_path(local(self.config.lake), PUBLIC_T)).create(rows)
        entries = {"public.t": TableEntry(version, scn, 1, "live")}
        FrontierStore(self.config.lake, "lone").write(Manifest(scn, scn, entries, scn))


@pytest.fixture
def lone(database: str, sql: Sql, tmp_path: Path) -> Iterator[Lone]:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT n, 'first' FROM generate_series(1, 100) n",
    )
    made = Lone(tmp_path, database)
    yield made
    made.close()


@req("H26")
def test_the_capture_process_recovers_on_a_word_and_then_by_policy(
    lone: Lone, database: str, sql: Sql
) -> None:
    lone.start()
    lone.until("dumped")
    lone.until("follows")
    told = ProcessStatus.read(lone.paths.status("capture"))
    assert told is not None
    assert told.detail["slot"]["slot"] == SLOT
    assert lone.end() == EXIT_OK

    with psycopg.connect(database, autocommit=True) as connection:
        drop_under(connection, SLOT)
    sql("DELETE FROM t WHERE id <= 10", "UPDATE t SET v = 'unread' WHERE id = 20")
    lone.start()
    assert lone.process is not None
    assert lone.process.wait(60) == EXIT_STOP
    told = ProcessStatus.read(lone.paths.status("capture"))
    assert told is not None
    assert told.error is not None
    assert (told.error["name"], "headrace resync" in told.error["next_step"]) == ("SlotLost", True)

    resync.order(lone.config)
    lone.start()
    lone.until("whole")
    # There was no target to compare with: everything was read again.
    lone.until("follows")
    assert lone.end() == EXIT_OK
    lone.apply()

    lone.configure("recover")
    lone.start()
    lone.until("follows")
    with psycopg.connect(database, autocommit=True) as connection:
        drop_under(connection, SLOT)
    sql("DELETE FROM t WHERE id BETWEEN 30 AND 34", "INSERT INTO t VALUES (9000, 'unread')")
    # Six keys, unless capture was back before the last of them was written.
    until(lambda: len(repairs(lone)) == 1, "what differs is asked for")
    assert repairs(lone)[0] <= 6
    lone.until("whole")
    lone.until("follows")
    assert "recovering, as source.on_lost_slot says" in lone.log.read_text()
    assert lone.end() == EXIT_OK


def repairs(lone: Lone) -> list[int]:
    """Return how many keys each comparison found to differ."""
    with closing(StateStore(lone.paths.database)) as state:
        return [
            len(r.keys) for r in state.requests() if (r.scope, r.cause) == (Scope.REPAIR, Cause.GAP)
        ]

"""A lost slot is recovered by comparison: only what differs is read again, while writes go on."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headrace.changelog import ChangeLogReader, ChangeLogSettings
from headrace.lake import FrontierStore, Manifest, TableEntry, table_path
from headrace.model.block import ORIGIN_SELECT, SystemKind
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId
from headrace.relay.recovery import begin_again
from headrace.replicator import repair, resync
from headrace.replicator.capture_log import CaptureLog
from headrace.replicator.repair import Repair, comparable
from headrace.replicator.replicas import DeltaReplicas
from headrace.replicator.resync import Resync, ResyncState
from headrace.sources.postgres import PostgresSource
from headrace.state.records import Cause, RequestState, Scope
from headrace.state.store import StateStore
from tests.faults.faulty import AtWork, at_work, copied, follows
from tests.fixtures_postgres import Sql
from tests.lake.handmade import HandmadeTable
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

PIPELINE = "again"
SLOT = "headrace_again"
TABLES = tuple(TableId("public", name) for name in ("bag", "large", "quiet", "t"))
BAG, LARGE, QUIET, T = TABLES
ROWS = 60


class Shop:
    """A source, a state and a target that showed the source when its slot was lost."""

    def __init__(self, url: str, folder: Path) -> None:
        self.url, self.folder, self.lake = url, folder / "state", folder / "lake"
        self.source = PostgresSource(url, name=PIPELINE)
        self.state = StateStore(self.folder / "state.db")
        copied(self.source, self.folder)
        self._copy_to_target()

    def _copy_to_target(self) -> None:
        """Write what apply would have written by now."""
        scn = ChangeLogReader(self.folder / "changelog").tail().covered_scn
        reader, entries = self.source.chunks(), {}
        for table in TABLES:
            dump = reader.read_table(table)
            rows = pa.Table.from_batches(dump.batches, schema=table_arrow_schema(dump.schema))
            version = HandmadeTable(table_path(self.lake, table)).create(rows)
            entries[str(table)] = TableEntry(version, scn, 1, "live")
        reader.close()
        FrontierStore(self.lake, PIPELINE).write(Manifest(scn, scn, entries, scn))

    def lose_slot(self) -> None:
        def dropped() -> bool:
            with psycopg.connect(self.url, autocommit=True) as connection:
                try:
                    connection.execute("SELECT pg_drop_replication_slot(%s)", (SLOT,))
                except psycopg.errors.ObjectInUse:
                    return False
                return True

        until(dropped, "the slot is dropped")

    def begin_again(self) -> set[TableId]:
        """Do what the next start of capture does on the user's word; return the tables to compare."""
        self.source.prepare(fresh=True)
        shapes = {schema.table: schema.schema_id for schema in self.source.tables()}
        kept = comparable(self.lake, PIPELINE, self.state, shapes)
        log = CaptureLog(self.folder / "changelog", ChangeLogSettings())
        try:
            begin_again(self.source, log, self.state, list(shapes), kept)
        finally:
            log.close()
        self.state.write([Resync(ResyncState.REPAIRING, "lost", 0).put])
        return kept

    def repair(self, running: AtWork) -> None:
        """Compare and repair until every table is whole."""
        stop, source = threading.Event(), self.source
        work = Repair(
            self.state,
            source,
            self.folder / "changelog",
            DeltaReplicas(self.lake, PIPELINE),
        )

        def done() -> bool:
            if running.error is not None:
                raise running.error
            return not work.step(stop)

        until(done, "the resync is done")
        assert resync.read(self.state) is None

    def read_again(self) -> Counter[TableId]:
        """Return the rows per table in windows behind the gap."""
        gap, found = 0, Counter[TableId]()
        for block in ChangeLogReader(self.folder / "changelog").blocks(0):
            for event in block.system:
                if event.kind is SystemKind.GAP:
                    gap = event.scn
            windows = set(block.index["scn"][block.index["origin"] == ORIGIN_SELECT].tolist())
            for body in block.bodies:
                scns = body.batch.column("_scn").to_pylist()
                found[body.table] += sum(scn in windows and scn > gap > 0 for scn in scns)
        return found


@pytest.fixture
def shop(database: str, sql: Sql, tmp_path: Path) -> Iterator[Shop]:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        f"INSERT INTO t SELECT n, 'v' || n FROM generate_series(1, {ROWS}) n",
        "CREATE TABLE large (k text, n int, v int, body text, PRIMARY KEY (k, n))",
        "ALTER TABLE large ALTER body SET STORAGE EXTERNAL",
        "INSERT INTO large SELECT 'k' || n % 7, n, 0, repeat('body ' || n, 700) FROM generate_series(1, 24) n",
        "CREATE TABLE bag (kind text, n int)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO bag SELECT 'a', n % 3 FROM generate_series(1, 12) n",
        "CREATE TABLE quiet (id int PRIMARY KEY)",
        "INSERT INTO quiet SELECT generate_series(1, 10)",
    )
    made = Shop(database, tmp_path)
    yield made
    made.state.close()


UNREAD = (
    "DELETE FROM t WHERE id IN (3, 4, 5)",
    "UPDATE t SET v = 'unread' WHERE id BETWEEN 20 AND 29",
    "INSERT INTO t SELECT n, 'unread' FROM generate_series(1001, 1010) n",
    "UPDATE large SET n = n + 500 WHERE n < 4",
    "UPDATE large SET v = 7 WHERE n = 10",
    "DELETE FROM large WHERE n = 11",
    "INSERT INTO large VALUES ('new', 1, 0, repeat('fresh', 900)), ('new', 2, 0, repeat('fresh', 800))",
    "INSERT INTO bag VALUES ('b', 1), ('b', 1)",
    "DELETE FROM bag WHERE ctid = (SELECT min(ctid) FROM bag)",
)


@req("H26")
def test_only_what_differs_is_read_again_and_vanished_rows_vanish(shop: Shop, sql: Sql) -> None:
    shop.lose_slot()
    sql(*UNREAD)
    assert shop.begin_again() == set(TABLES)
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        for table in TABLES:
            follows(running, shop.url, table)
    again = shop.read_again()
    assert again[T] == 3 + 10 + 10
    assert again[LARGE] == 2 * 3 + 1 + 1 + 2
    assert again[QUIET] == 0
    assert again[BAG] == 13
    scopes = {r.table: r.scope for r in shop.state.requests() if r.cause is Cause.GAP}
    assert scopes == {T: Scope.REPAIR, LARGE: Scope.REPAIR, QUIET: Scope.REPAIR, BAG: Scope.TABLE}
    assert shop.state.gaps() == set()


@req("H26")
@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 3, 4, 5, 6, 7))]
)
def test_writes_go_on_during_the_repair(shop: Shop, sql: Sql, seed: int) -> None:
    """Rows written while the slot was lost are patched and moved, without their large values, before they are read."""
    shop.lose_slot()
    sql(*UNREAD)
    shop.begin_again()
    rng, stop = random.Random(seed), threading.Event()

    def write() -> None:
        with psycopg.connect(shop.url, autocommit=True) as connection:
            while not stop.wait(0.002):
                statement = rng.choice(
                    (
                        "UPDATE large SET v = v + 1 WHERE n = {a}",
                        "UPDATE large SET n = n + 3000 WHERE n = {a} AND k = 'new'",
                        "UPDATE large SET n = {b} WHERE n = {a} AND NOT EXISTS (SELECT FROM large WHERE n = {b})",
                        "DELETE FROM t WHERE id = {b}",
                        "INSERT INTO t VALUES ({b}, 'busy') ON CONFLICT (id) DO UPDATE SET v = 'busy too'",
                        "UPDATE t SET id = id + 5000 WHERE id = {b}",
                        "INSERT INTO bag VALUES ('c', {a} % 3)",
                    )
                ).format(a=rng.randrange(1, 25), b=rng.randrange(1, ROWS))
                try:
                    connection.execute(statement.encode())
                except psycopg.errors.UniqueViolation:
                    continue

    with at_work(shop.source, shop.folder) as running:
        writer = threading.Thread(target=write, name="writer")
        writer.start()
        try:
            shop.repair(running)
        finally:
            stop.set()
            writer.join()
        for table in TABLES:
            follows(running, shop.url, table)
    assert shop.state.gaps() == set()


@req("H26")
def test_a_table_that_differs_in_much_is_emptied_and_copied(
    shop: Shop, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "MOST_KEYS", 20)
    shop.lose_slot()
    sql("UPDATE t SET id = id + 10000 WHERE id <= 50")
    shop.begin_again()
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        for table in TABLES:
            follows(running, shop.url, table)
    assert shop.read_again()[T] == ROWS
    scopes = {r.table: r.scope for r in shop.state.requests() if r.cause is Cause.GAP}
    assert scopes[T] is Scope.TABLE


@req("H26")
@pytest.mark.long
def test_a_repair_that_was_cut_short_is_done_by_the_next_start(
    shop: Shop, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "LOG_WAIT_S", 0.1)
    shop.lose_slot()
    sql(*UNREAD)
    shop.begin_again()
    work = Repair(
        shop.state,
        shop.source,
        shop.folder / "changelog",
        DeltaReplicas(shop.lake, PIPELINE),
    )
    # A comparison, and no capture yet that carries out what it asks for; then the capture begins and ends at once.
    for _ in TABLES:
        assert work.step(threading.Event())
    with at_work(shop.source, shop.folder):
        sql("UPDATE large SET k = 'moved' WHERE k = 'new'")
    assert shop.state.gaps() or all(
        r.state is RequestState.COMPLETED for r in shop.state.requests()
    )
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        for table in TABLES:
            follows(running, shop.url, table)


def test_a_crash_between_log_and_state_begins_again_once_more(
    shop: Shop, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop.lose_slot()
    sql(*UNREAD)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StateStore, "write", crash)
        with pytest.raises(KeyboardInterrupt):
            shop.begin_again()
    assert shop.state.gaps() == set()
    assert shop.begin_again() == set(TABLES)
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        for table in TABLES:
            follows(running, shop.url, table)


@pytest.mark.long
def test_a_table_that_was_not_whole_or_changed_its_shape_is_not_compared(
    shop: Shop, sql: Sql
) -> None:
    shop.lose_slot()
    sql("ALTER TABLE t ADD COLUMN more int DEFAULT 5", "UPDATE quiet SET id = id + 100")
    frontiers = FrontierStore(shop.lake, PIPELINE)
    newest = frontiers.latest()
    assert newest is not None
    entries = dict(newest.tables)
    entries["public.quiet"] = TableEntry(0, newest.scn, None, "copying")
    frontiers.write(Manifest(newest.scn + 1, 1, entries, 1))
    assert shop.begin_again() == {BAG, LARGE}
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        for table in TABLES:
            follows(running, shop.url, table)
    assert shop.read_again()[T] == ROWS

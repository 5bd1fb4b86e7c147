"""A lost slot or a purged log is recovered by comparison: only what differs is read again, while writes go on."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pymysql
import pytest

from headrace.changelog import ChangeLogReader, ChangeLogSettings
from headrace.client import Consumer, Event, Subscription
from headrace.lake import FrontierStore, Manifest, TableEntry, table_path
from headrace.model.block import ORIGIN_LOG, SystemEvent, SystemKind
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableId
from headrace.relay.recovery import begin_again
from headrace.replicator import repair, resync
from headrace.replicator.capture_log import CaptureLog
from headrace.replicator.repair import Key, Repair, comparable
from headrace.replicator.replicas import DeltaReplicas
from headrace.replicator.resync import Resync, ResyncState
from headrace.state.records import Cause, RequestState, Scope
from headrace.state.store import StateStore
from tests.faults.faulty import AtWork, at_work, copied
from tests.fixtures_binlog import mariadb_server
from tests.integration.either import EACH_SERVER, Either, on_either
from tests.lake.handmade import HandmadeTable
from tests.requirements import req
from tests.waiting import until

__all__ = ["mariadb_server"]

PIPELINE = "again"
NAMES = ("bag", "large", "quiet", "t")
ROWS = 60


class Shop:
    """A source, a state and a target that showed the source when its slot was lost."""

    def __init__(self, either: Either, folder: Path) -> None:
        self.either, self.folder, self.lake = either, folder / "state", folder / "lake"
        self.source = either.source
        self.tables = [either.table(name) for name in NAMES]
        self.bag, self.large, self.quiet, self.t = self.tables
        self.state = StateStore(self.folder / "state.db")
        copied(self.source, self.folder)
        self._copy_to_target()

    def _copy_to_target(self) -> None:
        """Write what apply would have written by now."""
        scn = ChangeLogReader(self.folder / "changelog").tail().covered_scn
        reader, entries = self.source.chunks(), {}
        for table in self.tables:
            dump = reader.read_table(table)
            rows = pa.Table.from_batches(dump.batches, schema=table_arrow_schema(dump.schema))
            version = HandmadeTable(table_path(self.lake, table)).create(rows)
            entries[str(table)] = TableEntry(version, scn, 1, "live")
        reader.close()
        FrontierStore(self.lake, PIPELINE).write(Manifest(scn, scn, entries, scn))

    def unread(self, *statements: str) -> None:
        """Have changes in the source that the log does not bring any more."""
        either = self.either
        if either.kind == "postgres":
            slot = f"headrace_{either.source.name}"

            def dropped() -> bool:
                try:
                    either.says(f"SELECT pg_drop_replication_slot('{slot}')")
                except psycopg.errors.ObjectInUse:
                    return False
                return True

            until(dropped, "the slot is dropped")
        either.says(*statements)
        if either.kind == "mariadb":
            either.says("FLUSH BINARY LOGS")
            newest = max(file for file, *_ in either.rows_of("SHOW BINARY LOGS"))

            def purged() -> bool:
                either.says(f"PURGE BINARY LOGS TO '{newest}'")
                return len(either.rows_of("SHOW BINARY LOGS")) == 1

            until(purged, "the log is gone")

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
            windows = set(block.index["scn"][block.index["origin"] != ORIGIN_LOG].tolist())
            for body in block.bodies:
                scns = body.batch.column("_scn").to_pylist()
                found[body.table] += sum(scn in windows and scn > gap > 0 for scn in scns)
        return found

    def follow(self, running: AtWork) -> None:
        """Return when the change log amounts to what the source holds."""

        def same(table: TableId) -> bool:
            return running.holds(table, self.either.rows(str(table)))

        for table in self.tables:
            until(lambda table=table: same(table), f"{table} as the source has it")  # type: ignore[misc]


FILLED = {
    "postgres": (
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
    ),
    "mariadb": (
        # As if large values were left out by the database itself.
        "SET SESSION binlog_row_image = NOBLOB",
        "CREATE TABLE t (id int PRIMARY KEY, v varchar(20))",
        f"INSERT INTO t SELECT seq, CONCAT('v', seq) FROM seq_1_to_{ROWS}",
        "CREATE TABLE large (k varchar(20), n int, v int, body text, PRIMARY KEY (k, n))",
        "INSERT INTO large SELECT CONCAT('k', seq % 7), seq, 0, repeat(CONCAT('body ', seq), 700) FROM seq_1_to_24",
        "CREATE TABLE bag (kind varchar(9), n int)",
        "INSERT INTO bag SELECT 'a', seq % 3 FROM seq_1_to_12",
        "CREATE TABLE quiet (id int PRIMARY KEY)",
        "INSERT INTO quiet SELECT seq FROM seq_1_to_10",
    ),
}


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Shop]:
    with on_either(request.param, request, tmp_path) as either:
        either.says(*FILLED[either.kind])
        made = Shop(either, tmp_path)
        yield made
        made.state.close()


on_both = pytest.mark.parametrize("shop", EACH_SERVER, indirect=True)
on_both_in_time = pytest.mark.parametrize(
    "shop",
    [EACH_SERVER[0], pytest.param("mariadb", marks=[pytest.mark.mariadb, pytest.mark.long])],
    indirect=True,
)


UNREAD = (
    "DELETE FROM t WHERE id IN (3, 4, 5)",
    "UPDATE t SET v = 'unread' WHERE id BETWEEN 20 AND 29",
    *(f"INSERT INTO t VALUES ({n}, 'unread')" for n in range(1001, 1011)),
    "UPDATE large SET n = n + 500 WHERE n < 4",
    "UPDATE large SET v = 7 WHERE n = 10",
    "DELETE FROM large WHERE n = 11",
    "INSERT INTO large VALUES ('new', 1, 0, repeat('fresh', 900)), ('new', 2, 0, repeat('fresh', 800))",
    "INSERT INTO bag VALUES ('b', 1), ('b', 1)",
)


def lose(shop: Shop) -> None:
    """Lose what removes, changes and brings rows of every kind."""
    shop.unread(*UNREAD, f"DELETE FROM bag {shop.either.one_of('bag', 'n = 1')}")


@on_both
@req("H26")
def test_only_what_differs_is_read_again_and_vanished_rows_vanish(shop: Shop) -> None:
    lose(shop)
    assert shop.begin_again() == set(shop.tables)
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        shop.follow(running)
    again = shop.read_again()
    assert again[shop.t] == 3 + 10 + 10
    assert again[shop.large] == 2 * 3 + 1 + 1 + 2
    assert again[shop.quiet] == 0
    assert again[shop.bag] == 13
    scopes = {r.table: r.scope for r in shop.state.requests() if r.cause is Cause.GAP}
    assert scopes == {
        shop.t: Scope.REPAIR,
        shop.large: Scope.REPAIR,
        shop.quiet: Scope.REPAIR,
        shop.bag: Scope.TABLE,
    }
    assert shop.state.gaps() == set()


class Held(Consumer):
    """Holds the rows of one table by their keys, as a program that follows it does."""

    def __init__(self) -> None:
        self.rows: dict[int, dict[str, Any]] = {}

    def on_data_event(self, event: Event) -> None:
        if event.before is not None:
            self.rows.pop(event.before["id"], None)
        if event.op == "-D":
            self.rows.pop(event.row["id"], None)
        else:
            self.rows[event.row["id"]] = event.row

    def on_system_event(self, event: SystemEvent) -> None:
        if event.kind is SystemKind.TRUNCATE:
            self.rows.clear()


@on_both
@req("H26", "B-9")
def test_a_row_that_left_a_condition_in_the_gap_leaves_who_asked_for_it(shop: Shop) -> None:
    lose(shop)
    assert shop.t in shop.begin_again()
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        shop.follow(running)
    folder, held = shop.folder / "changelog", Held()
    Subscription(
        folder.as_uri(),
        "shop",
        held,
        filter={"tables": [str(shop.t)], "where": {str(shop.t): "v <> 'unread'"}},
        upto=ChangeLogReader(folder).tail().covered_scn,
        on_suspended="raise",
    ).run()
    assert set(held.rows) == {*range(1, ROWS + 1)} - {3, 4, 5, *range(20, 30)}


BUSY = (
    "UPDATE large SET v = v + 1 WHERE n = {a}",
    "UPDATE large SET n = n + 3000 WHERE n = {a} AND k = 'new'",
    "UPDATE large SET n = {b} WHERE n = {a}",
    "DELETE FROM t WHERE id = {b}",
    "INSERT INTO t VALUES ({b}, 'busy')",
    "UPDATE t SET v = 'busy too' WHERE id = {b}",
    "UPDATE t SET id = id + 5000 WHERE id = {b}",
    "INSERT INTO bag VALUES ('c', {a} % 3)",
)


@on_both
@req("H26")
@pytest.mark.parametrize(
    "seed", [2, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 3, 4, 5, 6, 7))]
)
def test_writes_go_on_during_the_repair(shop: Shop, seed: int) -> None:
    """Rows written while the slot was lost are patched and moved, without their large values, before they are read."""
    lose(shop)
    shop.begin_again()
    rng, stop = random.Random(seed), threading.Event()

    def write() -> None:
        with contextlib.closing(shop.either.connect()) as connection:
            cursor = connection.cursor()
            if shop.either.kind == "mariadb":
                cursor.execute("SET SESSION binlog_row_image = NOBLOB")
            while not stop.wait(0.002):
                statement = rng.choice(BUSY).format(
                    a=rng.randrange(1, 25), b=rng.randrange(1, ROWS)
                )
                with contextlib.suppress(
                    psycopg.errors.UniqueViolation, pymysql.err.IntegrityError
                ):
                    cursor.execute(statement)

    with at_work(shop.source, shop.folder) as running:
        writer = threading.Thread(target=write, name="writer")
        writer.start()
        try:
            shop.repair(running)
        finally:
            stop.set()
            writer.join()
        shop.follow(running)
    assert shop.state.gaps() == set()


@on_both_in_time
@req("H26")
def test_a_table_that_differs_in_much_is_emptied_and_copied(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "MOST_KEYS", 20)
    shop.unread("UPDATE t SET id = id + 10000 WHERE id <= 50")
    shop.begin_again()
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        shop.follow(running)
    assert shop.read_again()[shop.t] == ROWS
    scopes = {r.table: r.scope for r in shop.state.requests() if r.cause is Cause.GAP}
    assert scopes[shop.t] is Scope.TABLE


ANOTHER_KEY = {
    "postgres": (
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ALTER v SET NOT NULL, ADD PRIMARY KEY (v)",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (id)",
    ),
    "mariadb": (
        "ALTER TABLE t DROP PRIMARY KEY, MODIFY v varchar(20) NOT NULL, ADD PRIMARY KEY (v)",
        "ALTER TABLE t DROP PRIMARY KEY, ADD PRIMARY KEY (id)",
    ),
}
"""What gives a table another key, and its old one again."""


@on_both
@req("H26", "A-11")
@pytest.mark.parametrize("early", [True, False], ids=["before its rows are read", "behind it"])
def test_a_repair_reads_no_row_by_another_key_than_was_compared(
    shop: Shop, early: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is compared by one key and looked for by another is found nowhere: it is compared once more."""
    change, back = ANOTHER_KEY[shop.either.kind]
    shop.unread("UPDATE t SET v = CONCAT('unread', id) WHERE id BETWEEN 20 AND 29")
    shop.begin_again()
    ask_for = Repair._ask_for
    compared: list[TableId] = []

    def asked(work: Repair, table: TableId, keys: Sequence[Key] | None, order: str) -> None:
        if early and table == shop.t and table not in compared:
            shop.either.says(change)
        compared.append(table)
        ask_for(work, table, keys, order)

    monkeypatch.setattr(Repair, "_ask_for", asked)
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        if not early:
            shop.either.says(change)
        # Back, so that the whole log can be folded by one key here.
        shop.either.says(back, "INSERT INTO t VALUES (7777, 'last')")
        shop.follow(running)
    assert compared.count(shop.t) == 1 + early
    if shop.either.kind == "postgres":
        # By the other key ten rows are gone and ten are new; MariaDB's ALTER has the table dumped besides.
        assert shop.read_again()[shop.t] == 10 * (1 + early)
    repairs = [r for r in shop.state.requests() if r.cause is Cause.GAP and r.table == shop.t]
    ends = [RequestState.FAILED, RequestState.COMPLETED]
    assert [r.state for r in repairs] == (ends if early else ends[1:])
    assert all("has another key" in r.reason for r in repairs[:-1])
    assert shop.state.gaps() == set()


@on_both_in_time
@req("H26")
@pytest.mark.long
def test_a_repair_that_was_cut_short_is_done_by_the_next_start(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair, "LOG_WAIT_S", 0.1)
    lose(shop)
    shop.begin_again()
    work = Repair(
        shop.state,
        shop.source,
        shop.folder / "changelog",
        DeltaReplicas(shop.lake, PIPELINE),
    )
    # A comparison, and no capture yet that carries out what it asks for; then the capture begins and ends at once.
    for _ in shop.tables:
        assert work.step(threading.Event())
    with at_work(shop.source, shop.folder):
        shop.either.says("UPDATE large SET k = 'moved' WHERE k = 'new'")
    assert shop.state.gaps() or all(
        r.state is RequestState.COMPLETED for r in shop.state.requests()
    )
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        shop.follow(running)


@on_both_in_time
def test_a_crash_between_log_and_state_begins_again_once_more(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    lose(shop)

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(StateStore, "write", crash)
        with pytest.raises(KeyboardInterrupt):
            shop.begin_again()
    assert shop.state.gaps() == set()
    assert shop.begin_again() == set(shop.tables)
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        shop.follow(running)


@on_both_in_time
@pytest.mark.long
def test_a_table_that_was_not_whole_or_changed_its_shape_is_not_compared(shop: Shop) -> None:
    shop.unread("ALTER TABLE t ADD COLUMN more int DEFAULT 5", "UPDATE quiet SET id = id + 100")
    frontiers = FrontierStore(shop.lake, PIPELINE)
    newest = frontiers.latest()
    assert newest is not None
    entries = dict(newest.tables)
    entries[str(shop.quiet)] = TableEntry(0, newest.scn, None, "copying")
    frontiers.write(Manifest(newest.scn + 1, 1, entries, 1))
    assert shop.begin_again() == {shop.bag, shop.large}
    with at_work(shop.source, shop.folder) as running:
        shop.repair(running)
        shop.follow(running)
    assert shop.read_again()[shop.t] == ROWS

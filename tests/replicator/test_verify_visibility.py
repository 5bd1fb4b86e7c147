"""Verify where the log is ahead of what the source shows, and while writers run."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import psycopg
import pyarrow as pa
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres.digest import SourceView
from headrace.sources.postgres.settings import PostgresSettings
from tests.replicator.verify_bench import MISSING, Bench
from tests.waiting import until

pytestmark = pytest.mark.postgres


class HeldCommit:
    """A transaction that is in the log and that nobody sees: its commit waits for an absent standby."""

    def __init__(self, bench: Bench, statement: str, pool: ThreadPoolExecutor) -> None:
        self._bench = bench
        self._connection = psycopg.connect(bench.url)
        self._connection.execute(statement.encode())
        row = self._connection.execute(b"SELECT pg_current_xact_id()::text").fetchone()
        assert row
        self.xid = int(row[0])
        self._commit: Future[None] = pool.submit(self._connection.commit)
        until(lambda: waiting_pids(bench), "the commit to wait for a standby")

    def release(self) -> None:
        """Let the commit become visible; return when it is."""
        reconfigure(self._bench, "RESET synchronous_standby_names")
        self._commit.result(20)
        self._connection.close()


def reconfigure(bench: Bench, setting: str) -> None:
    bench.execute(f"ALTER SYSTEM {setting}", "SELECT pg_reload_conf()")


def waiting_pids(bench: Bench) -> list[int]:
    """Return the backends whose commit waits for a standby."""
    query = b"SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'"
    return [row[0] for row in bench.connection.execute(query).fetchall()]


def commits_wait(bench: Bench, pool: ThreadPoolExecutor) -> bool:
    """Commit a transaction of no importance; return whether it had to wait, which it then need not."""
    with psycopg.connect(bench.url, autocommit=True) as probe:
        commit = pool.submit(probe.execute, b"SELECT pg_logical_emit_message(true, 'probe', '')")
        waits = until(lambda: commit.done() or waiting_pids(bench), "the probe to commit or wait")
        if isinstance(waits, list):
            bench.execute(f"SELECT pg_cancel_backend({waits[0]})")
        commit.result(20)
    return isinstance(waits, list)


@contextlib.contextmanager
def held(bench: Bench, statement: str) -> Iterator[HeldCommit]:
    bench.execute("SET synchronous_commit = local")
    with ThreadPoolExecutor(2) as pool:
        commit = None
        try:
            reconfigure(bench, "SET synchronous_standby_names = 'absent'")
            # The server takes note of the setting some time after it was told to.
            until(lambda: commits_wait(bench, pool), "the setting to work")
            commit = HeldCommit(bench, statement, pool)
            yield commit
        finally:
            reconfigure(bench, "RESET synchronous_standby_names")
            if commit is not None:
                commit.release()


@pytest.fixture
def shop(bench: Bench) -> Bench:
    bench.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, name text)",
        "INSERT INTO orders SELECT i, 'order ' || i FROM generate_series(1, 100) i",
    )
    bench.settle("orders")
    return bench


def test_a_transaction_nobody_sees_makes_the_frontier_an_older_one(shop):
    older = shop.frontiers.scns()[-1]
    with held(shop, "UPDATE orders SET name = 'unseen' WHERE id = 1") as commit:
        shop.logged(commit.xid, ("orders", "=U", (1, "unseen")))
        scn = shop.transaction(
            "UPDATE orders SET name = 'seen' WHERE id = 2", ("orders", "=U", (2, "seen"))
        )
        rows = shop.rows("orders").to_pylist()
        assert {row["id"]: row["name"] for row in rows}[1] == "order 1"
        write_ahead(shop)
        shop.publish(scn)
        report = shop.verify()
        assert report.equal
        assert report.frontier_scn == older
        assert report.tables[0].target_version == 0
    report = shop.verify()
    assert report.equal
    assert (report.frontier_scn, report.tables[0].target_version) == (scn, 1)


def write_ahead(shop: Bench) -> None:
    """Let the target hold the update of order 1 that the source does not show yet."""
    rows = shop.rows("orders")
    ahead = [row | ({"name": "unseen"} if row["id"] == 1 else {}) for row in rows.to_pylist()]
    shop.write("orders", pa.Table.from_pylist(ahead, schema=rows.schema))


def test_without_an_older_frontier_the_snapshot_is_taken_again(shop):
    with held(shop, "UPDATE orders SET name = 'unseen' WHERE id = 1") as commit:
        scn = shop.logged(commit.xid, ("orders", "=U", (1, "unseen")))
        write_ahead(shop)
        (shop.frontiers.folder / f"{shop.frontiers.scns()[-1]:020d}.json").unlink()
        shop.publish(scn)
        report = shop.verify(timeout_s=1)
        assert [table.state for table in report.tables] == ["behind"]
        lines = []

        def show(line: str) -> None:
            lines.append(line)
            if line.startswith("waiting for a frontier"):
                commit.release()

        assert shop.verify(progress=show).equal
        assert any(line.startswith("waiting for a frontier") for line in lines)


def test_later_transactions_are_taken_by_visibility_not_by_order(shop):
    with held(shop, "DELETE FROM orders WHERE id = 1") as commit:
        shop.logged(commit.xid, ("orders", "-D", (1, MISSING)))
        shop.transaction(
            "UPDATE orders SET name = 'seen' WHERE id = 2", ("orders", "=U", (2, "seen"))
        )
        assert len(shop.rows("orders")) == 100
        report = shop.verify()
        assert report.equal
        assert report.tables[0].target_rows == 100
    report = shop.verify()
    assert report.equal
    assert report.tables[0].target_rows == 99


def test_an_open_transaction_is_not_taken_though_it_commits_during_the_comparison(shop):
    with psycopg.connect(shop.url) as other:
        other.execute(b"INSERT INTO orders VALUES (500, 'open')")
        row = other.execute(b"SELECT pg_current_xact_id()::text").fetchone()
        assert row

        def commit(line: str) -> None:
            if line.startswith("comparing"):
                other.commit()
                shop.logged(int(row[0]), ("orders", "+I", (500, "open")))

        assert shop.verify(progress=commit).equal
    assert shop.verify().tables[0].target_rows == 101


# -- the view -----------------------------------------------------------------------------------


def view_of(shop: Bench) -> SourceView:
    return SourceView(PostgresSettings(url=shop.url), [TableId("public", "orders")])


def test_a_truncate_cannot_slip_in_between_snapshot_and_read(shop):
    table = TableId("public", "orders")
    with (
        psycopg.connect(shop.url) as other,
        ThreadPoolExecutor(1) as pool,
    ):
        other.execute(b"TRUNCATE orders")
        row = other.execute(b"SELECT pg_current_xact_id()::text").fetchone()
        assert row
        entered = pool.submit(view_of(shop).__enter__)
        waits = (
            b"SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' "
            b"AND query LIKE 'LOCK TABLE%'"
        )
        until(lambda: shop.connection.execute(waits).fetchone()[0], "the view to wait")
        other.commit()
        view = entered.result(20)
        try:
            # It is empty, and the view knows that it sees the reason.
            assert list(view.range_sums(table)) == []
            assert int(row[0]) not in view.snapshot.xip
            assert int(row[0]) < view.snapshot.xmax
            other.execute(b"SET lock_timeout = '100ms'")
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute(b"TRUNCATE orders")
            other.rollback()
        finally:
            view.__exit__(None, None, None)


def test_partitions_are_read_under_their_root_and_children_alone(bench):
    bench.execute(
        "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE low PARTITION OF root FOR VALUES FROM (0) TO (50)",
        "CREATE TABLE high PARTITION OF root FOR VALUES FROM (50) TO (100)",
        "INSERT INTO root SELECT i, 'v' FROM generate_series(1, 80) i",
        "CREATE TABLE parent (id int PRIMARY KEY)",
        "CREATE TABLE child (more text) INHERITS (parent)",
        "INSERT INTO parent VALUES (1)",
        "INSERT INTO child VALUES (2, 'x')",
    )
    names = [TableId("public", name) for name in ("root", "parent")]
    with SourceView(PostgresSettings(url=bench.url), names) as view:
        counts = [sum(count for _, count, _ in view.range_sums(name)) for name in names]
    assert counts == [80, 1]


def test_a_role_that_may_only_select_can_verify(shop, verify_server):
    shop.execute(
        "DROP ROLE IF EXISTS reader", "CREATE ROLE reader LOGIN", "GRANT SELECT ON orders TO reader"
    )
    try:
        shop.url = shop.url.replace("postgres@", "reader@", 1)
        assert shop.verify().equal
    finally:
        shop.execute("DROP OWNED BY reader", "DROP ROLE reader")


def test_verify_stays_equal_while_writers_run(shop):
    """One session writes, another holds a transaction open; log and target follow, late."""
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        number = 0
        try:
            while not stop.is_set():
                number += 1
                key, name = number % 100 + 1, f"round {number}"
                scn = shop.transaction(
                    f"UPDATE orders SET name = '{name}' WHERE id = {key}; "
                    f"INSERT INTO orders VALUES ({1000 + number}, 'n')",
                    ("orders", "=U", (key, name)),
                    ("orders", "+I", (1000 + number, "n")),
                )
                if number % 7 == 0:
                    shop.copy("orders")
                    shop.publish(scn)
        except BaseException as error:
            failures.append(error)
            raise

    idle = psycopg.connect(shop.url)
    idle.execute(b"INSERT INTO orders VALUES (500, 'open')")
    writer = threading.Thread(target=write)
    writer.start()
    try:
        frontiers = set()
        for _ in range(6):
            report = shop.verify()
            assert report.equal, report
            frontiers.add(report.frontier_scn)
        until(lambda: failures or len(shop.frontiers.scns()) > 3, "the target to move")
    finally:
        stop.set()
        writer.join(20)
        idle.close()
    assert not failures
    assert len(frontiers) > 1
    assert shop.verify().equal

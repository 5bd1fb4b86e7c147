"""Capture and relay in one folder, tables in another that knows nothing but the relay's address."""

from __future__ import annotations

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.model.schema import TableId
from headrace.relay.server.settings import Role, ServedSource, Token
from headrace.sources.postgres import PostgresSource
from headrace.testing.ports import free_port
from headrace.testing.relay import served
from tests.certificates import self_signed
from tests.e2e.pipeline import Replicator
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.spark, pytest.mark.timeout(1200)]

TOKEN = Token("lake", "swordfish-of-the-lake", Role.READER)
TABLES = ("orders", "bag")


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        for statement in statements:
            session.execute(statement.encode())


def rows(url: str, name: str) -> Counter[tuple[Any, ...]]:
    with psycopg.connect(url) as session:
        return Counter(session.execute(f"SELECT * FROM {name}".encode()).fetchall())


def held(replicator: Replicator, name: str) -> Counter[tuple[Any, ...]]:
    """Return the rows of a target table."""
    folder = table_path(replicator.config.lake, TableId("public", name))
    return Counter(
        tuple(row.values()) for row in DeltaTable(folder).snapshot().to_table().to_pylist()
    )


def file_of(name: str, relay: str, tables: str, ca: Path) -> str:
    """Return the file of a replicator that takes some tables of the shop from a relay."""
    return (
        f"name: {name}\nsource: {{type: relay, urls: ['{relay}'], source: shop, tables: [{tables}], "
        f"token: {TOKEN.secret}, ca: {ca}}}\ntarget: {{type: delta, path: ./lake}}\n"
        "spark: {driver_memory: 1g}\n"
    )


@req("C-5", "D39")
def test_tables_follow_a_relay_through_restarts_on_either_side(url: str, tmp_path: Path) -> None:
    run(
        url,
        "CREATE TABLE orders (id int PRIMARY KEY, v text, big text)",
        "CREATE TABLE left_out (id int PRIMARY KEY)",
        "INSERT INTO left_out VALUES (1)",
        "CREATE TABLE bag (v int)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO orders SELECT n, 'old', repeat('x', 9000) FROM generate_series(1, 500) n",
        "INSERT INTO bag SELECT n % 7 FROM generate_series(1, 100) n",
    )
    pair = self_signed(tmp_path / "certificates")
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    sources = (ServedSource("shop", first / "changelog", first / "schemas"),)
    settings: dict[str, Any] = {
        "tokens": (TOKEN,),
        "certificate": pair.certificate,
        "key": pair.key,
    }

    def shown(replicator: Replicator) -> bool:
        return all(held(replicator, name) == rows(url, name) for name in TABLES)

    with running_capture(PostgresSource(url), first) as running:
        until(running.dumped, "the first copy")
        port = free_port()
        with served(sources, port=port, **settings) as relay:
            text = file_of("lake", relay, "public.orders, public.b*", pair.certificate)
            replicator = Replicator(second / "lake.yaml", text)
            replicator.succeed("preflight")
            replicator.succeed("run", "--once")
            assert shown(replicator)
            assert {table["name"] for table in replicator.status()["tables"]} == {
                "public.orders",
                "public.bag",
            }
            left_out = table_path(replicator.config.lake, TableId("public", "left_out"))
            assert DeltaTable(left_out).latest() is None
            assert TOKEN.secret not in replicator.logs()
            replicator.start()
            run(
                url,
                "UPDATE orders SET v = 'new' WHERE id % 3 = 0",
                "UPDATE orders SET id = id + 1000 WHERE id = 5",
                "DELETE FROM bag WHERE v = 3",
                "INSERT INTO bag VALUES (3), (NULL)",
            )
            replicator.running("the changes", lambda: shown(replicator))
        run(url, "TRUNCATE bag", "INSERT INTO bag VALUES (42)", "DELETE FROM orders WHERE id > 400")
        with served(sources, port=port, **settings):
            replicator.running("what came while there was no relay", lambda: shown(replicator))
            for role in ("capture", "apply"):
                _kill(replicator, role)
            run(url, "ALTER TABLE orders ADD COLUMN more int", "UPDATE orders SET more = id")
            replicator.running("what came after kills", lambda: shown(replicator))
        assert replicator.stop() == 0


@req("C-5")
@pytest.mark.long
def test_tables_of_one_database_are_spread_over_instances_that_live_by_themselves(
    url: str, tmp_path: Path
) -> None:
    run(
        url,
        "CREATE TABLE orders (id int PRIMARY KEY, v text)",
        "CREATE TABLE bag (v int)",
        "ALTER TABLE bag REPLICA IDENTITY FULL",
        "INSERT INTO orders SELECT n, 'old' FROM generate_series(1, 500) n",
        "INSERT INTO bag SELECT n % 7 FROM generate_series(1, 100) n",
    )
    pair = self_signed(tmp_path / "certificates")
    first, here = tmp_path / "first", tmp_path / "here"
    here.mkdir()
    sources = (ServedSource("shop", first / "changelog", first / "schemas"),)
    settings: dict[str, Any] = {
        "tokens": (TOKEN,),
        "certificate": pair.certificate,
        "key": pair.key,
    }
    with (
        running_capture(PostgresSource(url), first) as running,
        served(sources, **settings) as relay,
    ):
        until(running.dumped, "the first copy")
        instances = {
            table: Replicator(
                here / f"{table}.yaml",
                file_of(f"shop-{table}", relay, f"public.{table}", pair.certificate),
            )
            for table in TABLES
        }
        for replicator in instances.values():
            replicator.start()
        for table, replicator in instances.items():
            replicator.running("its copy", lambda r=replicator, t=table: equal(r, url, t))
        # One rests; the other neither waits for it nor does its work.
        assert instances["bag"].stop() == 0
        run(
            url,
            "BEGIN; UPDATE orders SET v = 'new' WHERE id % 3 = 0; DELETE FROM bag WHERE v = 3; COMMIT",
        )
        orders, bag = instances["orders"], instances["bag"]
        _kill(orders, "apply")
        orders.running("its changes", lambda: equal(orders, url, "orders"))
        assert not equal(bag, url, "bag")
        bag.start()
        bag.running("what came meanwhile", lambda: equal(bag, url, "bag"))
        for table, replicator in instances.items():
            assert [one["name"] for one in replicator.status()["tables"]] == [f"public.{table}"]
            assert replicator.stop() == 0
        with psycopg.connect(url) as session:
            assert len(session.execute("SELECT FROM pg_replication_slots").fetchall()) == 1


def equal(replicator: Replicator, url: str, name: str) -> bool:
    """Whether a target table has the rows of its source."""
    folder = table_path(replicator.config.lake, TableId("public", name))
    return DeltaTable(folder).latest() is not None and held(replicator, name) == rows(url, name)


def _kill(replicator: Replicator, role: str) -> None:
    pid = replicator.pid_of(role)
    assert pid
    os.kill(pid, signal.SIGKILL)

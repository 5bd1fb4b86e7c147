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


@req("D39")
def test_tables_follow_a_relay_through_restarts_on_either_side(url: str, tmp_path: Path) -> None:
    run(
        url,
        "CREATE TABLE orders (id int PRIMARY KEY, v text, big text)",
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
        with served(sources, **settings) as relay:
            text = (
                f"name: shop\nsource: {{type: relay, urls: ['{relay}'], token: {TOKEN.secret}, "
                f"ca: {pair.certificate}}}\ntarget: {{type: delta, path: ./lake}}\n"
                "spark: {driver_memory: 1g}\n"
            )
            replicator = Replicator(second / "shop.yaml", text)
            replicator.succeed("preflight")
            replicator.succeed("run", "--once")
            assert shown(replicator)
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
        port = int(relay.rpartition(":")[2])
        run(url, "TRUNCATE bag", "INSERT INTO bag VALUES (42)", "DELETE FROM orders WHERE id > 400")
        with served(sources, port=port, **settings):
            replicator.running("what came while there was no relay", lambda: shown(replicator))
            for role in ("capture", "apply"):
                _kill(replicator, role)
            run(url, "ALTER TABLE orders ADD COLUMN more int", "UPDATE orders SET more = id")
            replicator.running("what came after kills", lambda: shown(replicator))
        assert replicator.stop() == 0


def _kill(replicator: Replicator, role: str) -> None:
    pid = replicator.pid_of(role)
    assert pid
    os.kill(pid, signal.SIGKILL)

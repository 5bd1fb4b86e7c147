"""Two databases of a real server, captured, and a relay over both: what the examples read."""

from __future__ import annotations

import importlib.util
import random
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import ModuleType

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.relay.server.settings import ServedSource
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres_server import PostgresServer
from headrace.testing.relay import served
from tests.fixtures_postgres import postgres_server
from tests.integration.running import Running, running_capture
from tests.waiting import until

__all__ = ["Place", "example", "place", "postgres_server"]

EXAMPLES = Path(__file__).parents[2] / "examples"
TABLES = {
    "shop": "orders (id bigint PRIMARY KEY, customer_id bigint, total numeric(12,2), status text)",
    "crm": "customers (id bigint PRIMARY KEY, name text)",
}
ORDERS, CUSTOMERS = TableId("public", "orders"), TableId("public", "customers")


def example(name: str) -> ModuleType:
    """Return an example as a module."""
    found = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    # Where pydantic looks for what annotations name.
    sys.modules[found.name] = module
    found.loader.exec_module(module)
    return module


@dataclass
class Place:
    """What the examples find.

    Attributes:
        relay: its URL; it serves ``shop`` and ``crm``.
        urls: of the databases.
        upto: the SCN that covers everything that was written, per source.
        server: for more databases.
        captures: per source.
    """

    relay: str
    urls: dict[str, str]
    upto: dict[str, int]
    server: PostgresServer
    captures: dict[str, Running]

    def rows(self, source: str, query: str) -> list[tuple[object, ...]]:
        """Return what a query gives at a source."""
        with psycopg.connect(self.urls[source]) as connection:
            return connection.execute(query.encode()).fetchall()

    def catch_up(self) -> None:
        """Wait until the change logs hold what the databases do, and move ``upto`` there."""
        for source, table in (("shop", ORDERS), ("crm", CUSTOMERS)):
            until(partial(self._caught_up, source, table), f"{table} in the change log")
            self.upto[source] = self.captures[source].reader.tail().covered_scn

    def _caught_up(self, source: str, table: TableId) -> bool:
        capture = self.captures[source]
        held = Counter(self.rows(source, f"SELECT * FROM {table}"))
        return capture.dumped() and capture.content(table) == held


def busy(place: Place, seed: int, steps: int) -> None:
    """Change both databases at random: rows come, change, change their keys and go."""
    rng = random.Random(seed)
    with ExitStack() as stack:
        shop, crm = (
            stack.enter_context(psycopg.connect(place.urls[name], autocommit=True))
            for name in ("shop", "crm")
        )
        for _ in range(steps):
            order, customer, other = rng.randrange(30), rng.randrange(8), rng.randrange(30)
            total, status = rng.randrange(3000), rng.choice(["new", "paid", "sent"])
            placed = f"INSERT INTO orders VALUES ({order}, {customer}, {total} / 100.0, '{status}')"
            set_order = "customer_id = excluded.customer_id, total = excluded.total, status = excluded.status"
            free = f"NOT EXISTS (SELECT FROM orders WHERE id = {other})"
            named = f"INSERT INTO customers VALUES ({customer}, 'c{total}')"
            statements = [
                (shop, f"{placed} ON CONFLICT (id) DO UPDATE SET {set_order}"),
                (shop, f"DELETE FROM orders WHERE id = {order}"),
                (shop, f"UPDATE orders SET id = {other} WHERE id = {order} AND {free}"),
                (crm, f"{named} ON CONFLICT (id) DO UPDATE SET name = excluded.name"),
                (crm, f"DELETE FROM customers WHERE id = {customer}"),
            ]
            connection, statement = rng.choices(statements, (8, 1, 2, 5, 1))[0]
            connection.execute(statement.encode())


@pytest.fixture(scope="module")
def place(
    postgres_server: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """Capture two databases that were busy before and while they were copied."""
    folder = tmp_path_factory.mktemp("examples")
    names = {source: f"example_{source}" for source in TABLES}
    urls = {source: postgres_server.create_database(name) for source, name in names.items()}
    logs = tuple(
        ServedSource(name, folder / name / "changelog", folder / name / "schemas") for name in urls
    )
    with ExitStack() as stack:
        for source, url in urls.items():
            with psycopg.connect(url, autocommit=True) as connection:
                connection.execute(f"CREATE TABLE {TABLES[source]}".encode())
        found = Place("", urls, {}, postgres_server, {})
        busy(found, 1, 60)
        for source, url in urls.items():
            (folder / source).mkdir()
            capture = running_capture(PostgresSource(url, name=source), folder / source)
            found.captures[source] = stack.enter_context(capture)
        busy(found, 2, 80)
        found.catch_up()
        found.relay = stack.enter_context(served(logs, heartbeat_s=0.1))
        yield found
    for name in names.values():
        postgres_server.drop_database(name)

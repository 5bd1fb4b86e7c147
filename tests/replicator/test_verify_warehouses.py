"""Verify against a warehouse: in one transaction of it, at its ledger's positions, while source and target go on."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pyarrow as pa
import pytest

from headrace.fold import fold
from headrace.lake.frontier import Manifest, TableEntry
from headrace.lake.modes import COMMITTED_AT, Mode, logged_schema, shaped
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.lake.sql.session import Warehouse
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.change import META
from headrace.model.schema import TableId, TableSchema
from headrace.replicator.verify import verify
from headrace.replicator.verify_report import VerifyReport
from headrace.replicator.warehouse_replicas import WarehouseReplicas
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres_server import PostgresServer
from tests.fixtures_binlog import mariadb_server
from tests.fixtures_postgres import database, postgres_server
from tests.lake.sql.warehouses import STAGES, made
from tests.places import local
from tests.replicator.verify_bench import MISSING, PIPELINE, Bench, change_rows

__all__ = ["database", "mariadb_server", "postgres_server"]

pytestmark = pytest.mark.postgres

ITEMS = TableId("public", "items")


@pytest.fixture(params=["duckdb", "postgres", pytest.param("mariadb", marks=pytest.mark.mariadb)])
def warehouse(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, database: str, tmp_path: Path
) -> Iterator[Warehouse]:
    if request.param == "duckdb":
        yield DuckdbWarehouse(tmp_path / "items.duckdb")
        return
    if request.param == "mariadb":
        yield made("mariadb", request, tmp_path)
        return
    name = "copy_" + database.rpartition("/")[2].partition("?")[0]
    yield PostgresWarehouse(postgres_server.create_database(name), schema_prefix="copy_")
    postgres_server.drop_database(name)


def timed(schema: TableSchema, rows: pa.RecordBatch) -> pa.Table:
    """Return changes with the time of their commit."""
    at = pa.array(rows["_scn"], pa.int64()).cast(pa.timestamp("us", "UTC"))
    table = pa.Table.from_batches([rows]).add_column(len(META), COMMITTED_AT, at)
    return table.cast(logged_schema(schema))


class Shop:
    """One table at the source, in the log, and in a warehouse."""

    def __init__(self, url: str, folder: Path, warehouse: Warehouse) -> None:
        self.mode = Mode.MIRROR
        self.bench = Bench(url, folder)
        self.bench.execute("CREATE TABLE items (id int PRIMARY KEY, note text, price numeric(9,2))")
        self.tables = WarehouseTables(warehouse, PIPELINE)
        self.warehouse = warehouse
        self.replicas = WarehouseReplicas(warehouse, self.bench.lake, PIPELINE)

    def commit(self, sql: str, op: str, *cells: object) -> int:
        """Change a row at the source and in the log; return the SCN."""
        return self.bench.transaction(sql, ("items", op, cells))

    def apply(self, scn: int, op: str, *cells: object) -> None:
        """Take a change into the warehouse, and publish the frontier."""
        schema, mode = self.bench.schema("items"), self.mode
        rows = change_rows(schema, scn, [(0, op, cells)])
        batch = fold(schema, [rows]) if mode is Mode.MIRROR else timed(schema, rows)
        with self.warehouse.opened() as session:
            self.tables.evolve(session, shaped(schema, mode))
            with session.transaction():
                name = STAGES[self.warehouse.dialect.name]
                staged = self.tables.stage(session, schema, batch, name, mode)
                entry = self.tables.apply(session, schema, staged, scn, mode, complete=True)
        tables = {str(ITEMS): TableEntry(entry.version, scn, 1, "live")}
        self.bench.frontiers.write(Manifest(scn, scn, tables, scn))

    def verify(self) -> VerifyReport:
        bench = self.bench
        return verify(PostgresSource(bench.url), [ITEMS], bench.changelog, self.replicas, 10.0)


@pytest.fixture
def shop(database: str, tmp_path: Path, warehouse: Warehouse) -> Iterator[Shop]:
    made = Shop(database, tmp_path, warehouse)
    yield made
    made.bench.close()


def test_what_is_applied_and_what_waits_in_the_log_is_equal(shop: Shop) -> None:
    scn = shop.commit("INSERT INTO items VALUES (1, 'a', 1.50)", "+I", 1, "a", "1.50")
    shop.apply(scn, "+I", 1, "a", "1.50")
    shop.bench.cover()
    assert shop.verify().equal
    # Only in the log yet.
    shop.commit("INSERT INTO items VALUES (2, NULL, -3)", "+I", 2, None, "-3.00")
    shop.bench.cover()
    report = shop.verify()
    assert report.equal
    (table,) = report.tables
    assert (table.source_rows, table.target_rows) == (2, 2)


@pytest.mark.parametrize("mode", [Mode.SOFT_DELETE, Mode.HISTORY])
def test_rows_that_are_gone_at_the_source_are_no_difference(shop: Shop, mode: Mode) -> None:
    shop.mode = mode
    for key in (1, 2, 3):
        scn = shop.commit(f"INSERT INTO items VALUES ({key}, 'a', 1)", "+I", key, "a", "1.00")
        shop.apply(scn, "+I", key, "a", "1.00")
    unsent = (MISSING, MISSING)
    scn = shop.commit("DELETE FROM items WHERE id = 1", "-D", 1, *unsent)
    shop.apply(scn, "-D", 1, *unsent)
    # Only in the log yet.
    shop.commit("DELETE FROM items WHERE id = 2", "-D", 2, *unsent)
    shop.bench.cover()
    report = shop.verify()
    assert report.equal
    assert (report.tables[0].source_rows, report.tables[0].target_rows) == (1, 1)
    place = shop.warehouse.place(ITEMS)
    with shop.warehouse.opened() as session, session.transaction():
        session.run(f"UPDATE {place} SET price = 2 WHERE id = 3")
    assert shop.verify().tables[0].different == 1


def test_a_row_that_somebody_changed_in_the_warehouse_is_found(shop: Shop) -> None:
    scn = shop.commit("INSERT INTO items VALUES (1, 'a', 1.50)", "+I", 1, "a", "1.50")
    shop.apply(scn, "+I", 1, "a", "1.50")
    shop.bench.cover()
    place = shop.warehouse.place(ITEMS)
    with shop.warehouse.opened() as session, session.transaction():
        session.run(f"UPDATE {place} SET price = 1.51")
    (table,) = shop.verify().tables
    assert (table.state, table.different) == ("different", 1)


def test_a_warehouse_ahead_of_the_snapshot_is_looked_at_again(shop: Shop) -> None:
    """The ledger is further than the last frontier: the rows are held against the ledger's position."""
    scn = shop.commit("INSERT INTO items VALUES (1, 'a', 1.50)", "+I", 1, "a", "1.50")
    shop.apply(scn, "+I", 1, "a", "1.50")
    manifest = shop.bench.frontiers.latest()
    assert manifest
    later = shop.commit("UPDATE items SET note = 'b'", "=U", 1, "b", "1.50")
    shop.apply(later, "=U", 1, "b", "1.50")
    # A crash came between the commit and its manifest.
    (local(shop.bench.frontiers.folder) / f"{later:020d}.json").unlink()
    shop.bench.cover()
    report = shop.verify()
    assert report.equal
    assert report.tables[0].frontier_scn == later
    with psycopg.connect(shop.bench.url) as connection:
        assert connection.execute("SELECT note FROM items").fetchall() == [("b",)]


def test_a_warehouse_without_tables_is_read_as_empty(shop: Shop) -> None:
    shop.bench.execute("CREATE TABLE other (id int PRIMARY KEY)")
    assert shop.replicas.changes(shop.bench.schema("other")) is None
    with shop.replicas.opened() as shown:
        assert shown.at_or_below(2**62) is None
        assert (
            pa.Table.from_batches(
                shown.rows(shop.bench.schema("items"), -1), schema=pa.schema([])
            ).num_rows
            == 0
        )

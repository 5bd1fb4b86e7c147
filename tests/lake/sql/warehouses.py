"""Warehouses that tests write to, by name, and what they hold."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest

from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.ledger import Entry
from headrace.lake.sql.mysql import MysqlWarehouse
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.lake.sql.session import Warehouse
from headrace.lake.sql.sqlite_file import SqliteWarehouse
from headrace.lake.sql.tables import WarehouseTables
from headrace.model.change import table_arrow_schema
from headrace.model.rowkey import encode_rows
from headrace.model.schema import TableSchema
from headrace.testing.mysql_protocol_server import MysqlProtocolServer

TRANSACTIONAL = ("duckdb", "postgres")
"""In which a table is made, changed and removed in the transaction of its rows; tables of every mode may be there."""
# MySQL differs from MariaDB in few of our statements; `test_mysql` has those of both.
KINDS = (
    *TRANSACTIONAL,
    pytest.param("mariadb", marks=pytest.mark.mariadb),
    pytest.param("mysql", marks=[pytest.mark.mysql, pytest.mark.long]),
)
"""In which tables of every mode may be."""
MIRRORS = (*KINDS, "sqlite")
"""In which mirrors may be."""
_AS_TEXT = (
    pytest.param("mariadb-text", marks=pytest.mark.mariadb),
    pytest.param("mysql-text", marks=[pytest.mark.mysql, pytest.mark.long]),
)
EVERY_VALUE_AND_MODE = (*TRANSACTIONAL, *_AS_TEXT)
"""Likewise, and which have every value of every type."""
EVERY_VALUE = (*EVERY_VALUE_AND_MODE, "sqlite")
"""In which mirrors of every value may be."""
STAGES = {
    "duckdb": "stage",
    "postgres": "headrace.stage",
    "mysql": "headrace.stage",
    "sqlite": "stage",
}


def made(kind: str, request: pytest.FixtureRequest, folder: Path) -> Warehouse:
    """Return an empty warehouse of a kind."""
    if kind == "duckdb":
        return DuckdbWarehouse(folder / "warehouse.duckdb")
    if kind == "sqlite":
        return SqliteWarehouse(folder / "warehouse.sqlite")
    brand, _, as_text = kind.partition("-")
    if brand in ("mysql", "mariadb"):
        server: MysqlProtocolServer = request.getfixturevalue(f"{brand}_server")
        emptied(server)
        return MysqlWarehouse(server.url(), extremes="text" if as_text else "refuse")
    return PostgresWarehouse(request.getfixturevalue("database"))


def emptied(server: MysqlProtocolServer) -> None:
    """Remove what other tests have left at a server as a target; databases of sources stay."""
    ours = server.query(
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name NOT IN "
        "('mysql', 'information_schema', 'performance_schema', 'sys') "
        "AND schema_name NOT LIKE 'either%' AND schema_name NOT LIKE 'test%'"
    )
    server.execute(*(f"DROP DATABASE `{name}`" for (name,) in ours))


def content(warehouse: Warehouse, schema: TableSchema, pipeline: str = "test") -> pa.Table:
    """Return all rows of a target table."""
    tables = WarehouseTables(warehouse, pipeline)
    with warehouse.opened(read_only=True) as session:
        entry = tables.entry(session, schema.table)
        assert entry is not None
        batches = list(tables.rows(session, schema.table, entry))
    return pa.Table.from_batches(batches, schema=table_arrow_schema(entry.schema))


def counted(rows: pa.Table) -> Counter[tuple[object, ...]]:
    """Return rows as a multiset."""
    return Counter(tuple(row.values()) for row in rows.to_pylist())


def encoded(rows: pa.Table) -> Counter[bytes]:
    """Return rows as a multiset of their bits."""
    return Counter(encode_rows([column.combine_chunks() for column in rows.columns]).to_pylist())


def plain(rows: pa.Table) -> Counter[tuple[object, ...]]:
    """Return rows as a multiset, times as microseconds."""
    for place, field in enumerate(rows.schema):
        if pa.types.is_timestamp(field.type):
            rows = rows.set_column(place, field.name, rows[field.name].cast(pa.int64()))
    return counted(rows)


def apply(
    warehouse: Warehouse, schema: TableSchema, folded: pa.Table, scn: int, *, complete: bool = True
) -> Entry:
    """Evolve, stage and merge one batch of one table, as a target does."""
    tables = WarehouseTables(warehouse, "test")
    with warehouse.opened() as session:
        tables.evolve(session, schema)
        with session.transaction():
            name = STAGES[warehouse.dialect.name]
            staged = tables.stage(session, schema, folded, name)
            return tables.apply(session, schema, staged, scn, complete=complete)

"""The implementations of the target port that one suite holds to one promise, each with a place of its own."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from headrace.lake.delta_log import DeltaTable
from headrace.lake.ledger import table_path
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.mysql import MysqlWarehouse
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.lake.sql.session import Warehouse
from headrace.model.schema import TableSchema
from headrace.spark.targets.base import Target
from headrace.spark.targets.delta import DeltaTarget
from headrace.spark.targets.duckdb import DuckdbTarget
from headrace.spark.targets.merge import MergeTarget
from headrace.spark.targets.mysql import MysqlTarget
from headrace.spark.targets.postgres import PostgresTarget
from headrace.store import Location
from tests.lake.sql import warehouses

PIPELINE = "test"
OWN = ["delta", "delta without vectors"]
BUCKET = "delta in a bucket"
in_bucket = pytest.param(BUCKET, marks=pytest.mark.object_store)
SQL = ("duckdb", "postgres", "mariadb")
# Its statements are `tests.lake.sql`'s business; here the same target writes it that writes PostgreSQL.
MARIADB = pytest.param("mariadb", marks=[pytest.mark.mariadb, pytest.mark.long])
IN_SQL = ["duckdb", "postgres", MARIADB]
# A statement of Spark takes a second where a commit of ours takes a tenth.
KINDS = [*OWN, in_bucket, *IN_SQL, pytest.param("merge", marks=pytest.mark.long)]
# For what is the same with and without vectors.
DIFFERENT = [
    "delta",
    in_bucket,
    *IN_SQL,
    *(pytest.param(kind, marks=pytest.mark.long) for kind in (OWN[1], "merge")),
]
ALL = [*OWN, in_bucket, *IN_SQL, "merge"]


@dataclass(frozen=True)
class Subject:
    """One implementation, over an empty place.

    Attributes:
        kind: its name here.
        make: returns a new target over the same place, as after a restart.
        target: the first of them.
        rows: returns all rows of a table, its columns in the order of its schema.
        lake: folder of its frontiers, and of tables that are files.
        place: where a warehouse is, None for files.
        in_spark: returns what Spark reads of a table, None where it is not asked.
    """

    kind: str
    make: Callable[[], Target]
    target: Target
    rows: Callable[[TableSchema], pa.Table]
    lake: Location
    place: Warehouse | None = None
    in_spark: Callable[[TableSchema], pa.Table] | None = None

    @property
    def warehouse(self) -> Warehouse:
        """Return where a warehouse is."""
        assert self.place is not None
        return self.place

    def content(self, schema: TableSchema) -> Counter[tuple[object, ...]]:
        """Return the rows as a multiset; of a table that is there, Spark reads the same as we do."""
        rows = warehouses.counted(self.rows(schema))
        if self.in_spark is not None and self.target.state(schema.table) is not None:
            assert warehouses.counted(self.in_spark(schema)) == rows, schema.table
        return rows


def made(kind: str, request: pytest.FixtureRequest, spark: SparkSession, folder: Path) -> Subject:
    """Return one of `KINDS`."""
    if kind in SQL:
        # MariaDB's own floats have no zero with a sign.
        place = f"{kind}-text" if kind == "mariadb" else kind
        warehouse = warehouses.made(place, request, folder)
        return _in_sql(kind, spark, warehouse, folder / "lake")
    lake: Location = folder / "lake"
    if kind == BUCKET:
        lake = request.getfixturevalue("prefix")

    def make() -> Target:
        if kind == "merge":
            return MergeTarget(spark, lake, PIPELINE)
        return DeltaTarget(spark, lake, PIPELINE, vectors=kind != OWN[1])

    def rows(schema: TableSchema) -> pa.Table:
        table = DeltaTable(table_path(lake.absolute(), schema.table)).snapshot().to_table()
        return table.select(schema.names)

    def in_spark(schema: TableSchema) -> pa.Table:
        table = spark.read.format("delta").load(str(table_path(lake.absolute(), schema.table)))
        return table.select(*(f"`{name}`" for name in schema.names)).toArrow()

    # It takes Spark a second each time, and of those in a bucket `test_in_a_bucket` asks it.
    asked = request.config.getoption("--long") and kind != BUCKET
    return Subject(kind, make, make(), rows, lake, in_spark=in_spark if asked else None)


def _in_sql(kind: str, spark: SparkSession, warehouse: Warehouse, lake: Path) -> Subject:
    def make() -> Target:
        if isinstance(warehouse, DuckdbWarehouse):
            return DuckdbTarget(spark, warehouse, PIPELINE)
        if isinstance(warehouse, MysqlWarehouse):
            return MysqlTarget(spark, warehouse, PIPELINE)
        assert isinstance(warehouse, PostgresWarehouse)
        return PostgresTarget(spark, warehouse, PIPELINE)

    def rows(schema: TableSchema) -> pa.Table:
        return warehouses.content(warehouse, schema, PIPELINE).select(schema.names)

    return Subject(kind, make, make(), rows, lake, warehouse)

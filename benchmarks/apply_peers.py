"""Who else brings a batch of changes into a large table: Spark's MERGE, delta-rs' merge, and DuckDB as the floor.

Each is what people write: the newest change of each key decides, and one statement does the rest. delta-rs and DuckDB
run in this process, without Spark; DuckDB's own file is no table that anybody else reads, so it is a floor and no peer.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import duckdb
import polars as pl
from pyspark.sql import SparkSession

from benchmarks.apply_table import SCHEMA, Orders

__all__ = ["Contender", "DuckDbFloor", "delta_rs", "spark_merge"]

Contender = Callable[[Orders], None]

_NAMES = [column.name for column in SCHEMA.columns]
_GONE = "s.op = '-D'"
_KEPT = "s.op <> '-D'"


def _merge_sql(table: str, changes: str) -> str:
    sets = ", ".join(f"{name} = s.{name}" for name in _NAMES)
    values = ", ".join(f"s.{name}" for name in _NAMES)
    return (
        f"MERGE INTO {table} t USING ("
        "SELECT * FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY id ORDER BY seq DESC) AS n "
        f"FROM {changes}) WHERE n = 1) s ON t.id = s.id "
        f"WHEN MATCHED AND {_GONE} THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND {_KEPT} THEN INSERT ({', '.join(_NAMES)}) VALUES ({values})"
    )


def spark_merge(spark: SparkSession, table: Path) -> Contender:
    """Return a MERGE as a streaming job runs it batch by batch."""
    session = spark.newSession()
    # The usual number of partitions of a small machine, and Delta's own settings as they come.
    session.conf.set("spark.sql.shuffle.partitions", "4")

    def apply(batch: Orders) -> None:
        session.read.parquet(str(batch.file)).createOrReplaceTempView("changes")
        session.sql(_merge_sql(f"delta.`{table}`", "changes"))

    return apply


def delta_rs(table: Path) -> Contender:
    """Return the merge of delta-rs, with its settings as they come."""
    from deltalake import DeltaTable

    updates = {name: f"s.{name}" for name in _NAMES}

    def apply(batch: Orders) -> None:
        newest = pl.read_parquet(batch.file).sort("seq").unique("id", keep="last")
        (
            DeltaTable(table)
            .merge(newest.to_arrow(), "t.id = s.id", source_alias="s", target_alias="t")
            .when_matched_delete(predicate=_GONE)
            .when_matched_update(updates=updates)
            .when_not_matched_insert(updates=updates, predicate=_KEPT)
            .execute()
        )

    return apply


class DuckDbFloor:
    """The same MERGE in a DuckDB file, which only this process has open.

    Args:
        file: of the database.
        table: a folder of Parquet files that it begins with.
    """

    def __init__(self, file: Path, table: Path) -> None:
        self._connection = duckdb.connect(str(file))
        self._connection.execute(f"CREATE TABLE t AS FROM read_parquet('{table}/*.parquet')")

    def __call__(self, batch: Orders) -> None:
        """Apply a batch."""
        self._connection.execute(_merge_sql("t", f"read_parquet('{batch.file}')"))

    def rows_to(self, file: Path) -> None:
        """Write what the table holds as Parquet, to be compared."""
        self._connection.execute(f"COPY t TO '{file}' (FORMAT parquet)")

    def close(self) -> None:
        """Let the file go."""
        self._connection.close()

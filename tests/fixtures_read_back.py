"""Under ``--long`` the Delta tables that a test leaves behind are read by Spark and by us, with equal content."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from headrace.lake.delta_log import DeltaTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["READ_BACK", "every_table_is_read_back"]

READ_BACK = "tables read back"
"""The property of a test's report that counts its tables."""

_MOST = 100
"""Of a test that leaves more behind so many are drawn: a table takes Spark half a second."""
_AT_ONCE = 4


@pytest.fixture(autouse=True)
def every_table_is_read_back(request: pytest.FixtureRequest) -> Iterator[None]:
    """Read the tables below the test's folder once it is over; the mark ``unreadable`` says that they cannot be."""
    marked = request.node.get_closest_marker("unreadable")
    if not request.config.getoption("--long") or "tmp_path" not in request.fixturenames or marked:
        yield
        return
    folder: Path = request.getfixturevalue("tmp_path")
    spark: SparkSession = request.getfixturevalue("spark")
    yield
    found = sorted(log.parent for log in folder.rglob("_delta_log") if any(log.glob("*.json")))
    if len(found) > _MOST:
        found = random.Random(request.node.nodeid).sample(found, _MOST)
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for _ in pool.map(partial(_read_back, spark), found):
            pass
    request.node.user_properties.append((READ_BACK, len(found)))


def _read_back(spark: SparkSession, table: Path) -> None:
    held = DeltaTable(table).snapshot().to_table()
    theirs = spark.read.format("delta").load(str(table)).toArrow()
    assert theirs.schema.names == held.schema.names, table
    assert _rows(theirs.cast(held.schema)) == _rows(held), table


def _rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(_comparable(column) for column in table.columns), strict=True))


def _comparable(column: pa.ChunkedArray) -> list[Any]:
    if pa.types.is_temporal(column.type):
        # Python's own days end before the tables' do.
        width = pa.int32() if column.type.bit_width == 32 else pa.int64()
        return list(column.cast(width).to_pylist())
    if pa.types.is_floating(column.type):
        # What is no number equals nothing, and minus zero equals zero: their texts say what they are.
        return [repr(value) for value in column.to_pylist()]
    return list(column.to_pylist())

"""Chunks of tables that inherit from others or are partitioned: each row once, by whoever owns it."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres.chunks import PostgresChunkReader
from tests.fixtures_postgres import Sql
from tests.sources.postgres.chunk_walk import T, walk
from tests.sources.postgres.support import opened

pytestmark = pytest.mark.postgres


@pytest.mark.parametrize("keyed", [True, False])
def test_inheriting_tables_are_not_read_through_their_parent(
    sql: Sql, reader: PostgresChunkReader, keyed: bool
) -> None:
    key = "PRIMARY KEY" if keyed else ""
    sql(
        f"CREATE TABLE t (id int {key})",
        f"CREATE TABLE child (more text{', PRIMARY KEY (id)' if keyed else ''}) INHERITS (t)",
        "INSERT INTO t VALUES (1)",
        "INSERT INTO child VALUES (2, 'x')",
    )
    assert sum(batch.num_rows for batch in reader.read_table(T).batches) == 1
    if keyed:
        assert reader.upper_bound(T).key == ("1",)
        assert reader.read(T, None, ("9",), 10).rows.num_rows == 1
        assert reader.read_keys(T, [("2",)]).rows.num_rows == 0
        child = TableId("public", "child")
        assert reader.read(child, None, ("9",), 10).rows.to_pylist() == [{"id": 2, "more": "x"}]


PARTITIONED = (
    "CREATE TABLE t (id int, place text, v text, PRIMARY KEY (id, place)) PARTITION BY LIST (place)",
    "CREATE TABLE north PARTITION OF t FOR VALUES IN ('n') PARTITION BY RANGE (id)",
    "CREATE TABLE north_low PARTITION OF north FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE north_rest PARTITION OF north DEFAULT",
    "CREATE TABLE rest PARTITION OF t DEFAULT",
    # Its columns stand in another order.
    "CREATE TABLE south (v text, place text NOT NULL, id int NOT NULL)",
    "ALTER TABLE t ATTACH PARTITION south FOR VALUES IN ('s')",
    "INSERT INTO t SELECT id, p, id || p FROM generate_series(1, 19) id, unnest('{n,s,w}'::text[]) p",
    "ANALYZE t",
)


def test_partitions_are_read_through_their_root(sql: Sql, reader: PostgresChunkReader) -> None:
    sql(*PARTITIONED)
    for limit in (1, 4, 7):
        rows = pa.Table.from_batches(walk(reader, limit)).to_pylist()
        assert rows == [
            {"id": id_, "place": place, "v": f"{id_}{place}"}
            for id_ in range(1, 20)
            for place in "nsw"
        ]
    assert reader.describe(T).key == ("id", "place")
    assert reader.read_keys(T, [("3", "s"), ("3", "x")]).rows.num_rows == 1
    assert sum(batch.num_rows for batch in reader.read_table(T).batches) == 57
    assert reader.estimate_rows(T) == 57


def test_a_published_root_carries_what_its_partitions_do(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(*PARTITIONED)
    with opened(database, tmp_path) as log:
        sql("INSERT INTO t VALUES (5, 'x', 'new')")
        assert log.collect().changes("t") == [("+I", 5, "x", "new")]
        sql("UPDATE south SET v = 'old' WHERE id = 7")
        assert log.collect().changes("t") == [("=U", 7, "s", "old")]

"""How a table's shape is followed: by the log's descriptions, and by looks at the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.sources.base import CatalogEntry, CatalogLook
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.chunks import PostgresChunkReader
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.sources.postgres.support import opened

pytestmark = pytest.mark.postgres

T = TableId("public", "t")


@req("P33", "P34")
def test_each_row_of_a_transaction_has_the_shape_of_its_own_place(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, n int, s text)")
    with opened(database, tmp_path) as log:
        sql(
            "BEGIN; INSERT INTO t VALUES (1, 1, 'a');"
            "ALTER TABLE t RENAME n TO m; ALTER TABLE t ADD n text; INSERT INTO t VALUES (2, 2, 'b', 'two');"
            "ALTER TABLE t DROP s; ALTER TABLE t ADD s int; INSERT INTO t VALUES (3, 3, 'three', 33);"
            "ALTER TABLE t ALTER m TYPE bigint; ALTER TABLE t DROP n; INSERT INTO t VALUES (4, 1::bigint << 40, 44);"
            "COMMIT"
        )
        got = log.collect()
    places = {}
    for block in got.blocks:
        for body in block.bodies:
            schema = log.schema(body.schema_id)
            for row in body.batch.to_pylist():
                places[row["_ord"]] = {c.name: (c.source_type, row[c.name]) for c in schema.columns}
    integer, text = "integer", "text"
    assert [places[order] for order in sorted(places)] == [
        {"id": (integer, 1), "n": (integer, 1), "s": (text, "a")},
        {"id": (integer, 2), "m": (integer, 2), "s": (text, "b"), "n": (text, "two")},
        {"id": (integer, 3), "m": (integer, 3), "n": (text, "three"), "s": (integer, 33)},
        {"id": (integer, 4), "m": ("bigint", 1 << 40), "s": (integer, 44)},
    ]
    events = [e for e in got.events if e.kind is SystemKind.SCHEMA]
    # Each version is announced right before its first row.
    assert [e.ord + 1 for e in events] == sorted(places)
    assert len({e.scn for e in events}) == 1


class Looks:
    """Looks one after the other, each worked off."""

    def __init__(self, reader: PostgresChunkReader) -> None:
        self._reader = reader
        self._known: dict[str, CatalogEntry] = {}
        self.next(T)

    def next(self, *settled: TableId) -> CatalogLook:
        look = self._reader.look(self._known, settled, ())
        self._known = dict(look.tables)
        return look


@pytest.fixture
def looks(database: str, sql: Sql) -> Iterator[Looks]:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, n int, v varchar(20), s text)",
        "INSERT INTO t SELECT i, i, 'v', 's' FROM generate_series(1, 5) i",
    )
    reader = PostgresSource(database).chunks()
    yield Looks(reader)
    reader.close()


@req("P33")
@pytest.mark.parametrize(
    ("change", "restated"),
    [
        ("VACUUM FULL t", False),
        ("CLUSTER t USING t_pkey", False),
        ("TRUNCATE t", False),
        ("ANALYZE t", False),
        ("ALTER TABLE t ALTER v TYPE varchar(40)", False),
        ("ALTER TABLE t ALTER n SET STATISTICS 500", False),
        ("ALTER TABLE t ALTER n SET DEFAULT 4", False),
        ("ALTER TABLE t ADD w int", False),
        ("ALTER TABLE t DROP s", False),
        ("ALTER TABLE t RENAME s TO was_s", False),
        ("ALTER TABLE t ADD w int DEFAULT 7", True),
        ("ALTER TABLE t ADD w serial", True),
        ("ALTER TABLE t ALTER n TYPE int USING n * 2", True),
        ("ALTER TABLE t ALTER v TYPE varchar(9) USING upper(v)", True),
        ("ALTER TABLE t RENAME n TO old_n; ALTER TABLE t ADD n int", True),
        ("ALTER TABLE t RENAME n TO x; ALTER TABLE t RENAME s TO n; ALTER TABLE t RENAME x TO s", True),
        ("ALTER TABLE t DROP s; ALTER TABLE t ADD s int", True),
    ],
)  # fmt: skip
def test_a_look_tells_rows_written_anew_from_maintenance(
    looks: Looks, sql: Sql, change: str, restated: bool
) -> None:
    sql(change)
    look = looks.next()
    (identity,) = look.tables
    assert look.restated == (frozenset({identity}) if restated else frozenset())
    assert looks.next().restated == frozenset()


def test_a_type_change_of_a_partitioned_table_is_seen_at_its_root(
    looks: Looks, database: str, sql: Sql
) -> None:
    sql(
        "CREATE TABLE p (id int PRIMARY KEY, n int) PARTITION BY RANGE (id)",
        "CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (10)",
    )
    reader = PostgresSource(database).chunks()
    first = reader.look({}, (TableId("public", "p"),), ())
    assert {str(entry.table) for entry in first.tables.values()} == {"public.p"}
    assert set(first.joining.values()) == {T}
    sql("CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (10) TO (20)")
    second = reader.look(first.tables, (), ())
    assert (second.restated, set(second.joining.values())) == (frozenset(), {T})
    sql("ALTER TABLE p ALTER n TYPE bigint USING n * 2")
    assert reader.look(second.tables, (), ()).restated == frozenset(first.tables)
    reader.close()

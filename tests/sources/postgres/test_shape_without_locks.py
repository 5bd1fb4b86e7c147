"""N22: shapes of tables come from the catalog alone, also while somebody has locked them for himself."""

from __future__ import annotations

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from tests.fixtures_postgres import Sql
from tests.requirements import req

pytestmark = pytest.mark.postgres

T = TableId("public", "t")


@req("N22", "P14")
def test_a_table_that_is_locked_for_everybody_is_described_at_once(database: str, sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text, CHECK (v <> ''))",
        "INSERT INTO t VALUES (1, 'a')",
        "ANALYZE t",
    )
    hasty = f"{database}{'&' if '?' in database else '?'}options=-c%20lock_timeout%3D1000"
    source = PostgresSource(hasty)
    source.prepare()
    reader = source.chunks()
    with psycopg.connect(database) as other:
        other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE")
        (table,) = source.tables()
        assert table.names == ["id", "v"]
        # Twice: the second look compares with the first.
        for known in ({}, dict(reader.look({}, (), ()).tables)):
            reader.look(known, (), ())
        assert reader.describe(T) == table
        assert reader.estimate_rows(T) == 1
    reader.close()

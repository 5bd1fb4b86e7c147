"""A copy by the SQL output has what its source has, by every name, also where tables are altered between their rows."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headrace.client import Settings, Subscription
from headrace.lake.sql.sqlite_file import SqliteWarehouse
from headrace.outputs.sql import SqlOutput
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import at_work
from tests.fixtures_binlog import mariadb_server, mysql_server
from tests.fixtures_postgres import database, postgres_server
from tests.integration.binlog import caught_up
from tests.integration.either import EACH_SERVER, MYSQL, on_either
from tests.lake.sql.warehouses import content, counted
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "postgres_server"]

MIGRATIONS = (
    ("ALTER TABLE t RENAME COLUMN a TO c",),
    # Two columns change their names.
    (
        "ALTER TABLE t RENAME COLUMN c TO x",
        "ALTER TABLE t RENAME COLUMN b TO c",
        "ALTER TABLE t RENAME COLUMN x TO b",
    ),
    # One goes, and another of its name and type comes.
    ("ALTER TABLE t DROP COLUMN b", "ALTER TABLE t ADD COLUMN b varchar(20)"),
)


@req("A-15")
@pytest.mark.parametrize("windows", [1, 1_000])
@pytest.mark.parametrize("kind", [*EACH_SERVER, MYSQL])
def test_a_copy_has_the_columns_of_its_source_after_any_change_of_them(
    kind: str, windows: int, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with on_either(kind, request, tmp_path) as either:
        either.says("CREATE TABLE t (id int PRIMARY KEY, a varchar(20), b varchar(20))")
        either.says("INSERT INTO t VALUES (1, 'first', 'second'), (2, 'first', 'second')")
        dump = DumpSettings(chunk_rows=100, request_interval_s=0.0)
        with at_work(either.source, tmp_path / "state", dump=dump) as running:
            until(running.dumped, "the copy")
            for number, statements in enumerate(MIGRATIONS):
                either.says(*statements)
                either.says(f"INSERT INTO t VALUES ({10 + number}, 'one', 'other')")
                # A source that is asked late may not know any more which column was which.
                caught_up(running, either.source)  # type: ignore[arg-type]
            end = running.reader.tail().complete_scn
        (schema,) = (one for one in either.source.tables() if one.table.name == "t")
        log = (tmp_path / "state" / "changelog").as_uri()
        warehouse = SqliteWarehouse(tmp_path / "copy.sqlite")
        output = SqlOutput(warehouse, "copy")
        settings = Settings(checkpoint_every=windows)
        Subscription(
            log, "shop", output, output, upto=end, settings=settings, on_suspended="raise"
        ).run()
        there = Counter(either.rows_of(f"SELECT {', '.join(schema.names)} FROM t"))
        assert counted(content(warehouse, schema, "copy").select(schema.names)) == there

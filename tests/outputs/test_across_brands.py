"""A-15: a copy by the SQL output in a database of another brand has every value of every supported type.

From MariaDB to PostgreSQL, to a DuckDB file and to an SQLite file. MariaDB itself is no target.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from headrace.client import Settings, Subscription
from headrace.outputs.sql import SqlOutput
from headrace.sources.mysql.engine import make_engine
from headrace.testing.mariadb_server import MariadbServer
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import at_work
from tests.fixtures_binlog import mariadb_server
from tests.fixtures_postgres import database, postgres_server
from tests.integration.binlog import caught_up
from tests.integration.either import on_either
from tests.lake.sql.warehouses import MIRRORS, content, encoded, made
from tests.requirements import req
from tests.sources.mysql.kinds import kinds
from tests.sources.mysql.test_types import create, fill, read
from tests.waiting import until

__all__ = ["database", "mariadb_server", "postgres_server"]

pytest.importorskip("duckdb", reason="installed without the extra duckdb")

pytestmark = [pytest.mark.mariadb, pytest.mark.postgres, pytest.mark.timeout(300)]

KINDS = {
    f"t{number}": kind
    for number, kind in enumerate(kind for kind in kinds() if kind.only in ("", "MariaDB"))
}
CHANGES = (
    # All values of a type through the log as well, beside those that were selected.
    "INSERT INTO {t} SELECT id + 10000, v FROM {t}",
    "UPDATE {t} SET id = id + 20000 WHERE id < 3",
    "UPDATE {t} a JOIN {t} b ON b.id = a.id + 10001 SET a.v = b.v WHERE a.id BETWEEN 3 AND 9",
    "DELETE FROM {t} WHERE id = 10003",
)


@req("A-15", "P17", "D112")
@pytest.mark.parametrize(
    "target",
    [
        kind if kind == "postgres" else pytest.param(kind, marks=pytest.mark.long)
        for kind in MIRRORS
    ],
)
def test_every_type_of_mariadb_is_the_same_in_another_database(
    target: str, request: pytest.FixtureRequest, mariadb_server: MariadbServer, tmp_path: Path
) -> None:
    with on_either("mariadb", request, tmp_path) as either:
        either.says("SET NAMES utf8mb4", "SET sql_mode = '', time_zone = '+00:00'")
        for name, kind in KINDS.items():
            either.says(create(kind).replace("TABLE t ", f"TABLE {name} "))
            either.says(fill(kind, made=20).replace("INTO t ", f"INTO {name} "))
        dump = DumpSettings(chunk_rows=100, request_interval_s=0.0)
        with at_work(either.source, tmp_path / "state", dump=dump) as running:
            until(running.dumped, "the copy")
            for name in KINDS:
                either.says(*(change.format(t=name) for change in CHANGES))
            caught_up(running, either.source)  # type: ignore[arg-type]
            end = running.reader.tail().complete_scn
        schemas = {schema.table: schema for schema in either.source.tables()}
        log = (tmp_path / "state" / "changelog").as_uri()
        warehouse = made(target, request, tmp_path)
        output = SqlOutput(warehouse, "copy")
        often = Settings(checkpoint_every=1_000)
        Subscription(
            log, "shop", output, output, upto=end, settings=often, on_suspended="raise"
        ).run()
        for name, kind in KINDS.items():
            table = either.table(name)
            _, rows = read(mariadb_server, table, make_engine())
            copied = content(warehouse, schemas[table], "copy").select(["id", "v"])
            assert encoded(copied) == encoded(pa.Table.from_batches([rows])), (target, kind)

"""A-15: a copy by the SQL output in a database of another brand has every value of every supported type.

From PostgreSQL, MySQL and MariaDB to each of the others, to a DuckDB file and to an SQLite file. Where MySQL and
MariaDB are the target, floats, dates and times lie as text for the values that have no other place there; without those
values, in the servers' own types.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headrace.client import Settings, Subscription
from headrace.model.schema import TableId
from headrace.outputs.sql import SqlOutput
from headrace.sources.mysql.engine import make_engine
from headrace.sources.postgres import PostgresSource
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import at_work
from tests.fixtures_binlog import mariadb_server, mysql_server
from tests.fixtures_postgres import database, postgres_server
from tests.integration.binlog import caught_up
from tests.integration.either import Either, on_either
from tests.lake.sql.warehouses import content, encoded, made
from tests.requirements import req
from tests.sources.mysql import test_types as mysql_types
from tests.sources.mysql.kinds import Kind, kinds
from tests.sources.postgres import kinds as postgres_kinds
from tests.sources.postgres import test_types as postgres_types
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "postgres_server"]

pytest.importorskip("duckdb", reason="installed without the extra duckdb")

pytestmark = pytest.mark.timeout(600)

SOURCES = {"postgres": "PostgreSQL", "mysql": "MySQL", "mariadb": "MariaDB"}
TARGETS = ("postgres", "mysql-text", "mysql", "mariadb-text", "mariadb", "duckdb", "sqlite")
SHORT = {("mariadb", "postgres"), ("mysql", "postgres"), ("postgres", "mariadb-text")}
"""What every run of the tests goes through; the others are long."""

CHANGES = (
    # All values of a type through the log as well, beside those that were selected.
    "INSERT INTO {t} SELECT id + 10000, v FROM {t}",
    "UPDATE {t} SET id = id + 20000 WHERE id < 3",
    "UPDATE {t} a JOIN {t} b ON b.id = a.id + 10001 SET a.v = b.v WHERE a.id BETWEEN 3 AND 9",
    "DELETE FROM {t} WHERE id = 10003",
)
OTHER_CHANGES = (
    "INSERT INTO every SELECT id + 10000, n, {cells} FROM every",
    "UPDATE every SET id = id + 20000 WHERE id < 3",
    "UPDATE every a SET ({cells}) = (SELECT {cells} FROM every b WHERE b.id = a.id + 10001) WHERE id BETWEEN 4 AND 9",
    "DELETE FROM every WHERE id = 10003",
)

Rows = dict[TableId, Callable[[], pa.Table]]


def pairs() -> Iterator[Any]:
    """Yield every source with every target of another brand."""
    for source in SOURCES:
        for target in TARGETS:
            brand = target.partition("-")[0]
            # Of MariaDB and MySQL one has what the other has, zeros with a sign aside.
            if brand == source or (target in ("mysql", "mariadb") and source != "postgres"):
                continue
            names = {source, brand} - {"duckdb", "sqlite"}
            marks = [getattr(pytest.mark, name) for name in sorted(names)]
            if (source, target) not in SHORT:
                marks.append(pytest.mark.long)
            yield pytest.param(source, target, marks=marks, id=f"{source}-{target}")


def tables_of_mysql(either: Either, request: pytest.FixtureRequest) -> Rows:
    """Make a table of each type; return what each has now."""
    server = request.getfixturevalue(f"{either.kind}_server")
    found = {f"t{n}": kind for n, kind in enumerate(every_kind(SOURCES[either.kind]))}
    for name, kind in found.items():
        either.says(mysql_types.create(kind).replace("TABLE t ", f"TABLE {name} "))
        either.says(mysql_types.fill(kind, made=20).replace("INTO t ", f"INTO {name} "))

    def rows(table: TableId) -> pa.Table:
        _, batch = mysql_types.read(server, table, make_engine())
        return pa.Table.from_batches([batch])

    return {either.table(name): partial(rows, either.table(name)) for name in found}


def every_kind(server: str) -> list[Kind]:
    return [kind for kind in kinds() if kind.only in ("", server)]


def table_of_postgres(either: Either, *, plain: bool) -> Rows:
    """Make a table with a column of each type; return what it has now.

    Args:
        either: the database.
        plain: leave out what MySQL's and MariaDB's own types do not hold.
    """
    every = postgres_kinds.KINDS
    either.says(*postgres_kinds.SETUP)
    postgres_types.create(either.says, "every", every)
    names = ", ".join(f"c{n}" for n in range(len(every)))
    casts = ", ".join(f"%s::text::{kind.name}" for kind in every)
    either.says("SET DateStyle = ISO", "SET IntervalStyle = postgres")
    with either.session.cursor() as cursor:
        rows = list(postgres_types.rows_of(every, random.Random(7), 40))
        cursor.executemany(f"INSERT INTO every ({names}) VALUES ({casts})".encode(), rows)
    if plain:
        for number, kind in enumerate(every):
            if unfit := _unfit(f"c{number}", kind.arrow):
                either.says(f"UPDATE every SET c{number} = NULL WHERE {unfit}")

    def rows_now() -> pa.Table:
        assert isinstance(either.source, PostgresSource)
        return postgres_types.read(either.source, TableId("public", "every"))[1]

    return {TableId("public", "every"): rows_now}


def _unfit(name: str, type_: pa.DataType) -> str:
    if pa.types.is_floating(type_):
        return f"{name}::text IN ('NaN', 'Infinity', '-Infinity', '-0')"
    if pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        # In UTC, whatever the session's zone.
        at = f"{name} AT TIME ZONE 'UTC'" if pa.types.is_timestamp(type_) and type_.tz else name
        return f"NOT ({at} >= '0001-01-01' AND {at} < '10000-01-01')"
    return ""


@req("A-15", "P17", "D112")
@pytest.mark.parametrize(("kind", "target"), list(pairs()))
def test_every_type_of_one_database_is_the_same_in_another(
    kind: str, target: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    with on_either(kind, request, tmp_path) as either:
        if kind == "postgres":
            rows = table_of_postgres(either, plain=target in ("mysql", "mariadb"))
            cells = ", ".join(f"c{n}" for n in range(len(postgres_kinds.KINDS)))
            changes = [change.format(cells=cells) for change in OTHER_CHANGES]
        else:
            either.says("SET NAMES utf8mb4", "SET sql_mode = '', time_zone = '+00:00'")
            rows = tables_of_mysql(either, request)
            changes = [change.format(t=table.name) for table in rows for change in CHANGES]
        dump = DumpSettings(chunk_rows=100, request_interval_s=0.0)
        with at_work(either.source, tmp_path / "state", dump=dump) as running:
            until(running.dumped, "the copy")
            either.says(*changes)
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
        for table, now in rows.items():
            there = now()
            copied = content(warehouse, schemas[table], "copy").select(there.schema.names)
            wrong = [
                name
                for name in there.schema.names
                if encoded(copied.select(["id", name])) != encoded(there.select(["id", name]))
            ]
            assert (wrong, encoded(copied)) == ([], encoded(there)), (target, table, wrong)

"""A captured table, or a partition of one, gets out of the server's log: it is missed at once, by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import SourceError
from headrace.sources.postgres import PostgresSource
from tests.faults.faulty import at_work, failure_of, named
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

PLAIN = ("CREATE TABLE t (id int PRIMARY KEY)",)
PARTED = (
    "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE p PARTITION OF t FOR VALUES FROM (0) TO (100)",
)
ALL = "CREATE PUBLICATION theirs FOR ALL TABLES WITH (publish_via_partition_root = true)"

WAYS = {
    "a table": (PLAIN, ALL, "ALTER TABLE t SET UNLOGGED", "public.t is unlogged"),
    "a partition": (PARTED, "", "ALTER TABLE p SET UNLOGGED", "Partition public.p of public.t"),
    "one that is attached": (
        PARTED,
        "",
        "CREATE UNLOGGED TABLE q PARTITION OF t FOR VALUES FROM (100) TO (200)",
        "Partition public.q of public.t",
    ),
}


@req("C30")
@pytest.mark.parametrize("way", WAYS)
def test_what_gets_out_of_the_log_stops_the_capture_by_name(
    database: str, sql: Sql, tmp_path: Path, way: str
) -> None:
    tables, publication, statement, said = WAYS[way]
    sql(*tables, *filter(None, [publication]), "INSERT INTO t VALUES (1)")
    source = PostgresSource(database, ["public.t"], publication="theirs" if publication else None)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(statement)
        error = named(failure_of(running), SourceError, said)
        assert "SET LOGGED" in error.next_step
        assert "headrace resync FILE" in error.next_step

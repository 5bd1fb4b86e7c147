"""Partitions that come and go with rows are told of by name: no log has those rows."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.partitions import PartitionWatch
from tests.faults.faulty import at_work
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

TABLES = (
    "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF t FOR VALUES FROM (0) TO (100)",
    "CREATE TABLE mid PARTITION OF t FOR VALUES FROM (100) TO (200)",
    "CREATE TABLE high (id int PRIMARY KEY) PARTITION BY RANGE (id)",
    "CREATE TABLE top PARTITION OF high FOR VALUES FROM (200) TO (250)",
    "INSERT INTO t VALUES (1), (101)",
    "INSERT INTO high VALUES (201)",
)
STEPS = {
    "ALTER TABLE t DETACH PARTITION low": "public.t: public.low left it.",
    "DROP TABLE mid": "public.t: public.mid left it.",
    "ALTER TABLE t ATTACH PARTITION high FOR VALUES FROM (200) TO (300)": (
        "public.t: public.high was attached to it."
    ),
}


@req("C30")
def test_a_partition_that_comes_or_goes_with_rows_is_told_by_name(
    database: str, sql: Sql, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also when the copy is long done; one that is made as a partition, and rows that come then, are in the log."""
    sql(*TABLES)
    with at_work(PostgresSource(database, ["public.t"]), tmp_path) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        sql("CREATE TABLE next PARTITION OF t FOR VALUES FROM (300) TO (400)")
        for statement in STEPS:
            told = len(caplog.records)
            sql(statement)
            until(lambda told=told: len(caplog.records) > told, statement)  # type: ignore[misc]
    messages = [record.getMessage() for record in caplog.records]
    assert [m.partition(" The rows")[0] for m in messages] == list(STEPS.values())
    assert all("headrace resync FILE --force" in message for message in messages[:2])
    assert messages[2].endswith("headrace dump start FILE --table public.t.")


def test_a_partition_that_leaves_right_behind_the_look_with_which_its_root_joined_is_told(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watch, root = PartitionWatch(), TableId("public", "t")
    watch.look({}, {1: {2: TableId("public", "low")}}, ())
    assert not caplog.records
    watch.look({1: root}, {1: {}}, ())
    assert [r.getMessage().partition(" The rows")[0] for r in caplog.records] == [
        "public.t: public.low left it."
    ]

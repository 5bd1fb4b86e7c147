"""Partitions get another replica identity than their root: old rows would be misread, and the capture stops by name."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.errors import ProtocolError, SourceError
from headrace.sources.postgres import PostgresSource
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import PUBLIC_T, at_work, failure_of, follows, named
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

# Nobody looks again while the test lasts.
BLIND = DumpSettings(chunk_rows=10, request_interval_s=0.05, look_interval_s=600)

PARTED = (
    "CREATE TABLE t (id int PRIMARY KEY, u int NOT NULL) PARTITION BY RANGE (id)",
    "CREATE TABLE p PARTITION OF t FOR VALUES FROM (0) TO (100)",
    "INSERT INTO t SELECT n, n + 500 FROM generate_series(1, 20) n",
)
ALTERED = ("CREATE UNIQUE INDEX p_u ON p (u)", "ALTER TABLE p REPLICA IDENTITY USING INDEX p_u")
ATTACHED = (
    "CREATE TABLE q (id int PRIMARY KEY, u int NOT NULL)",
    "CREATE UNIQUE INDEX q_u ON q (u)",
    "ALTER TABLE q REPLICA IDENTITY USING INDEX q_u",
    "INSERT INTO q VALUES (103, 3)",
    "ALTER TABLE t ATTACH PARTITION q FOR VALUES FROM (100) TO (200)",
)
ROOT = ("CREATE UNIQUE INDEX t_u ON t (id, u)", "ALTER TABLE t REPLICA IDENTITY USING INDEX t_u")

WAYS = {
    "a partition": (ALTERED, "public.p", "ALTER TABLE public.p REPLICA IDENTITY DEFAULT;"),
    "none at all": (
        ("ALTER TABLE p REPLICA IDENTITY NOTHING",),
        "public.p",
        "ALTER TABLE public.p REPLICA IDENTITY DEFAULT;",
    ),
    "one that is attached": (
        ATTACHED,
        "public.q",
        "ALTER TABLE public.q REPLICA IDENTITY DEFAULT;",
    ),
    "the root": (ROOT, "public.p", "ALTER TABLE public.t REPLICA IDENTITY DEFAULT;"),
}


@req("C30")
@pytest.mark.parametrize("way", WAYS)
def test_another_identity_of_partitions_stops_the_capture_by_name(
    database: str, sql: Sql, tmp_path: Path, way: str
) -> None:
    statements, leaf, cure = WAYS[way]
    sql(*PARTED)
    with at_work(PostgresSource(database, ["public.t"]), tmp_path) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        sql(*statements)
        said = f"another replica identity than public.t itself: {leaf}."
        error = named(failure_of(running), SourceError, said)
        assert cure in error.next_step
        assert "headrace resync FILE" in error.next_step
    # What helps against it is what the next start asks for.
    sql(*cure.rstrip(";").split(";"))
    assert not [
        f for f in PostgresSource(database, ["public.t"]).preflight() if "identity" in f.name
    ]


@req("C30")
@pytest.mark.parametrize("change", ["UPDATE t SET id = id + 80, u = 1", "DELETE FROM t"])
@pytest.mark.parametrize(
    ("statements", "row", "lacks"),
    [(ALTERED, 3, "id"), (ATTACHED, 103, "id"), (ROOT, 3, "u")],
    ids=["altered", "attached", "root"],
)
def test_a_row_that_comes_before_that_is_seen_stops_it_too(
    database: str,
    sql: Sql,
    tmp_path: Path,
    statements: tuple[str, ...],
    row: int,
    lacks: str,
    change: str,
) -> None:
    """Deleted and re-keyed rows stayed in the copy: none has a key of which a part is null."""
    sql(*PARTED)
    with at_work(PostgresSource(database, ["public.t"]), tmp_path, dump=BLIND) as running:
        running.judged = False
        until(running.dumped, "the first copy")
        sql(*statements, f"{change} WHERE id = {row}")
        named(failure_of(running), ProtocolError, str(PUBLIC_T), f"an old key without {lacks}:")


@req("C30")
def test_whole_old_rows_of_a_partition_are_read_by_the_roots_key(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Also the other way round: a partition that is made under a root with FULL has DEFAULT until it is altered."""
    sql(*PARTED)
    with at_work(PostgresSource(database, ["public.t"]), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(
            "ALTER TABLE p REPLICA IDENTITY FULL",
            "UPDATE t SET id = 90 WHERE id = 3",
            "DELETE FROM t WHERE id = 4",
        )
        follows(running, database)
        running.judged = False
        sql(
            "ALTER TABLE t REPLICA IDENTITY FULL",
            "CREATE TABLE q PARTITION OF t FOR VALUES FROM (100) TO (200)",
            "INSERT INTO t VALUES (103, 1), (104, 2)",
            "UPDATE t SET id = 190 WHERE id = 103",
            "DELETE FROM t WHERE id = 104",
            "UPDATE t SET u = 8 WHERE id = 5",
        )
        follows(running, database)
        looks = len(running.statuses)
        until(lambda: len(running.statuses) > looks + 3, "a few more looks at the catalog")
    assert running.error is None

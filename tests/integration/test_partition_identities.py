"""Partitions get another replica identity than their root: old rows would be misread, and the capture stops by name.

Where it was put back before anybody looked, the table is copied anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import ProtocolError, SourceError
from headrace.model.block import SystemKind
from headrace.sources.postgres import PostgresSource
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import (
    PUBLIC_T,
    AtWork,
    at_work,
    failure_of,
    follows,
    named,
    through_a_change,
)
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


@req("C30")
@pytest.mark.parametrize("large", [False, True], ids=["small", "streamed"])
@pytest.mark.parametrize("stopped", [False, True], ids=["between two looks", "while stopped"])
def test_an_identity_that_was_put_back_costs_a_copy(
    database: str, sql: Sql, tmp_path: Path, stopped: bool, large: bool
) -> None:
    """A row whose key changes alone comes without the old one then, and that stayed in the copy."""
    sql(*PARTED)
    eager = f"{database}&options=-c%20logical_decoding_work_mem%3D64kB"
    between = (
        "UPDATE t SET id = 90 WHERE id = 3",
        f"INSERT INTO t SELECT n, n FROM generate_series(30, {80 if large else 31}) n",
        *["UPDATE t SET id = id WHERE id > 30"] * (40 if large else 0),
    )
    statements = ("BEGIN", *ALTERED, *between, "ALTER TABLE p REPLICA IDENTITY DEFAULT", "COMMIT")

    def check(running: AtWork) -> None:
        follows(running, database)
        until(running.dumped, "the copy")
        sql("UPDATE t SET id = 91 WHERE id = 4", "DELETE FROM t WHERE id = 5")
        follows(running, database)
        assert len(running.state.requests()) == 2

    through_a_change(
        PostgresSource(eager, ["public.t"]),
        tmp_path,
        lambda: sql("; ".join(statements)),
        check,
        stopped=stopped,
    )
    events = [e for b in ChangeLogReader(tmp_path / "changelog").blocks(0) for e in b.system]
    assert [e.kind for e in events].count(SystemKind.TRUNCATE) == 1


@req("C30")
def test_tables_of_several_identities_cost_no_copy(database: str, sql: Sql, tmp_path: Path) -> None:
    """Partitions with whole old rows, and tables that are described behind one another."""
    others = ("CREATE TABLE q (id int PRIMARY KEY, u int NOT NULL)", *ATTACHED[1:3])
    sql(*PARTED, *others, "ALTER TABLE p REPLICA IDENTITY FULL")
    with at_work(PostgresSource(database), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(
            "BEGIN; UPDATE t SET u = 1 WHERE id = 2; INSERT INTO q VALUES (7, 7); TRUNCATE t, q;"
            "INSERT INTO t VALUES (8, 8); INSERT INTO q VALUES (9, 9); COMMIT"
        )
        follows(running, database)
        assert len(running.state.requests()) == 1
        assert not running.state.get("astray")
    assert running.error is None

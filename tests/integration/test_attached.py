"""A captured table becomes a partition of another captured one, and leaves it again."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemKind
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import AtWork, at_work, follows, through_a_change
from tests.fixtures_postgres import Sql
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

PART = TableId("public", "part")
DUMP = DumpSettings(chunk_rows=10, request_interval_s=0.05, look_interval_s=0.2)


def told(folder: Path) -> list[SystemKind]:
    """Return what the stream says of the table besides its rows, shapes and dumps."""
    kinds = (SystemKind.DROP_TABLE, SystemKind.TRUNCATE)
    return [
        event.kind
        for block in ChangeLogReader(folder / "changelog").blocks(0)
        for event in block.system
        if event.table == PART and event.kind in kinds
    ]


TABLES = (
    "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
    "CREATE TABLE part (id int PRIMARY KEY, v text)",
    "INSERT INTO part VALUES (1, 'a'), (2, 'a')",
)


@req("C30")
def test_a_table_that_is_attached_is_gone_under_its_own_name_and_comes_back_when_detached(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Its changes are told under the root's name: its own copy would stand still and be called up to date."""
    sql(*TABLES)
    with running_capture(PostgresSource(database), tmp_path, DUMP) as running:
        until(running.dumped, "the first copies")
        sql("ALTER TABLE root ATTACH PARTITION part FOR VALUES FROM (0) TO (10)")
        until(lambda: told(tmp_path) == [SystemKind.DROP_TABLE], "the end of its own name", 30)
        sql("UPDATE root SET v = 'b'", "DELETE FROM part WHERE id = 2")
        sql("ALTER TABLE root DETACH PARTITION part", "INSERT INTO part VALUES (3, 'c')")

        def same() -> bool:
            assert running.error is None, running.error
            with psycopg.connect(database) as session:
                rows = sorted(session.execute("SELECT * FROM part").fetchall())
            return sorted(running.content(PART).elements()) == rows

        until(same, "the table as the source has it", 30)
        assert told(tmp_path) == [SystemKind.DROP_TABLE, SystemKind.TRUNCATE]


@req("C30")
@pytest.mark.parametrize("detach", ["DETACH PARTITION part", "DETACH PARTITION part CONCURRENTLY"])
@pytest.mark.parametrize("stopped", [False, True], ids=["between two looks", "while stopped"])
def test_a_table_that_was_attached_for_a_while_is_copied_anew(
    database: str, sql: Sql, tmp_path: Path, detach: str, stopped: bool
) -> None:
    """Nobody looked meanwhile, and afterwards it is what it was before."""
    if "CONCURRENTLY" in detach and not stopped:
        pytest.skip("takes two transactions, between which somebody may look")
    sql(*TABLES)
    statements = [
        "ALTER TABLE root ATTACH PARTITION part FOR VALUES FROM (0) TO (10)",
        "UPDATE root SET v = 'b' WHERE id = 1",
        "DELETE FROM part WHERE id = 2",
        f"ALTER TABLE root {detach}",
    ]
    if not stopped:
        statements = ["; ".join(("BEGIN", *statements, "COMMIT"))]

    def check(running: AtWork) -> None:
        follows(running, database, PART)
        until(running.dumped, "the copy")
        sql("INSERT INTO part VALUES (3, 'c')", "UPDATE part SET v = 'd' WHERE id = 1")
        follows(running, database, PART)

    through_a_change(
        PostgresSource(database), tmp_path, lambda: sql(*statements), check, stopped=stopped
    )
    assert told(tmp_path) == [SystemKind.TRUNCATE]


@req("C30")
def test_a_table_is_not_copied_for_what_takes_no_change_away(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Such as a partition of a root that is not captured, whose changes have its own name all the time."""
    sql(*TABLES)
    source = PostgresSource(database, ["public.part"])
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
    for statements in (
        (
            "GRANT SELECT ON part TO pg_monitor",
            "ANALYZE part",
            "ALTER TABLE part ALTER v SET NOT NULL",
        ),
        ("ALTER TABLE root ALTER v SET NOT NULL", "ALTER TABLE root ATTACH PARTITION part DEFAULT"),
        ("GRANT SELECT ON part TO public", "VACUUM FULL part"),
        ("ALTER TABLE root DETACH PARTITION part",),
    ):
        sql(*statements)
        with at_work(source, tmp_path) as running:
            sql("UPDATE part SET v = v || 'x'")
            follows(running, database, PART)
            assert len(running.state.requests()) == 1
    assert told(tmp_path) == []

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


@req("C30")
def test_a_table_that_is_attached_is_gone_under_its_own_name_and_comes_back_when_detached(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Its changes are told under the root's name: its own copy would stand still and be called up to date."""
    sql(
        "CREATE TABLE root (id int PRIMARY KEY, v text) PARTITION BY RANGE (id)",
        "CREATE TABLE part (id int PRIMARY KEY, v text)",
        "INSERT INTO part VALUES (1, 'a'), (2, 'a')",
    )
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

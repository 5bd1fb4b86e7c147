"""Two captures of one database, each with a slot of its own, know nothing of each other and say the same."""

from __future__ import annotations

import random
from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import ORIGIN_LOG
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.lsn import parse_lsn
from tests.fixtures_postgres import Sql
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres


def logged(folder: Path, after_scn: int) -> dict[int, list[tuple]]:
    """Return the rows of each window that comes from the source's log, by SCN, in their order.

    Their ordinals are left out: a capture tells of a table's shape when it first meets it, inside some window.
    """
    found: dict[int, list[tuple]] = {}
    for block in ChangeLogReader(folder / "changelog").blocks(after_scn):
        entries = block.index[block.index["origin"] == ORIGIN_LOG]
        for scn, commit_us, xid in zip(
            *(entries[name].tolist() for name in ("scn", "commit_us", "xid")), strict=True
        ):
            found.setdefault(scn, [(-1, commit_us, xid)])
        for body in block.bodies:
            for row in body.batch.to_pylist():
                if row["_scn"] in found:
                    place = row.pop("_ord")
                    found[row["_scn"]].append((place, str(body.table), sorted(row.items())))
    return {
        scn: [row[1:] for row in sorted(rows, key=lambda row: row[0])]
        for scn, rows in found.items()
    }


def marks(windows: dict[int, list[tuple]]) -> dict[int, list[tuple]]:
    """Return the windows that changed captured tables; marks of a capture's own chunks change none."""
    return {scn: rows for scn, rows in windows.items() if len(rows) > 1}


@req("D28")
def test_two_captures_of_one_database_give_equal_log_windows(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "CREATE TABLE u (id int PRIMARY KEY, v numeric)",
        "INSERT INTO t SELECT n, 'first' FROM generate_series(1, 40) n",
    )
    rng = random.Random(6)
    one = PostgresSource(database, name="one")
    two = PostgresSource(database, name="two")
    with running_capture(one, tmp_path / "one") as first:
        for _ in range(5):
            _work(database, rng)
        with running_capture(two, tmp_path / "two") as second:
            begun = _position(database)
            for _ in range(25):
                _work(database, rng)
            second.wait_for_scn(_position(database))
        # One of them is away for a while, and reads in one go what the other got bit by bit.
        for _ in range(15):
            _work(database, rng)
        end = _position(database)
        first.wait_for_scn(end)
        with running_capture(two, tmp_path / "two") as second:
            second.wait_for_scn(end)
            for capture in (first, second):
                until(capture.dumped, "the dumps", timeout_s=120)
            for table in ("t", "u"):
                name = TableId("public", table)
                assert first.content(name) == second.content(name)
    found = [
        {scn: rows for scn, rows in marks(logged(tmp_path / name, 0)).items() if begun < scn <= end}
        for name in ("one", "two")
    ]
    assert len(found[0]) > 25
    assert found[0] == found[1]


def _work(url: str, rng: random.Random) -> None:
    """Commit a random transaction over two tables; now and then it is rolled back."""
    with psycopg.connect(url) as connection:
        for _ in range(rng.randrange(1, 6)):
            key, table = rng.randrange(40), rng.choice("tu")
            connection.execute(
                f"INSERT INTO {table} VALUES (%s, %s) ON CONFLICT (id) DO UPDATE "
                f"SET v = EXCLUDED.v".encode(),
                (key, str(rng.randrange(10**6))),
            ) if rng.random() < 0.7 else connection.execute(
                f"DELETE FROM {table} WHERE id = %s".encode(), (key,)
            )
        if rng.random() < 0.1:
            connection.rollback()


def _position(url: str) -> int:
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    assert row is not None
    return parse_lsn(row[0])

"""One transaction of very many rows: it passes whole and in order, and the capture does not grow with it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psycopg
import pyarrow.compute as pc
import pytest

from headrace.changelog import ChangeLogReader
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(1800)]

SPILLS, HOLDS = 8 << 20, 1 << 40
"""Bytes of open transactions that may stay in memory: as few as can be, and all there are."""


def anonymous_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("RssAnon:")[2].split()[0]) / 1024


@contextmanager
def captured(url: str, folder: Path, spool_bytes: int, *window: str) -> Iterator[int]:
    """Run a capture in a process of its own; gives its id once it has copied everything, or stands amid a window."""
    arguments = [sys.executable, "-m", "tests.integration.memory_process", url, str(folder)]
    with subprocess.Popen(
        [*arguments, str(spool_bytes), *window],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "ready\n"
            yield process.pid
        finally:
            process.stdin.close()
            code = process.wait(60)
    assert code == 0


def peak_of_one_transaction(
    url: str,
    folder: Path,
    rows: int,
    width: int,
    spool_bytes: int,
    timeout_s: float = 120,
    window: tuple[str, ...] = (),
) -> tuple[float, float]:
    """Return what the capture held at most, and what before, in MiB; every row has arrived then, once and in order."""
    eager = f"{url}&options=-c%20logical_decoding_work_mem%3D64kB"
    with captured(eager, folder, spool_bytes, *window) as pid:
        before = peak = anonymous_mib(pid)

        def arrived() -> bool:
            nonlocal peak
            peak = max(peak, anonymous_mib(pid))
            return ChangeLogReader(folder / "changelog").tail().complete_scn >= end

        end = 1 << 62
        with psycopg.connect(url) as session:
            session.execute(
                "INSERT INTO t SELECT n, repeat('x', %s) FROM generate_series(1, %s) n",
                (width, rows),
            )
            arrived()
            session.commit()
            row = session.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
            assert row is not None
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("INSERT INTO t VALUES (0, 'the end')")
        end = int(row[0])
        until(arrived, "the transaction in the change log", timeout_s)
    scns, last = set(), 0
    for block in ChangeLogReader(folder / "changelog").blocks(0):
        for body in block.bodies:
            batch = body.batch.filter(pc.greater(body.batch.column("id"), 0))
            ids = batch.column("id").to_numpy()
            assert np.array_equal(ids, np.arange(last + 1, last + 1 + len(ids)))
            last += len(ids)
            scns.update(batch.column("_scn").unique().to_pylist())
    assert (len(scns), last) == (1, rows)
    print(f"{rows:,} rows of {width} bytes: {before:.0f} MiB before, {peak:.0f} MiB at most")
    return peak, before


@pytest.fixture
def table(sql: Sql) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")


ROWS, WIDTH, GROWTH_MIB = 100_000, 1_000, 64


@req("F19", "P47", "T7")
def test_a_hundred_megabytes_in_one_transaction_leave_the_capture_small(
    table: None, database: str, tmp_path: Path
) -> None:
    peak, before = peak_of_one_transaction(database, tmp_path, ROWS, WIDTH, SPILLS)
    assert peak - before <= GROWTH_MIB


@req("P47", "T7")
def test_a_million_rows_amid_a_window_leave_the_capture_small(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    """The window ends afterwards, although the rows that it was to be compared with are not held."""
    sql("INSERT INTO t VALUES (-1, 'read amid the window')")
    peak, before = peak_of_one_transaction(
        database, tmp_path, 1_000_000, 50, SPILLS, 600, ("window",)
    )
    assert peak - before <= GROWTH_MIB


@req("F19")
def test_the_bound_would_see_a_transaction_that_is_held_in_memory(
    table: None, database: str, tmp_path: Path
) -> None:
    peak, before = peak_of_one_transaction(database, tmp_path, ROWS, WIDTH, HOLDS)
    assert peak - before > 1.3 * GROWTH_MIB


@pytest.mark.long
@req("F19", "P47", "T7")
def test_ten_million_rows_in_one_transaction_stay_within_half_a_gibibyte(
    table: None, database: str, tmp_path: Path
) -> None:
    peak, _ = peak_of_one_transaction(database, tmp_path, 10_000_000, 50, SPILLS, 1500)
    assert peak <= 512

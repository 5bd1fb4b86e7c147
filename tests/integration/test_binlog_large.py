"""One transaction of very many rows in a real server: it passes whole and in order, and the capture does not grow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.changelog import ChangeLogReader
from headrace.sources.mysql import MysqlSource
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from tests.fixtures_binlog import (
    Sql,
    database,
    mariadb_server,
    mysql_server,
    server,
    source,
    sql,
)
from tests.integration.test_large_transactions import (
    GROWTH_MIB,
    HOLDS,
    anonymous_mib,
    captured,
)
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "source", "sql"]

pytestmark = [pytest.mark.mariadb, pytest.mark.timeout(300)]


@req("F19", "P47", "T7")
@pytest.mark.parametrize(
    ("rows", "width"),
    [pytest.param(100_000, 1_000, marks=pytest.mark.long), (1_000_000, 50)],
    ids=["a hundred megabytes", "a million rows"],
)
def test_one_large_transaction_leaves_the_capture_small(
    rows: int,
    width: int,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (-1, 'to begin with')")
    # Nothing of an open transaction is held for as long as it is open: the log has whole ones.
    with captured(server.url(database), tmp_path, HOLDS) as pid:
        before = peak = anonymous_mib(pid)

        def arrived() -> bool:
            nonlocal peak
            peak = max(peak, anonymous_mib(pid))
            return ChangeLogReader(tmp_path / "changelog").tail().covered_scn >= end

        sql(f"INSERT INTO t SELECT seq, REPEAT('x', {width}) FROM seq_1_to_{rows}")
        end = source.end_scn()
        until(arrived, "the transaction in the change log", 200)
    scns, last = set(), 0
    for block in ChangeLogReader(tmp_path / "changelog").blocks(0):
        for body in block.bodies:
            ids = body.batch.column("id").to_numpy()
            ids = ids[ids > 0]
            assert np.array_equal(ids, np.arange(last + 1, last + 1 + len(ids)))
            last += len(ids)
            if len(ids):
                scns.update(body.batch.column("_scn").unique().to_pylist())
    assert (len(scns), last) == (1, rows)
    print(f"{rows:,} rows of {width} bytes: {before:.0f} MiB before, {peak:.0f} MiB at most")
    assert peak - before <= GROWTH_MIB

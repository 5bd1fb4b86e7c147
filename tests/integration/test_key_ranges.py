"""How a dump reads tables: ranges of the key's index, or, without a key, the whole of it once."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import psycopg
import pytest

from headrace.errors import PreflightFailed
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.state.records import RequestState, Scope
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import running_capture
from tests.integration.selected import rows_by_origin
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

T, BAG = TableId("public", "t"), TableId("public", "bag")
ROWS, CHUNK = 120_000, 10_000


@req("P37", "P15", "P35")
def test_the_servers_own_statistics_count_index_ranges_and_each_row_once(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        # The heap is in another order than the key, so an index costs the planner something.
        "CREATE TABLE t (a int, b text, v text, PRIMARY KEY (b, a))",
        f"INSERT INTO t SELECT n, 'k' || n % 97, repeat('x', 20) FROM generate_series(1, {ROWS}) n",
        "VACUUM ANALYZE t",
        "SELECT pg_stat_reset()",
    )
    source = PostgresSource(database)
    assert source.preflight() == []
    with running_capture(source, tmp_path, DumpSettings(chunk_rows=CHUNK)) as running:
        running.judged = False
        until(running.dumped, "the dump")
        (progress,) = running.state.progress(running.state.requests()[0].request_id)
    assert progress.rows_emitted == ROWS

    def counted() -> tuple[int, ...]:
        with psycopg.connect(database) as session:
            row = session.execute(
                "SELECT seq_scan, idx_scan, idx_tup_fetch FROM pg_stat_user_tables WHERE relname = 't'"
            ).fetchone()
        assert row is not None
        return row

    # A session tells its counts when it ends.
    until(lambda: counted()[1] > progress.chunks, "the counts")
    seq_scans, index_scans, fetched = counted()
    assert seq_scans == 0
    # One range for each chunk, and the largest key once; a chunk that ends with its rows may look one row ahead.
    assert index_scans == progress.chunks + 1
    assert ROWS <= fetched <= ROWS + 2 * progress.chunks


@req("P36", "T15")
def test_a_table_without_a_key_is_refused_until_whole_rows_are_logged_and_then_read_at_once(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE bag (v int)", "INSERT INTO bag SELECT n % 3 FROM generate_series(1, 9) n")
    source = PostgresSource(database)
    with pytest.raises(PreflightFailed, match=r"public\.bag"):
        source.prepare()
    (finding,) = source.preflight()
    assert finding.name == "no-key"
    sql(re.findall(r"ALTER TABLE [^;]* REPLICA IDENTITY FULL", finding.suggestion)[0])
    with running_capture(
        source, tmp_path, DumpSettings(chunk_rows=2, request_interval_s=0.05)
    ) as running:
        until(running.dumped, "the dump")
        sql("INSERT INTO bag VALUES (1)", "DELETE FROM bag WHERE v = 2")
        wanted = Counter({(0,): 3, (1,): 4})
        until(lambda: running.content(BAG) == wanted, "the rows of the source")
        (progress,) = running.state.progress(running.state.requests()[0].request_id)
        # One select under one snapshot, however small chunks are to be.
        assert (progress.chunks, progress.rows_emitted) == (1, 9)
        _, selected = rows_by_origin(tmp_path)
        assert selected.total() == 9
        # Parts of it cannot be named, and no dump of a part is begun.
        for scope, more in (
            (Scope.PRIMARY_KEYS, {"keys": [("1",)]}),
            (Scope.PREDICATE, {"predicate": "v = 1"}),
        ):
            name = running.state.submit(scope, BAG, **more)

            def ended(name: str = name) -> RequestState | None:
                found = running.state.request(name)
                return found.state if found and found.reason else None

            assert until(ended, "the refusal") is RequestState.FAILED
        assert rows_by_origin(tmp_path)[1] == selected
        assert running.content(BAG) == wanted

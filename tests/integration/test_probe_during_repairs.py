"""N09: what is committed while repairs run can be read while they run, at every moment of each of their selects."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.state.records import RequestState, Scope
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import running_capture
from tests.integration.selects import Selects
from tests.integration.traffic import Probe
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")
ROWS, CHUNK = 200, 10
LONGEST_S = 10.0
"""Longest that a row may take on a machine with much else to do: far below minutes."""


@req("N09", "P11", "H06")
def test_a_probe_goes_through_every_select_of_a_repair(
    database: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL)",
        f"INSERT INTO t SELECT n, 'v' FROM generate_series(1, {ROWS}) n",
        "CREATE TABLE probe (n bigserial PRIMARY KEY)",
    )
    selects = Selects(monkeypatch)
    dump = DumpSettings(chunk_rows=CHUNK, request_interval_s=0.02)
    with running_capture(PostgresSource(database), tmp_path, dump) as running:
        until(running.dumped, "the first copy")
        inside, outside = Probe(database, running), Probe(database, running)
        # Each select waits until a row that was committed after it began can be read.
        selects.act = inside.send
        keys = [(str(key),) for key in range(1, ROWS + 1)]
        for scope, wanted in ((Scope.PRIMARY_KEYS, keys), (Scope.TABLE, [])):
            request = running.state.submit(scope, T, wanted)
            while not running.dumped():
                outside.send()
            found = running.state.request(request)
            assert found is not None
            assert found.state is RequestState.COMPLETED
        inside.close()
        outside.close()
    assert len(inside.took_s) >= 2 * ROWS // CHUNK
    assert max(inside.took_s + outside.took_s) < LONGEST_S
    took_ms = sorted(1000 * took for took in inside.took_s + outside.took_s)
    print(
        f"{len(took_ms)} rows: median {took_ms[len(took_ms) // 2]:.0f} ms, slowest {took_ms[-1]:.0f}"
    )

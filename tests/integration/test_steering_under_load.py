"""Dumps that are paused and slowed down beside busy writers, on a real server; the log flows on whatever happens."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.state.records import RESTING, RequestState, Scope
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.running import Running, running_capture
from tests.integration.selected import rows_by_origin
from tests.integration.selects import Selects
from tests.integration.traffic import Probe, traffic
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")
ROWS = 2_000
HEARD_S = 0.02


@pytest.fixture
def table(sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL)",
        f"INSERT INTO t SELECT n, 'old' FROM generate_series(1, {ROWS}) n",
        "CREATE TABLE probe (n bigserial PRIMARY KEY, at timestamptz DEFAULT clock_timestamp())",
    )


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def state_of(running: Running, name: str) -> RequestState:
    assert running.error is None, running.error
    found = running.state.request(name)
    assert found is not None
    return found.state


@req("P07", "P58", "P08", "N08")
def test_a_dump_at_full_speed_is_paused_under_load_and_the_log_flows_on(
    table: None, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selects, said = Selects(monkeypatch), threading.Event()

    def wait_for_the_word() -> None:
        """However slow whoever pauses the dump is, it is under way then."""
        assert len(selects.times) < 20 or said.wait(60)

    selects.act = wait_for_the_word
    dump = DumpSettings(chunk_rows=5, request_interval_s=HEARD_S)
    with (
        traffic(database, ROWS) as load,
        running_capture(PostgresSource(database), tmp_path, dump) as running,
    ):
        (first,) = until(running.state.requests, "the first copy")
        asked = first.request_id
        until(lambda: len(selects.times) == 20, "some chunks")
        assert running.state.move(asked, RequestState.PAUSED, since=[RequestState.ACTIVE])
        said.set()
        # It is heard at the next look, and the chunk under way is finished.
        until(lambda: running.state.get(RESTING) == asked, "it rests")
        load.goes_on(20)
        held = len(selects.times)
        assert held * dump.chunk_rows < ROWS / 2, "it is heard long before the end"  # type: ignore[operator]
        progress = running.state.progress(asked)
        for _ in range(5):
            # The log meanwhile: what is committed now can be read, and more than once.
            before = running.reader.tail().complete_scn
            load.goes_on(40)
            until(lambda: running.reader.tail().complete_scn > before, "the log")  # noqa: B023
        assert len(selects.times) == held
        assert running.state.progress(asked) == progress
        assert state_of(running, asked) is RequestState.PAUSED

        assert running.state.move(asked, RequestState.QUEUED, since=[RequestState.PAUSED])
        until(running.dumped, "the dump")
        load.end()
        with psycopg.connect(database) as session:
            rows = set(session.execute("SELECT id, v FROM t").fetchall())
        until(lambda: set(running.content(T)) == rows, "the rows of the source")
    # Rows that nobody touches came once: nothing that was read before the pause was read again.
    _, selected = rows_by_origin(tmp_path)
    assert {selected[("public.t", "+R", (key, "old"))] for key in range(2, ROWS, 2)} == {1}


@req("P57", "N04", "N06", "P58")
def test_delay_rate_and_share_hold_selects_apart_and_belong_to_the_log(
    table: None, database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    selects = Selects(monkeypatch)
    dump = DumpSettings(chunk_rows=50, request_interval_s=HEARD_S)
    delay_s, load, slow_s = 0.2, 0.2, 0.05
    with running_capture(PostgresSource(database), tmp_path, dump) as running:
        until(running.dumped, "the first copy")
        probe = Probe(database, running)

        def chunks(count: int) -> list[float]:
            """Return the rests between so many chunks from now on."""
            selects.times.clear()
            request = running.state.submit(Scope.TABLE, T)
            until(lambda: len(selects.times) > count, "chunks")
            rests = selects.gaps_s()[:count]
            running.state.move(
                request, RequestState.CANCELLED, since=[RequestState.QUEUED, RequestState.ACTIVE]
            )
            until(lambda: not running.state.line(), "nobody waits")
            return rests

        eager = chunks(8)
        running.state.set_pace(delay_s=delay_s)
        probe.send()
        slow = chunks(4)
        assert min(slow) >= delay_s
        assert min(eager) < delay_s, "without a delay it rests less"

        rows_per_s = 250.0
        running.state.set_pace(delay_s=None, rows_per_s=rows_per_s)
        probe.send()
        # Noted before the product looks at its clock, from which it counts.
        begins: list[float] = []
        failpoints.arm("window.after_low", lambda: begins.append(time.monotonic()))
        chunks(4)
        failpoints.disarm("window.after_low")
        assert len(begins) > 4
        assert all(b - a >= 0.95 * 50 / rows_per_s for a, b in itertools.pairwise(begins))
        running.state.set_pace(delay_s=delay_s, rows_per_s=None)

        # Between two chunks belongs to the log: rows that are committed there can be read before the next select.
        def rest_long() -> None:
            """However slow the log is then, no select comes before it."""
            running.state.set_pace(delay_s=3_600.0)

        def read_in_a_rest() -> bool:
            before = len(selects.times)
            probe.send()
            return before > 0 and len(selects.times) == before

        selects.act = rest_long
        selects.times.clear()
        running.state.submit(Scope.TABLE, T)
        until(read_in_a_rest, "a row in a rest")
        assert all(read_in_a_rest() for _ in range(3))

        # A share of the time: each select of 50 ms is followed by four times as long a rest.
        def be_slow() -> None:
            begun = time.monotonic()
            until(lambda: time.monotonic() - begun >= slow_s, "a slow select", pause_s=0.005)

        selects.act = be_slow
        selects.times.clear()
        running.state.set_pace(delay_s=None, load=load)
        until(lambda: len(selects.times) > 4 or not running.state.line(), "slow chunks")
        took = [end - begin for begin, end in selects.times]
        rests = selects.gaps_s()
        assert len(rests) >= 4
        # The first may have begun under the old pace.
        for select_s, rest_s in list(zip(took, rests, strict=False))[1:]:
            assert rest_s >= 0.95 * select_s * (1 / load - 1)
        running.state.set_pace(load=None)
        selects.act = lambda: None
        until(lambda: not running.state.line(), "the end")
        probe.close()

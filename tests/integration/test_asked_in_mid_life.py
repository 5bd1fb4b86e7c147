"""P01: a dump is asked for at any moment of a capture's life, reads everything, and never takes a row back in time."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.state.records import OPEN, RequestState, Scope
from headrace.state.store import StateStore
from headrace.watermark.settings import DumpSettings
from tests.fixtures_postgres import Sql
from tests.integration.holding import held
from tests.integration.running import Running, running_capture
from tests.integration.selected import rows_by_origin
from tests.integration.traffic import Traffic, traffic
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")
ROWS = 120
STILL = range(2, ROWS + 1, 2)
"""Keys that no writer touches: only a select brings them."""
DUMP = DumpSettings(chunk_rows=10, request_interval_s=0.05)


@pytest.fixture
def table(sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text NOT NULL)",
        f"INSERT INTO t SELECT n, 'old' FROM generate_series(1, {ROWS}) n",
    )


def ended(running: Running, name: str) -> RequestState | None:
    assert running.error is None, running.error
    found = running.state.request(name)
    assert found is not None
    return None if found.state in OPEN else found.state


def times_read(folder: Path, after_scn: int = 0) -> set[int]:
    """Return how often selects brought the still rows, each of them."""
    _, selected = rows_by_origin(folder, after_scn)
    return {selected[("public.t", "+R", (key, "old"))] for key in STILL}


def as_source(running: Running, database: str) -> None:
    with psycopg.connect(database) as session:
        rows = set(session.execute("SELECT id, v FROM t").fetchall())
    # The ledger oracle reads along.
    until(lambda: set(running.content(T)) == rows, "the rows of the source")


@req("P01", "P13", "N02", "H01")
def test_a_dump_may_be_asked_for_at_any_moment(table: None, database: str, tmp_path: Path) -> None:
    with closing(StateStore(tmp_path / "state.db")) as state:
        asked = [state.submit(Scope.TABLE, T)]
    source = PostgresSource(database)
    with running_capture(source, tmp_path, DUMP) as running, traffic(database, ROWS) as load:
        until(lambda: running.state.progress(asked[0]), "the first chunk")
        asked.append(running.state.submit(Scope.TABLE, T))
        until(lambda: ended(running, asked[-1]), "a dump that was asked for during the first")
        load.goes_on(200)
        begin = running.reader.tail().complete_scn
        asked.append(running.state.submit(Scope.TABLE, T))
        until(lambda: ended(running, asked[-1]), "a dump after a stretch of log alone")
        assert times_read(tmp_path, begin) == {1}
    with running_capture(source, tmp_path, DUMP) as running:
        with traffic(database, ROWS) as load:
            load.goes_on()
            asked.append(running.state.submit(Scope.TABLE, T))
            until(lambda: ended(running, asked[-1]), "a dump after a restart")
        assert {ended(running, name) for name in asked} == {RequestState.COMPLETED}
        assert times_read(tmp_path) == {len(asked)}
        as_source(running, database)


@req("P01", "N08")
def test_a_copy_that_was_given_up_at_the_start_is_made_later(
    table: None, database: str, tmp_path: Path
) -> None:
    """The log alone for a while: what it holds are the rows that changed. A dump completes them."""
    with (
        held("window.after_low") as read,
        running_capture(PostgresSource(database), tmp_path, DUMP) as running,
        traffic(database, ROWS) as load,
    ):
        # While its first chunk is held it cannot be done.
        assert read.there.wait(60)
        (first,) = running.state.requests()
        assert running.state.move(first.request_id, RequestState.CANCELLED, since=OPEN)
        read.let_go()
        load.goes_on(200)
        assert 0 in times_read(tmp_path)
        asked = running.state.submit(Scope.TABLE, T)
        until(lambda: ended(running, asked), "the dump")
        finish(load, running, database)
    assert times_read(tmp_path) <= {1, 2}


def finish(load: Traffic, running: Running, database: str) -> None:
    load.end()
    as_source(running, database)

"""A dump's re-read list ends with the dump: keys of a table's former key are none of the next dump's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.state.records import OPEN, RESTING, RequestState, Scope
from headrace.state.store import StateStore
from tests.faults.faulty import OFTEN, PUBLIC_T, AtWork, at_work, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until
from tests.watermark.steering import pause

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

AT_ONCE = replace(OFTEN, request_interval_s=0.0)
REKEYED = "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (code, id)"
FILLED = "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD COLUMN n serial, ADD PRIMARY KEY (n, id)"
"""Rows have keys now of which the log says nothing: the table joins anew."""


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@pytest.fixture
def table(sql: Sql) -> None:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, code int NOT NULL, big text)",
        "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
        "INSERT INTO t SELECT n, 9 - n, repeat('x', 5000) FROM generate_series(1, 8) n",
    )


@contextmanager
def resting(database: str, sql: Sql, folder: Path) -> Iterator[AtWork]:
    """Run a capture whose first copy rests behind its first chunk, with a key on its list."""

    def asked() -> None:
        failpoints.disarm("window.after_select")
        pause(running.state, first(running))

    failpoints.arm("window.after_select", asked)
    with at_work(PostgresSource(database, name="lists"), folder, dump=AT_ONCE) as running:
        running.judged = False
        until(lambda: running.state.get(RESTING), "the copy rests")
        # The log leaves the wide column out.
        sql("UPDATE t SET id = 100 WHERE id = 7")
        until(lambda: running.state.reread(PUBLIC_T) == [("100",)], "the key is listed")
        yield running


def first(running: AtWork) -> str:
    return running.state.requests()[0].request_id


def ended(running: AtWork, request: str) -> RequestState | None:
    assert running.error is None, running.error
    found = running.state.request(request)
    assert found is not None
    return None if found.state in OPEN else found.state


@req("A-11", "P19", "C30")
def test_a_table_that_begins_anew_is_dumped_without_the_list_of_before(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with resting(database, sql, tmp_path) as running:
        sql(FILLED)
        until(lambda: len(running.state.requests()) == 2, "a dump of the table as it is now")
        request = running.state.requests()[1].request_id
        until(lambda: ended(running, request), "that dump")
        assert ended(running, request) is RequestState.COMPLETED, running.state.request(request)
        follows(running, database)
    assert running.error is None


@req("A-11", "N08")
def test_a_list_of_a_copy_that_was_cancelled_while_nothing_ran_is_gone(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with resting(database, sql, tmp_path):
        pass
    sql(REKEYED)
    with closing(StateStore(tmp_path / "state.db")) as state:
        cancelled = state.requests()[0].request_id
        assert state.move(cancelled, RequestState.CANCELLED, since=OPEN)
    with at_work(PostgresSource(database, name="lists"), tmp_path) as running:
        running.judged = False
        request = running.state.submit(Scope.TABLE, PUBLIC_T)
        until(lambda: ended(running, request), "the dump")
        assert ended(running, request) is RequestState.COMPLETED, running.state.request(request)
        follows(running, database)
        # Nobody reads on for it.
        (copy,) = running.state.progress(cancelled)
        assert copy.state == "cancelled"
    assert running.error is None


@req("A-11", "P19")
def test_of_two_dumps_of_one_table_each_begins_anew_without_the_list_of_before(
    table: None, database: str, sql: Sql, tmp_path: Path
) -> None:
    with resting(database, sql, tmp_path) as running:
        other = running.state.submit(Scope.TABLE, PUBLIC_T)

        def overtaken() -> None:
            failpoints.disarm("window.after_select")
            pause(running.state, other)

        failpoints.arm("window.after_select", overtaken)
        until(lambda: running.state.get(RESTING) == other, "the second dump rests, too")
        sql("UPDATE t SET id = 101 WHERE id = 6")
        until(lambda: len(running.state.reread(PUBLIC_T)) == 2, "another key is listed")
        sql(REKEYED)
        for request in (first(running), other):
            assert running.state.move(request, RequestState.QUEUED, since=[RequestState.PAUSED])
        for request in (first(running), other):
            until(partial(ended, running, request), "the dump")
            assert ended(running, request) is RequestState.COMPLETED, running.state.request(request)
        follows(running, database)
    assert running.error is None

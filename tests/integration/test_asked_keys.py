"""Keys are asked for, and before all of them are read their table changes: its rows, or which key it has."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.sources.postgres import PostgresSource
from headrace.state.records import RESTING, DumpProgress, DumpRequest, RequestState, Scope
from tests.faults.faulty import OFTEN, PUBLIC_T, AtWork, at_work
from tests.fixtures_postgres import Sql
from tests.integration.test_changed_keys import BESIDE, CHANGES, keyed
from tests.requirements import req
from tests.waiting import until
from tests.watermark.steering import pause, resume

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

ONE_BY_ONE = replace(OFTEN, chunk_rows=1, request_interval_s=0.02)
OLD_KEYS: dict[str, list[tuple[str, ...]]] = {
    "id": [("2",), ("3",), ("4",)],
    "name": [("name 2",), ("name 3",), ("name 4",)],
    "id, code": [("2", "7"), ("3", "6"), ("4", "5")],
}
NO_KEY = (
    "id",
    "ALTER TABLE t REPLICA IDENTITY FULL; ALTER TABLE t DROP CONSTRAINT t_pkey",
)


@contextmanager
def resting(
    source: PostgresSource, folder: Path, keys: Sequence[tuple[str, ...]], done: int
) -> Iterator[tuple[AtWork, str]]:
    """Run a capture that a person has paused when so many of the keys that were asked for are read."""
    with at_work(source, folder, dump=ONE_BY_ONE) as running:
        # The oracle knows rows by the key that they had first.
        running.judged = False
        until(running.dumped, "the first copy")
        running.state.set_pace(delay_s=1.5)
        asked = running.state.submit(Scope.PRIMARY_KEYS, PUBLIC_T, keys, delete_missing=True)
        until(
            lambda: [p.keys_done for p in running.state.progress(asked)] == [done],
            "the first keys",
        )
        pause(running.state, asked)
        until(lambda: running.state.get(RESTING), "the request rests")
        assert progress_of(running, asked).keys_done == done
        running.state.set_pace(delay_s=0.0)
        yield running, asked


def go_on(running: AtWork, asked: str) -> DumpRequest:
    """Resume a request; return it when it has ended."""
    resume(running.state, asked)
    ended = (RequestState.COMPLETED, RequestState.FAILED)
    until(lambda: request_of(running, asked).state in ended, "the request ends")
    return request_of(running, asked)


def request_of(running: AtWork, asked: str) -> DumpRequest:
    assert running.error is None, running.error
    found = running.state.request(asked)
    assert found is not None
    return found


def progress_of(running: AtWork, asked: str) -> DumpProgress:
    return running.state.progress(asked)[0]


def deleted(running: AtWork) -> list[dict[str, object]]:
    """Return the rows that the change log deletes."""
    return [
        row
        for block in ChangeLogReader(running.folder / "changelog").blocks(0)
        for body in block.bodies
        for row in body.batch.to_pylist()
        if row["_op"] == "-D"
    ]


@req("H09", "A-14")
def test_keys_that_become_one_while_nothing_runs_hide_none_of_the_others(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Two spellings are two keys while no row is there, and one when it is."""
    sql(
        "CREATE TABLE t (id numeric PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (2, 'a'), (3, 'a')",
    )
    source = PostgresSource(database, name="asked")
    keys = [("1.0",), ("1",), ("2",), ("3",), ("9",)]
    with resting(source, tmp_path, keys, 2) as (running, asked):
        assert request_of(running, asked).missing == (("1.0",), ("1",))
    sql("INSERT INTO t VALUES (1.00, 'late')")
    with at_work(source, tmp_path, dump=ONE_BY_ONE) as running:
        request = go_on(running, asked)
        assert (request.state, request.missing) == (RequestState.COMPLETED, (("9",),))
        progress = progress_of(running, asked)
        assert (progress.rows_read, progress.keys_done, progress.rows_estimated) == (3, 4, 4)
    assert running.error is None


@req("H09", "A-14")
def test_missing_keys_are_listed_once_through_a_restart(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    keyed(sql, "id")
    source = PostgresSource(database, name="asked")
    with resting(source, tmp_path, [("77",), ("2",), ("78",)], 1) as (_, asked):
        pass
    with at_work(source, tmp_path, dump=ONE_BY_ONE) as running:
        request = go_on(running, asked)
        assert (request.state, request.missing) == (RequestState.COMPLETED, (("77",), ("78",)))
        assert progress_of(running, asked).keys_done == 3
    assert running.error is None


@req("A-11", "H09")
@pytest.mark.parametrize("change", [*CHANGES, "no key"])
def test_no_key_is_read_by_another_one(
    database: str, sql: Sql, tmp_path: Path, change: str
) -> None:
    key, statements = CHANGES.get(change, NO_KEY)
    keyed(sql, key)
    source = PostgresSource(database, name="asked")
    with resting(source, tmp_path, OLD_KEYS[key], 1) as (running, asked):
        sql(statements)
        request = go_on(running, asked)
        assert request.state is RequestState.FAILED
        assert "public.t has another key" in request.reason
        assert (request.missing, deleted(running)) == ((), [])
        assert progress_of(running, asked).rows_read == 1
    assert running.error is None


@req("A-11", "H08", "H09")
@pytest.mark.parametrize("change", ["another column", "more columns", "another type"])
def test_no_key_is_read_by_another_one_after_a_restart(
    database: str, sql: Sql, tmp_path: Path, change: str
) -> None:
    key, statements = CHANGES[change]
    keyed(sql, key)
    source = PostgresSource(database, name="asked")
    with resting(source, tmp_path, OLD_KEYS[key], 1) as (_, asked):
        pass
    sql(statements)
    with at_work(source, tmp_path, dump=ONE_BY_ONE) as running:
        running.judged = False
        request = go_on(running, asked)
        assert request.state is RequestState.FAILED
        assert "public.t has another key" in request.reason
        assert (request.missing, deleted(running)) == ((), [])
    assert running.error is None


@req("A-11", "H09")
@pytest.mark.parametrize("change", BESIDE)
def test_keys_are_read_on_when_the_order_of_their_key_stays(
    database: str, sql: Sql, tmp_path: Path, change: str
) -> None:
    keyed(sql, "id")
    source = PostgresSource(database, name="asked")
    with resting(source, tmp_path, OLD_KEYS["id"], 1) as (running, asked):
        sql(BESIDE[change])
        assert go_on(running, asked).state is RequestState.COMPLETED
        assert progress_of(running, asked).rows_read == 3
    assert running.error is None

"""A log whose connections are made ahead of its opening: nothing is told too early, and nothing is left behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.errors import ChangeLogLost, SlotLost
from headrace.registry.file import FileRegistry
from headrace.sources.base import LogReader, Opening, OpensAhead
from headrace.sources.postgres import PostgresSource
from headrace.state.store import StateStore
from tests.faults.faulty import at_work
from tests.waiting import until

Sql = Any


def sessions(url: str) -> int:
    """Return how many connections of ours a database has, streams included."""
    with psycopg.connect(url, autocommit=True) as session:
        query = (
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE datname = current_database() AND application_name LIKE 'headrace%'"
        )
        row = session.execute(query).fetchone()
        assert row is not None
        return int(row[0])


@pytest.fixture
def source(database: str, sql: Sql) -> PostgresSource:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    made = PostgresSource(database)
    made.prepare()
    return made


def streams(reader: LogReader, url: str) -> None:
    """Wait for the one row that was inserted, over two connections, and close the log."""
    got: list[int] = []

    def came() -> bool:
        item = reader.poll(0.1)
        got.extend(
            item.block.bodies[0].batch["id"].to_pylist() if item and item.block.bodies else ()
        )
        return got == [1]

    try:
        until(came, "the row")
        assert sessions(url) == 2
    finally:
        reader.close()


def test_a_log_that_was_opened_ahead_streams(
    source: PostgresSource, sql: Sql, tmp_path: Path, database: str
) -> None:
    assert isinstance(source, OpensAhead)
    opening = source.opening()
    sql("INSERT INTO t VALUES (1, 'one')")
    streams(opening.open(FileRegistry(tmp_path / "schemas")), database)
    until(lambda: not sessions(database), "both connections are gone")


@pytest.mark.parametrize("kind", ["walsender", "client backend"])
def test_connections_that_the_server_has_ended_meanwhile_are_made_again(
    source: PostgresSource, sql: Sql, tmp_path: Path, database: str, kind: str
) -> None:
    """As one does that lets nobody be idle for long."""
    opening = source.opening()
    until(lambda: sessions(database) == 2, "both connections")
    sql(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() "
        f"AND application_name LIKE 'headrace%' AND backend_type = '{kind}'",
        "INSERT INTO t VALUES (1, 'one')",
    )
    until(lambda: sessions(database) == 1, "one is gone")
    streams(opening.open(FileRegistry(tmp_path / "schemas")), database)


def test_what_goes_wrong_is_told_when_the_log_is_opened(
    source: PostgresSource, sql: Sql, tmp_path: Path, database: str
) -> None:
    sql(f"SELECT pg_drop_replication_slot('{source.settings.slot_name}')")
    opening = source.opening()
    with pytest.raises(SlotLost, match=source.settings.slot_name):
        opening.open(FileRegistry(tmp_path / "schemas"))
    until(lambda: not sessions(database), "no connection is left")


@pytest.mark.parametrize("usable", [True, False])
def test_a_log_that_is_not_opened_after_all_leaves_no_connection(
    source: PostgresSource, sql: Sql, database: str, usable: bool
) -> None:
    if not usable:
        sql(f"SELECT pg_drop_replication_slot('{source.settings.slot_name}')")
    opening = source.opening()
    opening.close()
    until(lambda: not sessions(database), "no connection is left")


def test_a_start_that_is_refused_leaves_no_connection(
    sql: Sql, tmp_path: Path, database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here a change log that lacks what the state has seen."""
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with at_work(PostgresSource(database), tmp_path) as running:
        until(running.dumped, "the first copy")
    state = StateStore(tmp_path / "state.db")
    state.write([lambda w: w.set("log_scn", str(1 << 60))])
    state.close()
    source, kept = PostgresSource(database), list[Opening]()
    begun = source.opening

    def opening() -> Opening:
        # Else they would go with whoever forgets them.
        kept.append(begun())
        return kept[-1]

    monkeypatch.setattr(source, "opening", opening)
    with at_work(source, tmp_path) as running:
        until(lambda: running.error is not None, "it is refused")
        assert isinstance(running.error, ChangeLogLost)
        until(lambda: not sessions(database), "no connection is left")

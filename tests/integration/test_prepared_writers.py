"""A table joins the log while somebody writes to it who is only prepared, and outlives a restart of the server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.base import CatalogLook
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.chunks import PostgresChunkReader
from headrace.state.records import RequestState
from headrace.testing.postgres import EmbeddedPostgres
from tests.faults.faulty import AtWork, at_work, follows
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

OLD, FRESH = TableId("public", "old"), TableId("public", "fresh")


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres(settings={"max_prepared_transactions": "10"}) as running:
        yield running


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[None]:
    """As many items as looks at the catalog have ended."""
    ended: list[None] = []
    look = PostgresChunkReader.look

    def counted(self: PostgresChunkReader, *given: Any) -> CatalogLook:
        found = look(self, *given)
        ended.append(None)
        return found

    monkeypatch.setattr(PostgresChunkReader, "look", counted)
    return ended


def run(url: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True) as session:
        for statement in statements:
            session.execute(statement.encode())


@req("C30", "P49")
@pytest.mark.parametrize("restarts", [False, True])
def test_a_table_waits_for_a_writer_that_was_prepared(
    server: EmbeddedPostgres, tmp_path: Path, looks: list[None], restarts: bool
) -> None:
    """What he wrote before the publication had the table is not in the log: only a dump behind his commit brings it."""
    url = server.create_database("shop")
    run(url, "CREATE TABLE old (id int PRIMARY KEY)", "CREATE PUBLICATION mine FOR TABLE old")
    source = PostgresSource(url, ["public.*"], name="writers", publication="mine")
    with at_work(source, tmp_path) as running:
        until(lambda: OLD in running.state.copies(), "the first copy")
        run(url, "CREATE TABLE fresh (id int PRIMARY KEY)")
        with psycopg.connect(url) as writer:
            writer.execute("INSERT INTO fresh VALUES (1)")
            run(url, "ALTER PUBLICATION mine ADD TABLE fresh")
            looked(running, url, looks)
            assert not asked(running)
            writer.execute("PREPARE TRANSACTION 'late'")
        if restarts:
            server.execute("ALTER SYSTEM SET wal_sender_timeout = '2s'", "SELECT pg_reload_conf()")
            server.restart("immediate")
        looked(running, url, looks)
        assert not asked(running)
        run(url, "COMMIT PREPARED 'late'")
        until(lambda: asked(running) == [RequestState.COMPLETED], "the dump of the new table")
        run(url, "INSERT INTO fresh VALUES (2)")
        follows(running, url, FRESH)
    assert running.error is None


def looked(running: AtWork, url: str, looks: list[None]) -> None:
    """Wait until the capture follows, and has looked at the catalog twice since then, which takes up what it found."""
    run(url, "INSERT INTO old SELECT coalesce(max(id), 0) + 1 FROM old")
    follows(running, url, OLD)
    before = len(looks)
    until(lambda: len(looks) > before + 2, "looks at the catalog")


def asked(running: AtWork) -> list[RequestState]:
    """Return what became of dumps of the new table; it was refused before it was published."""
    states = [r.state for r in running.state.requests() if r.table == FRESH]
    return [state for state in states if state is not RequestState.FAILED]

"""The server goes away in mid-stream and comes back."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.errors import SourceError, SourceUnavailable
from headrace.model.mark import Mark, MarkKind
from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres import EmbeddedPostgres
from tests.sources.postgres.support import Opened
from tests.waiting import until

pytestmark = pytest.mark.postgres

T = TableId("public", "t")


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    with EmbeddedPostgres() as running:
        yield running


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_a_restart_of_the_server_loses_and_repeats_nothing_that_was_acknowledged(
    server: EmbeddedPostgres, tmp_path: Path, mode: str
) -> None:
    url = server.create_database("shop")
    server.execute("CREATE TABLE t (id int PRIMARY KEY)", database="shop")
    source = PostgresSource(url)
    source.prepare()
    log = Opened(source, tmp_path)
    reader = source.chunks()
    server.execute("INSERT INTO t VALUES (1)", database="shop")
    first = log.collect()
    assert first.changes("t") == [("+I", 1)]
    assert reader.read(T, None, ("9",), 10).rows.num_rows == 1
    server.execute("INSERT INTO t VALUES (2)", database="shop")

    # A fast shutdown waits this long for a reader that does not answer, and only now: a slow test is not cut off.
    server.execute("ALTER SYSTEM SET wal_sender_timeout = '2s'", "SELECT pg_reload_conf()")
    until(lambda: _patience(url) == ("2s",), "the setting is loaded")
    server.stop(mode)
    (server.data / "postgresql.auto.conf").write_text("")
    with pytest.raises(SourceUnavailable):
        log.until(lambda item: item.mark is not None, acknowledge=False)
    with pytest.raises(SourceUnavailable):
        reader.read(T, None, ("9",), 10)
    with pytest.raises(SourceUnavailable):
        log.writer.write(Mark(MarkKind.LOW, "a", "b"))
    for call in (source.preflight, source.prepare, source.incarnation, source.tables):
        with pytest.raises(SourceUnavailable):
            call()
    server.start()

    log.reopen()
    server.execute("INSERT INTO t VALUES (3)", database="shop")
    got = log.collect()
    if mode == "immediate":
        # A crashed server may have forgotten the last acknowledgement: the same comes again.
        repeated = [row for row in got.rows("t") if row["id"] == 1]
        assert all(row["_scn"] == first.index[0]["scn"] for row in repeated)
        assert got.changes("t")[len(repeated) :] == [("+I", 2), ("+I", 3)]
    else:
        assert got.changes("t") == [("+I", 2), ("+I", 3)]
    assert reader.read(T, None, ("9",), 10).rows.num_rows == 3
    log.close()
    reader.close()


def _patience(url: str) -> tuple[str, ...] | None:
    """Return how long whoever connects now may say nothing."""
    with psycopg.connect(url) as connection:
        return connection.execute("SHOW wal_sender_timeout").fetchone()


def test_a_server_that_ends_our_connection_is_unavailable_for_now(
    server: EmbeddedPostgres, tmp_path: Path
) -> None:
    url = server.create_database("shop")
    server.execute("CREATE TABLE t (id int PRIMARY KEY)", database="shop")
    source = PostgresSource(url)
    source.prepare()
    log = Opened(source, tmp_path)
    reader = source.chunks()
    reader.snapshot()
    log.collect()
    server.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        "AND datname = 'shop'"
    )
    with pytest.raises(SourceUnavailable):
        log.until(lambda item: item.mark is not None)
    with pytest.raises(SourceUnavailable):
        reader.snapshot()
    with pytest.raises(SourceUnavailable):
        log.writer.write(Mark(MarkKind.LOW, "a", "b"))
    log.reopen()
    log.collect()
    assert reader.snapshot().xmax > 0
    log.close()
    reader.close()


def test_a_reader_that_is_slow_to_poll_is_kept_by_the_server(tmp_path: Path) -> None:
    """Feedback goes out often enough while polls are regular, whatever the server's patience."""
    # It goes out after a third of that, so a stall may take ten seconds.
    with EmbeddedPostgres(settings={"wal_sender_timeout": "15s"}) as server:
        url = server.create_database("shop")
        server.execute("CREATE TABLE t (id int PRIMARY KEY)", database="shop")
        source = PostgresSource(url)
        source.prepare()
        log = Opened(source, tmp_path)
        for _ in range(160):
            log.reader.poll(0.1)
        server.execute("INSERT INTO t VALUES (1)", database="shop")
        assert log.collect().changes("t") == [("+I", 1)]
        log.close()


def test_errors_of_an_unreachable_server_name_it_and_hide_the_password(tmp_path: Path) -> None:
    source = PostgresSource("postgresql://me:s3cret-pass@127.0.0.1:1/shop")
    with pytest.raises(SourceUnavailable) as caught:
        source.prepare()
    text = f"{caught.value}{caught.value!r}{source!r}{source.settings!r}"
    assert "127.0.0.1" in text
    assert "s3cret" not in text
    assert caught.value.next_step


@pytest.mark.parametrize("version", [16, 18])
def test_a_publication_made_after_the_slot_is_a_named_error(
    request: pytest.FixtureRequest, tmp_path: Path, version: int
) -> None:
    """From 18 on the server only warns and leaves the changes out; we stop all the same."""
    name = "older_server" if version == 16 else "postgres_server"
    server: EmbeddedPostgres = request.getfixturevalue(name)
    url = server.create_database("shop")
    server.execute(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "SELECT pg_create_logical_replication_slot('early', 'pgoutput')",
        "INSERT INTO t VALUES (1)",
        "CREATE PUBLICATION late FOR TABLE t",
        database="shop",
    )
    log = Opened(PostgresSource(url, slot="early", publication="late"), tmp_path)
    with pytest.raises(SourceError, match="late") as caught:
        log.collect()
    assert "publication first" in caught.value.next_step
    log.close()
    server.drop_database("shop")

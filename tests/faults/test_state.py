"""Our own files: state, registry, change log, locks; and a source that is no longer the one we know."""

from __future__ import annotations

import shutil
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headrace.errors import (
    ChangeLogError,
    ChangeLogLost,
    CorruptSegment,
    LeaseLost,
    SourceReplaced,
    SourceUnavailable,
    StateBusy,
    StateError,
)
from headrace.observe import failpoints
from headrace.registry.file import FileRegistry
from headrace.sources.postgres import PostgresSource
from headrace.state.store import RequestState, StateStore
from headrace.testing.postgres import EmbeddedPostgres
from tests.faults.faulty import (
    PUBLIC_T,
    at_work,
    confirmed,
    copied,
    failure_of,
    follows,
    named,
    position,
)
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = pytest.mark.postgres

SLOT = "headrace_state"


@pytest.fixture
def source(database: str, sql: Sql) -> PostgresSource:
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t VALUES (1, 'a'), (2, 'b'), (3, 'c')",
    )
    return PostgresSource(database, name="state")


def free(url: str) -> None:
    """Wait until nobody reads the slot."""

    def is_free() -> bool:
        with psycopg.connect(url) as connection:
            query = "SELECT active FROM pg_replication_slots WHERE slot_name = %s"
            return connection.execute(query, (SLOT,)).fetchone() == (False,)

    until(is_free, "the slot is free")


@req("C63")
@pytest.mark.parametrize(
    "damage", ["not a database", "a page of noise", "a table gone", "a folder"]
)
def test_a_state_database_that_does_not_read_is_a_named_error(
    source: PostgresSource, database: str, tmp_path: Path, damage: str
) -> None:
    copied(source, tmp_path)
    before = confirmed(database, SLOT)
    path = tmp_path / "state.db"
    spoil(path, damage)
    with pytest.raises(StateError) as caught, at_work(source, tmp_path) as running:
        raise failure_of(running)
    named(caught.value, StateError, "state.db")
    assert confirmed(database, SLOT) == before


def spoil(path: Path, damage: str) -> None:
    """Damage a database whose log is written back."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if damage == "a table gone":
            connection.execute("DROP TABLE progress")
            connection.execute("CREATE VIEW progress AS SELECT 1 AS x")
            connection.commit()
    if damage == "not a database":
        path.write_bytes(b"this is a shopping list, and no database\n" * 200)
    if damage == "a page of noise":
        data = bytearray(path.read_bytes())
        data[100:4096] = bytes(range(256)) * 15 + bytes(156)
        path.write_bytes(bytes(data))
    if damage == "a folder":
        path.unlink()
        path.mkdir()


class Holder:
    """Keeps everybody else from the state, from the moment when the rows of a window are in the change log."""

    def __init__(self, folder: Path) -> None:
        self._other = sqlite3.connect(folder / "state.db", check_same_thread=False)
        self.since = 0.0
        failpoints.arm("window.after_emit", self._hold)

    def _hold(self) -> None:
        newest = "SELECT state FROM requests ORDER BY number DESC LIMIT 1"
        if self._other.execute(newest).fetchone() == (RequestState.QUEUED.value,):
            # What is owed is written behind the next round: the first window may come before it.
            return
        failpoints.disarm()
        self._other.execute("BEGIN EXCLUSIVE")
        self.since = time.monotonic()

    def let_go(self) -> None:
        self._other.rollback()
        self._other.close()


@pytest.fixture
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


@req("C63")
@pytest.mark.parametrize("wait_s", [60.0, 0.5], ids=["comes back", "stays away"])
def test_a_state_database_that_is_held_is_waited_for_without_progress_and_then_a_named_error(
    source: PostgresSource,
    database: str,
    sql: Sql,
    tmp_path: Path,
    disarmed: None,
    wait_s: float,
) -> None:
    copied(source, tmp_path)
    with at_work(source, tmp_path, wait_s=wait_s) as running:
        follows(running, database)
        holder = Holder(tmp_path)
        running.state.submit("TABLE", PUBLIC_T)
        until(lambda: holder.since, "a window is emitted and the state is held")
        before = position(database)
        sql("INSERT INTO t VALUES (4, 'd')")
        if wait_s < 1:
            named(failure_of(running), StateBusy, "state.db")
            # It was tried for as long as it is set to.
            assert time.monotonic() - holder.since >= wait_s
        else:
            end = holder.since + 1.0
            until(lambda: time.monotonic() > end, "some time without its state")
            assert running.error is None
        # Neither is anything acknowledged meanwhile, nor the request carried out.
        assert confirmed(database, SLOT) <= before
        (*_, asked) = running.state.requests()
        assert asked.state is RequestState.ACTIVE
        holder.let_go()
        if wait_s > 1:
            until(running.dumped, "the request is carried out")
            follows(running, database)
    # And whoever starts it again finds everything.
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the request is carried out")
        follows(running, database)


@req("A-19")
@req("P62")
def test_a_second_capture_on_the_same_folder_is_refused_and_harms_nobody(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        with pytest.raises(LeaseLost) as caught, at_work(source, tmp_path):
            pass
        named(caught.value, LeaseLost, "changelog")
        sql("INSERT INTO t VALUES (4, 'd')")
        follows(running, database)
    assert running.error is None


def test_a_change_log_that_was_deleted_is_lost(
    source: PostgresSource, database: str, tmp_path: Path
) -> None:
    copied(source, tmp_path)
    free(database)
    before = confirmed(database, SLOT)
    shutil.move(tmp_path / "changelog", tmp_path / "kept")
    with pytest.raises(ChangeLogLost) as caught, at_work(source, tmp_path) as running:
        raise failure_of(running)
    named(caught.value, ChangeLogLost, "SCN")
    assert confirmed(database, SLOT) == before
    shutil.rmtree(tmp_path / "changelog")
    shutil.move(tmp_path / "kept", tmp_path / "changelog")
    with at_work(source, tmp_path) as running:
        follows(running, database)


@req("B-12")
def test_a_flipped_byte_of_the_newest_segment_is_refused(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    copied(source, tmp_path)
    free(database)
    before = confirmed(database, SLOT)
    segment = max((tmp_path / "changelog").glob("*.seg"))
    good = segment.read_bytes()
    bad = bytearray(good)
    bad[300] ^= 1
    segment.write_bytes(bytes(bad))
    with pytest.raises(CorruptSegment) as caught, at_work(source, tmp_path) as running:
        raise failure_of(running)
    named(caught.value, CorruptSegment, segment.name)
    assert confirmed(database, SLOT) == before
    segment.write_bytes(good)
    sql("INSERT INTO t VALUES (4, 'd')")
    with at_work(source, tmp_path) as running:
        follows(running, database)


@pytest.mark.parametrize("damage", ["{", '{"schema": 7}', "\x00\x01"])
def test_a_damaged_table_version_is_a_named_error(
    source: PostgresSource, database: str, tmp_path: Path, damage: str
) -> None:
    copied(source, tmp_path)
    (path, *_) = (tmp_path / "changelog" / "schemas").glob("*.json")
    path.write_text(damage)
    with pytest.raises(StateError) as caught:
        FileRegistry(path.parent).get(int(path.stem, 16))
    named(caught.value, StateError, path.stem)


@req("C63")
def test_a_file_in_the_place_of_the_registry_is_a_named_error_and_nothing_is_acknowledged(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    copied(source, tmp_path)
    free(database)
    before = confirmed(database, SLOT)
    folder = tmp_path / "changelog" / "schemas"
    shutil.move(folder, tmp_path / "kept")
    folder.write_text("in the way")
    sql("INSERT INTO t VALUES (4, 'd')")
    with at_work(source, tmp_path) as running:
        named(failure_of(running), StateError, "schemas")
    assert confirmed(database, SLOT) - before < 60
    folder.unlink()
    shutil.move(tmp_path / "kept", folder)
    with at_work(source, tmp_path) as running:
        follows(running, database)


def test_a_file_in_the_place_of_the_change_log_is_a_named_error(
    source: PostgresSource, tmp_path: Path
) -> None:
    (tmp_path / "changelog").write_text("in the way")
    with pytest.raises(ChangeLogError) as caught, at_work(source, tmp_path):
        pass
    named(caught.value, ChangeLogError, "changelog")


@pytest.fixture
def restored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Another server with a database of the same name and tables, as after a restore."""
    # Copies of one data folder would be one server.
    monkeypatch.setattr(EmbeddedPostgres, "templates", None)
    with EmbeddedPostgres() as server:
        url = server.create_database("shop")
        server.execute("CREATE TABLE t (id int PRIMARY KEY, v text)", database="shop")
        yield url


def test_another_database_in_the_place_of_the_source_is_refused(
    source: PostgresSource, restored: str, tmp_path: Path
) -> None:
    copied(source, tmp_path)
    with at_work(PostgresSource(restored, name="state"), tmp_path) as running:
        named(failure_of(running), SourceReplaced, "state", "was", "database system")


@req("C61")
def test_a_database_that_does_not_exist_is_named(database: str, tmp_path: Path) -> None:
    url = database.replace("/test_", "/nowhere_", 1)
    with pytest.raises(SourceUnavailable) as caught, at_work(PostgresSource(url), tmp_path):
        pass
    named(caught.value, SourceUnavailable, "nowhere_", "does not exist")


def test_state_that_cannot_be_made_is_a_named_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StateError) as caught:
        StateStore(tmp_path / "file" / "state.db")
    named(caught.value, StateError, "state.db")

"""The configuration names another slot than before: the one that is read no more goes, or is told of."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from headrace.errors import SlotLost
from headrace.relay.slots import noted_slots
from headrace.replicator import runner
from headrace.replicator.config import Config
from headrace.replicator.config_file import load
from headrace.replicator.paths import StatePaths
from headrace.sources.base import HeldSlot
from headrace.sources.postgres import PostgresSource
from headrace.state.store import StateStore
from tests.faults.faulty import at_work, copied, failure_of, follows, named
from tests.fixtures_postgres import Sql
from tests.waiting import until

pytestmark = pytest.mark.postgres

OWN, THEIRS = "headrace_edited", "of_the_administrator"


@pytest.fixture
def source(database: str, sql: Sql) -> Iterator[PostgresSource]:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a'), (2, 'b')")
    yield edited(database)
    for name in (OWN, THEIRS):
        until(lambda: not active(database, name), "nobody reads the slot")  # noqa: B023
        sql(f"SELECT pg_drop_replication_slot(slot_name) {FROM} '{name}'")


FROM = "FROM pg_replication_slots WHERE slot_name ="


def edited(url: str, slot: str | None = None, publication: str | None = None) -> PostgresSource:
    return PostgresSource(url, name="edited", slot=slot, publication=publication)


def slots(url: str) -> set[str]:
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT slot_name FROM pg_replication_slots").fetchall()
    return {name for (name,) in rows if name in (OWN, THEIRS)}


def active(url: str, slot: str) -> bool:
    with psycopg.connect(url) as connection:
        rows = connection.execute(f"SELECT active {FROM} %s".encode(), (slot,)).fetchall()
    return any(held for (held,) in rows)


def made(sql: Sql) -> None:
    sql(f"SELECT pg_create_logical_replication_slot('{THEIRS}', 'pgoutput')")


def test_our_own_slot_goes_when_the_named_one_is_read(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        made(sql)
        sql("INSERT INTO t VALUES (3, 'c')")
        follows(running, database)
    sql("INSERT INTO t VALUES (4, 'nobody looks')")
    with at_work(edited(database, THEIRS), tmp_path) as running:
        follows(running, database)
        until(lambda: slots(database) == {THEIRS}, "our own slot is gone")
        sql("INSERT INTO t VALUES (5, 'e')")
        follows(running, database)
    assert running.error is None


def test_our_own_publication_goes_with_its_slot_when_another_one_is_named(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE PUBLICATION theirs FOR TABLE t")
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        made(sql)
        sql("INSERT INTO t VALUES (3, 'c')")
        follows(running, database)
    with at_work(edited(database, THEIRS, "theirs"), tmp_path) as running:
        until(lambda: slots(database) == {THEIRS}, "our own slot is gone")
        follows(running, database)
    with psycopg.connect(database) as connection:
        names = connection.execute("SELECT pubname FROM pg_publication").fetchall()
    assert names == [("theirs",)]


def test_a_slot_stays_while_another_one_lacks_something_and_the_edit_can_be_taken_back(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    copied(source, tmp_path)
    sql("INSERT INTO t VALUES (3, 'between')")
    made(sql)
    with at_work(edited(database, THEIRS), tmp_path) as running:
        named(failure_of(running), SlotLost, "edited")
    assert slots(database) == {OWN, THEIRS}
    with at_work(source, tmp_path) as running:
        follows(running, database)
    assert running.error is None


def test_one_that_was_made_for_an_edit_that_was_taken_back_goes(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    made(sql)
    theirs = edited(database, THEIRS)
    copied(theirs, tmp_path)
    sql("INSERT INTO t VALUES (3, 'between')")
    with at_work(source, tmp_path) as running:
        named(failure_of(running), SlotLost, "edited")
    assert slots(database) == {OWN, THEIRS}
    until(lambda: not active(database, OWN), "nobody reads our own slot")
    with at_work(theirs, tmp_path) as running:
        until(lambda: slots(database) == {THEIRS}, "our own slot is gone")
        follows(running, database)
    assert running.error is None


def test_a_slot_of_an_administrator_stays_and_is_told_of(
    source: PostgresSource,
    database: str,
    sql: Sql,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    made(sql)
    with at_work(edited(database, THEIRS), tmp_path) as running:
        until(running.dumped, "the first copy")
        source.prepare()
        sql("INSERT INTO t VALUES (3, 'behind both')")
        follows(running, database)
    with at_work(source, tmp_path) as running:
        until(lambda: "is not read any more" in caplog.text, "that it is told of")
        follows(running, database)
    assert f"SELECT pg_drop_replication_slot('{THEIRS}')" in caplog.text
    assert slots(database) == {OWN, THEIRS}


def test_a_slot_at_another_server_is_told_of(source: PostgresSource) -> None:
    life = source.incarnation()
    stays = source.let_go(HeldSlot("4711", OWN, own=True), life)
    assert "another server, database system 4711" in stays
    assert f"SELECT pg_drop_replication_slot('{OWN}')" in stays
    assert source.held(life).server in life


def test_one_that_is_deleted_leaves_no_slot_that_another_configuration_had(
    source: PostgresSource, database: str, sql: Sql, tmp_path: Path
) -> None:
    made(sql)
    config = configured(tmp_path, database)
    paths = StatePaths.of(config)
    copied(source, paths.root)
    until(lambda: not active(database, OWN), "nobody reads our own slot")
    runner.release_source(config)
    assert slots(database) == {THEIRS}
    with closing(StateStore(paths.database)) as state:
        assert [slot.name for slot in noted_slots(state)] == [THEIRS]


def configured(folder: Path, url: str) -> Config:
    file = folder / "edited.yaml"
    source = f"{{type: postgres, url: '{url}', tables: ['public.*'], slot: {THEIRS}}}"
    file.write_text(f"name: edited\nsource: {source}\ntarget: {{type: delta, path: ./lake}}\n")
    return load(file)

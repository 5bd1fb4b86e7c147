"""Places that outlive their process: in a file, in a database, in the consumer's own transaction."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import sqlalchemy as sa

from headrace.changelog import ChangeLogSettings
from headrace.client import (
    Checkpoints,
    Consumer,
    FileCheckpoints,
    NoCheckpoints,
    Result,
    SqlCheckpoints,
    Subscription,
    Window,
)
from headrace.client.errors import CheckpointUnusable
from headrace.client.group_sql import SqlGroupStore
from headrace.client.group_state import Claim, begun
from headrace.testing.histories import TABLES
from headrace.testing.relay import served
from headrace.wire.place import Inside, Place
from tests.changelog.windows import TABLE, window
from tests.client.conftest import QUICK, running
from tests.client.logs import LogFolder, random_blocks, told_by
from tests.client.recording import Recorder
from tests.client.test_relays import whole
from tests.fixtures_postgres import database, postgres_server
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "postgres_server"]

ROOT = Path(__file__).parents[2]
WINDOWS = 60
AT_ONCE = 10


def consume(kind: str, relay: str, folder: Path, lines: int | None) -> bool:
    """Run the consumer; kill it after so many windows. Return whether it came to its end."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.client.consuming_process",
            kind,
            relay,
            str(folder),
            str(WINDOWS),
        ],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env=dict(os.environ, PYTHONPATH=f"{ROOT / 'src'}{os.pathsep}{ROOT}"),
    )
    assert process.stdout is not None
    with process.stdout, contextlib.suppress(ProcessLookupError):
        for _ in range(lines or 10**6):
            if not process.stdout.readline():
                break
        if lines is not None:
            process.send_signal(signal.SIGKILL)
    return process.wait(120) == 0


def rows_in(folder: Path) -> Counter:
    with contextlib.closing(sqlite3.connect(folder / "rows.db")) as connection:
        return Counter(connection.execute("select scn, ord from rows").fetchall())


EXPECTED = Counter({(scn, order): 1 for scn in range(1, WINDOWS + 1) for order in range(3)})


def consume_killed_often(kind: str, log: LogFolder, relay: str, folder: Path, seed: int) -> int:
    """Run the consumer again and again, the last time to its end; return how often it was killed.

    A few windows come with each run, so that it is in the middle of them or waits for more: it cannot have ended
    before it is killed, however late that is.
    """
    log.register(TABLE)
    rng = random.Random(seed)
    for last in range(AT_ONCE, WINDOWS + 1, AT_ONCE):
        log.append(*(window(scn, 3) for scn in range(last - AT_ONCE + 1, last + 1)))
        lines = rng.randrange(1, AT_ONCE + 1) if last < WINDOWS else None
        assert consume(kind, relay, folder, lines) == (lines is None)
    return WINDOWS // AT_ONCE - 1


@req("D98", "D27")
def test_a_consumer_killed_at_any_moment_has_each_change_once_with_its_place(log, relay, tmp_path):
    kills = consume_killed_often("transactional", log, relay, tmp_path, 1)
    assert kills == 5
    assert rows_in(tmp_path) == EXPECTED


@req("D97", "D26")
def test_a_consumer_killed_beside_its_file_gets_at_most_the_last_window_again(log, relay, tmp_path):
    kills = consume_killed_often("at least once", log, relay, tmp_path, 2)
    found = rows_in(tmp_path)
    assert set(found) == set(EXPECTED)
    assert sum(found.values()) - len(EXPECTED) <= 3 * kills


PLACES = [Place(0), Place(7), Place(8, 0), Place(8, 12), Place(2**62)]


@req("D98")
@pytest.mark.parametrize("kind", ["file", "sql", "memory"])
def test_what_was_stored_is_what_is_loaded(tmp_path, kind):
    def opened() -> FileCheckpoints | SqlCheckpoints:
        if kind == "file":
            return FileCheckpoints(tmp_path / "a" / "place.json")
        return SqlCheckpoints(f"sqlite:///{tmp_path}/a.db", "me")

    store: Checkpoints = NoCheckpoints() if kind == "memory" else opened()
    assert store.load() is None
    for place in PLACES:
        store.store(place)
        assert store.load() == place
        if kind != "memory":
            assert opened().load() == place


@req("D98")
@pytest.mark.postgres
def test_the_longest_place_fits_where_text_has_a_length(database):
    url = database.replace("postgresql://", "postgresql+psycopg://")
    place = Inside(2**63 - 1, 2**31 - 2, "abc234", 2**31)
    checkpoints = SqlCheckpoints(url, "me")
    checkpoints.store(place)
    assert str(checkpoints.load()) == str(place)
    groups, claim = SqlGroupStore(url), Claim(0, 1, 0)
    groups.create("g", begun("{}", 1, Place(0)))
    groups.store("g", claim, place)
    assert str(groups.load("g", claim)) == str(place)


@req("D18", "D44")
@pytest.mark.parametrize("kind", ["file", "sql"])
def test_a_place_is_the_sources_own_number_and_holds_where_blocks_are_cut_otherwise(
    log, relay, tmp_path, kind
):
    blocks = random_blocks(31)
    log.append(*blocks)
    other = LogFolder(tmp_path / "other", ChangeLogSettings(segment_bytes=8192))
    other.register(*TABLES)
    other.append(*whole(blocks))
    half = next(b for b in blocks[len(blocks) // 2 :] if b.ends_complete and len(b.index)).last_scn
    database = sa.create_engine(f"sqlite:///{tmp_path}/places.db")

    def store() -> Checkpoints:
        if kind == "file":
            return FileCheckpoints(tmp_path / "place")
        return SqlCheckpoints(database, "me")

    told = []
    with served({"shop": other.folder}) as second:
        for url, upto in ((relay, half), (second, blocks[-1].covered_scn)):
            consumer = Recorder()
            Subscription(url, "shop", consumer, store(), upto=upto, settings=QUICK).run()
            told += consumer.told
            # Nothing but this number and the time is kept: it alone says where to go on.
            if kind == "file":
                kept = json.loads((tmp_path / "place").read_text())
            else:
                with database.connect() as connection:
                    (kept,) = connection.execute(
                        sa.text("SELECT place, stored_us FROM headrace_checkpoints")
                    ).mappings()
            assert dict(kept) == {"place": str(upto), "stored_us": kept["stored_us"]}
    assert sorted(told, key=lambda one: one[:2]) == told_by(blocks)
    other.close()


def test_consumers_in_one_database_do_not_see_each_other(tmp_path):
    one, other = (SqlCheckpoints(f"sqlite:///{tmp_path}/a.db", name) for name in ("one", "other"))
    one.store(Place(5))
    assert other.load() is None
    other.store(Place(6))
    assert one.load() == Place(5)


def test_consumers_that_begin_at_the_same_time_make_one_table(tmp_path):
    engine, other = (sa.create_engine(f"sqlite:///{tmp_path}/a.db") for _ in range(2))
    made: list[Place] = []

    @sa.event.listens_for(engine, "before_cursor_execute")
    def somebody_else_is_faster(connection, cursor, statement, *_):
        if "CREATE TABLE" in statement and not made:
            connection.rollback()
            made.append(Place(6))
            SqlCheckpoints(other, "other").store(made[0])

    assert SqlCheckpoints(engine, "me").load() is None
    assert made
    assert SqlCheckpoints(engine, "other").load() == Place(6)


@req("D98")
def test_a_place_in_the_consumers_transaction_goes_with_it(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/a.db")
    store = SqlCheckpoints(engine, "me")
    store.store(Place(1))
    with engine.connect() as connection:
        store.store(Place(2), connection=connection)
        connection.rollback()
    assert store.load() == Place(1)
    with engine.begin() as connection:
        store.store(Place(2), connection=connection)
    assert store.load() == Place(2)


@pytest.mark.parametrize("text", ["", "{", "{}", '{"place": "x"}', '{"place": 5}', "[]"])
def test_a_file_that_does_not_read_is_refused_and_not_begun_anew(tmp_path, text):
    path = tmp_path / "place.json"
    path.write_text(text)
    with pytest.raises(CheckpointUnusable, match="does not read"):
        FileCheckpoints(path).load()


def test_a_consumer_that_was_given_the_file_of_another_one_stops_and_says_so(log, relay, tmp_path):
    log.register(TABLE)
    log.append(*(window(scn) for scn in range(1, 6)))
    path = tmp_path / "place"

    class Slow(Consumer):
        def on_start_window(self, window: Window) -> None:
            if window.scn == 3:
                Subscription(relay, "shop", Recorder(), path, upto=5, settings=QUICK).run()

    mistaken = Subscription(
        relay, "shop", Slow(), path, upto=5, settings=QUICK, on_suspended="raise"
    )
    with pytest.raises(CheckpointUnusable, match="everything up to 2") as refused:
        mistaken.run()
    assert "two consumers use it" in str(refused.value)
    # What it has not stored is not taken for done by either.
    assert FileCheckpoints(path).load() == Place(5)


def test_a_consumer_that_was_given_the_name_of_another_one_stops_and_says_so(log, relay, tmp_path):
    log.register(TABLE)
    log.append(*(window(scn) for scn in range(1, 6)))
    url = f"sqlite:///{tmp_path}/places.db"

    class Slow(Consumer):
        def on_start_window(self, window: Window) -> None:
            if window.scn == 3:
                own = SqlCheckpoints(url, "me")
                Subscription(relay, "shop", Recorder(), own, upto=5, settings=QUICK).run()

    mistaken = Subscription(
        relay,
        "shop",
        Slow(),
        SqlCheckpoints(url, "me"),
        upto=5,
        settings=QUICK,
        on_suspended="raise",
    )
    with pytest.raises(CheckpointUnusable, match="two consumers have this name"):
        mistaken.run()
    assert SqlCheckpoints(url, "me").load() == Place(5)


@req("D98", "D27")
def test_what_a_killed_process_commits_late_is_not_done_once_more(log, relay, database):
    """Its server had the commit and not yet carried it out when the next process asked for the place."""
    engine = sa.create_engine(database.replace("postgresql://", "postgresql+psycopg://"))
    rows = sa.Table("rows", sa.MetaData(), sa.Column("scn", sa.BigInteger))
    rows.create(engine)
    log.register(TABLE)
    log.append(*(window(scn) for scn in range(1, 6)))
    killed = SqlCheckpoints(engine, "me")
    killed.store(Place(1))

    class Storing(Consumer):
        def __init__(self) -> None:
            self.checkpoints = SqlCheckpoints(engine, "me")

        def on_end_window(self, window: Window) -> Result:
            with engine.begin() as connection:
                connection.execute(rows.insert().values(scn=window.scn))
                self.checkpoints.store(window.place, connection=connection)
            return Result.SKIP_CHECKPOINT

    consumer = Storing()
    subscription = Subscription(
        relay, "shop", consumer, consumer.checkpoints, upto=5, settings=QUICK
    )
    blocked = sa.text("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")
    with engine.connect() as late:
        late.execute(rows.insert().values(scn=2))
        killed.store(Place(2), connection=late)
        with running(subscription) as join:
            with engine.connect() as looking:

                def waits() -> bool:
                    looking.rollback()
                    return bool(looking.execute(blocked).scalar())

                until(waits, "the next process waits for it")
            late.commit()
            join()
    with engine.connect() as connection:
        assert sorted(connection.execute(sa.select(rows.c.scn)).scalars()) == [2, 3, 4, 5]
    engine.dispose()


def test_a_place_whose_transactions_came_to_nothing_is_still_ours(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/a.db")
    store = SqlCheckpoints(engine, "me")
    assert store.load() is None
    for scn in (1, 2, 3):
        with engine.connect() as connection:
            for again in (0, 1):
                store.store(Place(scn * 10 + again), connection=connection)
            connection.rollback()
        if scn == 2:
            store.store(Place(5))
        assert store.load() == (None if scn == 1 else Place(5))


def test_a_row_that_was_removed_meanwhile_is_made_anew(tmp_path):
    engine = sa.create_engine(f"sqlite:///{tmp_path}/a.db")
    store = SqlCheckpoints(engine, "me")
    store.store(Place(1))
    with engine.begin() as connection:
        connection.exec_driver_sql("DELETE FROM headrace_checkpoints")
    assert store.load() is None
    store.store(Place(2))
    assert store.load() == Place(2)


def test_a_file_that_was_removed_meanwhile_is_made_anew(tmp_path):
    store = FileCheckpoints(tmp_path / "place")
    store.store(Place(1))
    (tmp_path / "place").unlink()
    assert store.load() is None
    store.store(Place(2))
    assert store.load() == Place(2)


def test_places_that_cannot_be_stored_are_refused_by_name(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointUnusable, match="cannot be written"):
        FileCheckpoints(tmp_path / "file" / "place.json").store(Place(1))
    with pytest.raises(CheckpointUnusable, match="cannot be stored"):
        SqlCheckpoints(f"sqlite:///{tmp_path}/no/such.db", "me").store(Place(1))
    with pytest.raises(CheckpointUnusable, match="does not read"):
        SqlCheckpoints(f"sqlite:///{tmp_path}/no/such.db", "me").load()

"""Consumers of a real PostgreSQL: transactions as they were, a long absence, and nothing of its operations."""

from __future__ import annotations

import random
import sqlite3
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pytest

from headrace.changelog import ChangeLogReader, ChangeLogSettings
from headrace.client import Consumer, Event, NoCheckpoints, State, Subscription, Window
from headrace.errors import ScnNotFound
from headrace.lake.sql.sqlite_file import SqliteWarehouse
from headrace.outputs.sql import SqlOutput
from headrace.sources.postgres import PostgresSource
from headrace.wire.place import Place
from tests.client.conftest import QUICK, running, suspended
from tests.fixtures_postgres import Sql
from tests.integration.relayed import Copy, relayed
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]


def shop(database: str) -> PostgresSource:
    return PostgresSource(database, name="shop")


class Windows(Consumer):
    """Writes down, window by window, which tag its rows carry and how many of each table there are."""

    def __init__(self) -> None:
        self.seen: list[tuple[set[str], Counter[str]]] = []

    def on_start_window(self, window: Window) -> None:
        self.seen.append((set(), Counter()))

    def on_data_event(self, event: Event) -> None:
        tags, tables = self.seen[-1]
        tags.add(event.row["tag"])
        tables[str(event.table)] += 1

    @property
    def told(self) -> list[tuple[set[str], Counter[str]]]:
        """Windows with rows."""
        return [one for one in self.seen if one[0]]


@req("D02", "D03")
def test_a_transaction_over_three_tables_is_one_window_in_the_order_of_commits(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    tables = ("a", "b", "c")
    sql(*(f"CREATE TABLE {table} (id serial PRIMARY KEY, tag text)" for table in tables))
    rng = random.Random(2)
    consumer, expected = Windows(), []
    with relayed(shop(database), tmp_path) as (_, url), ExitStack() as stack:
        sessions = [stack.enter_context(psycopg.connect(database)) for _ in range(3)]
        open_: dict[int, tuple[str, Counter[str]]] = {}
        asked = Subscription(url, "shop", consumer, start="newest", settings=QUICK)
        with running(asked):
            # Before that nobody knows what is the newest: the first transactions might be older.
            until(lambda: asked.status.state is State.STARTED, "it has begun")
            for number in range(150):
                # Transactions overlap: who begins first does not commit first.
                session = rng.randrange(len(sessions))
                tag, written = open_.setdefault(session, (f"t{number}", Counter()))
                for table in rng.sample(tables, rng.randrange(1, 4)):
                    statement = f"INSERT INTO {table} (tag) VALUES (%s)".encode()
                    sessions[session].execute(statement, (tag,))
                    written[f"public.{table}"] += 1
                if rng.random() < 0.4:
                    sessions[session].commit()
                    expected.append(({tag}, written))
                    del open_[session]
            for session, (tag, written) in open_.items():
                sessions[session].commit()
                expected.append(({tag}, written))
            until(lambda: len(consumer.told) >= len(expected), "every transaction")
    assert consumer.told == expected
    began = [int(tag[1:]) for tags, _ in expected for tag in tags]
    assert began != sorted(began)
    assert max(len(written) for _, written in expected) == 3


@req("D06")
def test_a_captured_database_holds_no_code_of_ours(database: str, sql: Sql, tmp_path: Path) -> None:
    # Functions by their numbers, which tell those of the server's own from others wherever they are made.
    code = """
        SELECT tgname FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL SELECT evtname FROM pg_event_trigger
        UNION ALL SELECT rulename FROM pg_rules WHERE schemaname NOT IN ('pg_catalog')
        UNION ALL SELECT proname FROM pg_proc WHERE oid >= 16384
    """
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t VALUES (1, 'a')")
    copy = Copy()
    with relayed(shop(database), tmp_path) as (_, url):
        with running(Subscription(url, "shop", copy, settings=QUICK)):
            sql("INSERT INTO t VALUES (2, 'b')", "DELETE FROM t WHERE id = 1")
            until(lambda: copy.content("public.t") == [(2, "b")], "the rows")
        with psycopg.connect(database) as connection:
            assert connection.execute(code.encode()).fetchall() == []


@req("D07", "D04")
def test_who_was_away_for_longer_than_the_log_remembers_recovers_by_itself(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql("INSERT INTO t SELECT n, 'first' FROM generate_series(1, 30) n")
    small = ChangeLogSettings(segment_bytes=8192, retain_bytes=0)
    copy, places = Copy(), NoCheckpoints()
    options: dict[str, Any] = {"settings": QUICK}
    with relayed(shop(database), tmp_path, small) as (_, url):
        with running(Subscription(url, "shop", copy, places, **options)):
            until(lambda: len(copy.content("public.t")) == 30, "the first rows")
        left = places.load()
        assert left is not None
        tables = SqlOutput(SqliteWarehouse(file := tmp_path / "copy.db"), "copy")
        with running(Subscription(url, "shop", tables, tables, upto=left.scn, **options)) as join:
            join()
        assert len(rows_in(file)) == 30
        log = ChangeLogReader(tmp_path / "changelog")
        rounds = 0

        def forgotten() -> bool:
            nonlocal rounds
            rounds += 1
            gone = f"DELETE FROM t WHERE id = {min(rounds, 10)}"
            sql(f"UPDATE t SET v = repeat('{rounds} ', 50)", gone)
            return log.tail().oldest_scn > left.scn

        until(forgotten, "the log forgets where the consumer was", pause_s=0.05)
        sql("INSERT INTO t VALUES (1000, 'last')", "UPDATE t SET v = 'end' WHERE id % 2 = 0")
        with psycopg.connect(database) as connection:
            truth = sorted(connection.execute("SELECT id, v FROM t").fetchall())

        # Without a word it stops, by name; told so it begins anew from a dump, and has what is there now.
        with running(stuck := Subscription(url, "shop", Copy(), left_at(left), **options)):
            suspended(stuck)
            assert isinstance(stuck.status.error, ScnNotFound)
        before = dict(copy.versions)
        with running(Subscription(url, "shop", copy, places, on_lost="dump", **options)):
            until(lambda: copy.content("public.t") == truth, "the state of the source")
            sql("INSERT INTO t VALUES (1001, 'later')")
            until(lambda: (1001, "later") in copy.content("public.t"), "what comes behind it")
        truth.append((1001, "later"))
        with running(Subscription(url, "shop", tables, tables, on_lost="dump", **options)):
            until(lambda: rows_in(file) == truth, "tables without what was deleted meanwhile")
    # Of what changed meanwhile it saw the last versions and not those in between.
    again = [copy.versions[said] - before.get(said, 0) for said in copy.versions]
    assert max(again) < rounds


def rows_in(file: Path) -> list[tuple[int, str]]:
    with closing(sqlite3.connect(file)) as connection:
        return connection.execute('SELECT id, v FROM "public.t" ORDER BY id').fetchall()


def left_at(place: Place) -> NoCheckpoints:
    places = NoCheckpoints()
    places.store(place)
    return places


@req("D14", "D19")
def test_a_consumer_does_not_notice_partitions_new_columns_and_rewritten_tables(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql(
        "CREATE TABLE t (id int, v text, PRIMARY KEY (id)) PARTITION BY RANGE (id)",
        "CREATE TABLE t_low PARTITION OF t FOR VALUES FROM (0) TO (100)",
        "INSERT INTO t VALUES (1, 'low')",
    )
    copy = Copy()
    shapes = {"public.t": pa.schema([("id", pa.int64()), ("v", pa.string())])}
    operations = (
        "CREATE TABLE t_high PARTITION OF t FOR VALUES FROM (100) TO (200)",
        "ALTER TABLE t ADD more text DEFAULT 'm'",
        "ALTER TABLE t ALTER v TYPE varchar(100)",
        "ALTER TABLE t_high ADD CHECK (id >= 100)",
        "VACUUM FULL t_low",
        "CREATE INDEX ON t (v)",
    )
    expected = {1: "low"}
    with relayed(shop(database), tmp_path) as (capture, url):
        # Rows of a table that is written anew change without a log event.
        capture.judged = False
        asked = Subscription(url, "shop", copy, shapes=shapes, settings=QUICK)
        with running(asked):
            for number, operation in enumerate(operations, 110):
                sql(operation)
                sql(f"INSERT INTO t (id, v) VALUES ({number}, 'n'), ({number - 100}, 'n')")
                sql(f"UPDATE t SET v = 'u' WHERE id = {number}")
                expected |= {number: "u", number - 100: "n"}
                until(
                    lambda: copy.content("public.t") == sorted(expected.items()),  # noqa: B023
                    f"the rows behind {operation}",
                )
            assert asked.status.rollbacks == 0
    assert set(copy.rows) == {"public.t"}

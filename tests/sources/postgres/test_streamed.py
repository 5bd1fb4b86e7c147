"""Transactions that the server streams while they are open: order, rollbacks, several at once, bounded memory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from headrace.errors import SourceError
from headrace.sources.base import LogItem
from headrace.sources.postgres import PostgresSource
from headrace.sources.postgres.decoder import ENGINES
from headrace.sources.postgres.spools import Spool
from tests.requirements import req
from tests.sources.postgres.support import DEADLINE_S, Opened, opened

Sql = Any
MANY = 3_000
"""Rows that are more than the server keeps in memory."""


@pytest.fixture(params=ENGINES, autouse=True)
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADRACE_DECODER", request.param)


@pytest.fixture
def impatient(database: str) -> str:
    """URL of a server that streams every transaction of more than 64 kB."""
    join = "&" if "?" in database else "?"
    return f"{database}{join}options=-c%20logical_decoding_work_mem%3D64kB"


@contextmanager
def writing(url: str) -> Iterator[psycopg.Connection[Any]]:
    """Open a session whose transaction ends when it is told to."""
    with psycopg.connect(url) as connection:
        yield connection


def insert(connection: psycopg.Connection[Any], first: int, count: int = MANY) -> None:
    connection.execute(
        "INSERT INTO public.t SELECT n, repeat('x', 100) FROM generate_series(%s::int, %s) n",
        [first, first + count - 1],
    )


@contextmanager
def in_pieces(url: str, folder: Path) -> Iterator[Opened]:
    """Open a log in which large transactions wait on disk, and leave 500 rows at a time."""
    source = PostgresSource(url)
    source.settings = replace(
        source.settings, spool_folder=folder / "spool", spool_memory_bytes=1 << 16, block_rows=500
    )
    source.prepare()
    log = Opened(source, folder)
    try:
        yield log
    finally:
        log.close()


def first_piece(log: Opened) -> LogItem:
    """Return the first rows that come."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        item = log.reader.poll(0.1)
        if item is not None and item.block.rows:
            return item
    raise AssertionError("no rows came")


def streams(log: Opened) -> int:
    """Return how many open transactions are held, after reading what is there."""
    log.collect()
    return len(log.reader._spools)


def ids(got: Any) -> list[int]:
    return [row["id"] for row in got.rows("t")]


@req("T7")
def test_an_open_transaction_comes_in_before_it_commits_and_leaves_in_commit_order(
    impatient: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with opened(impatient, tmp_path) as log, writing(impatient) as one, writing(impatient) as two:
        insert(one, 1)
        insert(two, 100_001)
        assert streams(log) == 2
        sql("INSERT INTO t VALUES (0, 'small')")
        assert ids(log.collect()) == [0]
        insert(one, 200_001)
        two.commit()
        second = log.collect()
        assert ids(second) == list(range(100_001, 100_001 + MANY))
        one.commit()
        first = log.collect()
        assert ids(first) == [*range(1, 1 + MANY), *range(200_001, 200_001 + MANY)]
        assert [r["_ord"] for r in first.rows("t")] == list(range(2 * MANY))
        assert second.index[-1]["scn"] < first.index[0]["scn"]
        assert len({entry["scn"] for entry in first.index}) == 1
        assert streams(log) == 0


@req("P33")
def test_what_a_savepoint_took_back_does_not_come(impatient: str, sql: Sql, tmp_path: Path) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    sql("CREATE TABLE later (id int PRIMARY KEY)")
    with opened(impatient, tmp_path) as log, writing(impatient) as one:
        insert(one, 1)
        one.execute("SAVEPOINT a")
        one.execute("INSERT INTO public.later VALUES (1)")
        insert(one, 10_001)
        one.execute("ALTER TABLE public.t ADD COLUMN gone int")
        one.execute("INSERT INTO public.t VALUES (-1, 'x', 5)")
        insert_wide(one, 20_001)
        assert streams(log) == 1
        one.execute("ROLLBACK TO SAVEPOINT a")
        insert(one, 30_001)
        one.commit()
        got = log.collect()
        assert ids(got) == [*range(1, 1 + MANY), *range(30_001, 30_001 + MANY)]
        assert not got.rows("later")
        assert all(set(row) >= {"id", "v"} and "gone" not in row for row in got.rows("t"))
        # Described to us only inside what was taken back.
        sql("INSERT INTO later VALUES (2)")
        assert [row["id"] for row in log.collect().rows("later")] == [2]


def insert_wide(connection: psycopg.Connection[Any], first: int) -> None:
    connection.execute(
        "INSERT INTO public.t SELECT n, repeat('x', 100), n FROM generate_series(%s::int, %s) n",
        [first, first + MANY - 1],
    )


def test_a_streamed_transaction_that_is_rolled_back_leaves_nothing(
    impatient: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with opened(impatient, tmp_path) as log, writing(impatient) as one:
        insert(one, 1)
        assert streams(log) == 1
        one.rollback()
        sql("INSERT INTO t VALUES (5, 'stays')")
        assert ids(log.collect()) == [5]
        assert streams(log) == 0


@req("A-9")
def test_an_open_transaction_comes_again_after_a_restart(
    impatient: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with opened(impatient, tmp_path) as log, writing(impatient) as one:
        insert(one, 1)
        assert streams(log) == 1
        log.reopen()
        insert(one, 10_001)
        one.commit()
        assert ids(log.collect()) == [*range(1, 1 + MANY), *range(10_001, 10_001 + MANY)]


@req("T7")
def test_past_the_bound_they_wait_on_disk_and_leave_in_pieces(
    impatient: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with in_pieces(impatient, tmp_path) as log:
        with writing(impatient) as one:
            insert(one, 1)
            insert(one, 10_001)
            assert streams(log) == 1
            spools = log.reader._spools
            assert sum(spool.memory for spool in spools._open.values()) <= 1 << 16
            one.commit()
        got = log.collect()
        assert ids(got) == [*range(1, 1 + MANY), *range(10_001, 10_001 + MANY)]
        assert max(block.rows for block in got.blocks) <= 501
        assert [e["last_piece"] for e in got.index].count(1) == 1
        assert not list((tmp_path / "spool").iterdir())


@req("T7")
def test_the_next_piece_is_decoded_while_the_last_one_is_written(
    impatient: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with in_pieces(impatient, tmp_path) as log, writing(impatient) as one:
        insert(one, 1)
        assert streams(log) == 1
        one.commit()
        first = first_piece(log)
        beside = log.reader._next_piece
        assert beside is not None
        beside.result(DEADLINE_S)
        # Nobody has polled again.
        assert log.reader._assembler.full
        rest = log.collect()
        assert ids(rest) == list(range(1 + first.block.rows, 1 + MANY))
        assert log.reader._next_piece is None


@req("A-9")
def test_a_transaction_left_between_two_pieces_comes_again_whole(
    impatient: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with in_pieces(impatient, tmp_path) as log, writing(impatient) as one:
        insert(one, 1)
        assert streams(log) == 1
        one.commit()
        first_piece(log)
        log.reopen()
        assert ids(log.collect()) == list(range(1, 1 + MANY))


def test_what_fails_beside_is_told_by_the_next_poll(
    impatient: str, sql: Sql, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    with in_pieces(impatient, tmp_path) as log, writing(impatient) as one:
        insert(one, 1)
        insert(one, 10_001)
        assert streams(log) == 1
        one.commit()
        first_piece(log)

        def torn(_spool: Spool) -> memoryview | None:
            raise SourceError("torn", next_step="none")

        monkeypatch.setattr(Spool, "next_part", torn)
        with pytest.raises(SourceError, match="torn"):
            log.collect()


@pytest.mark.parametrize("name", ["ab", "abcé", "west"])
def test_the_origin_of_an_open_transaction_has_no_id_before_it(
    impatient: str, sql: Sql, tmp_path: Path, name: str
) -> None:
    sql("CREATE TABLE t (id int PRIMARY KEY, v text)")
    origin = f"{name} {tmp_path.name}" if name == "west" else name
    with opened(impatient, tmp_path) as log, writing(impatient) as one:
        one.execute("SELECT pg_replication_origin_create(%s)", [origin])
        one.commit()
        try:
            one.execute("SELECT pg_replication_origin_session_setup(%s)", [origin])
            one.commit()
            insert(one, 1)
            one.execute("SELECT pg_replication_origin_xact_setup('0/100', now())")
            one.commit()
            assert ids(log.collect()) == list(range(1, 1 + MANY))
            one.execute("SELECT pg_replication_origin_session_reset()")
        finally:
            one.execute("SELECT pg_replication_origin_drop(%s)", [origin])

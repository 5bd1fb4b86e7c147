"""Distributed transactions (XA) in a real server's log, under their own names, prepared by one session or another."""

from __future__ import annotations

import contextlib
import functools
import json
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pymysql.cursors import Cursor

from headrace.changelog import ChangeLogReader
from headrace.errors import SourceError
from headrace.model.schema import TableId
from headrace.model.snapshot import UNKNOWN, YES, Visibility
from headrace.observe import failpoints
from headrace.sources.mysql import MysqlSource
from headrace.sources.mysql.chunks import MysqlChunkReader
from headrace.sources.mysql.gtids import DomainGtids
from headrace.sources.mysql.position import Place, Resume
from headrace.sources.mysql.snapshot import PlaceSnapshot
from headrace.state.records import Scope
from headrace.testing.mysql_protocol_server import MysqlProtocolServer
from headrace.watermark.settings import DumpSettings
from tests.binlog_servers import here, hold_commits, let_commits, purge_log
from tests.faults.faulty import OFTEN, at_work, failure_of
from tests.fixtures_binlog import Sql, database, mariadb_server, mysql_server, server, source, sql
from tests.integration.binlog import Writer, caught_up, in_source, writing
from tests.integration.lives import begun_again
from tests.integration.running import running_capture
from tests.requirements import req
from tests.waiting import until

__all__ = ["database", "mariadb_server", "mysql_server", "server", "source", "sql"]

TABLE = ("CREATE TABLE t (id int PRIMARY KEY, v int, b text)", "INSERT INTO t VALUES (1, 1, 'a')")
SLOWLY = DumpSettings(chunk_rows=7, request_interval_s=0.02)


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def xa(name: str, *statements: str) -> tuple[str, ...]:
    """Return what does statements in a distributed transaction, up to its end."""
    return f"XA START '{name}'", *statements, f"XA END '{name}'"


def prepared(name: str, *statements: str) -> tuple[str, ...]:
    """Return what prepares statements."""
    return *xa(name, *statements), f"XA PREPARE '{name}'"


def kept_files(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "source" / "xa").glob("*"))


@req("P17")
def test_distributed_transactions_pass_where_they_are_ordinary(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql(*TABLE)
    table = TableId(database, "t")
    insert = xa(database, "INSERT INTO t VALUES (900, 1, 'xa')")
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        # Neither is prepared.
        sql(*insert, f"XA ROLLBACK '{database}'")
        sql(*insert, f"XA COMMIT '{database}' ONE PHASE")
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
        assert (900, 1, "xa") in running.content(table)


@req("P17")
@pytest.mark.parametrize("end", ["COMMIT", "ROLLBACK"])
def test_those_of_tables_that_are_not_captured_pass_over_a_restart(
    end: str,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    sql(*TABLE)
    server.execute(f"CREATE DATABASE {database}_x")
    sql(f"CREATE TABLE {database}_x.o (id int PRIMARY KEY)")
    table = TableId(database, "t")
    prepare = prepared(database, f"INSERT INTO {database}_x.o VALUES (1)")
    try:
        with at_work(source, tmp_path) as running:
            until(running.dumped, "the first copy")
            # Whoever prepared it goes away: somebody else ends it.
            sql(*prepare)
            sql("UPDATE t SET v = 2 WHERE id = 1")
            caught_up(running, source)
            assert not kept_files(tmp_path)
        with at_work(source, tmp_path) as running:
            sql(f"XA {end} '{database}'", "INSERT INTO t VALUES (2, 2, 'b')")
            caught_up(running, source)
            assert running.error is None
            assert running.content(table) == in_source(server, table)
    finally:
        server.execute(f"DROP DATABASE {database}_x")


@req("P17", "D32")
def test_what_is_prepared_counts_from_its_commit_on_when_the_log_it_was_in_is_gone(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql(*TABLE, "INSERT INTO t VALUES (2, 2, 'b'), (3, 3, 'c')")
    table = TableId(database, "t")
    first, second = f"{database} 1", f"{database} 2"
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(
            *prepared(
                first,
                "UPDATE t SET v = -1 WHERE id = 1",
                "DELETE FROM t WHERE id = 2",
                "INSERT INTO t VALUES (900, 1, 'xa')",
            )
        )
        sql(*prepared(second, "UPDATE t SET v = -3 WHERE id = 3"))
        sql("INSERT INTO t VALUES (4, 4, 'meanwhile')")
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
    assert len(kept_files(tmp_path)) == 2
    purge_log(server)
    with at_work(source, tmp_path) as running:
        sql("INSERT INTO t VALUES (5, 5, 'before the commit')")
        sql(f"XA COMMIT '{first}'", f"XA ROLLBACK '{second}'")
        sql("UPDATE t SET v = 100 WHERE id = 900")
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
    assert in_source(server, table)[(1, -1, "a")] == 1
    # Where it was committed, behind what came meanwhile, as one transaction.
    ids = [
        (int(scn), row)
        for block in ChangeLogReader(tmp_path / "changelog").blocks(0)
        for body in block.bodies
        for scn, row in zip(
            body.batch["_scn"].to_pylist(), body.batch["id"].to_pylist(), strict=True
        )
    ]
    (before,) = (scn for scn, id_ in ids if id_ == 5)
    commits = {scn for scn, id_ in ids if scn > before and id_ in (1, 2, 900)}
    assert len(commits) == 2
    assert not kept_files(tmp_path)


@req("P17")
@pytest.mark.parametrize("there", [True, False], ids=["in the log", "removed"])
def test_what_was_prepared_before_a_capture_began_is_looked_for_in_the_log(
    there: bool,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    sql(*TABLE)
    table = TableId(database, "t")
    # The one that was ended before under the same name is another one.
    sql(*prepared(database, "INSERT INTO t VALUES (800, 0, 'other')"), f"XA ROLLBACK '{database}'")
    sql(*prepared(database, "INSERT INTO t VALUES (900, 1, 'xa')", "DELETE FROM t WHERE id = 1"))
    server.execute("FLUSH BINARY LOGS")
    if not there:
        purge_log(server)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        assert running.content(table) == in_source(server, table) == {(1, 1, "a"): 1}
        sql(f"XA COMMIT '{database}'")
        if there:
            caught_up(running, source)
            assert running.content(table) == in_source(server, table) == {(900, 1, "xa"): 1}
            return
        error = failure_of(running)
    assert isinstance(error, SourceError)
    assert "was prepared before what the server still has" in error.message
    assert "headrace resync" in error.next_step
    begun_again(source, tmp_path)
    with at_work(source, tmp_path) as running:
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)


def distributed(cursor: Cursor, rng: random.Random, done: int, seed: int) -> None:
    """Change rows at random in a distributed transaction; each writer has keys of its own."""
    name = f"xa {seed} {done}"
    cursor.execute(f"SET SESSION binlog_row_image = {rng.choice(('FULL', 'MINIMAL'))}")
    cursor.execute(f"XA START '{name}'")
    for _ in range(rng.randint(1, 3)):
        one, other = (4 * rng.randint(1, 60) + seed for _ in range(2))
        cursor.execute(
            rng.choice(
                (
                    f"REPLACE INTO t VALUES ({one}, {done}, 'r{done}')",
                    f"UPDATE t SET v = {done} WHERE id = {one}",
                    f"UPDATE t SET b = 'b{done}' WHERE id = {one}",
                    f"DELETE FROM t WHERE id = {one}",
                    f"UPDATE IGNORE t SET id = {other} WHERE id = {one}",
                )
            )
        )
    cursor.execute(f"XA END '{name}'")
    if rng.random() < 0.2:
        cursor.execute(f"XA COMMIT '{name}' ONE PHASE")
        return
    cursor.execute(f"XA PREPARE '{name}'")
    cursor.execute(f"XA {rng.choice(('COMMIT', 'COMMIT', 'COMMIT', 'ROLLBACK'))} '{name}'")


def writers(server: MysqlProtocolServer, database: str) -> list[Writer]:
    return [
        Writer(server, database, seed, functools.partial(distributed, seed=seed), rest_s=0.003)
        for seed in range(4)
    ]


class _Death(BaseException):
    """Ends a capture where a failpoint is."""


STEPS = [
    "xa.held",
    "xa.recalled",
    "capture.after_append",
    "capture.after_sync",
    "capture.after_acknowledge",
]


@req("P17", "P13", "D32")
@pytest.mark.parametrize(
    "rounds", [1, pytest.param(8, marks=pytest.mark.long)], ids=["once", "often"]
)
def test_a_capture_that_dies_among_distributed_writers_loses_and_repeats_nothing(
    rounds: int,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    sql(TABLE[0], "INSERT INTO t SELECT seq, 0, 'first' FROM seq_4_to_243")
    sql(*prepared(f"{database} waits", "INSERT INTO t VALUES (900, 1, 'waits')"))
    table = TableId(database, "t")
    rng = random.Random(11)
    with writing(*writers(server, database)):
        for name in STEPS * rounds:
            wait = rng.randint(1, 9)

            def die() -> None:
                nonlocal wait
                wait -= 1
                if wait == 0:
                    raise _Death

            with at_work(source, tmp_path, dump=SLOWLY) as running:
                failpoints.arm(name, die)
                if not running.state.line():
                    running.state.submit(Scope.TABLE, table)
                assert isinstance(failure_of(running), _Death)
            failpoints.disarm()
        with at_work(source, tmp_path, dump=SLOWLY) as running:
            until(running.dumped, "the dumps")
    sql(f"XA COMMIT '{database} waits'")
    with at_work(source, tmp_path, dump=OFTEN) as running:
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)
        assert (900, 1, "waits") in running.content(table)
        until(lambda: not kept_files(tmp_path), "nothing is held any more")


@req("P49")
def test_a_distributed_commit_that_is_held_back_is_not_taken_for_seen(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    """It is in the log, and the log was read; no select has it yet."""
    sql(*TABLE)
    table = TableId(database, "t")
    with ThreadPoolExecutor(1) as beside, running_capture(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(*prepared(database, "UPDATE t SET v = 2 WHERE id = 1"))
        caught_up(running, source)
        with contextlib.closing(source.chunks()) as reader:

            def last_seen() -> tuple[bool, list[int]]:
                """Whether a chunk surely saw the last transaction, and what it has."""
                chunk = reader.read(table, None, ("9",), 9)
                *_, last = ChangeLogReader(tmp_path / "changelog").blocks(0)
                entry = last.index[-1]
                numbers = [np.array([entry[name]], np.int64) for name in ("xid", "scn")]
                seen = bool(chunk.visibility.sees(*numbers)[0] == YES)
                return seen, chunk.rows["v"].to_pylist()

            hold_commits(server)
            try:
                commit = beside.submit(sql, f"XA COMMIT '{database}'")
                until(lambda: (1, 2, "a") in running.content(table), "the commit in the change log")
                assert last_seen() == (False, [1])
            finally:
                let_commits(server)
            commit.result()
            until(lambda: last_seen() == (True, [2]), "the commit is seen")


def is_sure_of_some(visibility: Visibility, floor: int, before: list[tuple[int, int]]) -> bool:
    """Return whether a select knows of a row that it has seen it.

    Args:
        visibility: of the select.
        floor: it has read the rows behind this one.
        before: place and last row of each select before it; that row was committed before that place.
    """
    if not isinstance(visibility, PlaceSnapshot):
        return True
    upto = visibility.place.scn if visibility.surely is None else visibility.surely
    return any(scn <= upto and last > floor for scn, last in before)


@req("P49", "P17")
@pytest.mark.parametrize(
    "selects", [150, pytest.param(1_500, marks=[pytest.mark.long, pytest.mark.timeout(900)])]
)
def test_no_select_among_distributed_writers_is_said_to_have_seen_what_it_lacks(
    selects: int,
    server: MysqlProtocolServer,
    database: str,
    sql: Sql,
    source: MysqlSource,
    tmp_path: Path,
) -> None:
    """Each transaction adds a row, which no one changes: so what a select has seen is what it has."""
    sql("CREATE TABLE t (id int PRIMARY KEY, v int)", "INSERT INTO t VALUES (0, 0)")
    table = TableId(database, "t")

    def add(cursor: Cursor, rng: random.Random, done: int, seed: int) -> None:
        name = f"add {seed} {done}"
        for statement in prepared(name, f"INSERT INTO t VALUES ({1 + seed + 6 * done}, 0)"):
            cursor.execute(statement)
        cursor.execute(f"XA COMMIT '{name}'")

    adding = [Writer(server, database, n, functools.partial(add, seed=n)) for n in range(6)]
    chunks: list[tuple[Visibility, int, set[int]]] = []
    before: list[tuple[int, int]] = []
    any_sure = False
    with running_capture(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        with writing(*adding), contextlib.closing(source.chunks()) as reader:
            # On a busy machine some writer is in the midst of something nearly always.
            while (
                len(chunks) < selects or min(writer.done for writer in adding) < 60 or not any_sure
            ):
                floor = max(0, 6 * (min(writer.done for writer in adding) - 30))
                chunk = reader.read(table, (str(floor),), ("99999999",), 1_000_000)
                chunks.append((chunk.visibility, floor, set(chunk.rows["id"].to_pylist())))
                any_sure = any_sure or is_sure_of_some(chunk.visibility, floor, before)
                if isinstance(chunk.visibility, PlaceSnapshot):
                    before.append((chunk.visibility.place.scn, max(chunks[-1][2], default=0)))
        caught_up(running, source)
    added: dict[int, tuple[int, int]] = {}
    for block in ChangeLogReader(tmp_path / "changelog").blocks(0):
        xids = dict(zip(block.index["scn"].tolist(), block.index["xid"].tolist(), strict=True))
        for body in block.bodies:
            rows = body.batch.select(["_scn", "_op", "id"]).to_pylist()
            added.update({r["id"]: (r["_scn"], xids[r["_scn"]]) for r in rows if r["_op"] == "+I"})
    ids = np.array(sorted(added))
    scn, xid = (np.array([added[id_][place] for id_ in ids], np.int64) for place in (0, 1))
    sure = stale = 0
    for visibility, floor, found in chunks:
        absent = (ids > floor) & ~np.isin(ids, list(found))
        said = visibility.sees(xid, scn) == YES
        assert not (said & absent).any(), f"{visibility} lacks {ids[said & absent]}"
        sure += bool((said & (ids > floor)).any())
        if isinstance(visibility, PlaceSnapshot):
            stale += bool((absent & (PlaceSnapshot(visibility.place).sees(xid, scn) == YES)).any())
    print(f"of {len(chunks)} selects {sure} are sure, the place alone is wrong of {stale}")
    assert len(ids) > 300
    assert sure, "some selects know that they saw something"
    assert stale or selects < 1_000 or server.kind == "MySQL", "the place alone would be wrong"


@req("P49")
def test_a_snapshot_is_sure_of_distributed_commits_while_none_is_on_its_way(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource
) -> None:
    """One that is listed as prepared and that the log says is not may be a commit that no select sees yet."""
    if server.kind == "MySQL":
        pytest.skip("MySQL tells by ids")
    sql(*TABLE, *prepared(database, "UPDATE t SET v = 2 WHERE id = 1"))
    read = Resume(Place.of(*here(server)), 1, DomainGtids(), {})
    before = np.array([-read.place.scn, read.place.scn], np.int64)
    behind = np.array([-(read.place.scn + 1)], np.int64)
    name = f"X'{database.encode().hex()}',X'',1"
    try:
        for known, wanted in (({}, UNKNOWN), ({name: 1}, YES)):
            resume = replace(read, prepared=known)
            with contextlib.closing(
                MysqlChunkReader(source.settings, read=lambda: resume)  # noqa: B023
            ) as reader:
                seen = reader.snapshot()
                assert list(seen.sees(before, before)) == [wanted, YES]
                assert list(seen.sees(behind, behind)) == [UNKNOWN]
    finally:
        sql(f"XA ROLLBACK '{database}'")


@req("P17")
def test_a_table_without_a_key_is_copied_in_a_moment_without_distributed_transactions(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    if server.kind == "MySQL":
        pytest.skip("MySQL's tables need keys")
    sql("CREATE TABLE t (v int)", "INSERT INTO t SELECT seq FROM seq_1_to_50")
    table = TableId(database, "t")

    def change(cursor: Cursor, rng: random.Random, done: int) -> None:
        name = f"bag {done}"
        for statement in prepared(
            name, f"INSERT INTO t VALUES ({done})", "DELETE FROM t WHERE v = 7"
        ):
            cursor.execute(statement)
        cursor.execute(f"XA COMMIT '{name}'")

    with running_capture(source, tmp_path, SLOWLY) as running:
        with writing(Writer(server, database, 1, change, rest_s=0.01)):
            until(running.dumped, "the first copy")
            for _ in range(3):
                running.state.submit(Scope.TABLE, table)
                until(running.dumped, "a dump")
        caught_up(running, source)
        assert running.content(table) == in_source(server, table)


@req("P17")
def test_a_damaged_file_of_held_rows_is_named(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql(*TABLE)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(*prepared(database, "INSERT INTO t VALUES (900, 1, 'xa')"))
        sql("INSERT INTO t VALUES (2, 2, 'b')")
        caught_up(running, source)
    (file,) = (tmp_path / "source" / "xa").iterdir()
    whole = file.read_bytes()
    file.write_bytes(whole[:-13] + bytes([whole[-13] ^ 1]) + whole[-12:])
    with at_work(source, tmp_path) as running:
        sql(f"XA COMMIT '{database}'")
        error = failure_of(running)
        assert file.name in str(error)
        assert not running.holds(TableId(database, "t"), in_source(server, TableId(database, "t")))
    file.write_bytes(whole)
    with at_work(source, tmp_path) as running:
        caught_up(running, source)
        assert running.holds(TableId(database, "t"), in_source(server, TableId(database, "t")))


@req("P17")
def test_tables_that_are_captured_only_now_have_what_was_prepared_before(
    server: MysqlProtocolServer, database: str, sql: Sql, source: MysqlSource, tmp_path: Path
) -> None:
    sql(*TABLE, "CREATE TABLE later (id int PRIMARY KEY)")
    later = TableId(database, "later")

    def selecting(*tables: str) -> MysqlSource:
        return MysqlSource(server.url(), tmp_path / "source", tables=tables, name=database)

    with at_work(first := selecting(f"{database}.t"), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(*prepared(database, "INSERT INTO later VALUES (7)"))
        sql("INSERT INTO t VALUES (2, 2, 'b')")
        caught_up(running, first)
    place = json.loads((tmp_path / "source" / "binlog.json").read_text())
    assert list(place["prepared"].values()) == [0]
    with at_work(both := selecting(f"{database}.*"), tmp_path) as running:
        until(running.dumped, "the other table")
        sql(f"XA COMMIT '{database}'")
        caught_up(running, both)
        assert running.content(later) == in_source(server, later) == {(7,): 1}

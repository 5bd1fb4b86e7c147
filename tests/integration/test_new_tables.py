"""Tables that are created, dropped, renamed and made anew while a capture runs, and while none does.

The change log, folded, equals the source afterwards, whoever wrote to a table before the publication held it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.block import SystemEvent, SystemKind
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.state.records import OPEN, DumpRequest
from headrace.state.store import RequestState, Scope
from headrace.testing.postgres import EmbeddedPostgres
from tests.faults.faulty import AtWork, at_work, copied, follows
from tests.fixtures_postgres import Sql
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

FRESH = TableId("public", "fresh")
WIDE = "repeat(md5(random()::text), 100)"


class Writers:
    """Sessions that insert, patch, move and delete rows of a table until told to end."""

    def __init__(self, url: str, count: int) -> None:
        self._url = url
        self._stop = threading.Event()
        self.commits = 0
        self.errors: list[BaseException] = []
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(count)]

    def __enter__(self) -> Writers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
        assert not self.errors, self.errors

    def _work(self, number: int) -> None:
        chance = random.Random(number)
        try:
            with psycopg.connect(self._url, autocommit=True) as session:
                while not self._stop.wait(0.005):
                    with session.transaction():
                        for _ in range(chance.randint(1, 3)):
                            self._change(session, chance, number)
                    self.commits += 1
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            self.errors.append(error)

    def _change(self, session: psycopg.Connection, chance: random.Random, number: int) -> None:
        # Each session has keys of its own: they never wait for each other.
        key = number * 1000 + chance.randint(0, 20)
        choice = chance.random()
        if choice < 0.4:
            session.execute(
                f"INSERT INTO fresh VALUES (%s, 0, {WIDE}) ON CONFLICT DO NOTHING".encode(), (key,)
            )
        elif choice < 0.7:
            session.execute("UPDATE fresh SET n = n + 1 WHERE id = %s", (key,))
        elif choice < 0.9:
            # The new key's row takes its wide column along, which the log leaves out.
            session.execute("DELETE FROM fresh WHERE id = %s", (key + 50,))
            session.execute("UPDATE fresh SET id = id + 50 WHERE id = %s", (key,))
        else:
            session.execute("DELETE FROM fresh WHERE id = %s", (key,))


def more(writers: Writers, count: int = 20) -> None:
    before = writers.commits
    until(lambda: bool(writers.errors) or writers.commits >= before + count, "writers go on")


def published(url: str, publication: str, table: str = "fresh") -> bool:
    with psycopg.connect(url, autocommit=True) as session:
        query = "SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND tablename = %s"
        return session.execute(query, (publication, table)).fetchone() is not None


def requested(running: AtWork, table: TableId = FRESH) -> list[RequestState]:
    return [r.state for r in running.state.requests() if r.table == table]


def settled(running: AtWork, table: TableId = FRESH) -> bool:
    """Whether the newest request for a table is carried out."""
    if running.error is not None:
        raise running.error
    states = requested(running, table)
    return bool(states) and states[-1] is RequestState.COMPLETED


def told(folder: Path, *kinds: SystemKind) -> list[SystemEvent]:
    blocks = ChangeLogReader(folder / "changelog").blocks(0)
    return [event for block in blocks for event in block.system if event.kind in kinds]


@contextmanager
def held_open(url: str) -> Iterator[psycopg.Connection]:
    """Open a transaction; what was not committed inside is rolled back."""
    with psycopg.connect(url) as session:
        yield session
        session.rollback()


def create_fresh(sql: Sql) -> None:
    sql(
        "BEGIN; CREATE TABLE fresh (id int PRIMARY KEY, n int, big text);"
        "ALTER TABLE fresh ALTER big SET STORAGE EXTERNAL;"
        f"INSERT INTO fresh SELECT k, 0, {WIDE} FROM generate_series(9001, 9004) k; COMMIT"
    )


@req("C30")
@pytest.mark.parametrize("adopted", [False, True], ids=["own publication", "all tables published"])
def test_a_table_made_under_load_is_captured_from_its_first_row(
    database: str, sql: Sql, tmp_path: Path, adopted: bool
) -> None:
    sql("CREATE TABLE old (id int PRIMARY KEY)", "INSERT INTO old VALUES (1)")
    if adopted:
        sql("CREATE PUBLICATION everything FOR ALL TABLES")
    name = "everything" if adopted else None
    source = PostgresSource(database, name="tables", publication=name)
    with at_work(source, tmp_path) as running, held_open(database) as early:
        until(running.dumped, "the first copy")
        create_fresh(sql)
        # Before anybody can have published it: this transaction's first rows are in no publication.
        early.execute(
            f"INSERT INTO fresh SELECT k, 1, {WIDE} FROM generate_series(9101, 9108) k".encode()
        )
        early.execute("UPDATE fresh SET id = 9200 WHERE id = 9001")
        with Writers(database, 4) as writers:
            until(lambda: published(database, name or "headrace_tables"), "fresh is published")
            more(writers)
            early.execute("UPDATE fresh SET n = 2 WHERE id BETWEEN 9103 AND 9105")
            early.execute("DELETE FROM fresh WHERE id = 9101")
            early.execute("UPDATE fresh SET id = 9201 WHERE id = 9102")
            more(writers)
            # The log holds a half of what that transaction did: no dump may begin before all can be read.
            assert requested(running) == []
            early.commit()
            until(lambda: settled(running), "the dump of fresh")
            more(writers)
        follows(running, database, FRESH)
        assert told(tmp_path, SystemKind.TRUNCATE, SystemKind.DROP_TABLE) == []
    assert running.error is None


@req("C30")
def test_a_table_made_while_nobody_captured_waits_for_its_writers_too(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE old (id int PRIMARY KEY)")
    source = PostgresSource(database, name="tables")
    copied(source, tmp_path)
    with held_open(database) as early:
        create_fresh(sql)
        early.execute(f"INSERT INTO fresh VALUES (1, 1, {WIDE}), (2, 2, 'x')".encode())
        with at_work(source, tmp_path) as running:
            until(lambda: published(database, "headrace_tables"), "fresh is published")
            early.execute("UPDATE fresh SET n = 7 WHERE id = 1")
            sql("INSERT INTO old VALUES (1)")
            follows(running, database, TableId("public", "old"))
            assert requested(running) == []
            early.commit()
            until(lambda: settled(running), "the dump of fresh")
            follows(running, database, FRESH)
    assert running.error is None


@req("C30")
def test_a_table_that_cannot_be_captured_is_shown_and_taken_in_once_it_can(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    sql("CREATE TABLE old (id int PRIMARY KEY)")
    with at_work(PostgresSource(database, name="tables"), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql("CREATE TABLE fresh (id int, v text)", "INSERT INTO fresh VALUES (1, 'a')")
        until(lambda: requested(running) == [RequestState.FAILED], "the refusal is shown")
        (request,) = [r for r in running.state.requests() if r.table == FRESH]
        assert "public.fresh has no primary key" in request.reason
        # It was never published, so its own applications go on.
        sql("UPDATE fresh SET v = 'b'", "ALTER TABLE fresh ADD PRIMARY KEY (id)")
        until(lambda: settled(running), "the dump of fresh")
        sql("INSERT INTO fresh VALUES (2, 'c')")
        follows(running, database, FRESH)
    assert running.error is None


@req("C30")
@pytest.mark.parametrize("down", [False, True], ids=["captured meanwhile", "stopped meanwhile"])
def test_drop_rename_and_schemas_are_told_at_places_behind_their_rows(
    database: str, sql: Sql, tmp_path: Path, down: bool
) -> None:
    sql(
        "CREATE TABLE a (id int PRIMARY KEY)", "INSERT INTO a VALUES (1)",
        "CREATE TABLE b (id int PRIMARY KEY, v text)", "INSERT INTO b VALUES (1, 'x')",
        "CREATE SCHEMA s1", "CREATE SCHEMA s2",
    )  # fmt: skip
    source = PostgresSource(database, tables=("public.*", "s*.*"), name="tables")
    change = (
        "DROP TABLE a",
        "ALTER TABLE b RENAME TO c",
        "CREATE SCHEMA s3",
        "DROP SCHEMA s1",
        "ALTER SCHEMA s2 RENAME TO s4",
        "INSERT INTO c VALUES (2, 'y')",
    )
    kinds = (
        SystemKind.DROP_TABLE,
        SystemKind.RENAME_TABLE,
        SystemKind.CREATE_SCHEMA,
        SystemKind.DROP_SCHEMA,
        SystemKind.RENAME_SCHEMA,
    )
    if down:
        copied(source, tmp_path)
        sql(*change)
    with at_work(source, tmp_path) as running:
        until(running.dumped, "the first copy")
        if not down:
            sql("INSERT INTO a VALUES (2)", *change)
        until(lambda: settled(running, TableId("public", "c")), "the dump of c")
        follows(running, database, TableId("public", "c"))
        until(lambda: len(told(tmp_path, *kinds)) >= 5, "the events")
        events = {(e.kind, str(e.table), e.payload.get("to")) for e in told(tmp_path, *kinds)}
        assert events == {
            (SystemKind.DROP_TABLE, "public.a", None),
            (SystemKind.RENAME_TABLE, "public.b", "public.c"),
            (SystemKind.CREATE_SCHEMA, "s3.", None),
            (SystemKind.DROP_SCHEMA, "s1.", None),
            (SystemKind.RENAME_SCHEMA, "s2.", "s4"),
        }
        last = max(
            body.batch["_scn"][-1].as_py()
            for block in ChangeLogReader(tmp_path / "changelog").blocks(0)
            for body in block.bodies
            if body.table == TableId("public", "a")
        )
        (drop,) = told(tmp_path, SystemKind.DROP_TABLE)
        assert drop.scn > last
    assert running.error is None
    # Nothing is said twice.
    with at_work(source, tmp_path) as running:
        sql("INSERT INTO c VALUES (3, 'z')")
        follows(running, database, TableId("public", "c"))
        assert len(told(tmp_path, *kinds)) == 5


@req("P02", "C30")
def test_a_request_for_all_tables_reads_those_that_are_there(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Neither the name of one that was dropped nor the former name of another ends it."""
    sql(
        "CREATE TABLE a (id int PRIMARY KEY)",
        "CREATE TABLE b (id int PRIMARY KEY)",
        "CREATE TABLE d (id int PRIMARY KEY)",
    )
    now = TableId("public", "c")
    with at_work(PostgresSource(database, name="tables"), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql("DROP TABLE a", "ALTER TABLE b RENAME TO c", "INSERT INTO c VALUES (1)")
        until(lambda: settled(running, now), "the dump of c")
        name = running.state.submit(Scope.ALL_TABLES)

        def ended() -> DumpRequest | None:
            assert running.error is None, running.error
            found = running.state.request(name)
            return None if found is None or found.state in OPEN else found

        request = until(ended, "the request")
        assert request is not None
        assert (request.state, request.reason) == (RequestState.COMPLETED, "")
        read = {progress.table for progress in running.state.progress(name)}
        assert read == {now, TableId("public", "d")}


@req("C30")
@pytest.mark.parametrize("adopted", [False, True], ids=["own publication", "all tables published"])
def test_a_table_made_anew_under_its_old_name_keeps_no_row_of_its_former_life(
    database: str, sql: Sql, tmp_path: Path, adopted: bool
) -> None:
    create_fresh(sql)
    if adopted:
        sql("CREATE PUBLICATION everything FOR ALL TABLES")
    name = "everything" if adopted else None
    with at_work(PostgresSource(database, name="tables", publication=name), tmp_path) as running:
        until(running.dumped, "the first copy")
        with Writers(database, 2) as writers:
            more(writers)
        sql("DROP TABLE fresh")
        create_fresh(sql)
        with Writers(database, 3) as writers:
            more(writers)
            until(lambda: settled(running), "the dump of the new one")
            more(writers)
        follows(running, database, FRESH)
        ends = told(tmp_path, SystemKind.TRUNCATE, SystemKind.DROP_TABLE)
        assert {e.kind for e in ends} == {SystemKind.TRUNCATE, SystemKind.DROP_TABLE}
        assert all(e.payload["anew"] for e in ends if e.kind is SystemKind.TRUNCATE)
        # A drop that is told behind the new table's first row says that it is late.
        first = min(e.scn for e in ends if e.kind is SystemKind.TRUNCATE)
        (drop,) = (e for e in ends if e.kind is SystemKind.DROP_TABLE)
        assert drop.scn <= first or drop.payload["superseded"]
    assert running.error is None


@req("C30")
def test_tables_that_swap_their_names_swap_their_rows(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    one, two = TableId("public", "one"), TableId("public", "two")
    sql(
        "CREATE TABLE one (id int PRIMARY KEY, v text)", "CREATE TABLE two (id int PRIMARY KEY, v text)",
        "INSERT INTO one VALUES (1, 'first'), (2, 'first')", "INSERT INTO two VALUES (2, 'second')",
    )  # fmt: skip
    with at_work(PostgresSource(database, name="tables"), tmp_path) as running:
        until(running.dumped, "the first copy")
        sql(
            "BEGIN; ALTER TABLE one RENAME TO three; ALTER TABLE two RENAME TO one; "
            "ALTER TABLE three RENAME TO two; UPDATE one SET v = 'changed'; COMMIT"
        )
        until(lambda: settled(running, one) and settled(running, two), "both dumps")
        follows(running, database, one)
        follows(running, database, two)
    assert running.error is None


@req("C30")
def test_a_table_joins_on_postgresql_16_too(older_server: EmbeddedPostgres, tmp_path: Path) -> None:
    url = older_server.create_database("joining")

    def sql(*statements: str) -> None:
        older_server.execute(*statements, database="joining")

    sql("CREATE TABLE old (id int PRIMARY KEY)")
    with at_work(PostgresSource(url, name="tables"), tmp_path) as running:
        until(running.dumped, "the first copy")
        with held_open(url) as early:
            create_fresh(sql)
            early.execute("INSERT INTO fresh VALUES (1, 1, 'x'), (2, 2, 'x')")
            until(lambda: published(url, "headrace_tables"), "fresh is published")
            early.execute("UPDATE fresh SET n = 2 WHERE id = 1")
            early.commit()
            until(lambda: settled(running), "the dump of fresh")
        sql("INSERT INTO fresh VALUES (3, 2, 'y')", "DELETE FROM fresh WHERE id = 1")
        follows(running, url, FRESH)
    assert running.error is None
    older_server.drop_database("joining")


@req("C30")
def test_a_table_made_anew_and_first_changed_after_its_dump_keeps_the_dumped_rows(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    create_fresh(sql)
    with at_work(PostgresSource(database, name="tables"), tmp_path) as running:
        until(running.dumped, "the first copy")
        # The stream knows the former table by its rows.
        sql("UPDATE fresh SET n = 5")
        follows(running, database, FRESH)
        before = len(requested(running))
        sql("DROP TABLE fresh")
        create_fresh(sql)
        until(lambda: len(requested(running)) > before and settled(running), "the dump")
        sql("UPDATE fresh SET n = 6 WHERE id = 9001")
        follows(running, database, FRESH)
    assert running.error is None


class Crash(BaseException):
    """The process dies here."""


@req("C30", "H10")
@pytest.mark.parametrize(
    "place", ["window.before_emit", "capture.after_sync", "capture.after_progress"]
)
def test_a_death_around_an_event_repeats_it_and_loses_nothing(
    database: str, sql: Sql, tmp_path: Path, place: str
) -> None:
    create_fresh(sql)
    source = PostgresSource(database, name="tables")
    dropped, died = threading.Event(), threading.Event()

    def die() -> None:
        # About to be said, said and not worked off, worked off.
        if dropped.is_set() and (
            place == "window.before_emit" or told(tmp_path, SystemKind.DROP_TABLE)
        ):
            died.set()
            raise Crash

    failpoints.arm(place, die)
    try:
        with at_work(source, tmp_path) as running:
            until(running.dumped, "the first copy")
            dropped.set()
            sql("DROP TABLE fresh")
            create_fresh(sql)
            until(died.is_set, "the death")
    finally:
        failpoints.disarm()
    assert isinstance(running.error, Crash)
    with at_work(source, tmp_path) as running:
        sql("UPDATE fresh SET n = 4 WHERE id = 9001")
        until(lambda: settled(running), "the dump of the new one")
        follows(running, database, FRESH)
        # What was durable before the death and not worked off is said again.
        said = len(told(tmp_path, SystemKind.DROP_TABLE))
        assert said == {"window.before_emit": 1, "capture.after_sync": 2}.get(place, said)
    assert running.error is None

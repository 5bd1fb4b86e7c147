"""PostgreSQL goes away and comes back, in mid-stream and in every part of a window, while a writer runs.

The change log, folded, equals the source afterwards, and the ledger oracle reads every block of it without complaint.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from headrace.changelog import ChangeLogReader
from headrace.model.schema import TableId
from headrace.observe import failpoints
from headrace.sources.postgres import PostgresSource
from headrace.testing.postgres import EmbeddedPostgres
from headrace.testing.postgres_server import PostgresServer
from tests.faults.faulty import AtWork, at_work, follows
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

KEYED = TableId("public", "keyed")
BARE = TableId("public", "bare")
ROWS = 40

MODES = ["fast", "immediate"]
"""A shutdown in good order, and one that is a crash to everybody connected."""

PLACES = [
    "window.after_low",
    "window.after_select",
    "window.after_high",
    "capture.after_append",
    "capture.after_sync",
]
"""Between low mark and select, between select and high mark, and on either side of what is durable."""


@pytest.fixture
def server() -> Iterator[EmbeddedPostgres]:
    # A fast shutdown waits this long for a reader that does not answer.
    with EmbeddedPostgres(settings={"wal_sender_timeout": "2s"}) as running:
        yield running


@pytest.fixture
def url(server: EmbeddedPostgres) -> str:
    made = server.create_database("shop")
    server.execute(
        "CREATE TABLE keyed (id int PRIMARY KEY, v int)",
        f"INSERT INTO keyed SELECT n, 0 FROM generate_series(1, {ROWS}) n",
        "CREATE TABLE bare (v int)",
        "ALTER TABLE bare REPLICA IDENTITY FULL",
        "INSERT INTO bare SELECT n % 3 FROM generate_series(1, 10) n",
        database="shop",
    )
    return made


class Writer:
    """Changes rows until told to end; what a dead server did not commit is of no concern."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._random = random.Random(3)
        self.commits = 0
        self._thread = threading.Thread(target=self._work, name="writer")

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(60)

    def _work(self) -> None:
        while not self._stop.wait(0.005):
            try:
                with psycopg.connect(self._url, autocommit=True, connect_timeout=5) as session:
                    while not self._stop.wait(0.005):
                        self._change(session)
                        self.commits += 1
            except psycopg.OperationalError:
                continue

    def _change(self, session: psycopg.Connection) -> None:
        key, value = self._random.randint(1, ROWS), self._random.randint(1, 10**6)
        with session.transaction():
            choice = self._random.random()
            if choice < 0.1:
                session.execute("DELETE FROM keyed WHERE id = %s", (key,))
            elif choice < 0.2:
                session.execute("DELETE FROM keyed WHERE id = %s", (key + 1000,))
                session.execute("UPDATE keyed SET id = id + 1000 WHERE id = %s", (key,))
            else:
                session.execute(
                    "INSERT INTO keyed VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = excluded.v",
                    (key, value),
                )
            session.execute("INSERT INTO bare VALUES (%s)", (value % 3,))
            session.execute("DELETE FROM bare WHERE ctid = (SELECT min(ctid) FROM bare)")


class Striker:
    """Restarts the server at one pass of a place, once, from a thread of its own."""

    def __init__(self, server: PostgresServer, mode: str, place: str, passes: int) -> None:
        self._server = server
        self._mode = mode
        self._left = passes
        self.done = threading.Event()
        failpoints.arm(place, self._pass)

    def _pass(self) -> None:
        self._left -= 1
        if self._left == 0:
            # Whoever passes here goes on only when the server is gone.
            self._server.stop(self._mode)
            threading.Thread(target=self._start).start()

    def _start(self) -> None:
        self._server.start()
        self.done.set()


@pytest.fixture(autouse=True)
def _disarmed() -> Iterator[None]:
    yield
    failpoints.disarm()


def converges(running: AtWork, url: str) -> None:
    """Wait until both tables are dumped and follow the source, which rests."""
    until(running.dumped, "every dump")
    for table in (KEYED, BARE):
        follows(running, url, table)


def more(writer: Writer) -> None:
    """Wait until the writer has committed some more."""
    before = writer.commits
    until(lambda: writer.commits > before + 20, "the writer goes on")


@req("A-12", "P09", "C61", "C60")
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("place", PLACES)
def test_a_restart_in_the_middle_of_a_window_converges(
    server: EmbeddedPostgres, url: str, tmp_path: Path, place: str, mode: str
) -> None:
    striker = Striker(server, mode, place, passes=3)
    with at_work(PostgresSource(url, name="restart"), tmp_path) as running:
        with Writer(url) as writer:
            until(striker.done.is_set, "the server is back")
            more(writer)
            until(running.dumped, "every dump")
            assert running.said("waiting for source")
        converges(running, url)
    assert running.error is None


@req("A-12", "P09", "C61", "C60")
@pytest.mark.parametrize("mode", MODES)
def test_restarts_in_mid_stream_converge(
    server: EmbeddedPostgres, url: str, tmp_path: Path, mode: str
) -> None:
    with at_work(PostgresSource(url, name="restart"), tmp_path) as running:
        until(running.dumped, "every dump")
        with Writer(url) as writer:
            for _ in range(3):
                more(writer)
                server.restart(mode)
        converges(running, url)
        index = ChangeLogReader(tmp_path / "changelog").index(0)
        assert len(set(index["scn"].tolist())) == len(index)
    assert running.error is None


@req("C60", "C61")
def test_a_server_that_stays_away_is_waited_for_and_the_reason_is_shown(
    server: EmbeddedPostgres, url: str, tmp_path: Path
) -> None:
    with at_work(PostgresSource(url, name="restart"), tmp_path) as running:
        until(running.dumped, "every dump")
        server.stop("immediate")

        def tried() -> int:
            return sum(
                s.state == "waiting for source" and "cannot be reached" in s.detail
                for s in running.statuses
            )

        until(lambda: running.error is not None or tried() >= 20, "many attempts")
        assert running.error is None
        server.start()
        server.execute("INSERT INTO keyed VALUES (77, 7)", database="shop")
        converges(running, url)
    assert running.error is None

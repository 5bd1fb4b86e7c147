"""C24: a capture copies what is there and goes on from that moment, and no commit falls between the two."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from headrace.model.schema import TableId
from headrace.sources.postgres import PostgresSource
from headrace.watermark.settings import DumpSettings
from tests.faults.faulty import rows_of
from tests.fixtures_postgres import Sql
from tests.integration.running import Running, running_capture
from tests.integration.selected import rows_by_origin
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(180)]

T = TableId("public", "t")
OLD = range(0, 1_000_000, 1_000)
"""Keys that are there from the beginning."""
WRITERS = 3


class Writers:
    """Sessions that change, delete or insert a row once and for all: what is missed is never made good."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._work, args=(n,)) for n in range(WRITERS)]
        self.commits = [0] * WRITERS
        self.errors: list[BaseException] = []

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
        assert not self.errors, self.errors

    def goes_on(self, running: Running, commits: int) -> None:
        """Return when so many more are committed."""
        before = sum(self.commits)

        def enough() -> bool:
            assert running.error is None, running.error
            return bool(self.errors) or sum(self.commits) >= before + commits

        until(enough, f"{commits} more commits")

    def _work(self, number: int) -> None:
        chance = random.Random(number)
        # Not all: some are left for the copy alone.
        keys = chance.sample(OLD[number::WRITERS], len(OLD) // WRITERS // 2)
        try:
            with psycopg.connect(self._url, autocommit=True) as session:
                session.execute("SET synchronous_commit = off")
                while not self._stop.wait(0.005):
                    if not keys or chance.random() < 0.5:
                        key = 1 + chance.randrange(len(OLD) * 333) * WRITERS + number
                        query = "INSERT INTO t VALUES (%s, 'inserted') ON CONFLICT DO NOTHING"
                    else:
                        key = keys.pop()
                        gone = chance.random() < 0.5
                        query = (
                            "DELETE FROM t WHERE id = %s"
                            if gone
                            else "UPDATE t SET v = 'updated' WHERE id = %s"
                        )
                    session.execute(query.encode(), (key,))
                    self.commits[number] += 1
        except BaseException as error:  # noqa: BLE001 - shown by the test's own thread
            self.errors.append(error)


@contextmanager
def writers(url: str) -> Iterator[Writers]:
    """Let them work until the block ends."""
    made = Writers(url)
    made.begin()
    try:
        yield made
    finally:
        made.end()


@req("C24")
def test_no_commit_falls_between_the_first_copy_and_the_changes(
    database: str, sql: Sql, tmp_path: Path
) -> None:
    """Writers were there before the capture, and go on through all of its copy and beyond."""
    sql(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        f"INSERT INTO t SELECT n, 'old' FROM generate_series(0, {OLD.stop - 1}, {OLD.step}) n",
    )
    dump = DumpSettings(chunk_rows=100, request_interval_s=0.05)
    with writers(database) as load:
        until(lambda: sum(load.commits) > 20, "writers at work")
        with running_capture(PostgresSource(database), tmp_path, dump) as running:
            until(running.dumped, "the first copy")
            load.goes_on(running, 40)
            load.end()
            wanted = rows_of(database, "t")
            until(lambda: running.content(T) == wanted, "the rows of the source")
    logged, selected = rows_by_origin(tmp_path)
    # Both had a part in it: rows that only the copy brought, and changes from while it went on.
    assert any(row[2][1] == "old" for row in selected)
    assert {row[1] for row in logged} == {"+I", "=U", "-D"}

"""Writers beside a capture: committing until told to end, or one row at a time to see how soon it can be read."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.integration.running import Running
from tests.waiting import until

__all__ = ["Probe", "Traffic", "traffic"]


_ACTS = (
    "UPDATE t SET v = %(v)s WHERE abs(id) = %(k)s",
    "UPDATE t SET id = -id, v = %(v)s WHERE abs(id) = %(k)s",
    "DELETE FROM t WHERE abs(id) = %(k)s",
    "INSERT INTO t VALUES (%(k)s, %(v)s)",
)


class Traffic:
    """Two writers that update, insert, delete and move the odd keys of ``t (id int PRIMARY KEY, v text)``.

    Args:
        url: of the database.
        rows: keys from 1 to this.
    """

    def __init__(self, url: str, rows: int) -> None:
        self._url = url
        self._rows = rows
        self._stop = threading.Event()
        self._commits = [0, 0]
        self._threads = [threading.Thread(target=self._write, args=(n,)) for n in range(2)]

    @property
    def commits(self) -> int:
        return sum(self._commits)

    def begin(self) -> None:
        for thread in self._threads:
            thread.start()

    def end(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def goes_on(self, commits: int = 20) -> None:
        """Return when so many more are committed."""
        begun = self.commits
        until(lambda: self.commits >= begun + commits, f"{commits} more commits")

    def _write(self, writer: int) -> None:
        with psycopg.connect(self._url, autocommit=True) as session:
            session.execute("SET synchronous_commit = off")
            while not self._stop.is_set():
                number = self._commits[writer]
                # Each writer has keys of its own, and goes through them with one act after the other.
                turn, place = divmod(number, self._rows // 4)
                act = _ACTS[turn % len(_ACTS)]
                given = {"k": 4 * place + 2 * writer + 1, "v": f"{writer} {number}"}
                session.execute(act.encode(), given)
                self._commits[writer] += 1


@contextmanager
def traffic(url: str, rows: int) -> Iterator[Traffic]:
    """Let the writers work until the block ends."""
    made = Traffic(url, rows)
    made.begin()
    try:
        yield made
    finally:
        made.end()


class Probe:
    """Commits a row of ``probe (n bigserial, at timestamptz)`` and waits until it can be read."""

    def __init__(self, url: str, running: Running) -> None:
        self._session = psycopg.connect(url, autocommit=True)
        self._running = running
        self.took_s: list[float] = []

    def send(self) -> None:
        """Return when a row that is committed now can be read from the change log."""
        begun = time.monotonic()
        self._session.execute("INSERT INTO probe DEFAULT VALUES")
        row = self._session.execute("SELECT pg_current_wal_lsn() - '0/0'").fetchone()
        assert row is not None
        self._running.wait_for_scn(int(row[0]) - 1)
        self.took_s.append(time.monotonic() - begun)

    def close(self) -> None:
        self._session.close()

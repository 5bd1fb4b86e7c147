"""The source of the chaos test: what is written to it, and whether it is left alone in the end."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg

from tests.fixtures_postgres import name_of
from tests.waiting import until

__all__ = [
    "KEPT_MB",
    "SETTINGS",
    "is_left_alone",
    "make_table",
    "rows_of",
    "takes_writes",
    "writes",
]

KEPT_MB = 64
"""Log that a slot may keep back at the source."""
_SPARE_MB = 64
SETTINGS = {
    "max_slot_wal_keep_size": f"{KEPT_MB}MB",
    "max_wal_size": f"{_SPARE_MB}MB",
    "min_wal_size": "32MB",
}
_KEYS = 200
_SEGMENT_MB = 16
MARK = -1
"""Key of the row that is written last."""


def make_table(url: str) -> None:
    """Make the table, with rows."""
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v int NOT NULL)")
        connection.execute("INSERT INTO t SELECT n, n FROM generate_series(1, 150) n")


@contextmanager
def writes(url: str, rng: random.Random) -> Iterator[None]:
    """Change random rows until the block ends, and a last one then."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def work() -> None:
        try:
            with psycopg.connect(url) as connection:
                while not stop.wait(0.03):
                    for _ in range(rng.choice([1, 2, 5, 20])):
                        connection.execute(*_change(rng))
                    connection.rollback() if rng.random() < 0.1 else connection.commit()
                connection.execute("INSERT INTO t VALUES (%s, 0)", (MARK,))
        except BaseException as error:  # noqa: BLE001 - raised by the test's own thread
            failed.append(error)

    thread = threading.Thread(target=work, name="writes")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def _change(rng: random.Random) -> tuple[bytes, tuple[int, ...]]:
    key, value, kind = rng.randrange(_KEYS), rng.randrange(10**6), rng.random()
    if kind < 0.6:
        upsert = b"INSERT INTO t VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = EXCLUDED.v"
        return upsert, (key, value)
    if kind < 0.8:
        return b"DELETE FROM t WHERE id = %s", (key,)
    # The key moves where its new place is free.
    other = rng.randrange(_KEYS)
    moved = b"UPDATE t SET id = %s WHERE id = %s AND NOT EXISTS (SELECT FROM t WHERE id = %s)"
    return moved, (other, key, other)


def rows_of(url: str) -> dict[int, int]:
    """Return the rows of the table, by key."""
    with psycopg.connect(url) as connection:
        return dict(connection.execute("SELECT id, v FROM t").fetchall())


def takes_writes(url: str) -> None:
    """Check that writes to any row are answered at once; none of them stays."""
    with psycopg.connect(url) as connection:
        connection.execute("SET statement_timeout = '5s'")
        connection.execute("SET lock_timeout = '1s'")
        connection.execute("INSERT INTO t VALUES (1000, 0)")
        connection.execute("UPDATE t SET v = v + 1")
        connection.execute("DELETE FROM t")
        connection.rollback()


def is_left_alone(url: str) -> None:
    """Check that nothing of ours is felt at the source, now that none of our processes runs.

    Nobody is connected but the caller, nobody holds a lock, writes are answered at once; and what the slot keeps back
    of the log is bounded by the server's own setting, however much is written.
    """
    with psycopg.connect(url, autocommit=True) as connection:

        def others(query: bytes) -> list[tuple[object, ...]]:
            return connection.execute(query, {"database": name_of(url)}).fetchall()

        # The server takes a moment to notice that a client is gone.
        until(lambda: not others(_SESSIONS), "no session of ours is left")
        assert others(_LOCKS) == []
        assert others(b"SELECT gid FROM pg_prepared_xacts") == []
        connection.execute("SET statement_timeout = '5s'")
        connection.execute("SET lock_timeout = '1s'")
        before = rows_of(url)
        for n in range(3 * (KEPT_MB + _SPARE_MB) // _SEGMENT_MB):
            connection.execute("INSERT INTO t VALUES (%s, %s)", (1000 + n, n))
            connection.execute("SELECT pg_switch_wal()")
        with connection.transaction():
            connection.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE NOWAIT")
        connection.execute("DELETE FROM t WHERE id >= 1000")
        assert rows_of(url) == before
        # With a second one nothing of the first is needed.
        for _ in range(2):
            connection.execute("CHECKPOINT")
        ((active, status, kept),) = others(_SLOT)
        assert not active
        assert status in ("unreserved", "lost")
        size = connection.execute("SELECT sum(size) / 1048576 FROM pg_ls_waldir()").fetchone()
        assert size is not None
        assert size[0] <= KEPT_MB + _SPARE_MB + 2 * _SEGMENT_MB, (status, kept)


_SESSIONS = b"""
SELECT application_name, query FROM pg_stat_activity
 WHERE datname = %(database)s AND pid <> pg_backend_pid()
   AND backend_type IN ('client backend', 'walsender')
"""
_LOCKS = b"""
SELECT locktype, mode, pid FROM pg_locks JOIN pg_stat_activity USING (pid)
 WHERE datname = %(database)s AND pid <> pg_backend_pid()
   AND backend_type IN ('client backend', 'walsender')
"""
_SLOT = b"""
SELECT active, wal_status, pg_wal_lsn_diff(pg_current_wal_insert_lsn(), restart_lsn)::bigint / 1048576
  FROM pg_replication_slots WHERE database = %(database)s
"""

"""Commits that are in the log and that nobody sees: ``synchronous_standby_names`` names a standby that does not exist.

So a commit waits for ever between its place in the log and its visibility. The setting holds back every session of the
server, so a test that uses it has a server of its own.
"""

from __future__ import annotations

import threading

import psycopg

from tests.waiting import until

__all__ = ["HungCommit"]

_PROBE = "SELECT pg_logical_emit_message(true, 'probe', '')"


class HungCommit:
    """The commit of one statement, which hangs from the start until `let_go`.

    Args:
        url: of the database.
        statement: what is committed; its locks are held as long.
    """

    def __init__(self, url: str, statement: str) -> None:
        self._url, self._statement = url, statement
        self._local = psycopg.connect(url, autocommit=True)
        self._local.execute("SET synchronous_commit = local")
        self._local.execute("ALTER SYSTEM SET synchronous_standby_names = 'ghost'")
        self._local.execute("SELECT pg_reload_conf()")
        # The server takes note of the setting some time after it was told to: commits of no importance try it.
        self._works = threading.Event()
        self._thread = threading.Thread(target=self._commit, name="hung")
        self._thread.start()
        probe = self._hanging(_PROBE)
        self._works.set()
        self._cancel(probe)
        self._pid = self._hanging(statement)

    def let_go(self) -> None:
        """Let the commit go through, and every later one."""
        self._cancel(self._pid)
        self._thread.join(30)
        self._local.execute("ALTER SYSTEM RESET synchronous_standby_names")
        self._local.execute("SELECT pg_reload_conf()")
        self._local.close()

    def _commit(self) -> None:
        with psycopg.connect(self._url, autocommit=True) as session:
            session.execute("SET synchronous_commit = on")
            while not self._works.is_set():
                session.execute(_PROBE.encode())
            session.execute(self._statement.encode())

    def _hanging(self, statement: str) -> int:
        """Return the process whose commit of a statement waits for the standby, once there is one."""

        def pid() -> int | None:
            row = self._local.execute(
                "SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query = %s",
                (statement,),
            ).fetchone()
            return row[0] if row else None

        found = until(pid, "a commit waits for the standby")
        assert found is not None
        return found

    def _cancel(self, pid: int) -> None:
        self._local.execute("SELECT pg_cancel_backend(%s)", (pid,))

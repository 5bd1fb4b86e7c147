"""Servers that live on as something else: base backups, cold copies, standbys, promotions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import psycopg

from headrace.changelog import ChangeLogSettings
from headrace.relay.recovery import begin_again
from headrace.replicator.capture_log import CaptureLog
from headrace.sources.base import Source
from headrace.state.incarnation import Incarnation
from headrace.state.store import StateStore
from headrace.testing.postgres import EmbeddedPostgres
from tests.waiting import until

__all__ = ["Server", "begun_again", "life_of", "one"]


class Server(EmbeddedPostgres):
    """A server in a folder of the test's, which can be copied."""

    def __init__(
        self, folder: Path, *, version: int | None = None, settings: Mapping[str, str] | None = None
    ) -> None:
        # The server runs as another user where the tests run as root, and must get to its folder.
        for part in folder.parents:
            if part.stat().st_uid == os.geteuid() and not part.stat().st_mode & 0o001:
                part.chmod(part.stat().st_mode | 0o011)
        super().__init__(folder, version=version, settings=settings)

    @property
    def conninfo(self) -> str:
        """How a standby reaches the server."""
        return f"host={self._sockets} user=postgres dbname=postgres"

    def run(self, program: str, *arguments: str) -> None:
        """Run one of the server's programs as the server's user."""
        self._run(str(self._bin() / program), *arguments)

    def base_backup(self, folder: Path) -> None:
        """Take an online backup, which holds no slots."""
        self._prepare(folder)
        self.run(
            "pg_basebackup", "-D", str(folder / "data"), "-h", str(self._sockets), "-U", "postgres",
            "--checkpoint=fast", "--no-sync", "--wal-method=stream",
        )  # fmt: skip

    def cold_copy(self, folder: Path) -> None:
        """Copy the data of a stopped server, slots included."""
        self._prepare(folder)
        shutil.copytree(self.data, folder / "data")
        self._hand_over(*(folder / "data").rglob("*"), folder / "data")
        (folder / "data").chmod(0o700)

    def standby(self, folder: Path, settings: Mapping[str, str]) -> Server:
        """Return a standby made from a base backup, not started."""
        self.base_backup(folder)
        signal = folder / "data" / "standby.signal"
        signal.touch()
        self._hand_over(signal)
        follow = {"primary_conninfo": self.conninfo, "hot_standby_feedback": "on"}
        return Server(folder, version=self.version, settings={**settings, **follow})

    def promote(self) -> None:
        """Make a standby a primary."""
        self.execute("SELECT pg_promote()")
        until(lambda: one(self.url(), "SELECT pg_is_in_recovery()") is False, "it is promoted")

    def _prepare(self, folder: Path) -> None:
        folder.mkdir()
        self._hand_over(folder)


def one(url: str, query: str) -> object:
    """Return the first cell of a query's answer, None without rows."""
    with psycopg.connect(url, autocommit=True) as connection:
        row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


def begun_again(source: Source, folder: Path) -> Incarnation:
    """Go on behind a gap, as a resync does; every table is emptied and copied from the start."""
    source.prepare(fresh=True)
    state = StateStore(folder / "state.db")
    log = CaptureLog(folder / "changelog", ChangeLogSettings())
    try:
        return begin_again(source, log, state, [schema.table for schema in source.tables()])
    finally:
        log.close()
        state.close()


def life_of(folder: Path) -> Incarnation:
    """Return which life of the source a state follows."""
    state = StateStore(folder / "state.db")
    try:
        found = Incarnation.read(state)
    finally:
        state.close()
    assert found is not None
    return found

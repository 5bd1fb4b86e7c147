"""A PostgreSQL server process in a folder of its own: start, stop, kill; the subclasses say which binaries."""

from __future__ import annotations

import abc
import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

from headrace.errors import SourceUnavailable

__all__ = ["PostgresServer", "passable"]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 90.0

DEFAULT_SETTINGS: Mapping[str, str] = {
    "wal_level": "logical",
    "max_replication_slots": "32",
    "max_wal_senders": "32",
    "max_connections": "120",
    "shared_buffers": "64MB",
    "max_wal_size": "2GB",
    "logging_collector": "off",
    "log_min_messages": "warning",
}
"""Settings of every server, before the caller's own."""

_STOP_SIGNALS = {
    "smart": signal.SIGTERM,
    "fast": signal.SIGINT,
    "immediate": signal.SIGQUIT,
}


def passable(folder: Path) -> bool:
    """Return whether everybody may pass through the folders above ``folder``."""
    return all(parent.stat().st_mode & 0o001 for parent in folder.parents if parent.exists())


class PostgresServer(abc.ABC):
    """A server process and its data folder; the subclasses say which binaries and how to reach it.

    Args:
        folder: holds the data and the server's log; a temporary one, removed by `close`, when None.
        settings: server settings over `DEFAULT_SETTINGS`.
        durable: whether the server syncs to disk; off is faster and survives everything but power loss.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-pg-")) if folder is None else folder
        self._settings = {**DEFAULT_SETTINGS, **({} if durable else {"fsync": "off"})}
        self._settings |= settings or {}
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _unprivileged_user()

    @property
    def data(self) -> Path:
        """The data folder."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The server's log file."""
        return self.folder / "server.log"

    @property
    def pid(self) -> int:
        """Process id of the running server."""
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def start(self) -> Self:
        """Create the data folder if need be, start the server and wait until it answers."""
        if self._process is not None:
            return self
        self._make_folder()
        if not (self.data / "PG_VERSION").exists():
            self._initialise()
        arguments = [str(self._bin() / "postgres"), "-D", str(self.data)]
        for name, value in (self._settings | self._endpoint()).items():
            arguments += ["-c", f"{name}={value}"]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._identity()
            )
        self._wait_until_ready()
        return self

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: ``smart`` waits for clients, ``fast`` ends them, ``immediate`` is a crash."""
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(_STOP_SIGNALS[mode])
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGQUIT)
            process.wait(STOP_TIMEOUT_S)

    def kill(self) -> None:
        """End the server as a crash does: nothing is flushed, the next start recovers from the log."""
        self.stop("immediate")

    def restart(self, mode: str = "fast") -> None:
        """Stop and start again; the address stays the same."""
        self.stop(mode)
        self.start()

    def close(self) -> None:
        """Stop the server and remove the folder if it was a temporary one."""
        self.stop("immediate" if self._temporary else "fast")
        if self._temporary:
            shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @abc.abstractmethod
    def url(self, database: str = "postgres") -> str:
        """Return a connection URL as superuser."""

    @abc.abstractmethod
    def socket_url(self, database: str = "postgres") -> str:
        """Return the same over a Unix socket, which is never encrypted."""

    def program(self, name: str) -> str:
        """Return the path of a program that came with the server, such as ``pgbench``."""
        return str(self._bin() / name)

    def execute(self, *statements: str, database: str = "postgres") -> None:
        """Run statements as superuser, each in a transaction of its own."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def create_database(self, name: str) -> str:
        """Create an empty database and return its URL."""
        self.execute(f'CREATE DATABASE "{name}"')
        return self.url(name)

    def drop_database(self, name: str) -> None:
        """Remove a database with its slots, ending its connections; a missing one is fine."""
        self.execute(
            "SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots "
            f"WHERE database = '{name}' AND active_pid IS NOT NULL"
        )
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while True:
            try:
                self.execute(
                    "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots "
                    f"WHERE database = '{name}'",
                    f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)',
                )
                return
            except psycopg.errors.ObjectInUse:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)

    # -- what differs ---------------------------------------------------------------------------

    @abc.abstractmethod
    def _bin(self) -> Path:
        """Return the folder of the server's programs."""

    @abc.abstractmethod
    def _initialise(self) -> None:
        """Make the data folder, with its authentication."""

    @abc.abstractmethod
    def _endpoint(self) -> dict[str, str]:
        """Return the settings that say where the server listens."""

    # -- shared machinery -----------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        """Return the arguments that make a child process run as the unprivileged user."""
        # A session of its own keeps a Ctrl-C at the terminal away from the server.
        identity: dict[str, Any] = {"start_new_session": True, "cwd": str(self.folder)}
        if self._user is not None:
            identity |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return identity

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(arguments, capture_output=True, text=True, **self._identity())
        if done.returncode:
            raise SourceUnavailable(
                f"{Path(arguments[0]).name} failed for {self.folder}: {done.stderr.strip()[-500:]}",
                next_step="make the folder writable and usable for an unprivileged user.",
            )

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.log.touch()
        self._hand_over(self.folder, self.log)

    def _hand_over(self, *paths: Path) -> None:
        """Give files to the user the server runs as."""
        if self._user is not None:
            for path in paths:
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _initdb(self, data: Path, *options: str) -> None:
        initdb = str(self._bin() / "initdb")
        self._run(
            initdb, "-D", str(data), "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8",
            "--no-sync", "--no-instructions", *options,
        )  # fmt: skip

    def _wait_until_ready(self) -> None:
        """Return when the server takes connections; raise with the end of its log when it does not."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process is not None
            ended = self._process.poll() is not None
            with contextlib.suppress(psycopg.OperationalError):
                psycopg.connect(self.url(), connect_timeout=5).close()
                return
            if ended or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-800:]
                self.stop("immediate")
                raise SourceUnavailable(
                    f"The PostgreSQL server in {self.folder} does not start: {tail.strip()}",
                    next_step="remove the folder, or free what its log complains about.",
                )
            time.sleep(0.05)


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user a server runs as when we are root, None when we are not."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise SourceUnavailable(
        "PostgreSQL refuses to run as root, and there is neither a user postgres nor nobody.",
        next_step="create one, or run as an ordinary user.",
    )

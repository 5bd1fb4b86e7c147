"""A MariaDB server of Debian's package in a folder of its own: start, stop, kill.

Listens on a port of the loopback and on a Unix socket, logs rows with whole metadata, is ours alone, and runs as an
unprivileged user when we are root. Nothing is installed or changed outside the folder.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pymysql

from headrace.errors import SourceUnavailable
from headrace.testing.ports import free_port

__all__ = ["MariadbServer", "installed"]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 90.0

PROGRAM = Path("/usr/sbin/mariadbd")
_INSTALL = Path("/usr/bin/mariadb-install-db")
_PROGRAMS = (PROGRAM, _INSTALL, Path("/usr/bin/my_print_defaults"))

DEFAULT_SETTINGS: Mapping[str, str] = {
    "log_bin": "binlog",
    "binlog_format": "ROW",
    "binlog_row_metadata": "FULL",
    "server_id": "1",
    "innodb_buffer_pool_size": "32M",
    "innodb_log_file_size": "16M",
    # Asynchronous reads are counted for the whole machine: where others have used them up, no server would start.
    "innodb_use_native_aio": "OFF",
    "max_connections": "60",
    "skip_name_resolve": "ON",
}
"""Settings of every server, before the caller's own."""

_OF_THE_ENGINE = ("innodb_buffer_pool_size", "innodb_log_file_size", "innodb_use_native_aio")
"""What the program that makes the data folder must be told as well: it starts a server of its own."""

_FAST: Mapping[str, str] = {
    "innodb_flush_log_at_trx_commit": "2",
    "innodb_doublewrite": "OFF",
    "innodb_flush_method": "nosync",
    "sync_binlog": "0",
}


def installed() -> bool:
    """Return whether Debian's server is there."""
    return all(program.exists() for program in _PROGRAMS)


class MariadbServer:
    """A server process and its data folder.

    Args:
        folder: holds the data and the server's log; a temporary one, removed by `close`, when None.
        settings: server variables over `DEFAULT_SETTINGS`.
        durable: whether the server syncs to disk; off is faster and survives everything but power loss.
    """

    PASSWORD = "for-tests"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-my-")) if folder is None else folder
        self._settings = {**DEFAULT_SETTINGS, **({} if durable else _FAST), **(settings or {})}
        self._process: subprocess.Popen[bytes] | None = None
        self._user = _unprivileged_user()
        self.port = free_port()
        # Socket paths are limited to about 100 bytes, so the socket never lies in the data folder.
        self._sockets = Path(tempfile.mkdtemp(prefix="headrace-my-"))

    @property
    def data(self) -> Path:
        """The data folder, which also holds the binary log."""
        return self.folder / "data"

    @property
    def log(self) -> Path:
        """The server's error log."""
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
        new = not (self.data / "mysql").exists()
        if new:
            self._initialise()
        arguments = [str(PROGRAM), "--no-defaults", f"--datadir={self.data}"]
        arguments += [f"--{name}={value}" for name, value in (self._settings | self._own()).items()]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                arguments, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **self._identity()
            )
        self._wait_until_ready()
        if new:
            # Over TCP only with a password, as everywhere.
            self.execute(
                f"CREATE USER headrace@'%' IDENTIFIED BY '{self.PASSWORD}'",
                "GRANT ALL PRIVILEGES ON *.* TO headrace@'%' WITH GRANT OPTION",
            )
        return self

    def stop(self) -> None:
        """Stop the server in good order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End the server as a crash does: nothing is flushed, the next start recovers from the log."""
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Stop and start again; the address stays the same."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the server and remove the folder if it was a temporary one."""
        if self._temporary:
            self.kill()
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            self.stop()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def url(self, database: str = "", user: str = "headrace") -> str:
        """Return a connection URL over TCP; of the administrator, or of a user with the same password."""
        return f"mysql://{user}:{self.PASSWORD}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        """Return an administrator's connection over the Unix socket, each statement a transaction."""
        return pymysql.connect(
            unix_socket=str(self._socket), user="root", database=database, autocommit=True
        )

    def execute(self, *statements: str, database: str | None = None) -> None:
        """Run statements as administrator, each in a transaction of its own."""
        connection = self.connect(database)
        with contextlib.closing(connection), connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)

    def query(self, statement: str, database: str | None = None) -> Sequence[tuple[Any, ...]]:
        """Return the rows of a statement."""
        connection = self.connect(database)
        with contextlib.closing(connection), connection.cursor() as cursor:
            cursor.execute(statement)
            rows: Sequence[tuple[Any, ...]] = cursor.fetchall()
            return rows

    # -- machinery ------------------------------------------------------------------------------

    @property
    def _socket(self) -> Path:
        return self._sockets / "s"

    def _own(self) -> dict[str, str]:
        """Return the settings that say where the server listens."""
        return {
            "bind_address": "127.0.0.1",
            "port": str(self.port),
            "socket": str(self._socket),
            "pid_file": str(self.folder / "server.pid"),
        }

    def _identity(self) -> dict[str, Any]:
        """Return the arguments that make a child process run as the unprivileged user."""
        # A session of its own keeps a Ctrl-C at the terminal away from the server.
        identity: dict[str, Any] = {"start_new_session": True, "cwd": str(self.folder)}
        if self._user is not None:
            identity |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return identity

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sockets.mkdir(exist_ok=True)
        self.log.touch()
        if self._user is not None:
            for path in (self.folder, self._sockets, self.log):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    def _initialise(self) -> None:
        done = subprocess.run(
            [str(_INSTALL), "--no-defaults", f"--datadir={self.data}", "--skip-test-db"]
            + ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
            + [f"--{name}={self._settings[name]}" for name in _OF_THE_ENGINE],
            capture_output=True,
            text=True,
            **self._identity(),
        )
        if done.returncode:
            raise SourceUnavailable(
                f"{_INSTALL.name} failed for {self.folder}: "
                f"{(done.stderr.strip() or done.stdout.strip())[-1500:]}",
                next_step="free what it complains about; an unprivileged user writes into the folder.",
            )

    def _wait_until_ready(self) -> None:
        """Return when the server takes connections; raise with the end of its log when it does not."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            assert self._process is not None
            ended = self._process.poll() is not None
            with contextlib.suppress(pymysql.err.OperationalError):
                self.connect().close()
                return
            if ended or time.monotonic() > deadline:
                tail = self.log.read_text(errors="replace")[-800:]
                self.kill()
                raise SourceUnavailable(
                    f"The MariaDB server in {self.folder} does not start: {tail.strip()}",
                    next_step="remove the folder, or free what its log complains about.",
                )
            time.sleep(0.02)

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is None:
            process.send_signal(how)
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOP_TIMEOUT_S)


def _unprivileged_user() -> pwd.struct_passwd | None:
    """Return the user a server runs as when we are root, None when we are not."""
    if os.geteuid() != 0:
        return None
    for name in ("mysql", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise SourceUnavailable(
        "MariaDB refuses to run as root, and there is neither a user mysql nor nobody.",
        next_step="create one, or run as an ordinary user.",
    )

"""A server that speaks MySQL's protocol, in a folder of its own: start, stop, kill.

Listens on a port of the loopback and on a Unix socket, and is ours alone. Nothing is installed or changed outside
the folder. Which server it is, and how its data folder is made, says the class derived from it.
"""

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
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import pymysql

from headrace.errors import SourceUnavailable
from headrace.testing.ports import free_port

__all__ = ["MysqlProtocolServer"]

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 90.0


class MysqlProtocolServer(abc.ABC):
    """A server process and its data folder.

    Args:
        folder: holds the data and the server's log; a temporary one, removed by `close`, when None.
        settings: server variables over those of `defaults`.
        durable: whether the server syncs to disk; off is faster and survives everything but power loss.
    """

    PASSWORD = "for-tests"

    kind: ClassVar[str]
    """What the server is called in messages."""
    defaults: ClassVar[Mapping[str, str]]
    """Settings of every server, before the caller's own."""
    fast: ClassVar[Mapping[str, str]]
    """Settings of a server that need not survive power loss."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        self._temporary = folder is None
        self.folder = Path(tempfile.mkdtemp(prefix="headrace-my-")) if folder is None else folder
        self._settings = {
            **self.defaults,
            **({} if durable else self.fast),
            **(settings or {}),
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._user = self._runs_as()
        self.port = free_port()
        # Socket paths are limited to about 100 bytes, so the socket never lies in the data folder.
        self._sockets = Path(tempfile.mkdtemp(prefix="headrace-my-"))

    @property
    def data(self) -> Path:
        """The data folder, which also holds the binary log."""
        return self.folder / "data"

    @property
    def scratch(self) -> Path:
        """The folder of temporary tables: in a shared one, two servers' names collide."""
        return self.folder / "scratch"

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
        arguments = [*self._command(), f"--datadir={self.data}"]
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
            "tmpdir": str(self.scratch),
        }

    def _identity(self) -> dict[str, Any]:
        """Return the arguments that make a child process run as the server's user."""
        # A session of its own keeps a Ctrl-C at the terminal away from the server.
        identity: dict[str, Any] = {"start_new_session": True, "cwd": str(self.folder)}
        if self._user is not None:
            identity |= {"user": self._user.pw_uid, "group": self._user.pw_gid, "extra_groups": []}
        return identity

    def _make_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._sockets.mkdir(exist_ok=True)
        self.scratch.mkdir(exist_ok=True)
        self.log.touch()
        if self._user is not None:
            for path in (self.folder, self._sockets, self.log, self.scratch):
                os.chown(path, self._user.pw_uid, self._user.pw_gid)

    @abc.abstractmethod
    def _command(self) -> list[str]:
        """Return the program and the options that it needs first."""

    @abc.abstractmethod
    def _initialise(self) -> None:
        """Make the data folder, whose administrator is root without a password."""

    @abc.abstractmethod
    def _runs_as(self) -> pwd.struct_passwd | None:
        """Return the user that the server runs as, None for our own."""

    def _make_data(self, command: list[str]) -> None:
        """Run the program that makes the data folder.

        Raises:
            SourceUnavailable: it failed; the end of what it said is in the message.
        """
        done = subprocess.run(command, capture_output=True, text=True, **self._identity())
        if done.returncode:
            raise SourceUnavailable(
                f"The data of a {self.kind} server in {self.folder} could not be made: "
                f"{(done.stderr.strip() or done.stdout.strip())[-1500:]}",
                next_step="free what it complains about; the server's user writes into the folder.",
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
                    f"The {self.kind} server in {self.folder} does not start: {tail.strip()}",
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

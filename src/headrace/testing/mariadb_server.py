"""A MariaDB server: logs rows with whole metadata, unprivileged when we are root.

It is that of Debian's package, or, where ``HEADRACE_MARIADB`` names a major version, one whose programs lie in a folder
of headrace's cache, such as ``mariadb-11``, into which ``tools/unpack_mariadb.py`` puts them.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import SourceUnavailable
from headrace.testing.mysql_protocol_server import MysqlProtocolServer

__all__ = ["MariadbServer", "installed", "unpacked"]

_DEBIANS = (
    Path("/usr/sbin/mariadbd"),
    Path("/usr/bin/mariadb-install-db"),
    Path("/usr/bin/my_print_defaults"),
)
_UNPACKED = ("bin/mariadbd", "scripts/mariadb-install-db", "bin/my_print_defaults")

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


def unpacked() -> Path | None:
    """Return the folder of the version that is asked for, None where it is Debian's."""
    version = os.environ.get("HEADRACE_MARIADB")
    if not version:
        return None
    cache = os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace"
    return Path(cache).resolve() / f"mariadb-{version}"


def _programs() -> tuple[Path, ...]:
    folder = unpacked()
    return _DEBIANS if folder is None else tuple(folder / name for name in _UNPACKED)


def installed() -> bool:
    """Return whether the server is there."""
    return all(program.exists() for program in _programs())


class MariadbServer(MysqlProtocolServer):
    """A MariaDB process and its data folder."""

    kind = "MariaDB"
    defaults = DEFAULT_SETTINGS
    fast = _FAST

    def _command(self) -> list[str]:
        return [str(_programs()[0]), "--no-defaults", *_where()]

    def _initialise(self) -> None:
        self._make_data(
            [
                str(_programs()[1]),
                "--no-defaults",
                *_where(),
                f"--datadir={self.data}",
                "--skip-test-db",
            ]
            + [f"--tmpdir={self.scratch}"]
            + ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
            + [f"--{name}={self._settings[name]}" for name in _OF_THE_ENGINE]
        )

    def _runs_as(self) -> pwd.struct_passwd | None:
        # The cache of root is closed to everybody else.
        return _unprivileged_user() if unpacked() is None else None


def _where() -> list[str]:
    """Return what a program is told that lies in a folder of ours."""
    folder = unpacked()
    as_root = ["--user=root"] if os.geteuid() == 0 else []
    return [] if folder is None else [f"--basedir={folder}", *as_root]


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

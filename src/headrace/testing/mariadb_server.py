"""A MariaDB server of Debian's package: logs rows with whole metadata, unprivileged when we are root."""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Mapping
from pathlib import Path

from headrace.errors import SourceUnavailable
from headrace.testing.mysql_protocol_server import MysqlProtocolServer

__all__ = ["MariadbServer", "installed"]

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


class MariadbServer(MysqlProtocolServer):
    """A MariaDB process and its data folder."""

    kind = "MariaDB"
    defaults = DEFAULT_SETTINGS
    fast = _FAST

    def _command(self) -> list[str]:
        return [str(PROGRAM), "--no-defaults"]

    def _initialise(self) -> None:
        self._make_data(
            [str(_INSTALL), "--no-defaults", f"--datadir={self.data}", "--skip-test-db"]
            + [f"--tmpdir={self.scratch}"]
            + ["--auth-root-authentication-method=normal", "--skip-name-resolve"]
            + [f"--{name}={self._settings[name]}" for name in _OF_THE_ENGINE]
        )

    def _runs_as(self) -> pwd.struct_passwd | None:
        return _unprivileged_user()


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

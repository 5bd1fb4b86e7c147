"""A MySQL server whose programs lie in a folder of their own, with the C library that they were built for.

The set-up of the tests unpacks Debian's packages there and installs none of them, so a server of a newer Debian runs on
an older one: its own loader starts it.
"""

from __future__ import annotations

import os
import platform
import pwd
from collections.abc import Mapping
from pathlib import Path

from headrace.testing.mysql_protocol_server import MysqlProtocolServer

__all__ = ["MysqlServer", "installed", "programs"]

DEFAULT_SETTINGS: Mapping[str, str] = {
    "log_bin": "binlog",
    "binlog_row_metadata": "FULL",
    "server_id": "1",
    "innodb_buffer_pool_size": "32M",
    "innodb_redo_log_capacity": "16M",
    # As with MariaDB: asynchronous reads are counted for the whole machine.
    "innodb_use_native_aio": "OFF",
    "performance_schema": "OFF",
    "max_connections": "60",
    "mysqlx": "OFF",
    "skip_name_resolve": "ON",
    "secure_file_priv": "",
}
"""Settings of every server, before the caller's own."""

_FAST: Mapping[str, str] = {
    "innodb_flush_log_at_trx_commit": "2",
    "innodb_doublewrite": "OFF",
    "sync_binlog": "0",
}


def programs() -> Path:
    """Return the folder that the packages are unpacked into: ``mysql`` in headrace's cache."""
    cache = os.environ.get("HEADRACE_CACHE") or Path.home() / ".cache" / "headrace"
    return Path(cache).resolve() / "mysql"


def _libraries() -> Path:
    return programs() / "usr" / "lib" / f"{platform.machine()}-linux-gnu"


def _loader() -> Path:
    return _libraries() / "ld-linux-x86-64.so.2"


def _program() -> Path:
    return programs() / "usr" / "sbin" / "mysqld"


def installed() -> bool:
    """Return whether the set-up could unpack the server."""
    return _program().exists() and _loader().exists()


class MysqlServer(MysqlProtocolServer):
    """A MySQL process and its data folder."""

    kind = "MySQL"
    defaults = DEFAULT_SETTINGS
    fast = _FAST

    def _command(self) -> list[str]:
        libraries, program, root = _libraries(), _program(), programs() / "usr"
        return [
            str(_loader()),
            "--library-path",
            f"{libraries}:{libraries / 'private'}",
            "--argv0",
            str(program),
            str(program),
            "--no-defaults",
            f"--basedir={root}",
            f"--plugin-dir={root / 'lib' / 'mysql' / 'plugin'}",
            f"--lc-messages-dir={root / 'share' / 'mysql'}",
            f"--character-sets-dir={root / 'share' / 'mysql' / 'charsets'}",
            *(["--user=root"] if os.geteuid() == 0 else []),
        ]

    def _initialise(self) -> None:
        engine = ("innodb_redo_log_capacity", "innodb_use_native_aio", "performance_schema")
        self._make_data(
            [*self._command(), "--initialize-insecure", f"--datadir={self.data}"]
            + [f"--tmpdir={self.scratch}"]
            + [f"--{name}={self._settings[name]}" for name in engine]
        )

    def _runs_as(self) -> pwd.struct_passwd | None:
        # The cache of root is closed to everybody else.
        return None

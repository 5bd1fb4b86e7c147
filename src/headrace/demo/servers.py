"""Starts the server that the demo copies from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["KINDS", "Kind", "Started", "check_kind"]


@dataclass(frozen=True, slots=True)
class Started:
    """A server that runs.

    Attributes:
        name: what people call it, with its version.
        url: of the place where the shop will be.
    """

    name: str
    url: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of server that the demo has.

    Attributes:
        source_type: its ``source.type``.
        start: runs one, whose files lie in a folder, until the block ends.
    """

    source_type: str
    start: Callable[[Path], AbstractContextManager[Started]]


@contextlib.contextmanager
def _postgres(folder: Path) -> Iterator[Started]:
    from headrace.testing.postgres import EmbeddedPostgres

    with EmbeddedPostgres(folder) as server:
        yield Started(f"PostgreSQL {server.version}", server.create_database("shop"))


@contextlib.contextmanager
def _mariadb(folder: Path) -> Iterator[Started]:
    from headrace.testing.mariadb_server import MariadbServer, installed

    if not installed():
        raise ConfigError(
            "There is no MariaDB server on this machine.",
            next_step="install it (Debian: mariadb-server-core and mariadb-client-core); it need not be started.",
        )
    with MariadbServer(folder) as server:
        ((version,),) = server.query("SELECT VERSION()")
        yield Started(f"MariaDB {version.partition('-')[0]}", server.url())


@contextlib.contextmanager
def _mysql(folder: Path) -> Iterator[Started]:
    from headrace.testing.mysql_server import MysqlServer, installed

    if not installed():
        raise ConfigError(
            "There is no MySQL server that the demo could start.",
            next_step="run `make setup-tests`, which unpacks one, or says why it cannot.",
        )
    with MysqlServer(folder) as server:
        ((version,),) = server.query("SELECT VERSION()")
        yield Started(f"MySQL {version.partition('-')[0]}", server.url())


KINDS: Mapping[str, Kind] = {
    "postgres": Kind("postgres", _postgres),
    "mysql": Kind("mysql", _mysql),
    "mariadb": Kind("mysql", _mariadb),
}
"""By what people call them."""


def check_kind(kind: str) -> None:
    """Refuse a kind of source that the demo has no server for.

    Raises:
        ConfigError: it is none.
    """
    if kind not in KINDS:
        raise ConfigError(
            f"The demo copies from no {kind}.", next_step=f"choose one of {', '.join(KINDS)}."
        )

"""What a MySQL or MariaDB source is told."""

from __future__ import annotations

import functools
import zlib
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.errors import ConfigError
from headrace.model.schema import TableId
from headrace.sources.patterns import TablePatterns

__all__ = ["Address", "MysqlSettings", "ZeroDates"]

ZeroDates = Literal["refuse", "null"]
"""What becomes of a date that is no day, such as ``0000-00-00``: the capture stops, or it is null."""

_HIDDEN = frozenset({"mysql", "information_schema", "performance_schema", "sys", "headrace"})

_TLS = ("disabled", "required", "verify-ca", "verify-identity")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server is and who asks; parsed from a URL.

    Attributes:
        host: name or address.
        port: of TCP.
        user: who logs in.
        password: never shown.
        tls: ``disabled``, ``required`` (encrypted, whoever answers), ``verify-ca`` or ``verify-identity``.
        ca: file with the certificates that are trusted, None for the system's.
    """

    host: str
    port: int
    user: str
    password: str = field(repr=False)
    tls: str = "disabled"
    ca: str | None = None

    @classmethod
    def parse(cls, url: str) -> Address:
        """Read ``mysql://user:password@host:port/?tls=…&ca=…``.

        Raises:
            ConfigError: it is no such URL; its text is never shown.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or 3306
            options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        except ValueError:
            raise _bad_url() from None
        if parts.scheme not in ("mysql", "mariadb") or not parts.hostname or not parts.username:
            raise _bad_url()
        if set(options) - {"tls", "ca"} or options.get("tls", "disabled") not in _TLS:
            raise ConfigError(
                "source.url has an option that is not known.",
                next_step=f"use ?tls= with one of {', '.join(_TLS)}, and ca=FILE.",
            )
        return cls(
            parts.hostname,
            port,
            unquote(parts.username),
            unquote(parts.password or ""),
            options.get("tls", "disabled"),
            options.get("ca"),
        )


@dataclass(frozen=True, slots=True)
class MysqlSettings:
    """Everything that a connection and the log are told.

    Attributes:
        url: connection URL; never shown.
        tables: patterns of captured tables, such as ``shop.*``.
        exclude: patterns of tables that are not, whatever ``tables`` says.
        name: of the pipeline; its watermarks have a row of that name.
        connect_timeout_s: limit for a connection to be made.
        statement_timeout_s: limit for a catalog query or a mark; selects of rows have none.
        write_timeout_s: how long the server waits for us to take more of the log before it cuts the connection.
        heartbeat_s: after so much silence the server says that it is there.
        zero_dates: what becomes of a date that is no day.
    """

    url: str = field(repr=False)
    tables: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    name: str = "headrace"
    connect_timeout_s: float = 15.0
    statement_timeout_s: float = 60.0
    write_timeout_s: int = 600
    heartbeat_s: float = 5.0
    zero_dates: ZeroDates = "refuse"

    @property
    def address(self) -> Address:
        """Return where the server is.

        Raises:
            ConfigError: the URL does not read.
        """
        return Address.parse(self.url)

    @property
    def server_id(self) -> int:
        """The number under which we are a replica: by our name, above those that people give."""
        return zlib.crc32(self.name.encode()) | 1 << 31

    @property
    def asking_id(self) -> int:
        """The number under which we look into the log beside the reader, which would be thrown out by its own."""
        return self.server_id ^ 1

    @property
    def selection(self) -> str:
        """What tells these patterns from others."""
        return f"{zlib.crc32(repr((self.tables, self.exclude)).encode()):08x}"

    def selects(self, table: TableId) -> bool:
        """Return whether a table is captured; those of the server and our own never are."""
        if table.schema in _HIDDEN:
            return False
        include, exclude = _patterns(self.tables), _patterns(self.exclude)
        return include.match(table) and not exclude.match(table)


@functools.cache
def _patterns(texts: tuple[str, ...]) -> TablePatterns:
    return TablePatterns(texts)


def _bad_url() -> ConfigError:
    return ConfigError(
        "source.url is not a MySQL connection URL.",
        next_step="write mysql://user:password@host:3306/, with special characters escaped (%40 for @).",
    )

"""Where a MySQL or MariaDB server is: of a source, and of a target."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from headrace.errors import ConfigError

__all__ = ["Address"]

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
    def parse(cls, url: str, place: str = "source.url") -> Address:
        """Read ``mysql://user:password@host:port/?tls=…&ca=…``.

        Args:
            url: its text.
            place: of it in the configuration, for errors.

        Raises:
            ConfigError: it is no such URL; its text is never shown.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or 3306
            options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
        except ValueError:
            raise _bad_url(place) from None
        if parts.scheme not in ("mysql", "mariadb") or not parts.hostname or not parts.username:
            raise _bad_url(place)
        if set(options) - {"tls", "ca"} or options.get("tls", "disabled") not in _TLS:
            raise ConfigError(
                f"{place} has an option that is not known.",
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

    def encryption(self) -> dict[str, Any]:
        """Return what the driver is told of TLS."""
        if self.tls == "disabled":
            return {"ssl_disabled": True}
        context = ssl.create_default_context(cafile=self.ca)
        context.check_hostname = self.tls == "verify-identity"
        if self.tls == "required":
            context.verify_mode = ssl.CERT_NONE
        return {"ssl": context}


def _bad_url(place: str) -> ConfigError:
    return ConfigError(
        f"{place} is not a MySQL connection URL.",
        next_step="write mysql://user:password@host:3306/, with special characters escaped (%40 for @).",
    )

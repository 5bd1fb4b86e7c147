"""The section ``relay`` of a configuration, as values."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from headrace.replicator.section import Section
from headrace.replicator.source_config import NAME, Pattern
from headrace.replicator.units import Listen

__all__ = [
    "FollowingRelayConfig",
    "RelayConfig",
    "RelaySourceConfig",
    "RelayTlsConfig",
    "RelayTokenConfig",
    "TokenConfig",
    "UpstreamConfig",
]

_Name = Annotated[str, Field(min_length=1, max_length=63)]


class RelayTlsConfig(Section):
    """HTTPS.

    Attributes:
        certificate: PEM file of the certificate and what leads to its authority.
        key: PEM file of its key, without a password.
    """

    certificate: Path
    key: Path


class TokenConfig(Section):
    """One who may ask a server.

    Attributes:
        name: for people.
        token: put it into the environment and write ``${env:NAME}``.
    """

    name: _Name
    token: SecretStr

    @field_validator("token")
    @classmethod
    def _cannot_be_guessed(cls, value: SecretStr) -> SecretStr:
        if len(value.get_secret_value()) < 16:
            raise ValueError("at least 16 characters, such as openssl rand -hex 32 gives")
        return value


class RelayTokenConfig(TokenConfig):
    """One who may ask a relay.

    Attributes:
        role: ``reader``, or ``admin`` for the commands too.
    """

    role: Literal["reader", "admin"] = "reader"


class RelayConfig(Section):
    """The change stream over HTTP.

    Attributes:
        listen: host and port.
        workers: processes that share the port.
        tls: HTTPS; HTTP when absent.
        tokens: who may ask; needed as soon as other machines can reach it.
        send_timeout_s: a reader that takes nothing for so long is cut, and may come again.
        heartbeat_s: readers for whom there is nothing new hear so often that this is so.
        routes: URLs of every relay of this source; or a file with the routing document of all.
    """

    listen: Listen = "127.0.0.1:7070"
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    tls: RelayTlsConfig | None = None
    tokens: tuple[RelayTokenConfig, ...] = ()
    send_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0
    heartbeat_s: Annotated[float, Field(gt=0, le=3600)] = 10.0
    routes: Path | tuple[str, ...] = ()

    @field_validator("routes", mode="before")
    @classmethod
    def _are_urls_or_a_file(cls, value: object) -> object:
        if isinstance(value, str) and "://" not in value:
            return Path(value)
        given = value if isinstance(value, list | tuple) else None
        if isinstance(value, Path) or (given is not None and all(map(_is_relay, given))):
            return value if given is None else tuple(given)
        raise ValueError("a list of URLs such as http://host:7070, or a file")

    @model_validator(mode="after")
    def _each_name_once(self) -> Self:
        names = [token.name for token in self.tokens]
        if len(set(names)) < len(names):
            raise ValueError("each name of tokens once")
        return self

    @property
    def host(self) -> str:
        """Where it listens."""
        return self.listen.rpartition(":")[0]

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listen.rpartition(":")[2])


class UpstreamConfig(Section):
    """The relays that another relay reads from.

    Attributes:
        urls: any of them; the first that answers is read from, and after a failure the next.
        token: what they ask for; put it into the environment and write ``${env:NAME}``.
        ca: PEM file of the authority that signed their certificates; the system's authorities when absent.
        read_timeout_s: one that says nothing for so long, no heartbeat either, is taken for dead.
    """

    urls: Annotated[tuple[str, ...], Field(min_length=1)]
    token: SecretStr | None = None
    ca: Path | None = None
    read_timeout_s: Annotated[float, Field(gt=0, le=3600)] = 30.0

    @field_validator("urls")
    @classmethod
    def _are_relays(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if not all(map(_is_relay, value)):
            raise ValueError("a list of URLs such as http://host:7070")
        return value


class RelaySourceConfig(UpstreamConfig):
    """The source of a replicator that reads its changes from relays, and no database.

    Attributes:
        source: its name as the relays have it; that of the replicator when absent.
        tables: patterns ``schema.table`` of those that the replicator looks after; empty means all. The log is copied
            whole.
    """

    type: Literal["relay"]
    source: Annotated[str, Field(pattern=NAME)] | None = None
    tables: tuple[Pattern, ...] = ()


class FollowingRelayConfig(RelayConfig):
    """The section of a relay that reads from other relays."""

    upstream: UpstreamConfig


def _is_relay(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        parts = urlsplit(value)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and not parts.username
    except ValueError:
        return False

"""What a relay serves, and how it listens: values that travel to its worker processes."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from headrace.errors import ConfigError

__all__ = ["RelaySettings", "Role", "ServedSource", "Token", "is_loopback"]


class Role(Enum):
    """What the holder of a token may do."""

    READER = "reader"
    """Everything but the commands."""
    ADMIN = "admin"
    """The commands too."""


@dataclass(frozen=True, slots=True)
class Token:
    """One who may ask.

    Attributes:
        name: for people.
        secret: what the request carries.
        role: what it allows.
    """

    name: str
    secret: str = field(repr=False)
    role: Role


@dataclass(frozen=True, slots=True)
class ServedSource:
    """One source, and where its things lie.

    Attributes:
        name: under which it is asked for.
        log: folder of its change log.
        registry: folder of its table versions.
        state: its state database, None where there is none to command.
        relays: URLs of the relays that have it; or a file with a routing document, read again when it changes.
        routes_version: version of ``relays`` where these are URLs.
        follower: where the follower of another relay that fills the log says what it does; None where a capture does.
        capture: where the capture that fills the log says what it does; None where a follower does.
    """

    name: str
    log: Path
    registry: Path
    state: Path | None = None
    relays: tuple[str, ...] | Path = ()
    routes_version: int = 0
    follower: Path | None = None
    capture: Path | None = None


@dataclass(frozen=True, slots=True)
class RelaySettings:
    """One relay.

    Attributes:
        sources: what it serves.
        host: where it listens.
        port: likewise; 0 for one that is free.
        workers: processes that share the port.
        certificate: PEM file of the certificate chain; None for HTTP without TLS.
        key: PEM file of its key.
        tokens: who may ask; without any, everybody who gets through to it.
        send_timeout_s: a reader that takes nothing for so long is cut.
        heartbeat_s: a reader for whom there is nothing new hears so often that this is so.
    """

    sources: tuple[ServedSource, ...]
    host: str = "127.0.0.1"
    port: int = 7070
    workers: int = 1
    certificate: Path | None = None
    key: Path | None = None
    tokens: tuple[Token, ...] = ()
    send_timeout_s: float = 30.0
    heartbeat_s: float = 10.0

    def validate(self) -> None:
        """Refuse what would be served by mistake.

        Raises:
            ConfigError: it listens beyond this machine and asks for no token, or two sources have one name.
        """
        if not self.tokens and not is_loopback(self.host):
            raise ConfigError(
                f"relay.listen: {self.host} is reached from other machines, and the relay asks for no token.",
                next_step="add relay.tokens, or listen on 127.0.0.1.",
            )
        names = [source.name for source in self.sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise ConfigError(
                f"relay: two files describe a replicator {twice}.",
                next_step="serve one of them, or give the other one another name.",
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches who listens on ``host``."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False

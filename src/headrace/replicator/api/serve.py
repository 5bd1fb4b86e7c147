"""A control plane that listens: the application on uvicorn, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from headrace.errors import ConfigError, ControlUnavailable
from headrace.relay.server.renewal import Renewal
from headrace.relay.server.settings import is_loopback
from headrace.replicator.api.people import Known, Person, Role, Token
from headrace.replicator.api.rates import RateLimits
from headrace.replicator.serve_config import ServeConfig

__all__ = ["Listening", "known_of", "limits_of", "listen", "serve"]

_POLL_S = 0.1
_GRACE_S = 5


@dataclass(frozen=True, slots=True)
class Listening:
    """Where a control plane listens.

    Attributes:
        host: of it.
        port: of it, 0 for one that is free.
        certificate: PEM file of the certificate chain; None for HTTP without TLS.
        key: PEM file of its key.
    """

    host: str = "127.0.0.1"
    port: int = 8070
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def parse(cls, text: str, config: ServeConfig | None) -> Listening:
        """Return what ``host:port`` and the file of tokens say.

        Raises:
            ConfigError: it does not read, or would let everybody in.
        """
        host, _, port = text.rpartition(":")
        if not host or not port.isdecimal() or int(port) > 65_535:
            raise ConfigError(
                "--listen: expected host:port.",
                next_step="write it like 127.0.0.1:8070 or [::1]:8070.",
            )
        if config is None and not is_loopback(host):
            raise ConfigError(
                f"--listen: {host} is reached from other machines, and the control plane asks for no token.",
                next_step="add --tokens FILE, or listen on 127.0.0.1.",
            )
        tls = config.tls if config else None
        files = (tls.certificate, tls.key) if tls else (None, None)
        return cls(host.strip("[]"), int(port), *files)


def known_of(config: ServeConfig | None) -> Known:
    """Return the people of a file of tokens, everybody where there is none."""
    return Known(
        Token(Person(one.name, Role[one.role.upper()]), one.token.get_secret_value())
        for one in (config.tokens if config else ())
    )


def limits_of(config: ServeConfig | None) -> RateLimits:
    """Return how often the people of a file of tokens may ask, the usual where there is none."""
    if config is None:
        return RateLimits()
    return RateLimits(config.rates.per_s, config.rates.burst, config.rates.wrong_tokens)


def listen(where: Listening) -> socket.socket:
    """Return a socket that listens.

    Raises:
        ControlUnavailable: the address is taken, or is none of this machine.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            where.host, where.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            found.bind(address)
        except OSError:
            found.close()
            raise
    except (OSError, UnicodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "no such host"
        raise ControlUnavailable(
            f"The control plane cannot listen on {where.host}:{where.port} ({reason}).",
            next_step="end what listens there, or choose another address: headrace serve --listen HOST:PORT.",
        ) from error
    return found


def serve(
    app: ASGIApp,
    where: Listening,
    listening: socket.socket,
    stop: threading.Event,
    started: Callable[[], None] = lambda: None,
) -> None:
    """Answer requests until ``stop`` is set.

    Args:
        app: what answers them.
        where: for certificate and key.
        listening: from `listen`; closed at the end.
        stop: looked at ten times a second.
        started: called when connections are taken.
    """
    config = uvicorn.Config(
        app,
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=where.certificate,
        ssl_keyfile=where.key,
    )
    _Server(config, stop, started, (where.certificate, where.key)).run([listening])


class _Server(uvicorn.Server):
    """uvicorn's server, which ends when an event says so."""

    def __init__(
        self,
        config: uvicorn.Config,
        stop: threading.Event,
        started: Callable[[], None],
        pair: tuple[Path | None, Path | None],
    ) -> None:
        super().__init__(config)
        self._pair = pair
        self._stop = stop
        self._when_started = started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever runs the server."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections."""
        await super().startup(sockets)
        self._when_started()

    async def main_loop(self) -> None:
        """Serve until asked to end."""
        ticks, renewal = 0, Renewal(self.config.ssl, *self._pair)
        while not (self._stop.is_set() or await self.on_tick(ticks)):
            ticks += 1
            renewal.look()
            await asyncio.sleep(_POLL_S)

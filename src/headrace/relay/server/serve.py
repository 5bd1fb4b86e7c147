"""One worker of a relay: the application on uvicorn, from its start to its end."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import uvicorn

from headrace.errors import ConfigError, RelayUnavailable
from headrace.relay.server.app import Relay
from headrace.relay.server.connection import Connection
from headrace.relay.server.renewal import Renewal
from headrace.relay.server.settings import RelaySettings

__all__ = ["bound", "check_tls", "serve"]

_BACKLOG = 4096
_GRACE_S = 10
_POLL_S = 0.1


def bound(settings: RelaySettings, port: int | None = None) -> socket.socket:
    """Return a socket that is bound to where the relay listens, and shares the port with its other workers.

    Args:
        settings: of the relay.
        port: in place of the settings' own.

    Raises:
        RelayUnavailable: the address is taken, or is none of this machine.
    """
    wanted = settings.port if port is None else port
    host = settings.host.strip("[]")
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, wanted, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        try:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if settings.workers > 1:
                found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            found.bind(address)
        except OSError:
            found.close()
            raise
    except OSError as error:
        raise RelayUnavailable(
            f"The relay cannot listen on {settings.host}:{wanted} ({error.strerror}).",
            next_step="end what listens there, or set relay.listen to another address.",
        ) from error
    return found


def serve(
    settings: RelaySettings,
    listening: socket.socket,
    stop: threading.Event,
    *,
    worker: int = 0,
    shut_down: Callable[[], None] | None = None,
    started: Callable[[], None] = lambda: None,
    counts: Path | None = None,
) -> None:
    """Serve until ``stop`` is set; streams then end with a note.

    Args:
        settings: of the relay.
        listening: from `bound`; closed at the end.
        stop: looked at ten times a second.
        worker: number of this process.
        shut_down: what the command of that name does; sets ``stop`` when absent.
        started: called when connections are taken.
        counts: folder in which the workers tell each other what they count; None for one alone.
    """
    relay = Relay(settings, worker, shut_down or stop.set, counts)
    config = uvicorn.Config(
        relay.app,
        http=Connection,
        loop="uvloop",
        ws="none",
        lifespan="off",
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        backlog=_BACKLOG,
        timeout_graceful_shutdown=_GRACE_S,
        ssl_certfile=settings.certificate,
        ssl_keyfile=settings.key,
    )
    pair = settings.certificate, settings.key
    _Server(config, relay, stop, started, pair).run([listening])


def check_tls(settings: RelaySettings) -> None:
    """Look whether certificate and key can be used.

    Raises:
        ConfigError: they cannot.
    """
    if settings.certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            settings.certificate, settings.key, password=""
        )
    except OSError as error:
        raise ConfigError(
            f"relay.tls: certificate and key cannot be used ({error.strerror or type(error).__name__}).",
            next_step="name the PEM files of a certificate chain and of its key without a password.",
        ) from error


class _Server(uvicorn.Server):
    """uvicorn's server, which ends when an event says so and lets the streams end first."""

    def __init__(
        self,
        config: uvicorn.Config,
        relay: Relay,
        stop: threading.Event,
        started: Callable[[], None],
        pair: tuple[Path | None, Path | None],
    ) -> None:
        super().__init__(config)
        self._pair = pair
        self._relay = relay
        self._stop = stop
        self._when_started = started

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to whoever runs the server."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Take connections."""
        self._relay.begin()
        await super().startup(sockets)
        self._when_started()

    async def main_loop(self) -> None:
        """Serve until asked to end."""
        ticks, renewal = 0, Renewal(self.config.ssl, *self._pair)
        while not (self._stop.is_set() or await self.on_tick(ticks)):
            ticks += 1
            renewal.look()
            await asyncio.sleep(_POLL_S)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the streams, then the connections."""
        self._relay.end()
        try:
            await super().shutdown(sockets)
        finally:
            self._relay.close()

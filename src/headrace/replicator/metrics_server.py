"""Serves ``/metrics`` while a replicator runs.

In: families, put together when somebody asks. Out: Prometheus' text form, from a thread of its own that nothing of the
run waits for. It takes few connections at a time, answers one path, and says nothing but numbers and names of tables.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from types import TracebackType

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from headrace.errors import ConfigError
from headrace.observe.exposition import CONTENT_TYPE, Family, text
from headrace.replicator.observe_config import MetricsConfig

__all__ = ["MetricsServer"]

_MOST_AT_ONCE = 16
"""Connections; further ones are refused by uvicorn with 503."""
_KEEP_ALIVE_S = 30
_GRACE_S = 1


class _Server(uvicorn.Server):
    """uvicorn's server, which leaves signals to the run."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Take none."""
        yield


class MetricsServer:
    """Use it in a ``with`` block.

    Args:
        config: where it listens.
        families: called for each answer, from the server's thread; cheap.

    Raises:
        ConfigError: of ``__enter__``: the address cannot be listened at.
    """

    def __init__(self, config: MetricsConfig, families: Callable[[], list[Family]]) -> None:
        self._config = config
        self._families = families
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    def __enter__(self) -> MetricsServer:
        host, port = self._config.host, self._config.port
        try:
            listening = socket.create_server(
                (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET
            )
        except OSError as error:
            raise ConfigError(
                f"metrics.listen: {self._config.listen} cannot be listened at ({error.strerror or 'no such host'}).",
                next_step="name an address of this machine and a port that is free, or leave the section metrics out.",
            ) from error
        self.port = listening.getsockname()[1]
        self._server = _Server(
            uvicorn.Config(
                Starlette(routes=[Route("/metrics", self._answer)]),
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="warning",
                access_log=False,
                server_header=False,
                limit_concurrency=_MOST_AT_ONCE,
                timeout_keep_alive=_KEEP_ALIVE_S,
                timeout_graceful_shutdown=_GRACE_S,
            )
        )
        self._thread = threading.Thread(
            target=self._server.run, args=([listening],), name="metrics", daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_GRACE_S + 2)

    async def _answer(self, _request: Request) -> PlainTextResponse:
        return PlainTextResponse(text(self._families()), media_type=CONTENT_TYPE)

"""What the commands that talk to a control plane share: where it is, how it is asked, how its refusals look."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlencode, urlsplit

import typer

from headrace.errors import ConfigError, ControlUnavailable, HeadraceError, StateError

__all__ = [
    "AsJson",
    "Authority",
    "FileOrName",
    "Name",
    "Namespace",
    "Server",
    "ServerUrl",
    "Wait",
    "file_of",
    "printed",
    "replicator_named",
]

TOKEN = "HEADRACE_TOKEN"
"""The variable of the environment that holds the token; on a command line everybody could read it."""

ServerUrl = Annotated[
    str,
    typer.Option(
        "--server", metavar="URL", envvar="HEADRACE_SERVER", help="Where the control plane listens."
    ),
]
DEFAULT_URL = "http://127.0.0.1:8070"
Namespace = Annotated[
    str,
    typer.Option(
        "--namespace", "-n", metavar="NAME", envvar="HEADRACE_NAMESPACE", help="Which namespace."
    ),
]
Authority = Annotated[
    Path | None,
    typer.Option(
        "--ca", help="PEM file of the authority that signed an https server's certificate."
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The replicator's name.")]
FileOrName = Annotated[
    str,
    typer.Argument(
        metavar="FILE|NAME",
        help="The replicator's configuration; or, a word without dot or slash, its name at a control plane.",
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Return when it is done, and fail when it cannot be.")
]

_NAME = re.compile(r"[a-z][a-z0-9_-]*")
_AS_BYTES = "surrogateescape"
"""How letters stand for bytes of a command line that are none: those bytes are sent, and the server refuses them."""
_TIMEOUT_S = 120.0
_POLL_S = 0.3


class Server:
    """A control plane, asked over HTTP; one connection per request.

    Args:
        url: of it.
        namespace: that paths begin in.
        authority: that signed its certificate.

    Raises:
        ConfigError: the address does not read.
    """

    def __init__(self, url: str, namespace: str = "default", authority: Path | None = None) -> None:
        self._url = url
        self._namespace = namespace
        try:
            parts = urlsplit(url)
            self._host, self._port = parts.hostname or "", parts.port
            # As the look-up of its address would, which says no more than this.
            self._host.encode("idna")
        except ValueError:
            parts, self._host = urlsplit(""), ""
        if parts.scheme not in ("http", "https") or not self._host:
            raise ConfigError(
                f"--server: {url!r} is no address of a control plane.",
                next_step="write http://HOST:PORT or https://HOST:PORT.",
            )
        self._prefix = parts.path.rstrip("/")
        self._tls = None
        if parts.scheme == "https":
            from headrace.client.trust import trusting

            self._tls = (
                ssl.create_default_context() if authority is None else trusting(authority, "--ca")
            )

    @property
    def is_here(self) -> bool:
        """Whether it is on this machine, so that both mean the same by a path."""
        return self._host in ("localhost", "::1") or self._host.startswith("127.")

    def within(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Ask for a path of the namespace; the answer as plain values, None where there is none.

        Raises:
            HeadraceError: what the server refused with.
            ControlUnavailable: no answer.
        """
        return self.ask(method, f"/v1/contexts/{self._namespace}/{path}", body, **query)

    def text(self, path: str, accepted: str = "text/plain", **query: Any) -> str:
        """Return what stands at a path of the namespace as text of a kind; as `within`."""
        path = f"/v1/contexts/{self._namespace}/{path}"
        status, data = self._answer("GET", path, None, query, accepted)
        if status < 400:
            return data.decode()
        raise self._refusal(status, self._plain(status, data))

    def lines(self, path: str, accepted: str, **query: Any) -> Iterator[str]:
        """Yield the lines of a stream at a path of the namespace while they come, but for empty ones; as `within`."""
        path = f"/v1/contexts/{self._namespace}/{path}"
        try:
            with closing(self._connection()) as connection:
                connection.request("GET", self._target(path, query), None, _headers(accepted))
                answer = connection.getresponse()
                if answer.status >= 400:
                    told = self._plain(answer.status, answer.read())
                    raise self._refusal(answer.status, told)
                while text := answer.readline():
                    if text.strip():
                        yield text.decode().rstrip("\n")
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from error

    def ask(self, method: str, path: str, body: Any = None, **query: Any) -> Any:
        """Ask for a path; as `within`."""
        status, data = self._answer(method, path, body, query, "application/json")
        told = self._plain(status, data)
        if status < 400:
            return told
        raise self._refusal(status, told)

    def _plain(self, status: int, data: bytes) -> Any:
        try:
            return json.loads(data) if data else None
        except ValueError as error:
            raise self._foreign(status) from error

    def _answer(
        self, method: str, path: str, body: Any, query: dict[str, Any], accepted: str
    ) -> tuple[int, bytes]:
        try:
            return self._sent(method, self._target(path, query), body, accepted)
        except (OSError, http.client.HTTPException) as error:
            raise self._unavailable(error) from error

    def replicator(self, name: str) -> Any:
        """Return everything about a replicator."""
        return self.within("GET", f"replicators/{quote(name)}")

    def wait(self, name: str, is_done: Callable[[Any], bool], timeout_s: float = 600.0) -> Any:
        """Return a replicator when it is as wanted.

        Raises:
            StateError: it failed, or is not so in time.
        """
        deadline = time.monotonic() + timeout_s
        while not is_done(shown := self.replicator(name)):
            if shown["state"] == "FAILED":
                raise StateError(
                    f"Replicator {name} failed: {shown['reason']}",
                    next_step=f"see what it said: headrace logs {name}",
                )
            if time.monotonic() > deadline:
                raise StateError(
                    f"Replicator {name} is {shown['state']} after {timeout_s:.0f} s. {shown['reason']}",
                    next_step=f"see what it does: headrace replicators {name}",
                )
            time.sleep(_POLL_S)
        return shown

    def _target(self, path: str, query: dict[str, Any]) -> str:
        given = {name: value for name, value in query.items() if value is not None}
        asked = urlencode(given, encoding="utf-8", errors=_AS_BYTES)
        # What was escaped already stays; a name as it was typed may hold anything.
        place = quote(f"{self._prefix}{path}", safe="/%", errors=_AS_BYTES)
        return f"{place}?{asked}" if asked else place

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        return http.client.HTTPSConnection(
            self._host, self._port, timeout=_TIMEOUT_S, context=self._tls
        )

    def _sent(self, method: str, target: str, body: Any, accepted: str) -> tuple[int, bytes]:
        headers, data = _headers(accepted), None
        if body is not None:
            data, headers["content-type"] = json.dumps(body).encode(), "application/json"
        with closing(self._connection()) as connection:
            connection.request(method, target, data, headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def _refusal(self, status: int, told: Any) -> HeadraceError:
        from headrace.observe.status import restore_error

        error = told.get("error") if isinstance(told, dict) else None
        if not isinstance(error, dict):
            return self._foreign(status)
        described = {
            "name": str(error.get("type", "")),
            "message": str(error.get("message", "")),
            "next_step": str(error.get("next_step", "")),
        }
        return restore_error(described)

    def _foreign(self, status: int) -> ControlUnavailable:
        return ControlUnavailable(
            f"What answers at {self._url} is no control plane (status {status}).",
            next_step="name the address that headrace serve printed: --server, or HEADRACE_SERVER.",
        )

    def _unavailable(self, error: Exception) -> ControlUnavailable:
        reason = type(error).__name__
        if isinstance(error, ssl.SSLCertVerificationError):
            reason = f"its certificate is not believed: {error.verify_message}"
        elif isinstance(error, socket.gaierror | OSError):
            reason = error.strerror or reason
        return ControlUnavailable(
            f"The control plane at {self._url} gives no answer ({reason}).",
            next_step="start it with headrace serve, or name another one: --server URL, or HEADRACE_SERVER.",
        )


def _headers(accepted: str) -> dict[str, str]:
    headers = {"accept": accepted}
    if token := os.environ.get(TOKEN):
        if not (token.isascii() and token.isprintable()):
            raise ConfigError(
                f"{TOKEN} holds a character that no token has, such as the end of a line.",
                next_step="set it to the token alone.",
            )
        headers["authorization"] = f"Bearer {token}"
    return headers


def replicator_named(given: str) -> str | None:
    """Return the name of a control plane's replicator, None where a file is meant."""
    return given if _NAME.fullmatch(given) else None


def file_of(given: str, server: Server) -> Path:
    """Return the configuration that a command works with, which stands beside the replicator's state.

    Args:
        given: a file, or the name of a replicator.
        server: where its control plane is.

    Raises:
        ConfigError: the replicator never ran, or another machine runs it.
    """
    name = replicator_named(given)
    if name is None:
        return Path(given)
    path = Path(server.replicator(name)["file"])
    if not path.exists():
        raise ConfigError(
            f"{name}: {path} is not on this machine.",
            next_step="call it on the machine of the control plane, and once the replicator has been started.",
        )
    return path


def printed(value: Any) -> None:
    """Print plain values as JSON."""
    typer.echo(json.dumps(value, indent=2))

"""A control plane that listens, and somebody who asks it over HTTP."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headrace.replicator.api.app import application
from headrace.replicator.api.people import Known, Person, Role, Token
from headrace.replicator.api.rates import RateLimits
from headrace.replicator.api.serve import Listening, listen, serve
from headrace.replicator.control.plane import ControlPlane
from tests.control.planes import environment, settings_of
from tests.waiting import until

VIEWER = Token(Person("vera", Role.VIEWER), "swordfish-of-viewers")
OPERATOR = Token(Person("otto", Role.OPERATOR), "swordfish-of-operators")
ADMIN = Token(Person("ada", Role.ADMIN), "swordfish-of-admins")
TOKENS = (VIEWER, OPERATOR, ADMIN)


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def json(self) -> Any:
        return json.loads(self.text)

    @property
    def error(self) -> dict[str, str]:
        found: dict[str, str] = self.json["error"]
        return found


class Asking:
    """Somebody with a token."""

    def __init__(self, url: str, token: str = "") -> None:
        self.url = url
        self.token = token

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        raw: bytes | None = None,
    ) -> Answer:
        parts = urlsplit(self.url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=60)
        sent = {"authorization": f"Bearer {self.token}"} if self.token else {}
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["content-type"] = "application/json"
        try:
            connection.request(method, path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            found = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, found, answer.read().decode())
        finally:
            connection.close()

    def one(self, path: str) -> Any:
        """Return what a page shows."""
        answer = self("GET", path)
        assert answer.status == 200, answer.text
        return answer.json

    def does(self, method: str, path: str, body: Any = None, status: int = 202) -> Any:
        """Ask for something that is done."""
        answer = self(method, path, body)
        assert answer.status == status, answer.text
        return answer.json if answer.text else None

    def reaches(
        self, state: str, name: str = "shop", namespace: str = "default", timeout_s: float = 60
    ) -> Any:
        """Wait until a replicator is in a state, and return its detail."""

        def look() -> Any:
            found = self.one(f"/v1/contexts/{namespace}/replicators/{name}")
            return found if found["state"] == state else None

        return until(look, f"{name} {state}", timeout_s)

    def gone(self, name: str = "shop") -> None:
        """Wait until a replicator is gone."""
        path = f"/v1/contexts/default/replicators/{name}"
        until(lambda: self("GET", path).status == 404, f"the end of {name}")


@contextmanager
def listening(
    plane: ControlPlane, tokens: tuple[Token, ...] = (), limits: RateLimits | None = None
) -> Iterator[str]:
    """Serve a control plane from a thread, and give its URL."""
    where = Listening(port=0)
    socket = listen(where)
    stop, started = threading.Event(), threading.Event()
    app = application(plane, Known(tokens), stop.is_set, limits)
    thread = threading.Thread(target=serve, args=(app, where, socket, stop, started.set))
    url = f"http://127.0.0.1:{socket.getsockname()[1]}"
    thread.start()
    try:
        assert started.wait(30)
        yield url
    finally:
        stop.set()
        thread.join(30)
        assert not thread.is_alive()


@contextmanager
def served(
    folder: Path, url: str | None = None, tokens: tuple[Token, ...] = (), **also: Any
) -> Iterator[tuple[ControlPlane, str]]:
    """Run a control plane over simulated replicators, and serve it."""
    with (
        ControlPlane(settings_of(folder, url, **also), environment()) as plane,
        listening(plane, tokens) as address,
    ):
        yield plane, address

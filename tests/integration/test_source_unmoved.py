"""However many consumers there are, and whatever becomes of them, the source hears of the capture alone."""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from headrace.client import Subscription
from headrace.sources.postgres import PostgresSource
from tests.client.conftest import QUICK, running
from tests.client.recording import Recorder
from tests.integration.lives import Server as Postgres
from tests.integration.relayed import Copy, relayed
from tests.requirements import req
from tests.waiting import until

pytestmark = [pytest.mark.postgres, pytest.mark.timeout(300)]

LOOK, LOOKS = "SELECT oid, nspname FROM pg_namespace", 20
"""Part of each look at the catalog, and during how many of them statements are counted: how many there are in some
seconds says how busy the machine is."""

HEARTBEAT = "SELECT pg_logical_emit_message(false, $?, $?::text)"
"""What the capture says by itself every so often: one stretch of time may hold one and another none."""


class Server:
    """A server that writes down every statement, by the process that carries it out."""

    def __init__(self, postgres: Postgres, url: str) -> None:
        self._log, self.url = postgres.log, url

    def sessions(self) -> set[int]:
        """Return the processes that serve somebody who is no test."""
        query = (
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND application_name <> 'a test'"
        )
        with self.asked() as connection:
            return {pid for (pid,) in connection.execute(query)}

    @contextmanager
    def asked(self) -> Iterator[psycopg.Connection]:
        with psycopg.connect(self.url, autocommit=True, application_name="a test") as connection:
            yield connection

    def statements(self, of: set[int]) -> list[str]:
        """Return what sessions have sent so far, literals left out."""
        found = re.findall(
            r"\[(\d+)\] LOG:  (?:statement|execute [^:]*): (.*)", self._log.read_text()
        )
        return [re.sub(r"'[^']*'|\d+", "?", text) for pid, text in found if int(pid) in of]

    def heard(self) -> tuple[set[int], set[str], int]:
        """Return sessions, statements and how many there were in some looks at the catalog."""
        before = self.sessions()
        seen = len(self.statements(before))
        until(lambda: self.statements(before)[seen:].count(LOOK) >= LOOKS, "looks", pause_s=0.1)
        sent = self.statements(before)[seen:]
        assert self.sessions() == before
        return before, set(sent), len(sent)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    settings = {"log_statement": "all", "log_line_prefix": "[%p] "}
    with Postgres(tmp_path / "server", settings=settings) as postgres:
        yield Server(postgres, postgres.create_database("shop"))


@contextmanager
def dead(url: str) -> Iterator[None]:
    """A consumer that asked and takes nothing, and does not go away either."""
    parts = urlsplit(url)
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        taken.connect((parts.hostname, parts.port))
        taken.sendall(b"GET /stream?source=shop&after=oldest HTTP/1.1\r\nhost: x\r\n\r\n")
        yield


@req("D12", "D13", "D19", "D80", "F9")
def test_the_source_hears_the_same_with_one_consumer_and_with_two_hundred(
    server: Server, tmp_path: Path
) -> None:
    with server.asked() as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        connection.execute("INSERT INTO t SELECT n, 'x' FROM generate_series(1, 20) n")
    source = PostgresSource(server.url, name="shop")
    with relayed(source, tmp_path / "state") as (_, url), ExitStack() as stack:
        first = Copy()
        stack.enter_context(running(Subscription(url, "shop", first, settings=QUICK)))
        for number in range(200):
            write(server, 100 + number)
        until(lambda: len(first.content("public.t")) == 220, "everything at the first consumer")
        alone = server.heard()
        assert alone[2] > 0, "the capture itself asks now and then"

        gate, slow = threading.Event(), Gated()
        slow.gate = gate
        stack.callback(gate.set)
        stack.enter_context(running(Subscription(url, "shop", slow, settings=QUICK)))
        stack.enter_context(dead(url))
        # All the others catch up with everything that there ever was.
        many = [Copy() for _ in range(197)]
        for copy in many:
            stack.enter_context(running(Subscription(url, "shop", copy, settings=QUICK)))
        until(lambda: all(len(copy.windows) >= len(first.windows) for copy in many), "caught up")
        assert all(copy.rows == first.rows for copy in many)
        crowded = server.heard()
        assert crowded[0] == alone[0], "the same sessions"
        assert crowded[1] <= alone[1] | {HEARTBEAT}, "the same statements"
        assert crowded[2] <= alone[2] * 1.5 + 5, "no more of them"

        # Who reads on is served as before, whatever the slow and the dead one do.
        waits = []
        for number in range(20):
            write(server, 1_000 + number)
            began = time.monotonic()
            until(lambda n=number: (1_000 + n,) in first.rows["public.t"], "it")  # type: ignore[misc]
            waits.append(time.monotonic() - began)
        assert sorted(waits)[10] < 2.0
        assert slow.windows == []
        gate.set()
        until(lambda: slow.windows[-1:] == first.windows[-1:], "the slow one too")
        assert server.sessions() == alone[0]


class Gated(Recorder):
    """Takes nothing until it may."""

    gate: threading.Event

    def on_start_window(self, window):
        # As long as it takes: the test opens it, however it ends.
        self.gate.wait()
        return super().on_start_window(window)


def write(server: Server, number: int) -> None:
    with server.asked() as connection:
        connection.execute("INSERT INTO t VALUES (%s, 'y')", (number,))

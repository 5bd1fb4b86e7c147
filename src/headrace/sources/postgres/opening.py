"""What a log reader begins with: two connections, and what the server was asked over one of them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from headrace.sources.base import SchemaStore
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.side import SideSession
from headrace.sources.postgres.stream import PostgresLogReader

__all__ = ["Connections", "PostgresOpening"]


@dataclass(frozen=True, slots=True)
class Connections:
    """Nothing is streamed yet.

    Attributes:
        session: a replication connection.
        side: for the catalog.
        xmax: some recent 64-bit transaction id.
        feedback_s: longest silence towards the server.
        binary: whether the binary form of every captured column is known.
    """

    session: Session
    side: SideSession
    xmax: int
    feedback_s: float
    binary: bool

    @property
    def ended(self) -> bool:
        """Whether the server has ended one of them, which were idle for as long as a look took."""
        return self.session.ended or self.side.get().ended

    def close(self) -> None:
        """Release both."""
        self.session.close()
        self.side.close()


class PostgresOpening:
    """Makes the connections on a thread, beside what has to be known before the log may come.

    Args:
        connected: makes them.
        reading: begins to stream over them.
    """

    def __init__(
        self,
        connected: Callable[[], Connections],
        reading: Callable[[Connections, SchemaStore], PostgresLogReader],
    ) -> None:
        self._connected = connected
        self._reading = reading
        beside = ThreadPoolExecutor(1, "headrace-opening")
        self._connections = beside.submit(connected)
        # Its thread ends with that.
        beside.shutdown(wait=False)

    def open(self, schemas: SchemaStore) -> PostgresLogReader:
        """Start reading the log; once only. See `headrace.sources.base.Source.open`."""
        made = self._connections.result()
        if made.ended:
            made.close()
            made = self._connected()
        return self._reading(made, schemas)

    def close(self) -> None:
        """Release the connections where the log is not opened."""
        with contextlib.suppress(Exception):
            self._connections.result().close()

"""Table versions by schema id: asked for once in a process, and kept, because an id never changes its meaning.

An id is made from what the version says (`headrace.model.schema`), so consumers of one process may share what one of
them was told, whoever told it. Those that begin together would else all ask at their first event, and stand still
until forty were answered.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headrace.client.relays import Relays
from headrace.errors import HeadraceError, NotServed, Retry
from headrace.model.schema import TableSchema

__all__ = ["Schemas"]

_SOON_S = 2.0
"""How long whoever needs a version waits for another one that has asked for it, before asking too."""

_known: dict[int, TableSchema] = {}
_asking: defaultdict[int, threading.Lock] = defaultdict(threading.Lock)


class Schemas:
    """The versions of one source's tables.

    Args:
        relays: any of them can tell.
        source: whose tables.
        wait: called with the number of a round in which no relay could tell; returns False to give up.
    """

    def __init__(self, relays: Relays, source: str, wait: Callable[[int], bool]) -> None:
        self._relays = relays
        self._source = source
        self._wait = wait

    def get(self, schema_id: int) -> TableSchema:
        """Return a version.

        Raises:
            NotServed: no relay knows it.
            HeadraceError: why none could be asked.
        """
        if (known := _known.get(schema_id)) is not None:
            return known
        rounds = 0
        while True:
            try:
                with _turn(schema_id):
                    return _known.get(schema_id) or self._ask(schema_id)
            except HeadraceError as error:
                rounds += 1
                if error.retry is not Retry.TIMED or not self._wait(rounds):
                    raise

    def _ask(self, schema_id: int) -> TableSchema:
        refusal: HeadraceError | None = None
        for url in self._relays.urls:
            relay = self._relays.open(url)
            try:
                for schema in relay.schemas(self._source, [schema_id]):
                    _known[schema_id] = schema
            except HeadraceError as error:
                # One that may pass is worth another try, whatever the others say.
                if refusal is None or error.retry is Retry.TIMED:
                    refusal = error
                continue
            finally:
                relay.close()
            if schema_id in _known:
                return _known[schema_id]
        raise refusal or NotServed(
            f"No relay knows table version {schema_id:016x}.",
            next_step="restore the registry folder beside the relay's change log.",
        )


@contextmanager
def _turn(schema_id: int) -> Iterator[None]:
    """Let one ask for a version while others wait, and nobody for long: a relay may hang."""
    lock = _asking[schema_id]
    has_turn = lock.acquire(timeout=_SOON_S)
    try:
        yield
    finally:
        if has_turn:
            lock.release()

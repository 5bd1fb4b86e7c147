"""Table versions by schema id: asked for once, kept for ever, because an id never changes its meaning."""

from __future__ import annotations

from collections.abc import Callable

from headrace.client.relays import Relays
from headrace.errors import HeadraceError, NotServed, Retry
from headrace.model.schema import TableSchema

__all__ = ["Schemas"]


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
        self._known: dict[int, TableSchema] = {}

    def get(self, schema_id: int) -> TableSchema:
        """Return a version.

        Raises:
            NotServed: no relay knows it.
            HeadraceError: why none could be asked.
        """
        if (known := self._known.get(schema_id)) is not None:
            return known
        rounds = 0
        while True:
            try:
                return self._ask(schema_id)
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
                    self._known[schema_id] = schema
            except HeadraceError as error:
                # One that may pass is worth another try, whatever the others say.
                if refusal is None or error.retry is Retry.TIMED:
                    refusal = error
                continue
            finally:
                relay.close()
            if schema_id in self._known:
                return self._known[schema_id]
        raise refusal or NotServed(
            f"No relay knows table version {schema_id:016x}.",
            next_step="restore the registry folder beside the relay's change log.",
        )

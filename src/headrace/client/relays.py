"""The relays of one source: which one is asked, which one next, and how long to wait between.

Any relay of a source can answer the next request, so after a failure the next of the list is asked at once; only
when all of them failed there is a pause, longer each time, with jitter so that many clients do not come back
together. A relay names its routing document's version with each stream; a newer document replaces the list while it
is in use.
"""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from headrace.client.http import HttpSettings
from headrace.client.transport import AnyRelay, Relay
from headrace.errors import ConfigError, HeadraceError

__all__ = ["Backoff", "Relays"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """Pauses between tries, in seconds: from ``first_s``, times ``factor`` each, to ``most_s`` at most."""

    first_s: float = 0.1
    factor: float = 1.6
    most_s: float = 10.0

    def pause_s(self, tries: int, rng: random.Random) -> float:
        """Return the pause behind the given number of tries; between half of the full length and all of it."""
        # Beyond some tens of tries the power only overflows.
        full = min(self.most_s, self.first_s * self.factor ** min(tries, 60))
        return full * rng.uniform(0.5, 1.0)


class Relays:
    """A list of relays and a place in it. Asked from the thread that receives; `urls` and `interrupt` from any.

    Args:
        urls: addresses, the preferred one first; ``file:///FOLDER`` for the folder of a change log on this machine.
        source: whose relays they are.
        settings: how they are reached.
        max_block_bytes: a larger block is refused.
        backoff: pauses when none answers.
        rng: decides the jitter.

    Attributes:
        max_block_bytes: a larger block is refused.

    Raises:
        ConfigError: there is none, or an address does not read.
    """

    def __init__(
        self,
        urls: Sequence[str],
        source: str,
        settings: HttpSettings,
        *,
        max_block_bytes: int,
        backoff: Backoff,
        rng: random.Random,
    ) -> None:
        if not urls:
            raise ConfigError("No relay was named.", next_step="name at least one address.")
        self._source = source
        self._settings = settings
        self.max_block_bytes = max_block_bytes
        self._backoff = backoff
        self._rng = rng
        self._lock = threading.Lock()
        self._urls = list(dict.fromkeys(urls))
        for url in self._urls:
            self.open(url)
        self._at = 0
        self._failures = 0
        self._routes: dict[str, int] = {}
        self._relay: AnyRelay | None = None

    @property
    def urls(self) -> list[str]:
        """Addresses in the order in which they are asked now."""
        with self._lock:
            return [*self._urls[self._at :], *self._urls[: self._at]]

    def open(self, url: str) -> AnyRelay:
        """Return a relay of the list over a connection of its own; the caller closes it."""
        if url.startswith("file:"):
            # What reads a log is not loaded by those who do not.
            from headrace.client.folder import FolderRelay

            return FolderRelay(url, self.max_block_bytes)
        return Relay(url, self._settings, self.max_block_bytes)

    def current(self) -> AnyRelay:
        """Return the relay to ask now; its connection is kept between calls."""
        with self._lock:
            if self._relay is None:
                self._relay = self.open(self._urls[self._at])
            return self._relay

    def answered(self) -> None:
        """Take note that the current relay gives what was asked for."""
        self._failures = 0

    def failed(self) -> float:
        """Go on to the next relay, and return how long to wait before it is asked: 0 until all of them failed."""
        with self._lock:
            self._drop()
            self._at = (self._at + 1) % len(self._urls)
            self._failures += 1
            rounds, rest = divmod(self._failures, len(self._urls))
            return 0.0 if rest else self._backoff.pause_s(rounds - 1, self._rng)

    def follow(self, version: int) -> None:
        """Ask the current relay for its routing document when it names a version that is not known from it.

        A document that does not come or read leaves the list as it is: the relay that serves matters more. Of one that
        comes only what a relay may name is taken.
        """
        relay = self.current()
        if not version or self._routes.get(relay.url) == version:
            return
        asked = self.open(relay.url)
        try:
            said = asked.routes()
            named = [str(url) for url in said["sources"][self._source]["relays"]]
            urls = [url for url in named if _may_name(relay.url, url)]
            for url in urls:
                self.open(url)
        except (HeadraceError, KeyError, TypeError):
            return
        finally:
            asked.close()
        self._routes[relay.url] = version
        if urls:
            self._replace(list(dict.fromkeys(urls)), relay.url)

    def interrupt(self) -> None:
        """Make whatever waits for the current relay fail at once; from any thread."""
        with self._lock:
            held = self._relay
        if held is not None:
            held.interrupt()

    def close(self) -> None:
        """Close the connection."""
        with self._lock:
            self._drop()

    def _replace(self, urls: list[str], current: str) -> None:
        with self._lock:
            # Whoever serves now goes on with it; where the document leaves it out, the next failure leads away.
            self._at = urls.index(current) if current in urls else len(urls) - 1
            self._urls = urls

    def _drop(self) -> None:
        if self._relay is not None:
            with contextlib.suppress(OSError):
                self._relay.close()
        self._relay = None


def _may_name(url: str, other: str) -> bool:
    """Whether a relay may lead to another one.

    A folder is this machine's own affair, and a token that goes over TLS must not be asked for in the clear.
    """
    return other.startswith("https:") or (
        other.startswith("http:") and not url.startswith("https:")
    )

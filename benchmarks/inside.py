"""Latency inside the capture's process: from the read that brought a commit to its block being durable and readable.

`Arrivals.watching` puts itself between the stream and its socket, for a process that only measures.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from headrace.sources.postgres import stream
from headrace.sources.postgres.decoder import make_decoder
from headrace.sources.postgres.transport import transport

__all__ = ["Arrivals"]

_WARM = 0.2
"""Share of a run's transactions that is left out, at its beginning."""


class Arrivals:
    """Notes when what the decoder has seen came in.

    Attributes:
        noted: SCN up to which everything was seen, and when the first bytes of its last stretch were read.
    """

    def __init__(self) -> None:
        self.noted: list[tuple[int, float]] = []
        self._read_at: float | None = None
        self._decoder: Any = None

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Watch every stream that is opened meanwhile."""

        def watched(*given: Any) -> Any:
            return _Watched(transport(*given), self)

        def decoder(*given: Any) -> Any:
            self._decoder = make_decoder(*given)
            return self._decoder

        places = {"transport": watched, "make_decoder": decoder}
        before = {name: getattr(stream, name) for name in places}
        try:
            for name, watcher in places.items():
                setattr(stream, name, watcher)
            yield
        finally:
            for name, own in before.items():
                setattr(stream, name, own)

    def looked(self) -> None:
        """Take note of how far the decoder has come, before more is read."""
        if self._read_at is not None and self._decoder is not None:
            self.noted.append((self._decoder.covered, self._read_at))
            self._read_at = None

    def came(self) -> None:
        """Take note that bytes were read just now."""
        if self._read_at is None:
            self._read_at = time.perf_counter()

    def percentiles(
        self, scns: npt.NDArray[np.int64], durable: Sequence[tuple[int, float]]
    ) -> dict[str, float]:
        """Return the 50th and 99th percentile, milliseconds.

        Args:
            scns: of the transactions, rising.
            durable: SCNs up to which the log was durable, and when that was noticed, rising.
        """
        came, at = _after(self.noted, scns)
        left, done = _after(durable, scns)
        both = came & left
        taken = (done - at)[both][int(both.sum() * _WARM) :]
        if not len(taken):
            return {}
        middle, high = np.percentile(taken, (50, 99)) * 1000
        return {"inside_p50_ms": round(float(middle), 3), "inside_p99_ms": round(float(high), 3)}


def _after(
    noted: Sequence[tuple[int, float]], scns: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.float64]]:
    """Return for each SCN whether it was passed, and when first."""
    upto = np.maximum.accumulate(np.array([scn for scn, _ in noted] or [0], np.int64))
    times = np.array([at for _, at in noted] or [0.0])
    place = np.searchsorted(upto, scns)
    return place < len(upto), times[np.minimum(place, len(upto) - 1)]


class _Watched:
    """A transport that tells when bytes came."""

    def __init__(self, inner: Any, arrivals: Arrivals) -> None:
        self._inner = inner
        self._arrivals = arrivals

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def read(self, *, busy: bool = False) -> int:
        self._arrivals.looked()
        found: int = self._inner.read(busy=busy)
        if found:
            self._arrivals.came()
        return found

"""The clock of the apply job where Spark cannot call us: a server of Spark Connect runs a stream's functions itself.

The same reader that tells a streaming query where batches end is asked here, by a thread of this process, as often as
a query asks it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping

from pyspark.sql.types import StructType

from headrace.spark.source import HeadraceSource

__all__ = ["PolledQuery"]

_PAUSE_S = 0.05


class PolledQuery:
    """Calls a function with the end of each batch, one after the other.

    Args:
        options: of ``format("headrace")``.
        batch: carries out what lies up to an SCN; an error that it raises ends the clock.
    """

    def __init__(self, options: Mapping[str, str], batch: Callable[[int], None]) -> None:
        self._reader = HeadraceSource(dict(options)).streamReader(StructType())
        self._batch = batch
        self._stopped = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-clock", daemon=True)
        self._thread.start()

    @property
    def isActive(self) -> bool:
        """Whether batches may still come."""
        return self._thread.is_alive()

    def exception(self) -> Exception | None:
        """Return what ended it, None when it was stopped."""
        return self._error

    def stop(self) -> None:
        """Begin no further batch, and return when the one at work is finished."""
        self._stopped.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            at = self._reader.initialOffset()
            while not self._stopped.wait(_PAUSE_S):
                end = self._reader.latestOffset(at, self._reader.getDefaultReadLimit())
                if end != at:
                    self._batch(end["scn"])
                    at = end
        except Exception as error:  # noqa: BLE001 - the watching thread's
            self._error = error
        finally:
            self._reader.stop()

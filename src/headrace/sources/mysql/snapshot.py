"""One consistent snapshot of MariaDB, and the place of the log at which it stands."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.errors import SourceError
from headrace.sources.mysql.connection import Session
from headrace.sources.mysql.position import Place

__all__ = ["PlaceSnapshot", "consistent_snapshot"]


@dataclass(frozen=True, slots=True)
class PlaceSnapshot:
    """A snapshot that has seen every transaction up to a place of the log and none behind it.

    Attributes:
        place: where it stands; between two transactions.

    The log may have been read beyond it: a commit is in the log before it is visible.
    """

    place: Place

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Return `YES` where a transaction began before the place, else `NO`; never `UNKNOWN`.

        A transaction's ``xid`` is the number of its place, as the source has it.
        """
        del scn  # Others may have moved it; the id is the source's own.
        return (xid <= self.place.scn).astype(np.int8)

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.position}"

    @classmethod
    def parse(cls, text: str) -> PlaceSnapshot:
        """Read ``file:position``."""
        file, _, position = text.rpartition(":")
        return cls(Place.of(file, int(position)))


@contextlib.contextmanager
def consistent_snapshot(session: Session) -> Iterator[PlaceSnapshot]:
    """Open a snapshot in a read-only transaction of its own and say where it stands.

    Raises:
        SourceError: the server has no binary log.
    """
    session.run("START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    try:
        # These two are of this very snapshot, whatever is committed meanwhile.
        rows = session.texts("SHOW STATUS LIKE 'binlog_snapshot_%'")
        found = {(name or "").lower(): value for name, value in rows}
        file, position = found.get("binlog_snapshot_file"), found.get("binlog_snapshot_position")
        if not file or not position:
            raise SourceError(
                "The server has no binary log, so a snapshot has no place in it.",
                next_step="start the server with log_bin.",
            )
        yield PlaceSnapshot(Place.of(file, int(position)))
    finally:
        with contextlib.suppress(Exception):
            session.run("ROLLBACK")

"""Snapshots: what one has seen, as a place of the log or as a set of ids."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.errors import SourceError
from headrace.model.snapshot import NO, UNKNOWN, YES
from headrace.sources.mysql.connection import Session
from headrace.sources.mysql.gtids import GtidSet
from headrace.sources.mysql.numbers import GtidNumbers
from headrace.sources.mysql.position import Place

__all__ = ["GtidSnapshot", "PlaceSnapshot", "PlacedGtidSnapshot", "consistent_snapshot"]


@dataclass(frozen=True, slots=True)
class PlaceSnapshot:
    """A snapshot that has seen every transaction up to a place of the log and none behind it.

    Attributes:
        place: where it stands; between two transactions.
        surely: SCN up to which distributed transactions were seen for sure, for they become visible in an order of
            their own; None where they were seen up to the place, too.

    The log may have been read beyond it: a commit is in the log before it is visible.
    """

    place: Place
    surely: int | None = None

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Return `YES` where a transaction began before the place, else `NO`; `UNKNOWN` only of distributed ones.

        A transaction's ``xid`` is the number of its place, as the source has it; below zero, of a distributed one.
        """
        del scn  # Others may have moved it; the id is the source's own.
        seen = np.where(np.abs(xid) <= self.place.scn, YES, NO)
        if self.surely is not None:
            seen[(xid < 0) & (-xid > self.surely)] = UNKNOWN
        return seen.astype(np.int8)

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.position}"

    @classmethod
    def parse(cls, text: str) -> PlaceSnapshot:
        """Read ``file:position``."""
        file, _, position = text.rpartition(":")
        return cls(Place.of(file, int(position)))


@dataclass(frozen=True, slots=True)
class GtidSnapshot:
    """A snapshot that has surely seen the transactions of a set; of others nobody can say whether it has.

    Attributes:
        gtids: executed before the snapshot was taken.
        numbers: of ids; None where nobody asks about the log.
    """

    gtids: GtidSet
    numbers: GtidNumbers | None = None

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Return `YES` where a transaction is in the set, else `UNKNOWN`; never `NO`."""
        del scn
        if self.numbers is None:
            return np.full(len(xid), UNKNOWN, np.int8)
        return np.where(self.numbers.among(xid, self.gtids), YES, UNKNOWN).astype(np.int8)

    def __str__(self) -> str:
        return self.gtids.text


@dataclass(frozen=True, slots=True)
class PlacedGtidSnapshot:
    """A snapshot that has seen the transactions of a set and no others, which are those up to a place of the log.

    Attributes:
        seen: the set.
        place: where it stands.
    """

    seen: GtidSnapshot
    place: Place

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        """Return `YES` where a transaction is in the set, else `NO`."""
        if self.seen.numbers is not None:
            # Whoever reads the log may have named more since.
            self.seen.numbers.reload()
        return np.where(self.seen.sees(xid, scn) == YES, YES, NO).astype(np.int8)

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.position}"


@contextlib.contextmanager
def consistent_snapshot(session: Session, surely: int | None = None) -> Iterator[PlaceSnapshot]:
    """Open a snapshot of MariaDB in a read-only transaction of its own and say where it stands.

    Args:
        session: logged in.
        surely: up to where it will have seen distributed transactions for sure.

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
        yield PlaceSnapshot(Place.of(file, int(position)), surely)
    finally:
        with contextlib.suppress(Exception):
            session.run("ROLLBACK")

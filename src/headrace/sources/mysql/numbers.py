"""Numbers for MySQL's transaction ids: a change log has 64 bits for one, and an id is a name and a number.

The names, which are servers that committed first and their tags, are kept in a list of ours in the order in which the
log brought them. A transaction's number is the place of its name in the list and its own number. So a snapshot, which
says what it has seen as a set of ids, can be asked about any transaction of the change log, also after a restart.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headrace.durable import replace_file
from headrace.errors import ConfigError, ProtocolError
from headrace.sources.mysql.gtids import Gtid, GtidSet, SourceGtid

__all__ = ["GtidNumbers"]

_BITS = 48
_MOST_SOURCES = 1 << 63 - _BITS


class GtidNumbers:
    """The list of names.

    Args:
        path: of the file that keeps it; its folder must exist once a name is added.

    Used by the thread that reads the log, which adds, and by those that read tables, which only look.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._places: dict[str, int] = {}

    def begin(self) -> None:
        """Make the file where there is none; names that are there stay, because nothing is ever renumbered."""
        if not self._path.exists():
            replace_file(self._path, json.dumps({"sources": []}).encode())

    def check(self) -> None:
        """Read the file, which must be there: without it numbers that were given out would be given to others.

        Raises:
            ConfigError: it is not there, or does not read.
        """
        if not self._path.exists():
            raise self._unreadable()
        self.reload()

    def number(self, gtid: Gtid) -> int:
        """Return the number of an id; a name that is new is durable when it returns.

        Raises:
            ProtocolError: there are more names, or a larger number, than 64 bits hold.
        """
        place = self._places.get(gtid.source)
        if place is None:
            self.reload()
            place = self._places.get(gtid.source)
        if place is None:
            place = len(self._places)
            names = [*self._places, gtid.source]
            replace_file(self._path, json.dumps({"sources": names}).encode())
            self._places = {**self._places, gtid.source: place}
        if place >= _MOST_SOURCES or not 0 < gtid.number < 1 << _BITS:
            raise ProtocolError(
                f"binary log: the id {gtid} is beyond what is counted.",
                next_step="dump every table again from a server whose ids begin anew.",
            )
        return place << _BITS | gtid.number

    def ids(self, numbers: npt.NDArray[np.int64]) -> list[SourceGtid]:
        """Return the ids that numbers stand for; of a name that is not in the list there was never a number."""
        self.reload()
        names = list(self._places)
        low = (1 << _BITS) - 1
        return [SourceGtid(names[int(number) >> _BITS], int(number) & low) for number in numbers]

    def reload(self) -> None:
        """Read the file again: another process may have added names.

        Raises:
            ConfigError: it does not read.
        """
        try:
            names = json.loads(self._path.read_text())["sources"]
            self._places = {str(name): place for place, name in enumerate(names)}
        except FileNotFoundError:
            self._places = {}
        except (ValueError, KeyError, TypeError) as error:
            raise self._unreadable() from error

    def _unreadable(self) -> ConfigError:
        return ConfigError(
            f"{self._path.name}, the names in MySQL's ids, is not in the state folder, or does not read.",
            next_step="restore the state folder from a backup; else dump every table again: headrace resync FILE.",
        )

    def among(self, numbers: npt.NDArray[np.int64], gtids: GtidSet) -> npt.NDArray[np.bool_]:
        """Return which numbers stand for ids of a set."""
        found = np.zeros(len(numbers), np.bool_)
        places = self._places
        for source, ranges in gtids.ranges.items():
            if source not in places:
                continue
            bounds = np.array(ranges, np.int64) + (places[source] << _BITS)
            at = np.searchsorted(bounds[:, 0], numbers, side="right") - 1
            found |= (at >= 0) & (numbers <= bounds[np.maximum(at, 0), 1])
        return found

    def forget(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self._places = {}

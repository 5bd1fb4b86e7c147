"""Places in the binary log, and the numbers that are made of them.

A file is called ``name.000123``; its number rises with each file. A transaction's SCN is the number of its file and the
place behind its first event, its id, in that file: ``file << 36 | place``. That is known when the transaction begins,
rises over files and restarts, and a snapshot that stands at a place has seen exactly the transactions whose SCN is not
above that place's, because a transaction lies in one piece.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

from headrace.errors import ConfigError, ProtocolError
from headrace.sources.mysql.events import Gtid

__all__ = ["GONE", "Place", "Resume", "gtid_state"]

GONE = 0
"""In the place of a table's version: it was dropped."""

_SHIFT = 36
_FILE = re.compile(r".+\.(\d+)")


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place between two events; places compare by file, then by position.

    Attributes:
        number: of the file.
        position: in the file.
        file: its name.
    """

    number: int
    position: int
    file: str

    @classmethod
    def of(cls, file: str, position: int) -> Place:
        """Return a place in a file.

        Raises:
            ProtocolError: the name ends with no number, or position or number is out of bounds.
        """
        match = _FILE.fullmatch(file)
        number = int(match[1]) if match else -1
        if not 0 <= number < 1 << 63 - _SHIFT or not 0 <= position < 1 << _SHIFT:
            raise ProtocolError(
                f"binary log: {file}:{position} is no place that a number can be made of.",
                next_step="RESET MASTER and dump every table again; log files are counted up to 134,217,727.",
            )
        return cls(number, position, file)

    @property
    def scn(self) -> int:
        """The place as a number that rises."""
        return self.number << _SHIFT | self.position


def gtid_state(text: str) -> dict[int, str]:
    """Return the last id of each domain from ``0-1-17,2-1-4``.

    Raises:
        ConfigError: it is no such list.
    """
    found = {}
    for part in filter(None, text.split(",")):
        if not re.fullmatch(r"\d+-\d+-\d+", part):
            raise ConfigError(
                "A list of global transaction ids does not read.",
                next_step="restore the state folder from a backup, or dump every table again.",
            )
        found[int(part.partition("-")[0])] = part
    return found


@dataclass(frozen=True, slots=True)
class Resume:
    """Where reading goes on: behind a whole transaction.

    Attributes:
        place: behind it.
        scn: its own.
        gtids: the last id of each domain up to there.
        tables: the version of each table that was seen up to there, `GONE` of one that was dropped.
        prepared: distributed transactions that are prepared and not ended; none of them changed a captured table.
    """

    place: Place
    scn: int
    gtids: Mapping[int, str]
    tables: Mapping[str, int]
    prepared: frozenset[str] = frozenset()

    def render(self) -> str:
        """Return the text form; `parse` reads it back."""
        return json.dumps(
            {
                "file": self.place.file,
                "position": self.place.position,
                "scn": self.scn,
                "gtids": self.start,
                "tables": dict(self.tables),
                "prepared": sorted(self.prepared),
            },
            sort_keys=True,
        )

    @classmethod
    def parse(cls, text: str) -> Resume:
        """Read what `render` gave.

        Raises:
            ConfigError: it is nothing of the kind.
        """
        try:
            value = json.loads(text)
            place = Place.of(value["file"], value["position"])
            tables = {str(name): int(id_) for name, id_ in value["tables"].items()}
            prepared = frozenset(map(str, value.get("prepared", ())))
            return cls(place, int(value["scn"]), gtid_state(value["gtids"]), tables, prepared)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                "A stored position of the log does not read.",
                next_step="restore the state folder from a backup, or dump every table again.",
            ) from error

    @property
    def start(self) -> str:
        """The ids as the server takes them."""
        return ",".join(self.gtids[domain] for domain in sorted(self.gtids))

    def behind(self, place: Place, scn: int, gtid: Gtid, tables: Mapping[str, int]) -> Resume:
        """Return where reading goes on behind one more transaction."""
        prepared = self.prepared
        if gtid.xa:
            prepared = prepared | {gtid.xid} if gtid.xa == "prepare" else prepared - {gtid.xid}
        return Resume(place, scn, {**self.gtids, gtid.domain: str(gtid)}, tables, prepared)

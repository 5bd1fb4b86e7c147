"""Places in the binary log, and the numbers that are made of them.

A file is called ``name.000123``; its number rises with each file. A transaction's SCN is the number of its file and the
place behind its first event, its id, in that file: ``file << 36 | place``. That is known when the transaction begins,
rises over files and restarts, and a snapshot that stands at a place has seen exactly the transactions whose SCN is not
above that place's, because a transaction lies in one piece.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from headrace.errors import ConfigError, ProtocolError
from headrace.sources.mysql.gtids import Gtid, Gtids, gtids_of

__all__ = ["GONE", "NOTHING_HELD", "RESYNC", "UNREAD", "Place", "Resume"]

RESYNC = "dump every table again: headrace resync FILE"
"""What is left to do where a log does not go on behind our place."""

GONE = 0
"""In the place of a table's version: it was dropped."""

NOTHING_HELD, UNREAD = 0, -1
"""In the place of the number under which a distributed transaction is held: it changed no captured table, or what it
changed was not read."""

_SHIFT = 36
_FILE = re.compile(r".+\.(\d+)")


# Beyond what any shift makes a number of.
_NONE = -1 << 63


@functools.lru_cache(16)
def _number_of(file: str) -> int:
    match = _FILE.fullmatch(file)
    return int(match[1]) if match else _NONE


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A place between two events; places compare by file, then by position.

    Attributes:
        number: of the file, in the count that goes on over servers.
        position: in the file.
        file: its name.
    """

    number: int
    position: int
    file: str

    @classmethod
    def of(cls, file: str, position: int, shift: int = 0) -> Place:
        """Return a place in a file.

        Args:
            file: its name.
            position: in it.
            shift: what is added to the file's own number, because another server's files came before.

        Raises:
            ProtocolError: the name ends with no number, or position or number is out of bounds.
        """
        number = _number_of(file) + shift
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


@dataclass(frozen=True, slots=True)
class Resume:
    """Where reading goes on: behind a whole transaction.

    Attributes:
        place: behind it.
        scn: its own.
        gtids: of the transactions up to there.
        tables: the version of each table that was seen up to there, `GONE` of one that was dropped.
        server: whose log the place is in; empty where it was not noted.
        shift: what is added to the numbers of this server's files.
        prepared: distributed transactions that are prepared and not ended, each with the number under which its rows
            are held, `NOTHING_HELD`, or `UNREAD`.
        selection: of tables, under which they are held.
    """

    place: Place
    scn: int
    gtids: Gtids
    tables: Mapping[str, int]
    server: str = ""
    shift: int = 0
    prepared: Mapping[str, int] = field(default_factory=dict)
    selection: str = ""

    def render(self) -> str:
        """Return the text form; `parse` reads it back."""
        return json.dumps(
            {
                "file": self.place.file,
                "position": self.place.position,
                "scn": self.scn,
                "gtids": self.gtids.to_json(),
                "tables": dict(self.tables),
                "prepared": dict(self.prepared),
                "selection": self.selection,
                "server": self.server,
                "shift": self.shift,
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
            shift = int(value.get("shift", 0))
            place = Place.of(value["file"], value["position"], shift)
            tables = {str(name): int(id_) for name, id_ in value["tables"].items()}
            gtids, server = gtids_of(value["gtids"]), str(value.get("server", ""))
            prepared = {str(xid): int(held) for xid, held in value.get("prepared", {}).items()}
            selection = str(value.get("selection", ""))
            scn = int(value["scn"])
            return cls(place, scn, gtids, tables, server, shift, prepared, selection)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ConfigError(
                "A stored position of the log does not read.",
                next_step="restore the state folder from a backup, or dump every table again.",
            ) from error

    def behind(self, place: Place, scn: int, gtid: Gtid, tables: Mapping[str, int]) -> Resume:
        """Return where reading goes on behind one more transaction."""
        return replace(self, place=place, scn=scn, gtids=self.gtids.behind(gtid), tables=tables)

    def beyond(self, gtids: Iterable[Gtid], scn: int) -> Resume:
        """Return the same for one who holds more: these transactions, and all up to an SCN."""
        known: Gtids = self.gtids
        for gtid in gtids:
            known = known.behind(gtid)
        number, position = scn >> _SHIFT, scn & (1 << _SHIFT) - 1
        place = max(self.place, Place(number, position, self.place.file))
        return replace(self, place=place, scn=max(self.scn, scn), gtids=known)

    def prepares(self, xid: str, held: int) -> Resume:
        """Return it with one more distributed transaction that is prepared."""
        return replace(self, prepared={**self.prepared, xid: held})

    def ends(self, xid: str) -> Resume:
        """Return it without a distributed transaction that is committed or rolled back."""
        left = {other: held for other, held in self.prepared.items() if other != xid}
        return replace(self, prepared=left)

    def selecting(self, selection: str) -> Resume:
        """Return it for one who reads these tables: what others would have held was not read."""
        if selection == self.selection:
            return self
        return replace(self, prepared=dict.fromkeys(self.prepared, UNREAD), selection=selection)

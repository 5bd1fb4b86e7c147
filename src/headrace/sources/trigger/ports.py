"""What differs between the servers that have triggers, as ports; what reads and assembles is the same for all."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any, Protocol

from headrace.model.block import Body
from headrace.model.schema import TableId, TableSchema
from headrace.sources.database import Database
from headrace.sources.trigger.cost import Cost
from headrace.sources.trigger.events import Begin, ChangeRow, End

__all__ = ["Changes", "ImageRows", "TriggerDatabase", "Version", "Versions", "Walk"]


class ImageRows(Protocol):
    """Rows of one table version, in ``(scn, ord)`` order, from the images that triggers wrote."""

    @property
    def first(self) -> tuple[int, int]:
        """Place ``(scn, ord)`` of the first row."""
        ...

    def __len__(self) -> int: ...

    def add(self, scn: int, ord_: int, op: bytes, before: bytes | None, after: bytes | None) -> int:
        """Add the rows of one insert, update or delete; return how many they are.

        Raises:
            ProtocolError: an image is none of the table.
        """
        ...

    def body(self) -> Body:
        """Return everything added so far as one body and start anew.

        Raises:
            UndecodableValue: names table and column, never the value.
        """
        ...


class Version(Protocol):
    """What rows behind a layout are."""

    @property
    def table(self) -> TableId:
        """Its name."""
        ...

    @property
    def schema(self) -> TableSchema | None:
        """The table from here on; None when its rows are not ours to keep."""
        ...

    @property
    def announce(self) -> dict[str, Any] | None:
        """Payload of the system event that says so, None when nothing is new."""
        ...

    @property
    def anew(self) -> dict[str, Any] | None:
        """Payload of the truncate that begins the table's life, None when it only goes on."""
        ...

    def rows(self) -> ImageRows:
        """Return where rows are collected that have the version's schema."""
        ...


class Versions(Protocol):
    """Explains layouts."""

    def resolve(self, relid: int, layout: bytes) -> Version:
        """Return what the rows of a table are from here on.

        Raises:
            ProtocolError: the layout does not read.
        """
        ...


class Walk(Protocol):
    """Walks through one tick of the clock."""

    @property
    def last_scn(self) -> int:
        """SCN of the tick's last transaction."""
        ...

    def next(self) -> Begin | ChangeRow | End | None:
        """Return what comes next, None behind the tick's last transaction.

        Raises:
            ProtocolError: the change tables do not hold what was counted.
        """
        ...

    def close(self) -> None:
        """Keep nothing open in the database."""
        ...


class Changes(Protocol):
    """The change tables of one server, over connections of their own; used from one thread."""

    @property
    def usable(self) -> bool:
        """Whether the server can still be asked."""
        ...

    def refusals(self) -> AbstractContextManager[None]:
        """Turn the refusal of a statement in the block into a `SourceError` that says what to do."""
        ...

    def walk(self, scn: int, cost: Cost) -> Walk | None:
        """Return a walk through the tick that holds the SCN behind one, which is struck if need be.

        Returns:
            None where nothing has become visible.

        Raises:
            SlotLost: the clock does not reach back, or forward, to it.
        """
        ...

    def note(self, scn: int, cost: Cost) -> None:
        """Note how far the pipeline has come, and that it is alive.

        Raises:
            SlotLost: it has no place any more.
        """
        ...

    def purge(self) -> bool:
        """Remove a bounded piece of what everybody has read; return whether there may be more."""
        ...

    def close(self) -> None:
        """Release the connections."""
        ...


class TriggerDatabase(Database, Protocol):
    """A database whose changes are kept by triggers, as people look after it."""

    def script(self) -> str:
        """Return the SQL of everything that an administrator would make for us."""
        ...

    def install(self) -> list[TableId]:
        """Make change tables and missing triggers, and nothing else; return the tables that got some.

        Raises:
            SourceError: we may not.
            SourceUnavailable: writers held a table for too long.
        """
        ...

    def remove(self) -> list[TableId]:
        """Take the pipeline away, and return the tables whose triggers went."""
        ...

"""What the assembler of the log asks of the tables in it; `headrace.sources.mysql.versions` answers."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from headrace.model.schema import TableId, TableSchema
from headrace.sources.mysql.events import Event
from headrace.sources.mysql.position import GONE
from headrace.sources.mysql.rows import TableRows

__all__ = ["Described", "Tables"]


@dataclass(frozen=True, slots=True)
class Described:
    """What became of a table map.

    Attributes:
        schema: the table from here on; None when its rows are not ours to keep.
        schema_id: its id, registered.
        rows: where its rows are collected.
        announce: payload of the system event that says so, None when nothing is new.
        rekeyed: whether its rows have other keys than in the version before.
        marks: whether this is the table of watermarks; it has rows and no schema.
    """

    schema: TableSchema | None = None
    schema_id: int = 0
    rows: TableRows | None = None
    announce: dict[str, Any] | None = None
    rekeyed: bool = False
    marks: bool = False


class Tables(Protocol):
    """Explains table maps; may ask the catalog and the registry."""

    @property
    def folds(self) -> bool:
        """Whether the server keeps names in small letters, and logs statements with names as they were written."""
        ...

    @property
    def charsets(self) -> Mapping[int, str]:
        """The server's character sets, by the numbers of their collations."""
        ...

    def describe(self, event: Event, known: Mapping[str, int]) -> Described:
        """Return what rows behind a table map are.

        Args:
            event: the table map.
            known: the version of each table that was seen so far.
        """
        ...

    def captures(self, table: TableId) -> bool:
        """Return whether a table's rows are kept."""
        ...

    def hides(self, table: TableId, *, surely: bool = False) -> bool:
        """Return whether a foreign key of a captured table changes rows by itself, and the log does not have that.

        Args:
            table: its name.
            surely: it has such a key; else the catalog is asked.
        """
        ...

    def within(self, schema: str) -> set[TableId]:
        """Return the tables of a database that were ever captured, also those that never changed."""
        ...

    def found(self, table: TableId, before: int = GONE) -> int:
        """Return the registered version of a captured table from here on.

        Args:
            table: its name.
            before: its version under another name, which it keeps; else it is the one that the catalog has now.

        Returns:
            `GONE` when the catalog has none of that name any more.
        """
        ...

    def told(self, version: int, before: int = GONE) -> dict[str, Any]:
        """Return what a schema event says of a version; also that rows got values since ``before`` without an event."""
        ...

    def rekeys(
        self, version: int, before: int, remade: Collection[str], unfit: Collection[str] = ()
    ) -> bool:
        """Return whether rows of a version may have other keys than they had.

        Args:
            version: of now.
            before: of until then; `GONE` where any that the table ever had may be.
            remade: columns that hold other values though they look alike, in small letters.
            unfit: columns whose texts may have lost letters, likewise; all where an empty name is among them.
        """
        ...

"""What a source says of its tables before anything is captured: values, and the port that gives them.

Out of a catalog and its statistics alone: no row of a table is read, nothing is locked, nothing is changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol

import pyarrow as pa

from headrace.model.schema import TableId

__all__ = [
    "ColumnDescription",
    "Describes",
    "Given",
    "SourceDescription",
    "TableDescription",
]


class Given(Enum):
    """How the values of a column come out of a source."""

    EXACT = "exact"
    """As a type that holds each of them."""
    AS_TEXT = "as text"
    """As the server renders them: each value is told exactly, by another type."""
    ABSENT = "absent"
    """Not at all: the log does not carry them."""


@dataclass(frozen=True, slots=True)
class ColumnDescription:
    """One column.

    Attributes:
        name: the source's own.
        source_type: the source's own name of the type, with modifiers.
        nullable: whether it may be null.
        arrow: the type of its values when they have come out.
        given: how they come out.
        captured: whether the configuration and the publication let it through.
        asked_as_text: whether it is text because the configuration wants it so.
    """

    name: str
    source_type: str
    nullable: bool
    arrow: pa.DataType
    given: Given
    captured: bool = True
    asked_as_text: bool = False


@dataclass(frozen=True, slots=True)
class TableDescription:
    """One table.

    Attributes:
        table: its name.
        columns: all of them, in the table's order.
        primary_key: names of the columns of its primary key, in the key's order; empty without one.
        key: names of the columns by which the log tells its rows apart; empty without them.
        rows: as the catalog estimates them, None where it does not know.
        bytes: of the table's own storage, likewise.
    """

    table: TableId
    columns: tuple[ColumnDescription, ...]
    primary_key: tuple[str, ...]
    key: tuple[str, ...]
    rows: int | None
    bytes: int | None


@dataclass(frozen=True, slots=True)
class SourceDescription:
    """The tables of one database.

    Attributes:
        database: its name.
        tables: in the order of their names.
    """

    database: str
    tables: tuple[TableDescription, ...]


class Describes(Protocol):
    """What a source is too, when it can be assessed before anything is captured."""

    def described(
        self, patterns: Sequence[str] | None = None, only: TableId | None = None
    ) -> SourceDescription:
        """Return the tables as the catalog has them now.

        Args:
            patterns: of the tables, in place of those that the source was made with.
            only: this table alone, whatever the patterns say.

        Raises:
            SourceUnavailable: the server cannot be reached, or refuses us.
        """
        ...

    def written_bytes(self) -> int:
        """Return how many bytes of log the server has written in all; two calls tell how fast it grows.

        Raises:
            SourceUnavailable: the server cannot be reached, or refuses us.
        """
        ...

"""What a target table does when its source changes in a way that has more than one answer.

Every default is the answer that loses nothing and does nothing by itself, but for a dropped column: a mirror has the
columns of its source.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

__all__ = ["DEFAULTS", "Dropped", "Incompatible", "Policies"]


class Incompatible(Enum):
    """What happens when a column takes a type that its values do not fit."""

    STOP = "stop"
    """The table waits for a person; the others go on."""
    NEW_COLUMN = "new_column"
    """The old column stays under another name, and a new one takes its place."""
    RECOPY = "recopy"
    """The table is copied again beside the old one, and takes its place when it is whole."""


class Dropped(Enum):
    """What happens to that whose original is gone."""

    KEEP = "keep"
    """It stays as it is."""
    DROP = "drop"
    """It goes too."""


@dataclass(frozen=True, slots=True)
class Policies:
    """The answers for one table.

    Attributes:
        incompatible: to another type.
        dropped_column: to a column that was dropped.
        dropped_table: to a table that was dropped.
    """

    incompatible: Incompatible = Incompatible.STOP
    dropped_column: Dropped = Dropped.DROP
    dropped_table: Dropped = Dropped.KEEP


DEFAULTS = Policies()
"""What is done where nobody asked for anything else."""

"""What a relay says of its log without sending it: extents, each of whole transactions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.errors import ProtocolError
from headrace.model.block import SYSTEM_SCHEMA_ID

__all__ = ["Extent", "Outline"]


@dataclass(frozen=True, slots=True)
class Extent:
    """A block of the log, or those of a transaction that spans several; small and picklable.

    Attributes:
        first_scn: of its first transaction.
        last_scn: of its last transaction.
        rows: change rows in it.
        bytes: of all bodies.
        tables: ``(schema id, rows)`` per table version; `SYSTEM_SCHEMA_ID` stands for the system events.
    """

    first_scn: int
    last_scn: int
    rows: int
    bytes: int
    tables: tuple[tuple[int, int], ...]

    @property
    def ends_complete(self) -> bool:
        """Whether no transaction is left open at its end: always."""
        return True

    @property
    def has_system(self) -> bool:
        """Whether system events are among its bodies."""
        return any(schema_id == SYSTEM_SCHEMA_ID for schema_id, _ in self.tables)


@dataclass(frozen=True, slots=True)
class Outline:
    """One answer.

    Attributes:
        upto_scn: everything that the relay holds of the range, up to here, is told.
        extents: in the order of the log; the first and the last may reach beyond the range.
    """

    upto_scn: int
    extents: tuple[Extent, ...]

    @classmethod
    def parse(cls, said: dict[str, Any]) -> Outline:
        """Return what a JSON object says.

        Raises:
            ProtocolError: it is no outline.
        """
        try:
            extents = tuple(
                Extent(
                    int(one["first_scn"]),
                    int(one["last_scn"]),
                    int(one["rows"]),
                    int(one["bytes"]),
                    tuple((int(name, 16), int(rows)) for name, rows in one["tables"].items()),
                )
                for one in said["extents"]
            )
            return cls(int(said["upto_scn"]), extents)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                "What a relay says of its log is no outline.",
                next_step="check the address, and the relay's version.",
            ) from error

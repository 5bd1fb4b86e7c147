"""The change log as this package reads it, wherever it lies: the port that a folder and a relay fill."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Protocol, TypeVar

from headrace.changelog.tail import Tail
from headrace.errors import ChangeLogLost
from headrace.model.block import Block
from headrace.model.schema import TableSchema

__all__ = ["Log", "R", "Ref", "Registry", "assure_reaches"]


class Ref(Protocol):
    """What is known of some neighbouring blocks without their rows; travels to executors."""

    @property
    def first_scn(self) -> int:
        """SCN of the first transaction."""
        ...

    @property
    def last_scn(self) -> int:
        """SCN of the last transaction."""
        ...

    @property
    def rows(self) -> int:
        """Change rows of all tables."""
        ...

    @property
    def bytes(self) -> int:
        """Bytes of all bodies."""
        ...

    @property
    def ends_complete(self) -> bool:
        """Whether no transaction is left open at the end."""
        ...

    @property
    def tables(self) -> tuple[tuple[int, int], ...]:
        """``(schema id, rows)`` per table version; `SYSTEM_SCHEMA_ID` stands for the system events."""
        ...

    @property
    def has_system(self) -> bool:
        """Whether there are system events."""
        ...


R = TypeVar("R", bound=Ref)


class Log(Protocol[R]):
    """A log. Used from one thread."""

    def tail(self) -> Tail:
        """Return what the log can serve now; all zero when there is no log."""
        ...

    def refs(self, after_scn: int, upto_scn: int) -> Iterable[R]:
        """Return what holds the transactions of a range, found as it is taken; the first and the last may hold more.

        Raises:
            ScnNotFound: the range lies outside what the log holds.
        """
        ...

    def read(self, refs: Collection[R], schema_ids: Collection[int]) -> Iterator[Block]:
        """Yield what refs of one range name, in their order; whoever reads leaves out what he did not ask for.

        Args:
            refs: in the order of the log.
            schema_ids: table versions to decode; system events always come.

        Raises:
            ScnNotFound: it was dropped in the meantime.
        """
        ...


class Registry(Protocol):
    """Table versions."""

    def get(self, schema_id: int) -> TableSchema:
        """Return the version of an id."""
        ...


def assure_reaches(tail: Tail, scn: int, tables: str) -> None:
    """Return when a log reaches as far as tables that were filled from it.

    Args:
        tail: of the log.
        scn: where the tables are.
        tables: whose, for people.

    Raises:
        ChangeLogLost: it ends before; it was deleted, or an older or shorter one is in its place.
    """
    if tail.covered_scn < scn:
        raise ChangeLogLost(
            f"{tables} are at SCN {scn}, the change log ends at {tail.covered_scn}: RESYNC NEEDED.",
            next_step="restore the change log folder, or move the target tables away and copy them again.",
        )

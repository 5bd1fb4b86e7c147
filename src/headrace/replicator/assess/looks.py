"""Whom an assessment asks: the adapters of source and target, behind what it wants of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from headrace.sources.base import Finding
from headrace.sources.description import Describes

if TYPE_CHECKING:
    from headrace.lake.sql.session import Warehouse

__all__ = ["AssessedSource", "Looks"]


class AssessedSource(Describes, Protocol):
    """A source that can be assessed."""

    def preflight(self) -> list[Finding]:
        """Return everything that stands in the way; see `headrace.sources.base.Source`."""
        ...


@dataclass(frozen=True, slots=True)
class Looks:
    """The adapters; each is made when it is asked.

    Attributes:
        source: a source whose catalog can be read; None where changes come from relays.
        relays: why those cannot be read from, if so.
        store: why an object store cannot hold the tables, if so.
        warehouse: where the target tables are, None when they are files.
    """

    source: Callable[[], AssessedSource] | None
    relays: Callable[[], list[Finding]]
    store: Callable[[], list[Finding]]
    warehouse: Callable[[], Warehouse | None]

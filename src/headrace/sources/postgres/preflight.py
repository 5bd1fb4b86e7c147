"""Everything that stands in the way of a capture, found at once, each with its remedy."""

from __future__ import annotations

from headrace.sources.base import Finding
from headrace.sources.postgres.connection import Session
from headrace.sources.postgres.settings import PostgresSettings

__all__ = ["Preflight"]


class Preflight:
    """Asks the catalog; changes nothing."""

    def __init__(self, session: Session, settings: PostgresSettings) -> None:
        self._session = session
        self._settings = settings

    def run(self) -> list[Finding]:
        """Return all findings."""
        return []

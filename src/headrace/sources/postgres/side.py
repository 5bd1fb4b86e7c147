"""A second connection beside the replication connection, for catalog questions and heartbeats."""

from __future__ import annotations

from headrace.sources.postgres.connection import Session, connect
from headrace.sources.postgres.settings import PostgresSettings

__all__ = ["SideSession"]

_LOCK_TIMEOUT_MS = 500


class SideSession:
    """Opened when first needed, opened again when it was lost; used from the stream's thread."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._session: Session | None = None

    def get(self) -> Session:
        """Return a usable connection."""
        if self._session is not None and not self._session.usable:
            self.close()
        if self._session is None:
            self._session = connect(self._settings)
            # The stream waits for our questions: it must not wait for somebody's ALTER TABLE.
            self._session.run(f"SET lock_timeout = {_LOCK_TIMEOUT_MS}")
        return self._session

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

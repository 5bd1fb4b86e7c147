"""Writes watermarks to the change tables of MySQL or MariaDB."""

from __future__ import annotations

import threading

from headrace.errors import SourceUnavailable
from headrace.model.mark import Mark
from headrace.sources.mysql.connection import QueryFailed, Session, connect, quote_literal
from headrace.sources.trigger.marks import content_of
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings

__all__ = ["MarkWriter"]

_WRITE = "INSERT INTO headrace.txlog_changes (layout, op, `after`) VALUES (0, 'M', {})"


class MarkWriter:
    """Writes marks over a connection of its own; opens it again when it was lost.

    Args:
        settings: of the source.
        written: set with each mark, so that the reader need not wait for its next look.
    """

    def __init__(self, settings: MysqlTriggerSettings, written: threading.Event) -> None:
        self._settings = settings
        self._written = written
        self._session: Session | None = None

    def write(self, mark: Mark) -> None:
        """Return when the mark is committed at the source.

        Raises:
            SourceUnavailable: the connection is gone or the server refused the mark.
        """
        try:
            if self._session is None:
                self._session = connect(self._settings.database)
            content = content_of(mark, self._settings.name)
            self._session.run(_WRITE.format(quote_literal(content)))
        except QueryFailed as error:
            self.close()
            raise SourceUnavailable(
                f"A watermark cannot be written: {error.message}",
                next_step="run `headrace preflight FILE`, which lists the missing privilege.",
            ) from error
        except SourceUnavailable:
            self.close()
            raise
        self._written.set()

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

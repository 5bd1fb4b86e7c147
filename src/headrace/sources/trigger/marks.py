"""Watermarks: rows of their own among the changes, which come back with the transactions."""

from __future__ import annotations

import json
import threading

from headrace.errors import SourceUnavailable, WatermarkOutOfOrder
from headrace.model.mark import Mark
from headrace.sources.postgres.connection import QueryFailed, Session, connect
from headrace.sources.trigger.settings import TriggerSettings

__all__ = ["MARK", "MarkWriter", "foreign", "mark_of"]

MARK = b"M"
"""Operation of a row that is a mark."""

_WRITE = """
INSERT INTO headrace.txlog_changes (xid, seq, relid, op, first, after)
VALUES (pg_current_xact_id(), nextval('headrace.txlog_seq'), 0, 'M', true, $1)
"""


class MarkWriter:
    """Writes marks over a connection of its own; opens it again when it was lost.

    Args:
        settings: of the source.
        written: set with each mark, so that the reader need not wait for its next look.
    """

    def __init__(self, settings: TriggerSettings, written: threading.Event) -> None:
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
            self._session.run(_WRITE, json.dumps([self._settings.name, mark.render()]))
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


def mark_of(content: bytes | None, pipeline: str) -> Mark | None:
    """Return the mark of a row, None when it is another pipeline's.

    Raises:
        WatermarkOutOfOrder: nobody of us wrote it.
    """
    try:
        name, text = json.loads(content or b"")
        return Mark.parse(text) if name == pipeline else None
    except (ValueError, TypeError, AttributeError):
        raise foreign("something that is no mark is in") from None


def foreign(what: str) -> WatermarkOutOfOrder:
    """Return the error for a row that we never write."""
    return WatermarkOutOfOrder(
        f"{what[0].upper()}{what[1:]} headrace.txlog_changes, which only headrace writes.",
        next_step="find who writes there, take the privilege away, then start again.",
    )

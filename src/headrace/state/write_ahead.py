"""A database of SQLite keeps its log beside it: readers read on while somebody writes."""

from __future__ import annotations

import random
import sqlite3
import time

__all__ = ["is_busy", "write_ahead"]

_PAUSE_S = 0.01


def is_busy(error: object) -> bool:
    """Whether an error says that somebody else is in the way."""
    # The lower byte of an extended code is the plain one.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def write_ahead(cursor: sqlite3.Cursor, wait_s: float) -> None:
    """Have the database keep a log beside it.

    Several who open a new database at once all want to; whoever comes second is refused at once, however long the
    connection would wait for a lock, because both hold one that the other needs gone.

    Args:
        cursor: of a connection outside a transaction.
        wait_s: for how long others may be in the way.

    Raises:
        sqlite3.OperationalError: they still are, or the database cannot be used.
    """
    until = time.monotonic() + wait_s
    while True:
        try:
            cursor.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            if not is_busy(error) or time.monotonic() >= until:
                raise
        else:
            return
        time.sleep(_PAUSE_S * (0.5 + random.random()))

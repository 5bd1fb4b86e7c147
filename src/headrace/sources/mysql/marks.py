"""Watermarks: updates of a row in a table of ours, which come back through the log; a row for each pipeline.

In MariaDB commits become visible in the order of the log, so a commit that has returned is a barrier.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headrace.errors import SourceUnavailable, WatermarkOutOfOrder
from headrace.model.mark import Mark
from headrace.model.schema import TableId
from headrace.sources.mysql.connection import QueryFailed, Session, connect, quote_literal
from headrace.sources.mysql.settings import MysqlSettings

__all__ = [
    "MARKS_TABLE",
    "MarkWriter",
    "create_marks",
    "creation",
    "drop_marks",
    "foreign",
    "has_marks",
    "mark_of",
]

MARKS_TABLE = TableId("headrace", "watermarks")
"""The table of watermarks; its rows are no data."""


def creation(pipeline: str) -> tuple[str, ...]:
    """Return the statements that make the table and the row of a pipeline where they are missing."""
    return (
        "CREATE DATABASE IF NOT EXISTS headrace",
        # The text differs from mark to mark, so that every row image has it, whatever a session leaves out.
        (
            f"CREATE TABLE IF NOT EXISTS {MARKS_TABLE} (pipeline varchar(64) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin "
            "PRIMARY KEY, mark varchar(200) CHARACTER SET utf8mb4) ENGINE = InnoDB"
        ),
        f"INSERT IGNORE INTO {MARKS_TABLE} (pipeline) VALUES ({quote_literal(pipeline)})",
    )


class MarkWriter:
    """Writes marks over a connection of its own; opens it again when it was lost."""

    def __init__(self, settings: MysqlSettings) -> None:
        self._settings = settings
        self._session: Session | None = None

    def write(self, mark: Mark) -> None:
        """Return when the mark is committed at the source.

        Raises:
            SourceUnavailable: the connection is gone or the server refused the mark.
            WatermarkOutOfOrder: somebody removed the row.
        """
        try:
            if self._session is None:
                self._session = connect(self._settings)
            sql = (
                f"UPDATE {MARKS_TABLE} SET mark = {quote_literal(mark.render())} "
                f"WHERE pipeline = {quote_literal(self._settings.name)}"
            )
            found = self._session.run(sql)
        except QueryFailed as error:
            self.close()
            raise SourceUnavailable(
                f"A watermark cannot be written: {error.message}",
                next_step=f"GRANT UPDATE, SELECT ON {MARKS_TABLE}, and see that the table is there.",
            ) from error
        except SourceUnavailable:
            self.close()
            raise
        if found != 1:
            raise foreign("somebody removed the row of")

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None


def mark_of(rows: Sequence[Mapping[str, Any]], pipeline: str) -> Mark | None:
    """Return the mark that an event wrote for a pipeline, None when it is none of its business.

    Args:
        rows: change rows of the event.
        pipeline: whose mark is looked for.

    Raises:
        WatermarkOutOfOrder: somebody else wrote to the pipeline's row.
    """
    ours = [row for row in rows if row["pipeline"] == pipeline]
    if not ours or all(row["_op"] == "+I" and row["mark"] is None for row in ours):
        return None
    if [row["_op"] for row in ours] != ["-U", "+U"]:
        raise foreign("rows were inserted into, deleted from, or renamed in")
    try:
        return Mark.parse(ours[1]["mark"] or "")
    except ValueError:
        raise foreign("something else was written to") from None


def foreign(what: str) -> WatermarkOutOfOrder:
    """Return the error for a write to the watermark table that we never make."""
    return WatermarkOutOfOrder(
        f"{what[0].upper()}{what[1:]} the watermark table {MARKS_TABLE}, which only headrace writes.",
        next_step=f"find who writes to {MARKS_TABLE}, take the privilege away, then start again.",
    )


def has_marks(session: Session, pipeline: str) -> bool:
    """Return whether the table is there, may be read, and has the row of a pipeline."""
    sql = f"SELECT mark FROM {MARKS_TABLE} WHERE pipeline = {quote_literal(pipeline)}"
    try:
        return bool(session.rows(sql))
    except QueryFailed:
        return False


def create_marks(session: Session, pipeline: str) -> None:
    """Create the table and the row of a pipeline where they are missing."""
    session.run(*creation(pipeline))


def drop_marks(session: Session, pipeline: str) -> None:
    """Remove the row of a pipeline; the table stays, for others may use it."""
    if has_marks(session, pipeline):
        session.run(f"DELETE FROM {MARKS_TABLE} WHERE pipeline = {quote_literal(pipeline)}")

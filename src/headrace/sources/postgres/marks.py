"""Watermarks at PostgreSQL: logical messages, or updates of one row in a table of ours.

Both come back through the log once. A message needs no table and no privilege beyond connecting; a table row works
where messages do not reach the slot.
"""

from __future__ import annotations

from collections.abc import Sequence

from headrace.errors import SourceUnavailable, WatermarkOutOfOrder
from headrace.model.mark import Mark, MarkKind
from headrace.sources.postgres.connection import QueryFailed, Session, connect, quote
from headrace.sources.postgres.messages import Cell
from headrace.sources.postgres.settings import MARKS_SCHEMA, MARKS_TABLE, PostgresSettings

__all__ = [
    "MarkWriter",
    "create_marks_table",
    "drop_marks_table",
    "foreign",
    "from_message",
    "from_row",
    "heartbeat",
]

_TABLE = f"{quote(MARKS_TABLE.schema)}.{quote(MARKS_TABLE.name)}"
_ROW_ID = "1"
_ROW_ID_CELLS = (b"1", b"\0\0\0\1")  # as text, and in binary

# From 17 on a message can be flushed by itself; below, only a commit makes the server flush at once.
_FLUSH_VERSION = 17
_EMIT = "SELECT pg_logical_emit_message(true, $1, $2::text)"
_EMIT_FLUSH = "SELECT pg_logical_emit_message(false, $1, $2::text, true)"
_EMIT_QUIET = "SELECT pg_logical_emit_message(false, $1, $2::text)"
_UPDATE = f"UPDATE {_TABLE} SET kind = $1, token = $2, run_id = $3 WHERE id = {_ROW_ID}"

_CREATE = (
    f"CREATE SCHEMA IF NOT EXISTS {quote(MARKS_SCHEMA)}",
    f"CREATE TABLE IF NOT EXISTS {_TABLE} (id int PRIMARY KEY, kind text, token text, run_id text)",
    f"INSERT INTO {_TABLE} (id) VALUES ({_ROW_ID}) ON CONFLICT DO NOTHING",
)

_HEARTBEAT_SUFFIX = "/heartbeat"


class MarkWriter:
    """Writes marks over a connection of its own; opens it again when it was lost."""

    def __init__(self, settings: PostgresSettings) -> None:
        self._settings = settings
        self._session: Session | None = None

    def write(self, mark: Mark) -> None:
        """Return when the mark is committed at the source.

        Raises:
            SourceUnavailable: the connection is gone or the server refused the mark.
        """
        session = self._connected()
        try:
            if self._settings.watermark == "table":
                self._update(session, mark)
            else:
                sql = _EMIT_FLUSH if session.version >= _FLUSH_VERSION else _EMIT
                session.rows(sql, self._settings.mark_prefix, mark.render())
        except QueryFailed as error:
            self.close()
            raise SourceUnavailable(
                f"A {self._settings.watermark} watermark cannot be written: {error.message}",
                next_step="run `headrace preflight FILE`, which lists the missing privilege.",
            ) from error
        except SourceUnavailable:
            self.close()
            raise

    def close(self) -> None:
        """Release the connection."""
        if self._session is not None:
            self._session.close()
            self._session = None

    def _connected(self) -> Session:
        if self._session is None:
            self._session = connect(self._settings)
        return self._session

    def _update(self, session: Session, mark: Mark) -> None:
        if session.run(_UPDATE, mark.kind.value, mark.token, mark.run_id) != "UPDATE 1":
            raise foreign("somebody removed the row of")


def from_message(content: bytes) -> Mark:
    """Return the mark of a logical message.

    Raises:
        WatermarkOutOfOrder: when somebody else wrote under our prefix.
    """
    try:
        return Mark.parse(content.decode())
    except ValueError:
        raise WatermarkOutOfOrder(
            f"A logical message of {len(content)} bytes under our prefix is no watermark.",
            next_step="find who calls pg_logical_emit_message with this prefix; then start again.",
        ) from None


def from_row(names: Sequence[str], cells: Sequence[Cell]) -> Mark:
    """Return the mark of an updated row of the watermark table.

    Raises:
        WatermarkOutOfOrder: when the row is another one, or incomplete, or no mark.
    """
    row = dict(zip(names, cells, strict=False))
    texts = [row.get(name) for name in ("id", "kind", "token", "run_id")]
    if not all(isinstance(text, bytes) for text in texts):
        raise foreign("an incomplete row was written to")
    if texts[0] not in _ROW_ID_CELLS:
        raise foreign("another row was written to")
    kind, token, run_id = (text.decode() for text in texts[1:] if isinstance(text, bytes))
    if kind not in (k.value for k in MarkKind) or not token or not run_id:
        raise foreign("something else was written to")
    return Mark(MarkKind(kind), token, run_id)


def foreign(what: str) -> WatermarkOutOfOrder:
    """Return the error for a write to the watermark table that we never make."""
    return WatermarkOutOfOrder(
        f"{what[0].upper()}{what[1:]} the watermark table {MARKS_TABLE}, which only headrace writes.",
        next_step=f"find who writes to {MARKS_TABLE}, take the privilege away, then start again.",
    )


def heartbeat(session: Session, settings: PostgresSettings) -> None:
    """Write a small message that moves an idle log on; it is no mark and waits for no flush."""
    session.rows(_EMIT_QUIET, settings.mark_prefix + _HEARTBEAT_SUFFIX, "", timeout_s=5.0)


def create_marks_table(session: Session) -> None:
    """Create the watermark table and its row where they are missing."""
    for statement in _CREATE:
        session.run(statement)


def drop_marks_table(session: Session) -> None:
    """Remove the watermark table and, when nothing else is in it, its schema."""
    session.run(f"DROP TABLE IF EXISTS {_TABLE}")
    session.run(
        f"DO $$ BEGIN DROP SCHEMA IF EXISTS {quote(MARKS_SCHEMA)}; "
        "EXCEPTION WHEN dependent_objects_still_exist THEN NULL; END $$"
    )

"""What a transaction consists of, so that whole ones that are like it can be taken at once."""

from __future__ import annotations

from dataclasses import dataclass

from headrace.sources.mysql.events import HEADER, Event
from headrace.sources.mysql.rows import ImageKind, TableRows

__all__ = ["Pattern"]

# Two bytes of flags behind a table's number, which change with the last event of a statement.
_FLAGS = slice(HEADER + 6, HEADER + 8)


@dataclass(slots=True)
class Pattern:
    """A transaction that begins, describes one table, has rows of one kind, and is committed.

    Attributes:
        begin: type of the event with which it begins.
        described: the table's description behind the event's header.
        model: its last event with rows, up to the first image.
        rows: where they are collected; None as long as there are none.
        kind: of the rows.
        other: whether there is anything else in it.
    """

    begin: int
    described: bytes = b""
    model: bytes = b""
    rows: TableRows | None = None
    kind: ImageKind | None = None
    other: bool = False

    def describes(self, event: Event) -> None:
        """Take note of a description."""
        self.other |= bool(self.described)
        self.described = event.data[HEADER : event.end]

    def has(self, rows: TableRows, model: bytes) -> None:
        """Take note of an event with rows."""
        kind = rows.last_kind
        same = _bare(self.model) == _bare(model) and self.kind == kind
        self.other |= self.rows is not None and not same
        self.rows, self.model, self.kind = rows, model, kind

    @property
    def whole(self) -> bool:
        """Whether others may be like it, now that it is committed."""
        return self.rows is not None and not self.other


def _bare(model: bytes) -> bytes:
    return model[4:5] + model[HEADER : _FLAGS.start] + model[_FLAGS.stop :]

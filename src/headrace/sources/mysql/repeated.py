"""What a transaction consists of, so that whole ones that are like it can be taken at once."""

from __future__ import annotations

from typing import NamedTuple

from headrace.sources.mysql.rows import ImageKind, TableRows

__all__ = ["Pattern"]


class Pattern(NamedTuple):
    """A transaction that begins, describes one table, has rows of one kind, and is committed.

    It holds as long as the log goes on with such ones: nothing else can have come between that makes the table another.

    Attributes:
        begin: type of the event with which it begins.
        described: the table's description behind the event's header.
        model: an event with rows up to its first image.
        rows: where they are collected.
        kind: of the rows.
    """

    begin: int
    described: bytes
    model: bytes
    rows: TableRows
    kind: ImageKind

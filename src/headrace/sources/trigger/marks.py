"""Watermarks: rows of their own among the changes, which come back with the transactions."""

from __future__ import annotations

import json

from headrace.errors import WatermarkOutOfOrder
from headrace.model.mark import Mark

__all__ = ["MARK", "content_of", "foreign", "mark_of"]

MARK = b"M"
"""Operation of a row that is a mark."""


def content_of(mark: Mark, pipeline: str) -> str:
    """Return what the row of a mark holds."""
    return json.dumps([pipeline, mark.render()])


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

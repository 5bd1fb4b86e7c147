"""What the server refuses of statements that only headrace sends."""

from __future__ import annotations

from headrace.sources.postgres.connection import QueryFailed
from headrace.sources.trigger.refused import refusals_of

__all__ = ["refusals"]

refusals = refusals_of(QueryFailed)

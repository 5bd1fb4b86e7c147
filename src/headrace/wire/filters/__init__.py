"""Filters: which part of a stream a consumer wants, and what is left of a block for it."""

from __future__ import annotations

from headrace.wire.filters.apply import BoundFilter
from headrace.wire.filters.spec import Filter, parse_filter

__all__ = ["BoundFilter", "Filter", "parse_filter"]

"""The one error of filters."""

from __future__ import annotations

from headrace.errors import BadFilter

__all__ = ["bad_filter"]


def bad_filter(place: str, what: str, next_step: str = "") -> BadFilter:
    """Return the error for a part of a filter.

    Args:
        place: the part, and where in it: ``where of public.orders, character 7``.
        what: what is wrong there; names and kinds, never a literal.
        next_step: what to write in its place.
    """
    return BadFilter(
        f"The filter cannot be used: {place}: {what}.",
        next_step=next_step
        or "correct this part of the filter; docs/relay_protocol.md shows all of them.",
    )

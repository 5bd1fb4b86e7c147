"""Values of rows as JSON holds them: exactly, and as text where it has no exact word."""

from __future__ import annotations

import base64
import json
import math
from decimal import Decimal
from typing import Any

__all__ = ["is_json", "plain"]

_EXACT = 2**53
"""Integers up to here are the same for every reader of JSON."""


def plain(value: Any) -> Any:
    """Return a number, bytes, text, boolean or null as JSON holds it; anything else as it is.

    Decimals and integers beyond 2^53 are decimal text, bytes are base64, NaN and the infinities are text by name.
    """
    match value:
        case bool():
            return value
        case int():
            return value if abs(value) <= _EXACT else str(value)
        case float():
            if math.isnan(value):
                return "NaN"
            return value if math.isfinite(value) else "Infinity" if value > 0 else "-Infinity"
        case Decimal():
            return format(value, "f")
        case bytes():
            return base64.b64encode(value).decode()
        case _:
            return value


def is_json(value: Any) -> bool:
    """Return whether JSON in UTF-8 holds a value: no number without an end, no half of a surrogate pair."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError):
        return False
    return True

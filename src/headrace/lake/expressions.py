"""What can be said of a Spark SQL expression without Spark: whether its value may be another one at each replay."""

from __future__ import annotations

import re

__all__ = ["changing_word"]

_CHANGING = (
    "select|now|current_timestamp|current_date|current_time|localtimestamp|current_user|session_user|user"
    "|current_timezone|current_catalog|current_database|current_schema|curdate"
)
_CHANGES = re.compile(rf"\b({_CHANGING})\b|\b(unix_timestamp)\s*\(\s*\)", re.IGNORECASE)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`""")


def changing_word(sql: str) -> str:
    """Return what gives another value another day, or to another session; empty where nothing does."""
    found = _CHANGES.search(_QUOTED.sub(" ", sql))
    return found[0].lower() if found else ""

"""Positions in PostgreSQL's log: ``16/B374D848`` as text, a 64-bit integer for everything else."""

from __future__ import annotations

import re

__all__ = ["format_lsn", "parse_lsn"]

_LSN = re.compile(r"([0-9A-Fa-f]{1,8})/([0-9A-Fa-f]{1,8})")


def parse_lsn(text: str) -> int:
    """Return the integer of an LSN.

    Raises:
        ValueError: when the text is no LSN.
    """
    match = _LSN.fullmatch(text)
    if match is None:
        raise ValueError(f"not an LSN: {text[:40]!r}")
    return int(match[1], 16) << 32 | int(match[2], 16)


def format_lsn(value: int) -> str:
    """Return the text of an LSN as the server writes it."""
    return f"{value >> 32:X}/{value & 0xFFFFFFFF:X}"

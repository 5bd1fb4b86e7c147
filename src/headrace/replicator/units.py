"""Sizes and addresses as people write them: ``64MiB``, ``8 GiB``, or a plain number of bytes; ``127.0.0.1:7070``."""

from __future__ import annotations

import math
import re
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

__all__ = ["Bytes", "Listen", "parse_size"]

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


def parse_size(value: object) -> object:
    """Return a size in bytes; anything that is not text is left for pydantic to judge.

    Raises:
        ValueError: when the text is not a number with a known unit.
    """
    if not isinstance(value, str):
        return value
    match = _SIZE.fullmatch(value)
    if match is None or match[2].lower() not in _UNITS:
        raise ValueError("a size such as 64MiB, 8GiB or a number of bytes")
    size = float(match[1]) * _UNITS[match[2].lower()]
    if not math.isfinite(size):
        raise ValueError("a size that a disk may have")
    return int(size)


Bytes = Annotated[int, BeforeValidator(parse_size)]
"""A number of bytes that may be written with a unit."""


def _can_be_listened_at(value: str) -> str:
    host, _, port = value.rpartition(":")
    if int(port) > 65_535:
        raise ValueError("a port up to 65535")
    try:
        # As the look-up of its address would.
        host.encode("idna")
    except UnicodeError:
        host = ""
    if not host or not host.isprintable():
        raise ValueError("a host that can have an address")
    return value


Listen = Annotated[
    str,
    Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^:/@\[\]]+):\d{1,5}$"),
    AfterValidator(_can_be_listened_at),
]
"""Host and port to listen at."""

"""Sizes and addresses as people write them: ``64MiB``, ``8 GiB``, or a plain number of bytes; ``127.0.0.1:7070``."""

from __future__ import annotations

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
    return int(float(match[1]) * _UNITS[match[2].lower()])


Bytes = Annotated[int, BeforeValidator(parse_size)]
"""A number of bytes that may be written with a unit."""


def _is_a_port(value: str) -> str:
    if int(value.rpartition(":")[2]) > 65_535:
        raise ValueError("a port up to 65535")
    return value


Listen = Annotated[
    str,
    Field(pattern=r"^(\[[0-9A-Fa-f:.]+\]|[^:/@\[\]]+):\d{1,5}$"),
    AfterValidator(_is_a_port),
]
"""Host and port to listen at."""

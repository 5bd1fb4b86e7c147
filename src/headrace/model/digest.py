"""How the rows of a table are hashed where both sides of a comparison hash for themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["DigestForm"]


@dataclass(frozen=True, slots=True)
class DigestForm:
    """What a source's server can compute, and the other side then does alike.

    Attributes:
        hash: ``md5``, or ``sha256``, of which the first 16 bytes are kept.
        wide_floats: whether a float of 32 bits is rendered as the one of 64 bits that is the same number.
    """

    hash: Literal["md5", "sha256"] = "md5"
    wide_floats: bool = False

"""Tokens in the header ``authorization``: known by their digests, compared in a time that tells nothing."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Generic, TypeVar

__all__ = ["Bearers"]

T = TypeVar("T")

_BEARER = "bearer "


class Bearers(Generic[T]):
    """What each known token stands for; the tokens themselves are not kept.

    Args:
        known: by token.
    """

    def __init__(self, known: Mapping[str, T]) -> None:
        self._known = [(_digest(secret), meaning) for secret, meaning in known.items()]

    def __bool__(self) -> bool:
        return bool(self._known)

    def find(self, authorization: str | None) -> T | None:
        """Return what the token of a header ``authorization`` stands for, None when it has none that is known.

        How long it takes tells nothing about the tokens.
        """
        given = authorization or ""
        digest = _digest(given[len(_BEARER) :].strip() if given[:7].lower() == _BEARER else "")
        found = None
        for known, meaning in self._known:
            if hmac.compare_digest(known, digest):
                found = meaning
        return found


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()

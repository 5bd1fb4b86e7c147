"""How keys look in a line: as they are, or as hashes, since keys are row values."""

from __future__ import annotations

import contextlib
import csv
import hashlib
import hmac
import io
import os
import secrets
from collections.abc import Callable
from pathlib import Path

from headrace.observe.tap.events import Key

__all__ = ["ShowKey", "hashed_key", "plain_key", "secret_of"]

ShowKey = Callable[[Key], str]


def plain_key(key: Key) -> str:
    """Return the parts as one line of CSV, the form that ``headrace dump --keys`` takes; "" for no key."""
    if len(key) == 1 and not set(key[0]) & {'"', ",", "\n", "\r"}:
        return key[0]
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow(key)
    return line.getvalue()


def hashed_key(secret: bytes) -> ShowKey:
    """Return what shows a key as ``#`` and 16 digits: equal for equal keys under one secret, and no more."""

    def show(key: Key) -> str:
        if not key:
            return ""
        return "#" + hmac.new(secret, plain_key(key).encode(), hashlib.sha256).hexdigest()[:16]

    return show


def secret_of(path: Path) -> bytes:
    """Return the secret in a file that only its owner reads; made when there is none.

    It stays where it is, so hashes stay the same from run to run.
    """
    with contextlib.suppress(FileExistsError):
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(secrets.token_bytes(32))
    return path.read_bytes()

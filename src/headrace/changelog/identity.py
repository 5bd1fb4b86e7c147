"""The identity of a change log: by what a place inside a window of one is told from a place in another.

Two captures of a source give the same windows, and ordinals of their own inside them. A few random letters, drawn when
a log begins and kept in a file beside its segments, say whose ordinals they are. Source: docs/adr/0078.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
from pathlib import Path

from headrace.durable import replace_file

__all__ = ["identify", "identity_of"]

_FILE = "identity"
_LETTERS = re.compile(rb"[a-z2-7]{6}\n")


def identity_of(folder: Path) -> str:
    """Return the identity of the log in a folder, empty when it has none."""
    try:
        said = (folder / _FILE).read_bytes()
    except OSError:
        return ""
    return said.decode().strip() if _LETTERS.fullmatch(said) else ""


def identify(folder: Path, *, begins: bool) -> None:
    """Give the log in a folder an identity: another one than before where it begins, else unless it has one.

    A log without an identity is one of which consumers know less; so it is not worth a refusal to write.
    """
    if not begins and identity_of(folder):
        return
    drawn = base64.b32encode(os.urandom(5))[:6].lower()
    with contextlib.suppress(OSError):
        (folder / _FILE).unlink(missing_ok=True)
        replace_file(folder / _FILE, drawn + b"\n")

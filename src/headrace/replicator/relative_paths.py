"""Relative paths of a configuration that is only a document yet, made absolute."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

__all__ = ["make_absolute"]

_PLACES = (
    ("target", "path"),
    ("source", "ca"),
    ("relay", "tls", "certificate"),
    ("relay", "tls", "key"),
    ("relay", "routes"),
    ("lineage", "file"),
)


def make_absolute(document: dict[str, Any], base: Path) -> None:
    """Let relative paths of a document begin at ``base``; what begins with a reference, and URLs, stay as they are."""
    for *sections, last in _PLACES:
        held: Any = document
        for name in sections:
            held = held.get(name) if isinstance(held, dict) else None
        value = held.get(last) if isinstance(held, dict) else None
        if isinstance(value, str) and "://" not in value and not value.startswith("${"):
            # Of a user that there is not: whoever reads the configuration names the place.
            with contextlib.suppress(RuntimeError):
                held[last] = os.path.normpath(base / Path(value).expanduser())

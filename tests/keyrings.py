"""A keyring of the tests' own: the package's backend that keeps entries in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def plain_keyring(file: Path, **entries: str) -> Iterator[None]:
    """Let a keyring hold entries of the service ``headrace`` inside the block."""
    keyring = pytest.importorskip("keyring", reason="keyrings are an extra: headrace[keyring]")
    backend = pytest.importorskip(
        "keyrings.alt.file", reason="no keyring of files: install keyrings.alt"
    ).PlaintextKeyring()
    backend.file_path = str(file)
    for name, value in entries.items():
        backend.set_password("headrace", name, value)
    before = keyring.get_keyring()
    keyring.set_keyring(backend)
    try:
        yield
    finally:
        keyring.set_keyring(before)

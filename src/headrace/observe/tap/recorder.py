"""Lines into a file that never grows past its bound and that only its owner reads."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["Recorder", "older"]

_MODE = 0o600
"""Events hold keys, which are row values."""


def older(path: Path) -> Path:
    """Return where the lines before those in ``path`` are."""
    return path.with_name(f"{path.stem}.old{path.suffix}")


class Recorder:
    """Appends lines to ``path``; at half the bound the file becomes the older one, and the one before it goes.

    Args:
        path: of the newer file.
        size: bytes of both files together.
    """

    def __init__(self, path: Path, size: int) -> None:
        self._path = path
        self._most = size // 2
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._handle = -1
        self._held = 0
        self._open()

    def _open(self) -> None:
        flags = os.O_CREAT | os.O_APPEND | os.O_RDWR
        self._handle = os.open(self._path, flags, _MODE)
        os.fchmod(self._handle, _MODE)
        self._held = os.fstat(self._handle).st_size
        if self._held and os.pread(self._handle, 1, self._held - 1) != b"\n":
            # A process died in the middle of a line; readers skip what is no JSON.
            self._held += os.write(self._handle, b"\n")

    def write(self, text: str) -> None:
        """Append whole lines.

        Raises:
            OSError: the file system refuses; nothing, or a part that readers skip, was written.
        """
        data = text.encode()
        if self._held and self._held + len(data) > self._most:
            os.close(self._handle)
            self._path.replace(older(self._path))
            self._open()
        while data:
            written = os.write(self._handle, data)
            self._held += written
            data = data[written:]

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

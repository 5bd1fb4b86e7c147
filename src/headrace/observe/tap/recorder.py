"""Lines into a file that never grows past its bound and that only its owner reads."""

from __future__ import annotations

import contextlib
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
        self._torn = False
        self._open()

    def _open(self) -> None:
        handle = os.open(self._path, os.O_CREAT | os.O_APPEND | os.O_RDWR, _MODE)
        if self._handle >= 0:
            os.close(self._handle)
        self._handle = handle
        os.fchmod(handle, _MODE)
        self._held = os.fstat(handle).st_size
        # A process may have died in the middle of a line.
        self._torn = self._held > 0 and os.pread(handle, 1, self._held - 1) != b"\n"

    def write(self, text: str) -> None:
        """Append whole lines.

        Raises:
            OSError: the file system refuses; nothing, or a part that readers skip, was written.
        """
        data = text.encode()
        if self._held and self._held + len(data) > self._most:
            with contextlib.suppress(FileNotFoundError):
                self._path.replace(older(self._path))
            self._open()
        if self._torn:
            # Readers skip what is no JSON; it must not take the next line with it.
            data = b"\n" + data
        self._torn = True
        while data:
            written = os.write(self._handle, data)
            self._held += written
            data = data[written:]
        self._torn = False

    def close(self) -> None:
        """Close the file."""
        os.close(self._handle)

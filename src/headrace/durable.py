"""Files and names that outlive a power cut."""

from __future__ import annotations

import errno
import os
from pathlib import Path

__all__ = ["NO_ROOM", "make_folder", "replace_file", "sync_folder"]

NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
"""What the system says where a disk is full, or a limit of its user or of a file is reached."""


def replace_file(path: Path, data: bytes) -> None:
    """Put ``data`` in the place of ``path``; readers see the old file or the new one, a crash too."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        with draft.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def make_folder(folder: Path, mode: int = 0o777) -> None:
    """Make a folder, and those above it that are missing; their names are durable when it returns.

    Args:
        folder: which; nothing where it is there.
        mode: its rights, as of `pathlib.Path.mkdir`.
    """
    missing = [place for place in (folder, *folder.parents) if not place.exists()]
    folder.mkdir(mode=mode, parents=True, exist_ok=True)
    for place in missing:
        sync_folder(place.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

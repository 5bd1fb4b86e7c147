"""Files and names that outlive a power cut."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["replace_file", "sync_folder"]


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


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

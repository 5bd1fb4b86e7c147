"""Disks without room: one that is always full, and small file systems of one's own that are filled and emptied."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

__all__ = ["FULL", "full", "into_full", "mounted", "on_a_full_disk", "small_disk"]

FULL = Path("/dev/full")
"""Takes nothing, as a full disk."""
on_a_full_disk = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")

_LEFT_BYTES = 1 << 20


def into_full(*words: object) -> subprocess.CompletedProcess[str]:
    """Run a command of headrace whose standard output has no room."""
    with FULL.open("w") as output:
        return subprocess.run(
            [sys.executable, "-m", "headrace.cli.main", *map(str, words)],
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            timeout=60,
            check=False,
        )


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """Mount a file system of so many bytes inside the block; skips the test where that is not allowed."""
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root may mount a small file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def mounted(disk: Path, how: str) -> None:
    """Let a disk be read only (``ro``), or written again (``rw``)."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(disk)], check=True)


@contextmanager
def full(disk: Path) -> Iterator[Callable[[], None]]:
    """Leave no room on a disk inside the block.

    Gives a function that takes what has become free since: one page is enough for a small file that is replaced again
    and again.
    """
    ballast = disk / "ballast"
    try:
        with ballast.open("wb", buffering=0) as file:

            def take() -> None:
                with suppress(OSError):
                    while True:
                        file.write(bytes(4096))

            free = os.statvfs(disk)
            os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_bsize - _LEFT_BYTES))
            file.seek(0, os.SEEK_END)
            # The rest page by page, for others write beside us.
            take()
            yield take
    finally:
        ballast.unlink()

"""One process per piece of work: a lock on a file, which the kernel frees when the owner dies."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from headrace.errors import LeaseLost

__all__ = ["held", "is_held"]

_POLL_S = 0.1
"""Also the least time that is waited: who asks whether it is held holds it for a moment."""


@contextlib.contextmanager
def held(path: Path, what: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock on ``path`` inside the block.

    Args:
        path: the lock file; its text is the owner's process id, for people.
        what: the work, for the message.
        wait_s: how long a previous owner may take to go.

    Raises:
        LeaseLost: when another process holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        _take(handle, path, what, time.monotonic() + max(wait_s, _POLL_S))
        with contextlib.suppress(OSError):
            # For people only: a full disk, which the work waits out, does not keep it from beginning.
            os.ftruncate(handle, 0)
            os.pwrite(handle, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(handle)


def is_held(path: Path) -> bool:
    """Return whether a process holds the lock, as far as anybody can tell.

    It is asked for a moment: of work for which nobody waits at all.
    """
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        # Also where the file system has no locks.
        return True
    else:
        return False
    finally:
        os.close(handle)


def _take(handle: int, path: Path, what: str, deadline: float) -> None:
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() >= deadline:
                owner = os.pread(handle, 32, 0).decode(errors="replace") or "unknown"
                raise LeaseLost(
                    f"{what} already runs on {path.parent.parent} (process {owner}).",
                    next_step="stop that process first, or give this replicator its own state.dir.",
                ) from None
            time.sleep(_POLL_S)

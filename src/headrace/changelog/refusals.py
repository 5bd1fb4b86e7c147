"""What it means when the file system refuses a write."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from headrace.durable import NO_ROOM
from headrace.errors import ChangeLogError, DiskFull

__all__ = ["write_refusals"]


@contextmanager
def write_refusals(what: str) -> Iterator[None]:
    """Turn an `OSError` of a write into a named error about the object ``what``.

    Raises:
        DiskFull: when there is no room.
        ChangeLogError: for any other refusal.
    """
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else type(error).__name__
        if error.errno in NO_ROOM:
            raise DiskFull(
                f"{what} cannot be written: {reason}. Nothing of it was acknowledged to the source.",
                next_step="free space on this file system, or move the state folder to a larger one.",
            ) from error
        raise ChangeLogError(
            f"{what} cannot be written: {reason}.",
            next_step="check the disk and the rights of the state folder.",
        ) from error

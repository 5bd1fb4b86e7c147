"""The change log as capture sees it: one writer, and a reader of its own beside it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from headrace.changelog import ChangeLogReader, ChangeLogSettings, ChangeLogWriter
from headrace.changelog.jobs import register_job
from headrace.errors import ScnNotFound
from headrace.model.block import Block

__all__ = ["CaptureLog"]

CAPTURE = "_capture"
"""Name under which capture itself holds the log back; no replicator can be called so."""


class CaptureLog:
    """Joins `ChangeLogWriter` and `ChangeLogReader` into the port `headrace.relay.log.Log`.

    Takes over the log in ``folder``, or begins one.

    Raises:
        LeaseLost: another process writes it.
    """

    def __init__(self, folder: Path, settings: ChangeLogSettings) -> None:
        self._folder = folder
        self._settings = settings
        self._writer = ChangeLogWriter.open(folder, settings)
        self._reader = ChangeLogReader(folder)
        self._needed_scn = -1

    @property
    def complete_scn(self) -> int:
        """SCN of the last whole transaction that is durable."""
        return self._writer.tail.complete_scn

    @property
    def covered_scn(self) -> int:
        """SCN up to which the log is known to hold everything."""
        return self._writer.tail.covered_scn

    @property
    def durable(self) -> tuple[Path | None, int]:
        """Newest segment with durable blocks and how many of its bytes are durable."""
        return self._writer.durable

    def append(self, block: Block) -> None:
        """Take a block; not readable and not durable yet."""
        self._writer.append(block)

    def begin_sync(self) -> None:
        """Let what is appended become durable while the caller goes on; `sync` waits for it."""
        self._writer.begin_sync()

    def sync(self) -> None:
        """Make everything appended durable, then readable."""
        self._writer.sync()

    def rewind(self) -> None:
        """Forget what is behind the last whole durable transaction, torn bytes included."""
        # Opening cuts the same tail as after a crash.
        self._writer = self._writer.reopened()

    def keep(self, retain_bytes: int | None, retain_s: float | None) -> None:
        """Retain so much for late readers from now on; None for what the configuration says."""
        given = self._settings
        self._writer.keep(
            given.retain_bytes if retain_bytes is None else retain_bytes,
            given.retain_s if retain_s is None else retain_s,
        )

    def retain(self, needed_scn: int) -> None:
        """Drop what no job and not capture itself needs."""
        if needed_scn != self._needed_scn:
            register_job(self._folder, CAPTURE, needed_scn)
            # Only now: what a full disk refused is written down the next time.
            self._needed_scn = needed_scn
        self._writer.retain()

    def blocks(self, after_scn: int) -> Iterator[Block]:
        """Yield what is durable above an SCN."""
        return self._reader.blocks(after_scn)

    def streamed(self, after_scn: int) -> np.ndarray[tuple[int], np.dtype[np.void]]:
        """Return the transaction index above an SCN.

        Raises:
            ScnNotFound: the log no longer reaches back so far; ``oldest`` is the first it holds.
        """
        tail = self._reader.tail()
        if after_scn < tail.oldest_scn:
            raise ScnNotFound(after_scn, tail.oldest_scn + 1, tail.complete_scn)
        return self._reader.index(min(after_scn, tail.covered_scn))

    def close(self) -> None:
        """Release the writer's lock."""
        self._writer.close()

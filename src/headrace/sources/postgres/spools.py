"""Transactions that the server streams before they commit, kept as the frames they came in.

Small ones stay in memory; once all together pass a bound, the largest go to temporary files, which the system
removes even when the process is killed: after a restart the server sends an open transaction again from its begin.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import tempfile
import threading
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from headrace.errors import DiskFull, ProtocolError, SourceError

__all__ = ["Spool", "Spools"]


class Spool:
    """The frames of one transaction, written once, then read once.

    Attributes:
        aborted: ids of its subtransactions that were rolled back.
        memory: bytes that it holds in memory.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._parts: deque[bytes] = deque()
        self._file: IO[bytes] | None = None
        self._mapped: tuple[mmap.mmap, memoryview] | None = None
        self.aborted: set[int] = set()
        self.memory = 0

    def add(self, data: bytes) -> None:
        """Write whole frames behind what is there."""
        if self._file is None:
            self._parts.append(data)
            self.memory += len(data)
        else:
            self._write(data)

    def to_disk(self) -> None:
        """Move everything to a file."""
        with _refusals(self._folder):
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=self._folder)  # noqa: SIM115 - `close` does
        parts, self._parts, self.memory = self._parts, deque(), 0
        for part in parts:
            self._write(part)

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        with _refusals(self._folder):
            self._file.write(data)

    def next_part(self) -> memoryview | None:
        """Return the next frames, all of them whole; None at the end.

        Those on disk are mapped rather than read: they are looked at once, where they lie.
        """
        if self._parts:
            return memoryview(self._parts.popleft())
        file, self._file = self._file, None
        if file is None:
            return None
        # In this order: a file that cannot be written refuses once more as it is closed.
        with _refusals(self._folder), file:
            file.flush()
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        mapped.madvise(mmap.MADV_SEQUENTIAL)
        self._mapped = mapped, memoryview(mapped)
        return self._mapped[1]

    def close(self) -> None:
        """Let the memory or the file go; nothing that it gave may be looked at any more."""
        if self._mapped is not None:
            (mapped, part), self._mapped = self._mapped, None
            part.release()
            # The system takes ten milliseconds for 100 MiB of a file, and a commit waits for whoever reads here.
            threading.Thread(target=mapped.close, name="headrace-spool").start()
        self._parts.clear()
        self.memory = 0
        if self._file is not None:
            self._file.close()


class Spools:
    """All transactions that are streamed and have neither committed nor been rolled back.

    Args:
        folder: for those that do not fit into memory; the system's temporary folder when None.
        memory_bytes: of all together.
    """

    def __init__(self, folder: Path | None = None, memory_bytes: int = 32 << 20) -> None:
        self._folder = folder
        self._memory_bytes = memory_bytes
        self._open: dict[int, Spool] = {}

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, xid: int, *, first: bool) -> None:
        """Take note of a stretch of a transaction.

        Raises:
            ProtocolError: it goes on without having begun, or begins twice.
        """
        if first == (xid in self._open):
            raise _broken("is streamed twice" if first else "goes on without its begin")
        if first:
            self._open[xid] = Spool(self._folder)

    def add(self, xid: int, frames: bytes) -> None:
        """Keep frames of a stretch.

        Raises:
            DiskFull: there is no room.
        """
        self._open[xid].add(frames)
        while sum(spool.memory for spool in self._open.values()) > self._memory_bytes:
            max(self._open.values(), key=lambda spool: spool.memory).to_disk()

    def abort(self, xid: int, subxid: int) -> None:
        """Forget a transaction, or leave one of its subtransactions out."""
        if xid == subxid:
            if (spool := self._open.pop(xid, None)) is not None:
                spool.close()
        elif xid in self._open:
            self._open[xid].aborted.add(subxid)

    def take(self, xid: int) -> Spool:
        """Return a transaction that has committed, for reading.

        Raises:
            ProtocolError: it was not streamed.
        """
        try:
            return self._open.pop(xid)
        except KeyError:
            raise _broken("commits without having been streamed") from None

    def close(self) -> None:
        """Let everything go: the server sends it again."""
        for spool in self._open.values():
            spool.close()
        self._open.clear()


@contextlib.contextmanager
def _refusals(folder: Path | None) -> Iterator[None]:
    """Name the folder when the system refuses to write there."""
    where = folder or tempfile.gettempdir()
    try:
        yield
    except OSError as error:
        what = f"The folder {where}, where open transactions wait for their commit, "
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(
                f"{what}has no room.",
                next_step="make room there; nothing is lost, it is tried again.",
            ) from error
        raise SourceError(
            f"{what}cannot be written: {error.strerror}.",
            next_step="give us the right to write there.",
        ) from error


def _broken(what: str) -> ProtocolError:
    return ProtocolError(
        f"pgoutput: a streamed transaction {what}.",
        next_step="report it with the server's version; capture stops rather than guess.",
    )

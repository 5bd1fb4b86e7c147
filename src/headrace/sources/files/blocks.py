"""Files of blocks as a feed: the bytes of a change log, read as the lines that they stand for.

Blocks lie behind one another and nothing lies between them; the last one may still be on its way. A file is opened as a
file of lines, so that places, ends of transactions and errors are those of lines.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

from headrace.errors import ProtocolError
from headrace.wire.block import HEADER_BYTES, BlockHeader, decode_block, read_header
from headrace.wire.lines import block_lines
from headrace.wire.place import Place

__all__ = ["SUFFIX", "BlockLines", "LinesFile", "block_headers"]

SUFFIX = ".blocks"
"""How a file of blocks is called."""

_IN_MEMORY = 8 << 20


class LinesFile(Protocol):
    """What is read of a file of lines."""

    @property
    def name(self) -> str:
        """Its path."""
        ...

    def readline(self) -> bytes:
        """Return the next line, without its end where there is none yet."""
        ...

    def seek(self, offset: int, whence: int = ..., /) -> int:
        """Go to a byte; return which one that is."""
        ...

    def fileno(self) -> int:
        """Return the number of the file itself."""
        ...

    def close(self) -> None:
        """Let go of it."""
        ...


class BlockLines:
    """The lines of a file of blocks, each made when its block is there.

    Args:
        file: opened at its beginning; becomes ours.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._read = 0
        self._end = 0
        self._at = 0
        self._lines = tempfile.SpooledTemporaryFile(_IN_MEMORY)  # noqa: SIM115 - closed with us

    @property
    def name(self) -> str:
        """The file's path."""
        return str(self._file.name)

    def readline(self) -> bytes:
        """Return the next line; nothing where no whole block is left.

        Raises:
            ProtocolError: what is there is no block, or is damaged.
        """
        while self._at >= self._end:
            if not self._more():
                return b""
        self._lines.seek(self._at)
        line = self._lines.readline()
        self._at += len(line)
        return line

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Go to a byte of the lines; behind the last one lies what is of no whole block."""
        if whence == os.SEEK_END:
            while self._more():
                pass
            rest = os.fstat(self._file.fileno()).st_size - self._read
            return self._end + (rest > 0)
        self._at = offset
        return offset

    def fileno(self) -> int:
        """Return the number of the file of blocks."""
        return self._file.fileno()

    def close(self) -> None:
        """Let go of the file."""
        self._file.close()
        self._lines.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _more(self) -> bool:
        """Add the lines of the next block; return whether there was a whole one."""
        header = _header(self._file, self._read)
        if header is None:
            return False
        self._file.seek(self._read)
        data = self._file.read(header.length)
        if len(data) < header.length:
            return False
        with _named(self.name):
            block = decode_block(data)
        self._read += header.length
        if len(block.index):
            lines = block_lines(block, Place(0), None)
            self._lines.seek(self._end)
            self._end += self._lines.write(lines)
        return True


def block_headers(path: Path) -> Iterator[BlockHeader]:
    """Yield the headers of a file's whole blocks, of those that have transactions.

    Raises:
        ProtocolError: what is there is no block.
    """
    size, at = path.stat().st_size, 0
    with path.open("rb") as file:
        while (header := _header(file, at)) is not None and at + header.length <= size:
            if header.transactions:
                yield header
            at += header.length


def _header(file: BinaryIO, at: int) -> BlockHeader | None:
    file.seek(at)
    data = file.read(HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return None
    with _named(file.name):
        return read_header(data)


@contextlib.contextmanager
def _named(path: str) -> Iterator[None]:
    """Name the file in what is wrong with a block."""
    try:
        yield
    except ProtocolError as error:
        raise ProtocolError(
            f"{path}: {error.message}",
            next_step="write the file anew; docs/block_format.md has the form. Nothing behind it was read.",
        ) from error

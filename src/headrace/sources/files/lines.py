"""The files of a feed as one run of lines.

Files are read in the order of their names, whether they hold lines or blocks. A file with another one behind it does
not change any more; the last one may grow. A line counts when its line break is there, and a transaction when the line
that ends it is; it lies in one file.

A file may get another name while it is read, as long as it keeps its place among the others: whoever writes
`headrace.outputs.NdjsonOutput` gives a file its number when the next one begins.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headrace.errors import ProtocolError, SlotLost, SourceUnavailable
from headrace.sources.files.blocks import SUFFIX, BlockLines, LinesFile, block_headers

__all__ = ["Ahead", "FeedLines", "feed_files", "feed_sizes", "last_scn"]

_SUFFIXES = (".ndjson", SUFFIX)
_TAIL_BYTES = 64 << 10
_LISTINGS = 20


def feed_files(folder: Path) -> list[Path]:
    """Return the files of a feed in their order.

    Raises:
        SourceUnavailable: the folder cannot be read.
    """
    try:
        return sorted(path for path in folder.iterdir() if path.suffix in _SUFFIXES)
    except OSError as error:
        raise SourceUnavailable(
            f"The feed's folder {folder} cannot be read: {error.strerror}.",
            next_step="see that it is there and may be read; it is tried again.",
        ) from error


@dataclass(frozen=True, slots=True)
class Ahead:
    """A transaction that has ended: its number, and when it was committed, microseconds since 1970 UTC."""

    scn: int
    commit_us: int


class FeedLines:
    """Hands out whole transactions, line by line, from a place on.

    Args:
        folder: of the feed.
        scn: number of the transaction behind which it begins, as the feed has it.

    Raises:
        SlotLost: the files up to there, or behind, are gone.
    """

    def __init__(self, folder: Path, scn: int) -> None:
        self._folder = folder
        self._file: LinesFile | None = None
        self._name = ""
        self._at = 0
        self._scanned = 0
        self._number = 0
        self._seek(scn)

    def ahead(self) -> Ahead | None:
        """Return the next transaction, None where none has ended yet; its lines are next.

        Raises:
            ProtocolError: a file ends inside a transaction and another one is behind it; or a line does not read.
            SlotLost: the file that is read is gone.
        """
        while True:
            found = self._find_end()
            if found is not None:
                return found
            following = self._following()
            if following is None:
                return None
            # What came between the look into this file and the next one's beginning.
            if (found := self._find_end()) is not None:
                return found
            if self._file is not None and self._at < self._file.seek(0, os.SEEK_END):
                following.close()
                raise self.broken("begins a transaction that does not end in its file")
            self._use(following)

    def next(self) -> tuple[dict[str, Any], int]:
        """Return the next line of the transaction ahead, and its length in bytes.

        Raises:
            ProtocolError: it is no object of JSON.
        """
        assert self._file is not None
        self._file.seek(self._at)
        while True:
            line = self._file.readline()
            self._at += len(line)
            self._number += 1
            if line.strip():
                break
        try:
            value = json.loads(line)
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise self.broken("is no object of JSON")
        return value, len(line)

    def close(self) -> None:
        """Let go of the file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def broken(self, what: str) -> ProtocolError:
        """Return the error for the line that came last."""
        return ProtocolError(
            f"The feed {self._folder}: {self._name} line {self._number} {what}.",
            next_step="correct the file; docs/files.md has the form. Nothing behind it was read.",
        )

    def _find_end(self) -> Ahead | None:
        """Look for the end of the transaction that begins at our place; what was looked through is not again."""
        if self._file is None:
            return None
        self._scanned = max(self._scanned, self._at)
        self._file.seek(self._scanned)
        while (line := self._file.readline()).endswith(b"\n"):
            self._scanned += len(line)
            if b'"end"' not in line:
                continue
            try:
                value = json.loads(line)
            except ValueError:
                # It is named when its turn has come.
                continue
            if isinstance(value, dict) and value.get("end") is True:
                return self._ended(value)
        return None

    def _ended(self, value: dict[str, Any]) -> Ahead:
        try:
            return Ahead(int(value["scn"]), int(value["commit_us"]))
        except (ValueError, KeyError, TypeError, OverflowError):
            raise ProtocolError(
                f"The feed {self._folder}: a line of {self._name} ends a transaction and has no scn or no commit_us.",
                next_step="correct the file; docs/files.md has the form.",
            ) from None

    def _following(self) -> LinesFile | None:
        """Open the file behind the one that is read, None where there is none.

        Files get other names meanwhile: what was opened counts if it is the next one in a listing made afterwards.
        """
        for _ in range(_LISTINGS):
            listed = self._behind()
            if not listed:
                return None
            file = _opened(listed[0])
            if file is not None:
                again = self._behind()
                if again and _inode(again[0]) == os.fstat(file.fileno()).st_ino:
                    return file
                file.close()
        raise SourceUnavailable(
            f"The files of the feed {self._folder} get other names faster than they can be listed.",
            next_step="nothing to do: it is tried again.",
        )

    def _behind(self) -> list[Path]:
        """Return the files behind the one that is read; all of them before the first."""
        for _ in range(_LISTINGS):
            files = feed_files(self._folder)
            if self._file is None:
                return files
            inode = os.fstat(self._file.fileno()).st_ino
            places = [place for place, path in enumerate(files) if _inode(path) == inode]
            if places:
                return files[places[-1] + 1 :]
        raise SlotLost(
            f"The file {self._name} of the feed {self._folder} is gone while it was read.",
            next_step="put it back; files that were read may go when one behind them was begun.",
        )

    def _use(self, file: LinesFile) -> None:
        self.close()
        self._file, self._name = file, Path(file.name).name
        self._at = self._scanned = self._number = 0

    def _seek(self, scn: int) -> None:
        """Open the last file that begins at or before a transaction."""
        chosen: Path | None = None
        for path in feed_files(self._folder):
            first = _first_scn(path)
            if first is None:
                continue
            if scn and first > scn:
                if chosen is None:
                    raise SlotLost(
                        f"The feed {self._folder} begins at SCN {first}, and was read up to {scn}: files between are "
                        "gone.",
                        next_step="put them back; else start a new state folder and copy the tables again.",
                    )
                break
            chosen = chosen if chosen is not None and not scn else path
        if chosen is not None:
            file = _opened(chosen)
            if file is None:
                raise SourceUnavailable(
                    f"{chosen} is gone while it was looked for.",
                    next_step="nothing to do: it is tried again.",
                )
            self._use(file)
        elif scn:
            raise SlotLost(
                f"The feed {self._folder} is empty, and was read up to SCN {scn}.",
                next_step="put its files back; else start a new state folder and copy the tables again.",
            )


def _opened(path: Path) -> LinesFile | None:
    """Open a file; None when it has another name by now.

    Raises:
        SourceUnavailable: it may not be read.
    """
    try:
        file = path.open("rb")
        return BlockLines(file) if path.suffix == SUFFIX else file
    except FileNotFoundError:
        return None
    except OSError as error:
        raise SourceUnavailable(
            f"{path} cannot be read: {error.strerror}.",
            next_step="see that it may be read; it is tried again.",
        ) from error


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except OSError:
        return 0


def _first_scn(path: Path) -> int | None:
    """Return the SCN of a file's first line, None where there is none yet."""
    try:
        if path.suffix == SUFFIX:
            return next((header.first_scn for header in block_headers(path)), None)
        with path.open("rb") as file:
            line = file.readline()
        return int(json.loads(line)["scn"]) if line.endswith(b"\n") else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def last_scn(folder: Path) -> int:
    """Return the number of the last transaction that ends in a feed, 0 before the first; reads the ends of files.

    Raises:
        SourceUnavailable: the folder cannot be read.
    """
    for path in reversed(feed_files(folder)):
        try:
            ended = _last_in(path)
        except OSError as error:
            raise SourceUnavailable(
                f"{path} cannot be read: {error.strerror}.",
                next_step="nothing to do where it got another name meanwhile: it is tried again.",
            ) from error
        if ended is not None:
            return ended
    return 0


def _last_in(path: Path) -> int | None:
    """Return the number of the last transaction that ends in a file, None where none does."""
    if path.suffix == SUFFIX:
        return max((header.complete_scn for header in block_headers(path)), default=0) or None
    size = path.stat().st_size
    tail = _TAIL_BYTES
    while True:
        with path.open("rb") as file:
            file.seek(max(0, size - tail))
            # A line that is not whole, at either end, is none.
            lines = file.read(tail).split(b"\n")[0 if tail >= size else 1 : -1]
        if (found := _last_end(lines)) is not None or tail >= size:
            return found
        tail *= 4


def feed_sizes(folder: Path) -> list[int]:
    """Return the bytes of each file of a feed; one that has just got another name may be left out.

    Raises:
        SourceUnavailable: the folder cannot be read.
    """
    sizes = []
    for path in feed_files(folder):
        with contextlib.suppress(FileNotFoundError):
            sizes.append(path.stat().st_size)
    return sizes


def _last_end(lines: list[bytes]) -> int | None:
    for line in reversed(lines):
        if b'"end"' in line:
            try:
                value = json.loads(line)
                if value.get("end") is True:
                    return int(value["scn"])
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
    return None

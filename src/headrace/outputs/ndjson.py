"""Changes as lines of JSON: to a file that is durable before each checkpoint, or to whatever reads our output.

Each change comes at least once. A line carries ``scn`` and ``ord``, by which a reader tells one that came twice after
a crash; after a failed callback nothing comes twice: the file is cut back to the last checkpoint.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from headrace.client import Consumer, Event, Result, Window
from headrace.durable import sync_folder
from headrace.errors import ConfigError, TargetUnwritable
from headrace.model.block import SystemEvent
from headrace.outputs.formats import Format
from headrace.wire.place import Place

__all__ = ["NdjsonOutput"]

_DEFAULT = Format()
_WAITING_BYTES = 2**20
"""Lines that are handed out before their window ends."""


class NdjsonOutput(Consumer):
    """Writes one line per change, per system event and per end of a window.

    A file that is full or old is renamed when the checkpoint that made it durable is stored, which the next window or
    checkpoint tells: ``changes.ndjson`` becomes ``changes-00000000000000004711.ndjson``, which ends with the window
    4711. So names sort as the stream does, no file that has such a name ever changes, no window is spread over two, and
    none comes again behind such a file.

    Args:
        path: of the file that is written; its folder is made. None for the standard output.
        rotate_bytes: size from which the file is renamed; None for never.
        rotate_s: age of its first line, likewise.
        form: how changes look.
        clock: monotonic seconds.

    Raises:
        ConfigError: a bound is none, or the standard output shall be rotated.
    """

    in_order = True

    def __init__(
        self,
        path: Path | str | None = None,
        *,
        rotate_bytes: int | None = None,
        rotate_s: float | None = None,
        form: Format = _DEFAULT,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, bound in (("rotate_bytes", rotate_bytes), ("rotate_s", rotate_s)):
            if bound is not None and (bound <= 0 or path is None):
                raise ConfigError(
                    f"{name} is {bound} for {path or 'the standard output'}.",
                    next_step=f"set {name} above 0 and name a file, or leave it out.",
                )
        self._path = None if path is None else Path(path)
        self._rotate_bytes, self._rotate_s = rotate_bytes, rotate_s
        self._form, self._clock = form, clock
        self._file: BinaryIO | None = None
        self._window: Window | None = None
        self._waiting = bytearray()
        # Sizes at the newest checkpoint that is surely stored, and at one behind it that may be; None for one of which
        # only this is known: it lies no further than where the first window began that was written behind it.
        self._durable: list[tuple[Place | None, int]] = [(None, 0)]
        self._first_from: Place | None = None
        self._full_at: Place | None = None
        self._began_at = 0.0

    # -- callbacks --------------------------------------------------------------------------------

    def on_start(self) -> None:
        """Open the file behind its last whole line."""
        if self._path is None:
            self._file = sys.stdout.buffer
        else:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._open(self._path)

    def on_stop(self) -> None:
        """Close the file; lines behind the last checkpoint may come again."""
        if self._file is not None and self._path is not None:
            self._file.close()
        self._file = None

    def on_start_window(self, window: Window) -> None:
        """Remember it for the format.

        Raises:
            TargetUnwritable: the file before was to be renamed, which the file system refused.
        """
        self._rotate()
        self._window = window
        if self._first_from is None:
            inside = window.resumed_after
            scn = window.first_scn
            self._first_from = Place(scn, inside) if inside >= 0 else Place(scn - 1)

    def on_data_event(self, event: Event) -> Result | None:
        """Write the change."""
        assert self._window is not None
        return self._add(self._form.change(self._window, event))

    def on_system_event(self, event: SystemEvent) -> Result | None:
        """Write the event."""
        assert self._window is not None
        return self._add(self._form.system(self._window, event))

    def on_end_window(self, window: Window) -> Result | None:
        """Write the end, and hand out what is complete now."""
        return self._add(self._form.end(window)) or self._write()

    def on_checkpoint(self, place: Place) -> Result | None:
        """Make the lines durable; rename a file that was full or old at the checkpoint before.

        Raises:
            TargetUnwritable: the file system refused.
        """
        self._rotate()
        answer = self._write()
        file, path = self._file, self._path
        if path is None or file is None:
            return answer
        with _refused(path):
            os.fsync(file.fileno())
        # Whether the place is stored is not known yet: this call may have taken too long.
        self._durable = [self._durable[-1], (place, file.tell())]
        if place.whole and self._is_due(file.tell()):
            self._full_at = place
        return answer

    def on_rollback(self, place: Place) -> None:
        """Cut the file back to the checkpoint that is stored; what is durable stays, also where it comes again."""
        self._window = None
        self._waiting.clear()
        if self._path is None or self._file is None:
            return
        if self._file.closed:
            # The file before was renamed, and the next one could not be opened.
            self._open(self._path)
            return
        size = self._size_at(place)
        if size < self._durable[-1][1]:
            self._full_at = None
        self._durable, self._first_from = [(None, size)], None
        self._file.seek(size)
        self._file.truncate()

    # -- the file ---------------------------------------------------------------------------------

    def _size_at(self, place: Place) -> int:
        """Return how much of the file does not come again behind a place, or is durable and shall stay."""
        assert self._file is not None
        began = self._first_from
        for stored, size in self._durable:
            if stored == place or (stored is None and (began is None or place <= began)):
                return size
        # Somebody begins elsewhere, so the newest checkpoint was stored.
        stored, size = self._durable[-1]
        return size if stored is not None and place < stored else self._file.tell()

    def _rotate(self) -> None:
        """Rename the file if it was full or old at the last checkpoint, which is stored: else a rollback had come."""
        path, file, full_at = self._path, self._file, self._full_at
        if path is None or file is None or full_at is None:
            return
        with _refused(path):
            path.rename(_free_name(path, full_at.scn))
            self._full_at = None
            file.close()
            self._open(path)

    def _add(self, value: object) -> Result | None:
        if value is None:
            return None
        self._waiting += self._form.serialize(value) + b"\n"
        return self._write() if len(self._waiting) >= _WAITING_BYTES else None

    def _write(self) -> Result | None:
        """Hand out what waits; whoever reads the standard output gets it now."""
        file = self._file
        assert file is not None
        try:
            with _refused(self._path):
                if self._path is not None and not file.tell():
                    self._began_at = self._clock()
                while self._waiting:
                    del self._waiting[: file.write(self._waiting)]
                file.flush()
        except BrokenPipeError:
            # Nobody reads any more, and nobody will.
            return Result.ERROR_FATAL
        return None

    def _is_due(self, size: int) -> bool:
        if not size:
            return False
        if self._rotate_bytes is not None and size >= self._rotate_bytes:
            return True
        return self._rotate_s is not None and self._clock() - self._began_at >= self._rotate_s

    def _open(self, path: Path) -> None:
        """Open a file, cut off behind its last whole line."""
        is_new = not path.exists()
        with _refused(path):
            # Without a buffer: what a full disk refused must not come back later.
            self._file = file = path.open("wb" if is_new else "r+b", buffering=0)
            self._durable, self._first_from = [(None, _cut_to_whole_lines(file))], None
            if is_new:
                sync_folder(path.parent)
        self._began_at = self._clock()


@contextmanager
def _refused(path: Path | None) -> Iterator[None]:
    """Turn what the file system raises inside the block into an error that names the file."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise TargetUnwritable(
            f"{path or 'The standard output'} cannot be written: {os.strerror(error.errno or 0)}.",
            next_step="make room on its file system, and check its rights; nothing was acknowledged.",
        ) from error


def _cut_to_whole_lines(file: BinaryIO) -> int:
    """Remove what a crash left of a line at the end; return the bytes that stay."""
    end = file.seek(0, os.SEEK_END)
    start = end
    while start:
        start = max(0, start - 65_536)
        file.seek(start)
        newline = file.read(min(65_536, end - start)).rfind(b"\n")
        if newline >= 0:
            start += newline + 1
            break
    file.seek(start)
    file.truncate()
    return start


def _free_name(path: Path, scn: int) -> Path:
    """Return a name that sorts by its last window; after a rewind a window may end a second file."""
    name = path.with_name(f"{path.stem}-{scn:020d}{path.suffix}")
    again = 1
    while name.exists():
        again += 1
        name = path.with_name(f"{path.stem}-{scn:020d}-{again}{path.suffix}")
    return name

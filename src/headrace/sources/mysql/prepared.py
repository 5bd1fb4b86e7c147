"""Rows of distributed transactions that are prepared and not ended, in files of ours, one for each.

They are in the log where they were prepared, and count from their ``XA COMMIT`` on, which may come weeks later, when
the server has removed the file of its log. So their events are kept as the log has them, durable before a place behind
them is acknowledged, and are read again at the place of their end. What the log alone had before we began to read it
is looked for there (`headrace.sources.mysql.unread`).
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

from headrace.durable import sync_folder
from headrace.errors import ConfigError, DiskFull, SourceError
from headrace.model.schema import TableId
from headrace.observe.failpoints import failpoint
from headrace.sources.mysql.events import ROWS, Event, EventType, stored_event
from headrace.sources.mysql.gtids import Gtid
from headrace.sources.mysql.position import NOTHING_HELD, Resume
from headrace.sources.mysql.table_map import table_map_id

__all__ = ["Held", "HeldTransactions", "Search"]

_HEAD = struct.Struct("<III")
"""Of each event: its bytes, those before its checksum, and a checksum of ours. The last one has none."""
_NAME = "{:020d}.xa"
_SMALL, _MEMORY = 64 << 10, 8 << 20
"""Bytes of a transaction that stays in memory, and of all that do."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)

Search = Callable[[str, str, Gtid, "Held"], bool]
"""Fills in the rows of a transaction by its name, prepared before a file and an id; says whether it was found."""


class Held:
    """A distributed transaction while its rows are read; in memory as long as it is small.

    Args:
        path: of the file that a larger one gets.
        captures: whether a table's rows are kept.
    """

    def __init__(self, path: Path, captures: Callable[[TableId], bool]) -> None:
        self._path = path
        self._captures = captures
        self._wanted: set[int] = set()
        self._file: BinaryIO | None = None
        self.small = bytearray()
        self.rows = False

    def add(self, event: Event) -> None:
        """Take in a description of a table, or rows of one.

        Raises:
            DiskFull: there is no room.
        """
        table_id = int.from_bytes(event.body().take(6), "little")
        if event.type == EventType.TABLE_MAP:
            _, table, _ = table_map_id(event)
            if not self._captures(table):
                self._wanted.discard(table_id)
                return
            self._wanted.add(table_id)
        elif table_id not in self._wanted:
            return
        self.rows |= event.type in ROWS
        self._write(_HEAD.pack(len(event.data), event.end, crc32(event.data)), event.data)

    def keep(self) -> bool:
        """End it; return whether it has become a file."""
        self._write(_HEAD.pack(0, 0, 0))
        if self._file is None:
            return False
        file, self._file = self._file, None
        with _refusals(self._path.parent):
            file.close()
        return True

    def _write(self, *parts: bytes) -> None:
        if self._file is None and len(self.small) + len(parts[-1]) <= _SMALL:
            self.small += b"".join(parts)
            return
        with _refusals(self._path.parent):
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._file = self._path.open("wb")
                self._file.write(self.small)
                self.small.clear()
            for part in parts:
                self._file.write(part)


class HeldTransactions:
    """All of them.

    Args:
        folder: of the files; made with the first one.
        search: looks into the log for what was prepared before we began to read it.

    A file is called by the SCN at which its transaction was prepared. Most transactions are ended before the next place
    is acknowledged, and never become one.
    """

    def __init__(self, folder: Path, search: Search) -> None:
        self._folder = folder
        self._search = search
        self._small: dict[int, bytearray] = {}
        self._small_bytes = 0
        self._unsynced: set[int] = set()
        self._files = self._found()

    def begin(self, scn: int, captures: Callable[[TableId], bool]) -> Held:
        """Return what takes the rows of one that is being read."""
        return Held(self._path(scn), captures)

    def keep(self, scn: int, held: Held) -> int:
        """End what `begin` gave; return under which number its rows are found, `NOTHING_HELD` where it has none."""
        if not held.rows:
            return NOTHING_HELD
        self._forget(scn)
        if held.keep():
            self._files.add(scn)
            self._unsynced.add(scn)
        else:
            self._small[scn] = held.small
            self._small_bytes += len(held.small)
        if self._small_bytes > _MEMORY:
            for small in list(self._small):
                self._to_file(small)
        failpoint("xa.held")
        return scn

    def find(
        self, scn: int, xid: str, file: str, gtid: Gtid, captures: Callable[[TableId], bool]
    ) -> int:
        """Return likewise where the rows of one are found that was prepared before we began.

        Args:
            scn: of its end.
            xid: its name.
            file: of the log, in which it ends.
            gtid: of its end.
            captures: whether a table's rows are kept.

        Raises:
            SourceError: the log no longer has them.
        """
        held = self.begin(scn, captures)
        if self._search(xid, file, gtid, held):
            return self.keep(scn, held)
        raise SourceError(
            f"Transaction {gtid} ends a distributed one (XA) that was prepared before what the server still has of "
            "its log, so that nobody knows what it changed.",
            next_step="dump every table again: headrace resync FILE; end distributed transactions sooner than the "
            "server removes its log.",
        )

    def events(self, scn: int) -> Iterator[Event]:
        """Yield what is held under a number.

        Raises:
            ConfigError: its file is not there, or damaged.
        """
        small = self._small.get(scn)
        try:
            with io.BytesIO(small) if small is not None else self._path(scn).open("rb") as file:
                while True:
                    size, end, told = _HEAD.unpack(file.read(_HEAD.size))
                    if not size:
                        return
                    data = file.read(size)
                    if crc32(data) != told:
                        raise ValueError("checksum")
                    yield stored_event(data, end)
        except (OSError, ValueError, struct.error) as error:
            raise ConfigError(
                f"{self._path(scn).name}, the rows of a distributed transaction, is not in the state folder, or does "
                "not read.",
                next_step="restore the state folder from a backup; else dump every table again: headrace resync FILE.",
            ) from error

    def sync(self, resume: Resume) -> None:
        """Make durable what is prepared at a place that will be acknowledged."""
        held = set(resume.prepared.values())
        for scn in held & self._small.keys():
            self._to_file(scn)
        with _refusals(self._folder):
            for scn in (due := held & self._unsynced):
                with self._path(scn).open("rb") as file:
                    os.fsync(file.fileno())
            if due:
                sync_folder(self._folder)
        self._unsynced -= due

    def settle(self, resume: Resume) -> None:
        """Remove what has ended before a place that is acknowledged."""
        held = set(resume.prepared.values())
        for scn in [*self._small, *self._files]:
            if scn <= resume.scn and scn not in held:
                self._forget(scn)

    def clear(self) -> None:
        """Remove everything: no place of ours speaks of it any more."""
        for scn in [*self._small, *self._files]:
            self._forget(scn)

    def _forget(self, scn: int) -> None:
        self._small_bytes -= len(self._small.pop(scn, b""))
        self._unsynced.discard(scn)
        if scn in self._files:
            self._path(scn).unlink(missing_ok=True)
            self._files.discard(scn)

    def _to_file(self, scn: int) -> None:
        with _refusals(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._path(scn).write_bytes(self._small[scn])
        self._small_bytes -= len(self._small.pop(scn))
        self._files.add(scn)
        self._unsynced.add(scn)

    def _found(self) -> set[int]:
        return {int(path.stem) for path in self._folder.glob("*.xa")}

    def _path(self, scn: int) -> Path:
        return self._folder / _NAME.format(scn)


@contextlib.contextmanager
def _refusals(folder: Path) -> Iterator[None]:
    """Name the folder when the system refuses to write there."""
    try:
        yield
    except OSError as error:
        what = f"The folder {folder}, where prepared transactions wait for their end, "
        if error.errno in _NO_ROOM:
            raise DiskFull(
                f"{what}has no room.",
                next_step="make room there; nothing is lost, it is tried again.",
            ) from error
        raise SourceError(
            f"{what}cannot be written: {error.strerror}.",
            next_step="give us the right to write there.",
        ) from error

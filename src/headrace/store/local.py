"""Folders of a file system, with the syncs that make bytes and names outlive a power cut."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from headrace.durable import sync_folder
from headrace.store.base import Found

__all__ = ["LOCAL", "LocalStore"]


class LocalStore:
    """The file systems of this machine; see `headrace.store.base.Store` for what each method promises."""

    def put_if_absent(self, path: Path, data: bytes) -> None:
        """Write under a hidden name, and give the file its own by a hard link, which only one writer can make."""
        folder = path.parent
        folder.mkdir(parents=True, exist_ok=True)
        draft = _draft(path)
        try:
            _write(draft, data)
            _link(draft, path)
        finally:
            # What refuses that is what refused the write, and that is to be told.
            with suppress(OSError):
                draft.unlink()
        sync_folder(folder)

    def put(self, path: Path, data: bytes) -> None:
        """Write under a hidden name, and move the file over the old one."""
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = _draft(path)
        try:
            _write(draft, data)
            draft.replace(path)
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise
        sync_folder(path.parent)

    @contextmanager
    def create(self, path: Path) -> Iterator[IO[bytes]]:
        """Write in place: nobody looks for a name that no log has."""
        try:
            file = path.open("xb")
        except FileNotFoundError:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = path.open("xb")
        with file:
            yield file
            file.flush()
            os.fsync(file.fileno())

    def sync(self, folders: Iterable[Path]) -> None:
        """Sync the folders themselves."""
        for folder in folders:
            sync_folder(folder)

    def read(self, path: Path) -> bytes:
        """Read the file."""
        return path.read_bytes()

    def read_range(self, path: Path, begin: int, size: int) -> bytes:
        """Read a piece of the file."""
        with path.open("rb") as file:
            file.seek(begin)
            return file.read(size)

    def parquet(self, path: Path, size: int = 0) -> Path:
        """Return the path: Arrow opens files by itself."""
        del size
        return path

    def names(self, folder: Path) -> list[str]:
        """List the folder."""
        try:
            return os.listdir(folder)
        except (FileNotFoundError, NotADirectoryError):
            return []

    def consecutive(self, paths: Iterable[Path]) -> list[Found]:
        """Look for one after the other, and list nothing: a folder may hold a day of commits."""
        found: list[Found] = []
        for path in paths:
            try:
                known = path.stat()
            except (FileNotFoundError, NotADirectoryError):
                break
            found.append(_found(path, known))
        return found

    def walk(
        self, folder: Path, into: Callable[[str], bool], wanted: Callable[[str], bool]
    ) -> Iterator[Found]:
        """Go through the folders."""
        for below, folders, names in os.walk(folder):
            folders[:] = [name for name in folders if into(name)]
            for name in filter(wanted, names):
                path = Path(below, name)
                with suppress(FileNotFoundError):
                    yield _found(path, path.stat())

    def exists(self, path: Path) -> bool:
        """Look for it."""
        return path.exists()

    def is_file(self, folder: Path) -> bool:
        """Look what it is."""
        return folder.is_file()

    def missing(self, folder: Path, paths: Collection[Path]) -> int:
        """Look for each."""
        del folder
        return sum(not path.exists() for path in paths)

    def delete(self, paths: Collection[Path]) -> int:
        """Unlink each."""
        count = 0
        for path in paths:
            with suppress(FileNotFoundError):
                path.unlink()
                count += 1
        return count

    def share(self, source: Path, place: Path, names: Collection[str]) -> None:
        """Link each, and sync every folder once."""
        folders = {place}
        for name in names:
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True)
            folders |= {above for above in path.parents if above.is_relative_to(place)}
            with suppress(FileExistsError):
                os.link(source / name, path)
        self.sync(folders)

    def discard(self, folder: Path, heart: str) -> None:
        """Give the folder a hidden name first: a table that is half there would be a damaged one."""
        del heart
        if not folder.exists():
            return
        folder.rename(folder.with_name(f".{folder.name}.{uuid.uuid4().hex}.gone"))
        sync_folder(folder.parent)
        for left in folder.parent.glob(f".{folder.name}.*.gone"):
            shutil.rmtree(left, ignore_errors=True)

    def end_discard(self, folder: Path, heart: str) -> None:
        """Do nothing: what is left has another name."""


def _draft(path: Path) -> Path:
    # Readers pass over names that begin with a point.
    return path.with_name(f".{path.name}.{uuid.uuid4()}.tmp")


def _link(draft: Path, path: Path) -> None:
    """Give a draft its name.

    Source: link(2), "BUGS".
    """
    try:
        os.link(draft, path)
    except FileExistsError:
        # A file server whose answer was lost is asked again, and tells of the link that it has just made.
        if draft.stat().st_nlink == 1:
            raise


def _write(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _found(path: Path, known: os.stat_result) -> Found:
    return Found(path, known.st_mtime_ns / 1e6, (known.st_ino, known.st_mtime_ns))


LOCAL = LocalStore()
"""There is one: it holds nothing."""

"""The port of a store: what a table's folder needs of the place where its bytes lie.

Called from the driver and from tasks, by any number of threads and processes at once. A method is done when what it
promises is durable; each may be called again after a crash. Names that begin with a point are nobody's business.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Protocol, TypeVar

from headrace.store.location import Location

__all__ = ["Found", "Store", "store_of"]

P = TypeVar("P", contravariant=True)


@dataclass(frozen=True, slots=True)
class Found:
    """A file that is there.

    Attributes:
        path: of it.
        modified_ms: when it was last written, milliseconds since 1970.
        tag: differs from that of another file that takes its place.
    """

    path: Location
    modified_ms: float
    tag: Hashable


class Store(Protocol[P]):
    """A place for files; ``P`` is how it names them.

    What a missing file does is said for each method. Beside that all raise OSError (a folder refused),
    `StoreUnavailable` (a server gives no answer; tried again) or `StoreRefused` (it wants other settings).
    """

    def put_if_absent(self, path: P, data: bytes) -> None:
        """Make a file, whole and durable, of a name that nobody has; of several that try at once one succeeds.

        Raises:
            FileExistsError: somebody has it; nothing was changed.
        """
        ...

    def put(self, path: P, data: bytes) -> None:
        """Put bytes in the place of a file or of none, durably; readers see the old ones or the new."""
        ...

    def create(self, path: P) -> AbstractContextManager[IO[bytes]]:
        """Write a file of a name that nobody else uses; its bytes are durable at the end of the block.

        Its name is durable once its folders went through `sync`. A block that fails leaves nothing that counts.
        """
        ...

    def sync(self, folders: Iterable[P]) -> None:
        """Make the names in folders durable."""
        ...

    def read(self, path: P) -> bytes:
        """Return a file's bytes.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def read_range(self, path: P, begin: int, size: int) -> bytes:
        """Return ``size`` bytes from place ``begin`` on, fewer where the file ends.

        Raises:
            FileNotFoundError: there is none.
        """
        ...

    def parquet(self, path: P, size: int = 0) -> Any:
        """Return what `pyarrow.parquet` takes to read a file.

        Args:
            path: of the file; whether it is there shows now or when it is read (FileNotFoundError).
            size: its bytes, where somebody knows.
        """
        ...

    def names(self, folder: P) -> list[str]:
        """Return the names of the files right in a folder, and perhaps of folders; none where there is none."""
        ...

    def consecutive(self, paths: Iterable[P]) -> list[Found]:
        """Return the files of ``paths``, which ascend in one folder, up to the first that is missing.

        Args:
            paths: asked for one after the other, so that there may be no end to them.
        """
        ...

    def walk(
        self, folder: P, into: Callable[[str], bool], wanted: Callable[[str], bool]
    ) -> Iterator[Found]:
        """Yield the files below a folder.

        Args:
            folder: where to begin.
            into: says of a folder's name whether to look into it.
            wanted: says of a file's name whether to yield it.
        """
        ...

    def exists(self, path: P) -> bool:
        """Whether there is such a file."""
        ...

    def is_file(self, folder: P) -> bool:
        """Whether a file stands where a folder should, in a store that cannot have both."""
        ...

    def missing(self, folder: P, paths: Collection[P]) -> int:
        """Return how many of some files below a folder are not there."""
        ...

    def delete(self, paths: Collection[P]) -> int:
        """Remove files, and return how many went, missing ones left out where that is known."""
        ...

    def share(self, source: P, place: P, names: Collection[str]) -> None:
        """Make files of one folder files of another too, durably; those that are there already stay."""
        ...

    def discard(self, folder: P, heart: str) -> None:
        """Remove a folder, whole or not at all for whoever looks for its heart; nothing where there is none.

        Args:
            folder: to remove.
            heart: name of the folder in it, without which it is nothing.
        """
        ...

    def end_discard(self, folder: P, heart: str) -> None:
        """Remove what a crash in `discard` has left, before another folder of that name begins."""
        ...


def store_of(location: Location) -> Store[Any]:
    """Return the store that holds a location."""
    if isinstance(location, Path):
        from headrace.store.local import LOCAL

        return LOCAL
    # The client of object stores is loaded where there is one.
    from headrace.store.objects import ObjectStore

    return ObjectStore(location.bucket)

"""Buckets of a server that speaks S3 and honours ``If-None-Match: *``, through the client ``obstore``.

The condition makes one of several writers of a name succeed. A request whose answer was lost may have been carried out
all the same, and the client sends some again by itself; so whoever is told that a name is taken, or is told nothing,
reads what is there, and it was his own write if it is his own bytes. Every entry of a log has some of its own.

Source: Amazon S3, "How to prevent object overwrites with conditional writes".
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import IO, Any

import obstore
import pyarrow as pa
from obstore.exceptions import BaseError
from obstore.store import S3Store

from headrace.errors import StoreRefused, StoreUnavailable
from headrace.store.answers import named
from headrace.store.base import Found
from headrace.store.location import Bucket, ObjectPath

__all__ = ["ObjectStore"]

_RETRY_S = 20.0
_CONNECT_S = 5.0
_WHOLE_BYTES = 8 * 2**20
"""A file up to this size is read in one request: several small ones take longer."""
_MULTIPART_BYTES = 64 * 2**20
"""A file above this size is written in parts."""
_GONE = "~discarded"
"""Mark in the heart of a folder that is being removed. It sorts behind all other names, so that a listing from any of
them on shows it."""


@dataclass(frozen=True, slots=True)
class ObjectStore:
    """One bucket; see `headrace.store.base.Store` for what each method promises.

    Attributes:
        bucket: how to get at it.
    """

    bucket: Bucket

    def put_if_absent(self, path: ObjectPath, data: bytes) -> None:
        """Write under the condition that nobody has; a doubtful answer is settled by what is there."""
        try:
            with self._asked(path):
                obstore.put(self._client, path.key, data, mode="create", use_multipart=False)
        except (FileExistsError, StoreUnavailable) as error:
            held = self._held(path)
            if held == data:
                return
            if held is not None:
                raise FileExistsError(path.name) from error
            raise

    def put(self, path: ObjectPath, data: bytes) -> None:
        """Write: an object is replaced at once."""
        with self._asked(path):
            obstore.put(self._client, path.key, data, use_multipart=len(data) > _MULTIPART_BYTES)

    @contextmanager
    def create(self, path: ObjectPath) -> Iterator[IO[bytes]]:
        """Gather the bytes in memory, where the rows are anyway, and write them at the end."""
        with io.BytesIO() as file:
            yield file
            # No view of them: one that an error holds could not be closed over.
            self.put(path, file.getvalue())

    def sync(self, folders: Iterable[ObjectPath]) -> None:
        """Do nothing: an object is durable with its name."""

    def read(self, path: ObjectPath) -> bytes:
        """Get the object."""
        with self._asked(path):
            return bytes(obstore.get(self._client, path.key).bytes())

    def read_range(self, path: ObjectPath, begin: int, size: int) -> bytes:
        """Get a piece of the object."""
        with self._asked(path):
            return bytes(obstore.get_range(self._client, path.key, start=begin, length=size))

    def parquet(self, path: ObjectPath, size: int = 0) -> Any:
        """Return the whole of a small file, of a large one a reader that gets what it is asked for."""
        if not size:
            with self._asked(path):
                size = obstore.head(self._client, path.key)["size"]
        if size <= _WHOLE_BYTES:
            return pa.BufferReader(self.read(path))
        return _Pieces(self, path, size)

    def names(self, folder: ObjectPath) -> list[str]:
        """List one level of keys."""
        with self._asked(folder):
            found = obstore.list_with_delimiter(self._client, folder.key)
        names = [str(entry["path"]).rpartition("/")[2] for entry in found["objects"]]
        return [] if _GONE in names else names

    def consecutive(self, paths: Iterable[ObjectPath]) -> list[Found]:
        """List from the first name on, once, however many there are."""
        wanted = iter(paths)
        first = next(wanted)
        # The listing begins behind the name that it is given.
        found = {one.path: one for one in self._listed(first.parent, first.key[:-1])}
        if first.parent / _GONE in found:
            return []
        ascending = itertools.chain([first], wanted)
        return [found[path] for path in itertools.takewhile(found.__contains__, ascending)]

    def walk(
        self, folder: ObjectPath, into: Callable[[str], bool], wanted: Callable[[str], bool]
    ) -> Iterator[Found]:
        """List all keys below."""
        for found in self._listed(folder):
            assert isinstance(found.path, ObjectPath)
            *folders, name = found.path.key[len(folder.key) :].lstrip("/").split("/")
            if wanted(name) and all(map(into, folders)):
                yield found

    def exists(self, path: ObjectPath) -> bool:
        """Ask for its head."""
        try:
            with self._asked(path):
                obstore.head(self._client, path.key)
        except FileNotFoundError:
            return False
        return True

    def is_file(self, folder: ObjectPath) -> bool:
        """Say no: an object does not stand in the way of longer keys."""
        del folder
        return False

    def missing(self, folder: ObjectPath, paths: Collection[ObjectPath]) -> int:
        """List all keys below, instead of a request for each."""
        return len({*paths} - {found.path for found in self._listed(folder)})

    def delete(self, paths: Collection[ObjectPath]) -> int:
        """Delete many at once; a server does not say which were there."""
        keys = [path.key for path in paths]
        for path in itertools.islice(paths, 1):
            with self._asked(path):
                obstore.delete(self._client, keys)
        return len(keys)

    def share(self, source: ObjectPath, place: ObjectPath, names: Collection[str]) -> None:
        """Let the server copy each."""
        for name in names:
            with self._asked(source / name):
                obstore.copy(self._client, (source / name).key, (place / name).key)

    def discard(self, folder: ObjectPath, heart: str) -> None:
        """Mark the folder as gone, then remove what is in it, the mark last."""
        if not any(True for _ in self._listed(folder)):
            return
        self.put(folder / heart / _GONE, b"")
        self._empty(folder, heart)

    def end_discard(self, folder: ObjectPath, heart: str) -> None:
        """Remove what is left under a mark."""
        if self.exists(folder / heart / _GONE):
            self._empty(folder, heart)

    def _empty(self, folder: ObjectPath, heart: str) -> None:
        mark = folder / heart / _GONE
        paths = [found.path for found in self._listed(folder) if found.path != mark]
        self.delete([path for path in paths if isinstance(path, ObjectPath)])
        self.delete([mark])

    def _held(self, path: ObjectPath) -> bytes | None:
        try:
            return self.read(path)
        except FileNotFoundError:
            return None

    def _listed(self, folder: ObjectPath, after: str | None = None) -> Iterator[Found]:
        """Yield what lies below a folder, in order of the keys."""
        with self._asked(folder):
            for entries in obstore.list(self._client, folder.key or None, offset=after):
                for entry in entries:
                    written = entry["last_modified"].timestamp() * 1e3
                    yield Found(
                        ObjectPath(self.bucket, entry["path"]), written, (entry["e_tag"], written)
                    )

    @contextmanager
    def _asked(self, path: ObjectPath) -> Iterator[None]:
        """Turn what the client throws into errors of ours."""
        try:
            yield
        except (BaseError, FileNotFoundError) as error:
            raise named(error, path) from error
        except (TypeError, ValueError) as error:
            # The client refuses the key before it asks anybody.
            raise StoreRefused(
                f"The bucket {self.bucket.place} takes no key with such letters as {path.name!r} has.",
                next_step="rename the table at the source, or leave it out: source.exclude.",
            ) from error

    @property
    def _client(self) -> S3Store:
        return _client(self.bucket)


class _Pieces(io.RawIOBase):
    """A large object as a file: every read is one request for exactly that."""

    def __init__(self, store: ObjectStore, path: ObjectPath, size: int) -> None:
        super().__init__()
        self._store, self._path, self._size = store, path, size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        self._place = begin + offset
        return self._place

    def read(self, size: int = -1) -> bytes:
        left = max(self._size - self._place, 0)
        wanted = left if size < 0 else min(size, left)
        data = self._store.read_range(self._path, self._place, wanted) if wanted else b""
        self._place += len(data)
        return data


@lru_cache(maxsize=8)
def _client(bucket: Bucket) -> S3Store:
    """Return this process's client of a bucket; it keeps connections open."""
    given = {
        "endpoint": bucket.endpoint,
        "region": bucket.region,
        "access_key_id": bucket.access_key_id,
        "secret_access_key": bucket.secret_access_key,
        "session_token": bucket.session_token,
    }
    try:
        return S3Store(
            bucket.name,
            client_options={
                "allow_http": (bucket.endpoint or "").startswith("http://"),
                "timeout": timedelta(seconds=bucket.timeout_s),
                "connect_timeout": timedelta(seconds=min(_CONNECT_S, bucket.timeout_s)),
            },
            retry_config={
                "max_retries": bucket.retries,
                "retry_timeout": timedelta(seconds=min(_RETRY_S, bucket.timeout_s)),
            },
            **{name: value for name, value in given.items() if value is not None},  # type: ignore[arg-type]
        )
    except BaseError as error:
        raise named(error, ObjectPath(bucket, "")) from error

"""Where bytes lie, as values that travel to tasks: a `pathlib.Path`, or a key in a bucket.

An `ObjectPath` has those parts of a path that the code around tables uses, so that a table's folder is either.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["Bucket", "Location", "ObjectPath", "located"]

_SCHEME = "s3"


@dataclass(frozen=True, slots=True)
class Bucket:
    """A bucket of an object store that speaks S3, and how to get at it.

    Attributes:
        name: of the bucket.
        endpoint: URL of the server, None for the one of the region at AWS.
        region: of the bucket.
        access_key_id: None for what the environment of each process gives (``AWS_ACCESS_KEY_ID`` and its like).
        secret_access_key: likewise.
        session_token: of credentials that end.
        timeout_s: longest time that one request may take.
        retries: times that a request is sent again by itself, where no answer came or one that says to wait.
    """

    name: str
    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = field(default=None, repr=False)
    secret_access_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    timeout_s: float = 30.0
    retries: int = 5

    @property
    def place(self) -> str:
        """The bucket and its server, for messages."""
        return f"{self.name} at {self.endpoint}" if self.endpoint else self.name


@dataclass(frozen=True, slots=True)
class ObjectPath:
    """A key in a bucket, or a prefix of keys, which takes the place of a folder.

    Attributes:
        bucket: that has it.
        key: parts with ``/`` between them, none at either end; empty for the whole bucket.
    """

    bucket: Bucket
    key: str

    def __truediv__(self, part: Path | str) -> ObjectPath:
        parts = [self.key, *str(part).split("/")]
        return replace(self, key="/".join(name for name in parts if name not in ("", ".")))

    def __str__(self) -> str:
        return f"{_SCHEME}://{self.bucket.name}/{self.key}"

    @property
    def name(self) -> str:
        """The last part of the key; the bucket's name where there is none."""
        return self.key.rpartition("/")[2] or self.bucket.name

    @property
    def parent(self) -> ObjectPath:
        """The prefix without its last part."""
        return replace(self, key=self.key.rpartition("/")[0])

    def absolute(self) -> ObjectPath:
        """Return the same: a key depends on no working folder."""
        return self


Location = Path | ObjectPath
"""A folder or a file of a table."""


def located(place: Location | str, bucket: Bucket | None = None) -> Location:
    """Return a location as a value.

    Args:
        place: a path, or the URL of a bucket with or without a prefix, such as ``s3://bucket/prefix``.
        bucket: how to get at the bucket of a URL; without it the environment says.

    Raises:
        ValueError: the URL names no bucket.
    """
    if not isinstance(place, str):
        return place
    url = urlsplit(place)
    if url.scheme != _SCHEME:
        return Path(place)
    if not url.netloc:
        raise ValueError("a URL without a bucket")
    own = replace(bucket, name=url.netloc) if bucket else Bucket(url.netloc)
    return ObjectPath(own, "") / url.path

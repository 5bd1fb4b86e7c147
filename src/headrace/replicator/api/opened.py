"""A replicator, opened for a page below its ``api/v1``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.requests import Requests

__all__ = ["opened"]


@contextmanager
def opened(plane: ControlPlane, namespace: str, name: str) -> Iterator[Requests]:
    """Open the dump requests of a replicator.

    Raises:
        NotFound: there is none, or no such namespace.
        ConfigError: it reads from a relay, or its configuration does not hold any more.
    """
    row = plane.store.replicator(namespace, name)
    with Requests(plane.folders.of(row).config(row)) as found:
        yield found

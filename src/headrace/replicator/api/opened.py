"""A replicator, opened for a page below its ``api/v1``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import CommandRefused
from headrace.replicator.control.lifecycle import State
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.requests import Requests

__all__ = ["opened"]


@contextmanager
def opened(
    plane: ControlPlane, namespace: str, name: str, *, to_steer: bool = False
) -> Iterator[Requests]:
    """Open the dump requests of a replicator.

    Args:
        plane: where it is noted.
        namespace: that it belongs to.
        name: of it there.
        to_steer: whether something is asked for, and not only looked at.

    Raises:
        NotFound: there is none, or no such namespace.
        CommandRefused: it is being deleted, and what is asked for would be deleted with it.
        ConfigError: it reads from a relay, or its configuration does not hold any more.
    """
    row = plane.store.replicator(namespace, name)
    if to_steer and row.state is State.DELETING:
        raise CommandRefused(
            f"Replicator {name} is {row.state.value}, which does not go with requests.",
            next_step="wait until it is gone, then deploy it anew.",
        )
    with Requests(plane.folders.of(row).config(row)) as found:
        yield found

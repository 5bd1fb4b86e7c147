"""A replicator, opened for a page that looks at it or asks something of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from headrace.errors import CommandRefused
from headrace.replicator.control.lifecycle import State
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Deployed
from headrace.replicator.requests import Requests

__all__ = ["opened", "refuse_deleting"]


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
    if to_steer:
        refuse_deleting(row, "requests")
    with Requests(plane.folders.of(row).config(row)) as found:
        yield found


def refuse_deleting(row: Deployed, asked: str) -> None:
    """Let nothing be asked of a replicator that goes.

    Args:
        row: as it is noted.
        asked: what is to be done with it.

    Raises:
        CommandRefused: it is being deleted.
    """
    if row.state is State.DELETING:
        raise CommandRefused(
            f"Replicator {row.name} is {row.state.value}, which does not go with {asked}.",
            next_step="wait until it is gone, then deploy it anew.",
        )

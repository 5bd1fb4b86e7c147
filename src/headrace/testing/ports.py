"""TCP ports for servers that are told where to listen, and that come back there after a kill."""

from __future__ import annotations

import random
import socket

__all__ = ["free_port"]

_FIRST, _BEHIND = 10_000, 30_000
_TRIES = 100


def free_port() -> int:
    """Return a port on which nobody listens now.

    It is below those from which the system takes ports by itself (from 32768 on): while the server that shall have it
    is not up yet, or is down between two lives, no connection and no other server is given it by chance.

    Raises:
        OSError: there is none.
    """
    drawn = random.SystemRandom()
    refused: OSError | None = None
    for _ in range(_TRIES):
        port = drawn.randrange(_FIRST, _BEHIND)
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError as error:
                refused = error
                continue
        return port
    raise OSError(f"no port of {_TRIES} tried is free: {refused}")

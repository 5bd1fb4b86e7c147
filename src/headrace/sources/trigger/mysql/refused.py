"""Names what the server refuses of statements that only headrace sends."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from headrace.errors import SourceError
from headrace.sources.mysql.connection import QueryFailed

__all__ = ["refusals"]


@contextlib.contextmanager
def refusals() -> Iterator[None]:
    """Turn the refusal of a statement in the block into an error that says what to do.

    Raises:
        SourceError: the server refused one.
    """
    try:
        yield
    except QueryFailed as error:
        raise SourceError(
            f"The change tables cannot be used: {error.message}",
            next_step="run `headrace preflight FILE`, which lists what is missing; or let an administrator run what "
            "`headrace source triggers show FILE` prints.",
        ) from error

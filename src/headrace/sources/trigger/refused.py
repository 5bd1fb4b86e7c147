"""Names what a server refuses of statements that only headrace sends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from headrace.errors import HeadraceError, SourceError

__all__ = ["refusals_of"]


def refusals_of(kind: type[HeadraceError]) -> Callable[[], AbstractContextManager[None]]:
    """Return what turns the refusal of a statement in its block into an error that says what to do.

    Args:
        kind: how the connections of a server tell a refusal. The block raises `SourceError` in its place.
    """

    @contextlib.contextmanager
    def refusals() -> Iterator[None]:
        try:
            yield
        except kind as error:
            raise SourceError(
                f"The change tables cannot be used: {error.message}",
                next_step="run `headrace preflight FILE`, which lists what is missing; or let an administrator run "
                "what `headrace source triggers show FILE` prints.",
            ) from error

    return refusals

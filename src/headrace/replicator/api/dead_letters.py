"""The dead letters of one replicator over HTTP; thin over `headrace.replicator.dead_letters`.

Source: docs/requirements.md, C67.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Query

from headrace.replicator.api.bodies import NamespaceName, ReplicatorName
from headrace.replicator.api.described import CONFLICT
from headrace.replicator.api.opened import refuse_deleting
from headrace.replicator.api.people import Person, changes, looks
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Who
from headrace.replicator.dead_letters import DeadLetters

__all__ = ["dead_letters"]

_MEANS = {
    "replay": "Ask for the rows of a letter at the source again.",
    "discard": "Do without the changes of a letter, which are deleted.",
}


def dead_letters(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(
        prefix="/v1/contexts/{namespace}/replicators/{name}/dead-letters", tags=["dead letters"]
    )

    @contextmanager
    def opened(namespace: str, name: str, *, to_steer: bool = False) -> Iterator[DeadLetters]:
        row = plane.store.replicator(namespace, name)
        if to_steer:
            refuse_deleting(row, "seeing to dead letters")
        with DeadLetters(plane.folders.of(row).config(row)) as found:
            yield found

    @router.get("")
    def list_letters(
        namespace: NamespaceName,
        name: ReplicatorName,
        _: Annotated[Person, Depends(looks)],
        table: str | None = None,
        ended: bool = False,
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> dict[str, Any]:
        """List the letters that wait, with `ended` all of them; no values of rows."""
        with opened(namespace, name) as letters:
            found = letters.all(table, ended=ended)
        return {"letters": [one.to_json() for one in found[:limit]], "count": len(found)}

    @router.get("/{letter}")
    def get_letter(
        namespace: NamespaceName,
        name: ReplicatorName,
        letter: str,
        _: Annotated[Person, Depends(looks)],
    ) -> dict[str, Any]:
        """Show one letter; no values of rows."""
        with opened(namespace, name) as letters:
            return letters.show(letter).to_json()

    @router.post("/{letter}/rows")
    def rows(
        namespace: NamespaceName,
        name: ReplicatorName,
        letter: str,
        who: Annotated[Who, Depends(changes("read dead letter"))],
        limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    ) -> dict[str, Any]:
        """Show the changes of a letter, which hold values of rows: who asked is noted."""
        with opened(namespace, name) as letters:
            letters.show(letter)
            with plane.writing() as writer:
                writer.note(who)
            return {"rows": list(islice(letters.rows(letter), limit))}

    def steered(verb: str) -> Callable[..., dict[str, Any]]:
        let_through: Who = Depends(changes(f"{verb} dead letter"))

        def steer(
            namespace: NamespaceName, name: ReplicatorName, letter: str, who: Who = let_through
        ) -> dict[str, Any]:
            with opened(namespace, name, to_steer=True) as letters:
                letters.show(letter)
                with plane.writing() as writer:
                    writer.note(who)
                moved = letters.replay(letter) if verb == "replay" else letters.discard(letter)
                return moved.to_json()

        steer.__doc__ = _MEANS[verb]
        return steer

    for verb in _MEANS:
        router.add_api_route(
            f"/{{letter}}/{verb}",
            steered(verb),
            methods=["POST"],
            name=f"{verb} dead letter",
            operation_id=f"{verb}_dead_letter",
            responses=CONFLICT,
        )
    return router

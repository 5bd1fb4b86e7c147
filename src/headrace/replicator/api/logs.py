"""The logs of a replicator's processes over HTTP: their end to look at, the whole to keep, by table and level.

Of what is told here secrets of the replicator are references, whoever put them into a log.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import PlainTextResponse

from headrace.observe.logs import Entry, chosen, entries
from headrace.replicator.api.bodies import LogShown, NamespaceName, ReplicatorName
from headrace.replicator.api.people import Person, looks
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.references import names_in, redacted
from headrace.replicator.known_tables import refuse_unknown
from headrace.replicator.supervisor import all_lines

__all__ = ["NDJSON", "logs"]

NDJSON = "application/x-ndjson"

_Process = Literal["run", "capture", "apply", "relay"]
_Table = Annotated[str, Query(max_length=200, description="Only what speaks of it: schema.name.")]
_Level = Annotated[
    Literal["", "debug", "info", "warning", "error"], Query(description="The least grave.")
]


def logs(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(
        prefix="/v1/contexts/{namespace}/replicators/{name}/logs", tags=["replicators"]
    )

    def said(namespace: str, name: str, process: str, table: str, level: str) -> list[Entry]:
        row = plane.store.replicator(namespace, name)
        folder = plane.folders.of(row)
        found = all_lines(folder.log if process == "run" else folder.state.log(process))
        # As one text: a secret is looked up once, and may go on in the next line.
        text = redacted("\n".join(found), names_in(row.config), plane.environment)
        told = list(chosen(entries(text.split("\n") if found else ()), table, level))
        if table and not told:
            refuse_unknown(folder.config(row), table)
        return told

    @router.get("")
    def get_logs(
        namespace: NamespaceName,
        name: ReplicatorName,
        _: Annotated[Person, Depends(looks)],
        lines: Annotated[int, Query(ge=1, le=10_000)] = 200,
        process: _Process = "run",
        table: _Table = "",
        level: _Level = "",
    ) -> LogShown:
        """Show the end of what one of a replicator's processes says."""
        found = said(namespace, name, process, table, level)
        every = [line for one in found for line in one.text.splitlines()]
        return LogShown(process=process, lines=every[-lines:])

    @router.get(
        "/{process}",
        response_class=PlainTextResponse,
        responses={200: {"content": {NDJSON: {}}, "description": "As the client accepts."}},
    )
    def download_log(
        namespace: NamespaceName,
        name: ReplicatorName,
        process: _Process,
        request: Request,
        _: Annotated[Person, Depends(looks)],
        table: _Table = "",
        level: _Level = "",
    ) -> Any:
        """Give all that is kept of a log as a file: text, or an object of JSON per entry to who accepts that."""
        found = said(namespace, name, process, table, level)
        if NDJSON in request.headers.get("accept", ""):
            kind, suffix = NDJSON, "ndjson"
            text = "".join(f"{json.dumps(one.to_json(process=process))}\n" for one in found)
        else:
            kind, suffix = "text/plain", "log"
            text = "".join(f"{one.text}\n" for one in found)
        file = f'attachment; filename="{name}-{process}.{suffix}"'
        return PlainTextResponse(text, media_type=kind, headers={"content-disposition": file})

    return router

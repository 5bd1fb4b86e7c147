"""``headrace api``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headrace.cli.output import errors_without_traceback
from headrace.cli.server import DEFAULT_URL, Authority, Server, ServerUrl, printed
from headrace.errors import BadRequest

__all__ = ["api"]


@errors_without_traceback
def api(
    path: Annotated[
        str, typer.Argument(metavar="PATH", help="Such as /v1/contexts/default/replicators.")
    ],
    method: Annotated[
        Literal["GET", "POST", "PUT", "PATCH", "DELETE"],
        typer.Option("--method", "-X", help="Of the request."),
    ] = "GET",
    data: Annotated[
        str | None,
        typer.Option(
            "--data",
            "-d",
            help="The body, JSON; @FILE takes it from a file, @- from what comes in.",
        ),
    ] = None,
    server: ServerUrl = DEFAULT_URL,
    ca: Authority = None,
) -> None:
    """Ask a page of a control plane's API, and print its answer as JSON; for what has no command of its own.

    The token and the address are those of the other commands. headrace serve draws all pages at /docs.

    [bold]Examples[/bold]
      headrace api /healthz
      headrace api -X POST /v1/contexts/default/getState --data '{"name": "shop"}'
    """
    answer = Server(server, authority=ca).ask(method, path, _body(data))
    if answer is not None:
        printed(answer)


def _body(data: str | None) -> Any:
    """Return a body as values, None for none.

    Raises:
        BadRequest: it does not read.
    """
    if data is None:
        return None
    try:
        if data.startswith("@"):
            data = sys.stdin.read() if data == "@-" else Path(data[1:]).read_text(encoding="utf-8")
        return json.loads(data)
    except (OSError, ValueError) as error:
        raise BadRequest(
            f"--data does not read ({type(error).__name__}).",
            next_step="give JSON, or @FILE with a file that holds it.",
        ) from error

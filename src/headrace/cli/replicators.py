"""``headrace replicators``, ``deploy``, ``start``, ``stop``, ``pause``, ``resume``, ``delete``, ``audit``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from headrace.cli.output import console, errors_without_traceback
from headrace.cli.server import (
    DEFAULT_URL,
    AsJson,
    Authority,
    Name,
    Namespace,
    Server,
    ServerUrl,
    Wait,
    printed,
)

__all__ = ["audit", "delete", "deploy", "pause", "replicators", "resume", "start", "stop"]


@errors_without_traceback
def replicators(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="One, with its tables.")
    ] = None,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """List the replicators of a control plane, or show one with its tables.

    [bold]Examples[/bold]
      headrace replicators
      headrace replicators shop --json
    """
    from headrace.cli.replicators_view import list_view, one_view

    asked = Server(server, namespace, ca)
    if name is None:
        found = asked.within("GET", "replicators")["replicators"]
        if as_json:
            printed(found)
        elif found:
            console.print(list_view(found))
        else:
            console.print(f"no replicator in {namespace}; headrace deploy FILE makes one")
        return
    shown = asked.replicator(name)
    if as_json:
        printed(shown)
    else:
        console.print(one_view(shown))


@errors_without_traceback
def deploy(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="[FILE]", help="The replicator's configuration, YAML or JSON."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Its name; that of the file when left out.")
    ] = None,
    draft: Annotated[
        str | None, typer.Option(help="A draft of the control plane, in place of a file.")
    ] = None,
    start: Annotated[bool, typer.Option("--start", help="Start it at once.")] = False,
    wait: Wait = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Hand a replicator to a control plane, or give one another configuration; one that runs goes on with it.

    The file is sent as it is: ${env:NAME} is looked up in the environment of the control plane. Its relative paths
    begin beside it where the control plane is on this machine, and where that was started otherwise.

    [bold]Examples[/bold]
      headrace deploy shop.yaml --start --wait
      headrace deploy --draft d1 --name shop
    """
    from headrace.cli.deployed import body_of

    asked = Server(server, namespace, ca)
    chosen, body = body_of(file, name, draft, is_here=asked.is_here)
    shown = asked.within("PUT", f"replicators/{chosen}", {**body, "start": start})
    if wait and (start or shown["state"] == "STARTING"):
        shown = asked.wait(chosen, lambda found: found["state"] in ("RUNNING", "PAUSED"))
    _tell(shown, as_json)


@errors_without_traceback
def start(
    name: Name,
    wait: Wait = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Start a replicator; it runs until it is stopped, whatever becomes of its processes.

    [bold]Example[/bold]  headrace start shop --wait
    """
    _steer(Server(server, namespace, ca), name, "start", "RUNNING", wait, as_json)


@errors_without_traceback
def stop(
    name: Name,
    wait: Wait = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Stop a replicator; it goes on from there when it is started.

    [bold]Example[/bold]  headrace stop shop --wait
    """
    _steer(Server(server, namespace, ca), name, "stop", "STOPPED", wait, as_json)


@errors_without_traceback
def pause(
    name: Name,
    wait: Wait = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Leave a running replicator's changes at the source, until resume.

    [bold]Example[/bold]  headrace pause shop
    """
    _steer(Server(server, namespace, ca), name, "pause", "PAUSED", wait, as_json)


@errors_without_traceback
def resume(
    name: Name,
    wait: Wait = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Take a paused replicator's changes again, from where they were left.

    [bold]Example[/bold]  headrace resume shop
    """
    _steer(Server(server, namespace, ca), name, "resume", "RUNNING", wait, as_json)


@errors_without_traceback
def delete(
    name: Name,
    target: Annotated[
        Literal["keep", "drop"], typer.Option(help="What becomes of its tables.")
    ] = "keep",
    source: Annotated[
        Literal["release", "leave"],
        typer.Option(help="Whether slot and publication may stay, where the source is gone."),
    ] = "release",
    wait: Wait = False,
    server: ServerUrl = DEFAULT_URL,
    namespace: Namespace = "default",
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Delete a replicator: its processes, its state, its slot and publication, and its tables where that is asked for.

    [bold]Examples[/bold]
      headrace delete shop --wait
      headrace delete shop --target drop
    """
    from headrace.errors import NotFound

    asked = Server(server, namespace, ca)
    shown = asked.within("DELETE", f"replicators/{name}", target=target, source=source)
    if wait:
        try:
            asked.wait(name, lambda _: False)
        except NotFound:
            shown = {**shown, "state": "DELETED"}
    _tell(shown, as_json)


@errors_without_traceback
def audit(
    limit: Annotated[int, typer.Option(min=1, max=1000, help="How many, newest first.")] = 50,
    server: ServerUrl = DEFAULT_URL,
    ca: Authority = None,
    as_json: AsJson = False,
) -> None:
    """Show who asked a control plane for what; for admins.

    [bold]Example[/bold]  headrace audit --limit 20
    """
    from headrace.cli.replicators_view import audit_view

    found = Server(server, authority=ca).ask("GET", "/v1/audit", limit=limit)["audit"]
    if as_json:
        printed(found)
    else:
        console.print(audit_view(found))


def _steer(asked: Server, name: str, word: str, wanted: str, wait: bool, as_json: bool) -> None:
    shown = asked.within("POST", f"replicators/{name}/{word}")
    if wait:
        # One that was never started stands still already.
        good = (wanted, "DEPLOYED") if wanted == "STOPPED" else (wanted,)
        shown = asked.wait(name, lambda found: found["state"] in good)
    _tell(shown, as_json)


def _tell(shown: dict[str, Any], as_json: bool) -> None:
    if as_json:
        printed(shown)
    else:
        reason = f": {shown['reason']}" if shown["reason"] else ""
        console.print(f"{shown['name']} {shown['state']}{reason}", soft_wrap=True)

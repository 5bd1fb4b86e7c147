"""Whatever the API does a command does, and every command that tells something tells it to programs too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import pytest
import typer.main
from typer.core import TyperGroup

from headrace.cli.main import app
from headrace.replicator.api.app import api
from headrace.replicator.control.plane import ControlPlane
from tests.requirements import req

COMMANDS = {
    "list_namespaces": "namespace list",
    "put_namespace": "namespace make",
    "delete_namespace": "namespace delete",
    "audit": "audit",
    "list_drafts": "draft list",
    "put_draft": "draft put",
    "get_draft": "draft show",
    "delete_draft": "draft delete",
    "tables_of_draft": "draft tables",
    "describe": "draft tables --table",
    "assess_draft": "draft assess",
    "assess_table_of_draft": "draft assess --table",
    "assess": "assess",
    "assess_one": "assess --table",
    "list_replicators": "replicators",
    "deploy": "deploy",
    "get_replicator": "replicators",
    "delete_replicator": "delete --target --source",
    "start_replicator": "start",
    "stop_replicator": "stop",
    "pause_replicator": "pause",
    "resume_replicator": "resume",
    "get_state": "export",
    "metrics": "metrics",
    "activity": "activity --table --minutes --hours",
    "get_lineage": "lineage --table",
    "get_logs": "logs --process --lines --table --level",
    "download_log": "logs --all --ndjson",
    "list_requests": "dump list",
    "submit": "dump start --table --keys",
    "get_request": "dump show",
    "pause_request": "dump pause",
    "resume_request": "dump resume",
    "cancel_request": "dump cancel",
    "get_pace": "dump pace",
    "set_pace": "dump pace",
    "healthz": "api",
    "health": "runtime health",
    "rewind_replicator": "rewind --to",
    "steer_request": "dump pace --request",
    "list_letters": "dead-letters list --table",
    "get_letter": "dead-letters show",
    "rows": "dead-letters show --rows",
    "replay_dead_letter": "dead-letters replay",
    "discard_dead_letter": "dead-letters discard",
    "get_runtime": "runtime show",
    "status": "runtime status",
    "schemas": "runtime schemas",
    "issues": "runtime schema-issues",
    "runtime_metrics": "runtime metrics",
    "summary": "runtime events --counts",
    "recent": "runtime events --limit",
    "of_table": "runtime events --table --limit",
    "get_tap": "tap listeners",
    "stream": "tap follow --last",
    # Each line that is shown was taken.
    "take": "tap follow",
}
"""The command for each page, with the options that the page's parameters became. `headrace api` asks any of them."""

BESIDE = {"assess", "export"}
"""Commands that do what their page does of a file that is here; `headrace api` asks for the page."""

NO_JSON = {
    # They run until somebody ends them, and draw; what they look after has commands that tell of it.
    "demo",
    "run",
    "relay",
    "serve",
    # Streams with forms of their own.
    "tail",
    "consume",
    "tap follow",
    "tap replay",
    # Their answer is that they did it; anything else is an error and an exit code.
    "resync",
    "dead-letters replay",
    "dead-letters discard",
    "dump pause",
    "dump resume",
    "dump cancel",
    "dump prioritise",
    "log pause",
    "log resume",
    "group rewind",
    "group resize",
    # It speaks nothing but JSON.
    "api",
}


def commands(group: TyperGroup, before: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yield each command with its options."""
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from commands(command, f"{before}{name} ")
        else:
            yield f"{before}{name}", {o for one in command.params for o in one.opts}


def all_commands() -> dict[str, set[str]]:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)
    return dict(commands(group))


def operations() -> Iterator[dict[str, Any]]:
    paths = api(cast(ControlPlane, None)).openapi()["paths"]
    return (one for methods in paths.values() for one in methods.values())


@req("C76")
def test_every_operation_of_the_api_has_a_command() -> None:
    known = {one["operationId"] for one in operations()}
    assert known == set(COMMANDS)
    there = all_commands()
    for operation, command in COMMANDS.items():
        name, *options = command.split(" --")
        assert name in there, operation
        assert {f"--{option}" for option in options} <= there[name], operation
        assert ("--server" in there[name]) is (name not in BESIDE), f"{name} asks nobody"


@req("C76")
@pytest.mark.parametrize("name", sorted(all_commands()))
def test_every_command_that_tells_something_tells_it_to_programs(name: str) -> None:
    assert ("--json" in all_commands()[name]) is (name not in NO_JSON)


@req("C76")
def test_every_command_that_asks_a_control_plane_can_be_told_which() -> None:
    for name, options in all_commands().items():
        if "--server" in options:
            assert "--ca" in options, name

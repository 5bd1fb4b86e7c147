"""Replicators: deployed, steered, looked at, deleted.

Source: docs/requirements.md, C98 and C105.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Query, Response

from headrace.errors import BadRequest, CommandRefused, StateError
from headrace.replicator.api.bodies import (
    DeployBody,
    NamespaceName,
    ReplicatorDetail,
    ReplicatorList,
    ReplicatorName,
    ReplicatorShown,
    RewindBody,
    StateBody,
    StateShown,
)
from headrace.replicator.api.described import CONFLICT, UNFIT, made
from headrace.replicator.api.people import Person, changes, looks
from headrace.replicator.api.told import detail, shown
from headrace.replicator.assess.document import configured, read_document
from headrace.replicator.control.folders import rendered
from headrace.replicator.control.lifecycle import Command, Desired, State
from headrace.replicator.control.plane import ControlPlane
from headrace.replicator.control.records import Deployed, Who, full_name
from headrace.replicator.control.references import refuse_secrets
from headrace.replicator.export import state_of
from headrace.replicator.rewind import rewind

__all__ = ["replicators"]

_ONE = "/replicators/{name}"
_LONGEST_NAME = 40


def replicators(plane: ControlPlane) -> APIRouter:
    """Return the pages."""
    router = APIRouter(prefix="/v1/contexts/{namespace}", tags=["replicators"])

    def told(row: Deployed) -> ReplicatorShown:
        return shown(row, plane.pictures.last(row))

    @router.get("/replicators")
    def list_replicators(
        namespace: NamespaceName, _: Annotated[Person, Depends(looks)]
    ) -> ReplicatorList:
        """List the replicators of a namespace, each with its state and how far it is."""
        return ReplicatorList(replicators=[told(row) for row in plane.store.replicators(namespace)])

    @router.put(_ONE, responses=UNFIT | CONFLICT | made(ReplicatorShown))
    def deploy(
        namespace: NamespaceName,
        name: ReplicatorName,
        body: DeployBody,
        who: Annotated[Who, Depends(changes("deploy"))],
        response: Response,
    ) -> ReplicatorShown:
        """Deploy a replicator, or give one another configuration; one that runs goes on with it."""
        if (body.config is None) is (body.draft is None):
            raise BadRequest(
                "A deployment takes either config or draft.", next_step="give one of the two."
            )
        if body.draft is not None:
            config: Mapping[str, Any] = plane.store.draft(namespace, body.draft).config
        else:
            config = body.config or {}
        _check(plane, namespace, name, config)
        with plane.writing() as writer:
            row, made = writer.deploy(namespace, name, config, str(plane.settings.base))
            writer.note(who)
            # What was paused goes on paused with its new configuration.
            if body.start and row.desired is not Desired.PAUSED:
                row = writer.command(namespace, name, Command.START)
                writer.note(Who(who.name, "start", who.object))
        response.status_code = 201 if made else 200
        return told(row)

    @router.get(_ONE)
    def get_replicator(
        namespace: NamespaceName, name: ReplicatorName, _: Annotated[Person, Depends(looks)]
    ) -> ReplicatorDetail:
        """Show a replicator: configuration, state, tables, positions, lag."""
        row = plane.store.replicator(namespace, name)
        pid = plane.reconciler.processes().get(row.number)
        file = plane.folders.of(row).file(row.revision)
        return detail(row, plane.pictures.seen(row), pid, file)

    def steered(command: Command) -> Callable[..., ReplicatorShown]:
        let_through: Who = Depends(changes(command.value))

        def steer(
            namespace: NamespaceName, name: ReplicatorName, who: Who = let_through
        ) -> ReplicatorShown:
            if command in (Command.PAUSE, Command.RESUME):
                _refuse_relay(plane.store.replicator(namespace, name), command)
            with plane.writing() as writer:
                row = writer.command(namespace, name, command)
                writer.note(who)
            return told(row)

        steer.__doc__ = f"{command.value.capitalize()} a replicator: {_MEANS[command]}"
        return steer

    for command in _MEANS:
        router.add_api_route(
            f"{_ONE}/{command.value}",
            steered(command),
            methods=["POST"],
            status_code=202,
            responses=CONFLICT,
            name=command.value,
            operation_id=f"{command.value}_replicator",
        )

    @router.post(f"{_ONE}/rewind", responses=CONFLICT)
    def rewind_replicator(
        namespace: NamespaceName,
        name: ReplicatorName,
        body: RewindBody,
        who: Annotated[Who, Depends(changes("rewind"))],
    ) -> dict[str, Any]:
        """Bring the tables of a replicator that stands still back to an earlier frontier."""
        row = plane.store.replicator(namespace, name)
        if row.state not in (State.DEPLOYED, State.STOPPED, State.FAILED):
            raise CommandRefused(
                f"Replicator {name} is {row.state.value}, which does not go with rewind.",
                next_step="stop it first, and start it behind the rewind.",
            )
        with plane.writing() as writer:
            writer.note(who)
        return rewind(plane.folders.of(row).config(row), body.to).to_json()

    @router.delete(_ONE, status_code=202)
    def delete_replicator(
        namespace: NamespaceName,
        name: ReplicatorName,
        who: Annotated[Who, Depends(changes("delete"))],
        target: Annotated[
            Literal["keep", "drop"], Query(description="What becomes of its tables.")
        ] = "keep",
        source: Annotated[
            Literal["release", "leave"],
            Query(description="Whether slot and publication may stay, where the source is gone."),
        ] = "release",
    ) -> ReplicatorShown:
        """Delete a replicator, with its state, and its tables where that is asked for."""
        with plane.writing() as writer:
            row = writer.command(
                namespace,
                name,
                Command.DELETE,
                drop_target=target == "drop",
                leave_source=source == "leave",
            )
            writer.note(who)
        return told(row)

    @router.post("/getState")
    def get_state(
        namespace: NamespaceName, body: StateBody, _: Annotated[Person, Depends(looks)]
    ) -> StateShown:
        """Show the state of source and tables, in the shape of the Replicator's service."""
        row = plane.store.replicator(namespace, body.name)
        seen = plane.pictures.seen(row)
        if seen.picture is None:
            raise StateError(
                f"Nobody can look at {body.name}: {seen.error}", next_step="see its detail page."
            )
        return StateShown.model_validate(state_of(seen.picture))

    return router


_MEANS = {
    Command.START: "it runs until it is stopped, whatever becomes of its process.",
    Command.STOP: "its process ends; it goes on from there when it is started.",
    Command.PAUSE: "changes stay at the source.",
    Command.RESUME: "changes are taken again, from where they were left.",
}


def _check(plane: ControlPlane, namespace: str, name: str, config: Mapping[str, Any]) -> None:
    """Refuse a configuration that cannot run.

    Raises:
        ConfigError: naming every problem.
        BadRequest: the name is too long.
    """
    full = full_name(namespace, name)
    if len(full) > _LONGEST_NAME:
        raise BadRequest(
            f"Namespace and name have {len(full)} characters together, and slots have room for {_LONGEST_NAME}.",
            next_step="choose a shorter name.",
        )
    refuse_secrets(config, plane.settings.hidden)
    base = plane.settings.base
    configured(read_document(rendered(config, full, base, plane.settings.state), base, full))


def _refuse_relay(row: Deployed, command: Command) -> None:
    source = row.config.get("source")
    if isinstance(source, dict) and source.get("type") == "relay":
        raise CommandRefused(
            f"Replicator {row.name} reads from a relay, and cannot {command.value}.",
            next_step="stop it, or pause the replicator whose capture reads the database.",
        )

"""What people may ask of a replicator, when, and what it means; pure.

In: the state a replicator is in and a command, or what is wanted of it and what runs. Out: the next state with what is
wanted from now on, or the one step that brings what runs nearer to what is wanted. Nothing here looks at a process or
a clock: the control plane may be killed between any two steps, and whoever comes next decides the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from headrace.errors import CommandRefused

__all__ = ["PERMITTED", "Command", "Desired", "Running", "State", "Step", "commanded", "next_step"]


class State(Enum):
    """Where a replicator is in its life, as people see it."""

    DEPLOYED = "DEPLOYED"
    """It was handed over, and never started."""
    STARTING = "STARTING"
    """It is to run; its process loads, or is started again, or waits for its turn."""
    RUNNING = "RUNNING"
    """Its process does its work."""
    PAUSED = "PAUSED"
    """Its process runs and takes no changes from the source, which keeps them."""
    STOPPING = "STOPPING"
    """It is to stand still; its process is still there."""
    STOPPED = "STOPPED"
    """It stands still, and goes on from there when it is started."""
    FAILED = "FAILED"
    """It stands still because a person must act; the reason says why."""
    DELETING = "DELETING"
    """It goes, with everything that is its own."""


class Desired(Enum):
    """What is wanted of a replicator; people's commands set it, and nothing else does."""

    STOPPED = "STOPPED"
    """No process."""
    RUNNING = "RUNNING"
    """A process, and changes delivered."""
    PAUSED = "PAUSED"
    """A process, and none delivered."""
    DELETED = "DELETED"
    """Nothing left."""


class Command(Enum):
    """What people may ask."""

    DEPLOY = "deploy"
    """Have another configuration; a running one goes on with it."""
    START = "start"
    """Run."""
    STOP = "stop"
    """Stand still, and keep the place."""
    PAUSE = "pause"
    """Leave changes at the source for a while."""
    RESUME = "resume"
    """Take them again."""
    DELETE = "delete"
    """Go."""


class Step(Enum):
    """What brings a replicator nearer to what is wanted."""

    NONE = "none"
    """Nothing: it is as wanted."""
    START = "start"
    """Start a process."""
    END = "end"
    """Ask its process to end, and kill it when it does not in time."""
    DELIVER = "deliver"
    """Let a process take changes, or none, as is wanted."""
    REST = "rest"
    """Note that it stands still."""
    REMOVE = "remove"
    """Remove what is its own."""


@dataclass(frozen=True, slots=True)
class Running:
    """A process of a replicator.

    Attributes:
        revision: of the configuration that it was started with.
        ready: whether it does its work by now.
    """

    revision: int
    ready: bool


_STANDS = (State.DEPLOYED, State.STOPPED, State.FAILED)
_RUNS = (State.STARTING, State.RUNNING, State.PAUSED)

PERMITTED: Mapping[tuple[State, Command], tuple[State, Desired | None]] = {
    (State.DEPLOYED, Command.DEPLOY): (State.DEPLOYED, None),
    (State.STOPPED, Command.DEPLOY): (State.STOPPED, None),
    # What was wrong may be right in the new configuration; whoever gave it says when to try.
    (State.FAILED, Command.DEPLOY): (State.STOPPED, Desired.STOPPED),
    **{(state, Command.DEPLOY): (State.STARTING, None) for state in _RUNS},
    **{(state, Command.START): (State.STARTING, Desired.RUNNING) for state in _STANDS},
    (State.STARTING, Command.START): (State.STARTING, None),
    (State.RUNNING, Command.START): (State.RUNNING, None),
    **{(state, Command.STOP): (State.STOPPING, Desired.STOPPED) for state in _RUNS},
    (State.STOPPING, Command.STOP): (State.STOPPING, None),
    (State.STOPPED, Command.STOP): (State.STOPPED, None),
    (State.DEPLOYED, Command.STOP): (State.DEPLOYED, None),
    (State.FAILED, Command.STOP): (State.STOPPED, Desired.STOPPED),
    **{(state, Command.PAUSE): (state, Desired.PAUSED) for state in _RUNS},
    **{(state, Command.RESUME): (state, Desired.RUNNING) for state in _RUNS},
    **{(state, Command.DELETE): (State.DELETING, Desired.DELETED) for state in State},
}
"""Every command that a state allows, and the state and wish that it leads to, None where the wish stays as it was;
every other command is refused. So is a start of one that runs, or is about to, and is to be paused."""

_TAKEN_BACK: Mapping[tuple[State, Desired, Desired], State] = {
    (State.RUNNING, Desired.PAUSED, Desired.RUNNING): State.PAUSED,
    (State.PAUSED, Desired.RUNNING, Desired.PAUSED): State.RUNNING,
}
"""State behind a wish that takes another one back, by state and both wishes."""

_INSTEAD = {
    State.PAUSED: "resume it",
    State.STOPPING: "wait until it stands still",
    State.DELETING: "wait until it is gone, then deploy it anew",
}


def commanded(name: str, state: State, desired: Desired, command: Command) -> tuple[State, Desired]:
    """Return state and wish after a command.

    A wish that is taken back before it was noted may have reached the process, or be on its way there: the state is
    then what it would have come to be, so that the process is told anew.

    Raises:
        CommandRefused: the state, or what was asked for before, does not allow it.
    """
    found = PERMITTED.get((state, command))
    if command is Command.START and state in _RUNS and desired is Desired.PAUSED:
        # As of one that has come to be PAUSED: whoever waits for it to run would wait in vain.
        raise CommandRefused(
            f"Replicator {name} is {state.value} and paused, which does not go with start.",
            next_step=f"{_INSTEAD[State.PAUSED]} first.",
        )
    if found is None:
        raise CommandRefused(
            f"Replicator {name} is {state.value}, which does not go with {command.value}.",
            next_step=f"{_INSTEAD.get(state, 'start it')} first.",
        )
    after, wish = found[0], found[1] or desired
    if (state, desired, wish) in _TAKEN_BACK:
        after = _TAKEN_BACK[state, desired, wish]
    return after, wish


def next_step(desired: Desired, revision: int, state: State, running: Running | None) -> Step:
    """Return what to do now for a replicator.

    Args:
        desired: what is wanted of it.
        revision: of its present configuration.
        state: what is noted of it.
        running: its process, None when there is none.
    """
    if desired in (Desired.STOPPED, Desired.DELETED):
        if running is not None:
            return Step.END
        if desired is Desired.DELETED:
            return Step.REMOVE
        return Step.NONE if state in _STANDS else Step.REST
    if running is None:
        return Step.START
    if running.revision != revision:
        return Step.END
    wanted = State.PAUSED if desired is Desired.PAUSED else State.RUNNING
    return Step.DELIVER if running.ready and state is not wanted else Step.NONE

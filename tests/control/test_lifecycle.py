"""What may be asked of a replicator when, and that what is wanted is reached from everywhere."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from headrace.errors import CommandRefused
from headrace.replicator.control.lifecycle import (
    PERMITTED,
    Command,
    Desired,
    Running,
    State,
    Step,
    commanded,
    next_step,
)
from tests.requirements import req

SHOWN = """
            deploy    start     stop      pause     resume    delete
DEPLOYED    DEPLOYED  STARTING  DEPLOYED  -         -         DELETING
STARTING    STARTING  STARTING  STOPPING  STARTING  STARTING  DELETING
RUNNING     STARTING  RUNNING   STOPPING  RUNNING   RUNNING   DELETING
PAUSED      STARTING  -         STOPPING  PAUSED    PAUSED    DELETING
STOPPING    -         -         STOPPING  -         -         DELETING
STOPPED     STOPPED   STARTING  STOPPED   -         -         DELETING
FAILED      STOPPED   STARTING  STOPPED   -         -         DELETING
DELETING    -         -         -         -         -         DELETING
"""


def test_the_table_of_commands_is_the_one_that_people_read() -> None:
    head, *lines = [line.split() for line in SHOWN.strip().splitlines()]
    read = {
        (State(state), Command(command)): cell
        for state, *cells in lines
        for command, cell in zip(head, cells, strict=True)
    }
    assert set(read) == set(itertools.product(State, Command))
    for key, cell in read.items():
        assert (PERMITTED[key][0].value if key in PERMITTED else "-") == cell, key


@pytest.mark.parametrize(
    ("state", "command"),
    [pair for pair in itertools.product(State, Command) if pair not in PERMITTED],
)
def test_what_is_not_in_the_table_is_refused_by_name(state: State, command: Command) -> None:
    with pytest.raises(CommandRefused, match=rf"shop is {state.value}.*{command.value}") as caught:
        commanded("shop", state, Desired.STOPPED, command)
    assert caught.value.next_step


@req("C16")
@pytest.mark.parametrize("state", [State.STARTING, State.RUNNING, State.PAUSED])
def test_one_that_is_to_be_paused_is_resumed_and_not_started(state: State) -> None:
    """Its process may be starting again: a start that left it paused would be waited for in vain."""
    with pytest.raises(CommandRefused, match=rf"shop is {state.value}.*start") as caught:
        commanded("shop", state, Desired.PAUSED, Command.START)
    assert caught.value.next_step == "resume it first."
    assert commanded("shop", state, Desired.PAUSED, Command.RESUME)[1] is Desired.RUNNING


@pytest.mark.parametrize(
    ("state", "first", "then", "behind"),
    [
        (State.RUNNING, Command.PAUSE, Command.RESUME, State.PAUSED),
        (State.PAUSED, Command.RESUME, Command.PAUSE, State.RUNNING),
    ],
)
def test_a_wish_that_is_taken_back_is_told_to_a_process_that_may_have_heard_the_first(
    state: State, first: Command, then: Command, behind: State
) -> None:
    wish = Desired.RUNNING if state is State.RUNNING else Desired.PAUSED
    told = commanded("shop", *commanded("shop", state, wish, first), then)
    assert told == (behind, wish)
    assert next_step(wish, 1, behind, Running(1, True)) is Step.DELIVER
    assert commanded("shop", *told, then) == told


class World:
    """One replicator and its process, as far as decisions go; every step is carried out by the book."""

    def __init__(self) -> None:
        self.state, self.desired, self.revision = State.DEPLOYED, Desired.STOPPED, 1
        self.running: Running | None = None
        self.removed = self.delivers = False
        self.most = 0

    def command(self, command: Command) -> bool:
        try:
            self.state, self.desired = commanded("shop", self.state, self.desired, command)
        except CommandRefused:
            return False
        self.revision += command is Command.DEPLOY
        return True

    def heard(self) -> None:
        """Let its process hear what is wanted, and nobody note it: a capture has not answered, or a kill came."""
        if next_step(self.desired, self.revision, self.state, self.running) is Step.DELIVER:
            self.delivers = self.desired is Desired.RUNNING

    def step(self) -> Step:
        step = next_step(self.desired, self.revision, self.state, self.running)
        if step is Step.START:
            assert self.running is None
            self.state, self.running = State.STARTING, Running(self.revision, False)
            self.delivers = self.desired is Desired.RUNNING
        elif step is Step.END:
            self.running = None
        elif step is Step.DELIVER:
            self.delivers = self.desired is Desired.RUNNING
            self.state = State.RUNNING if self.delivers else State.PAUSED
        elif step is Step.REST:
            self.state = State.STOPPED
        elif step is Step.REMOVE:
            assert self.running is None
            self.removed = True
        return step


def events() -> st.SearchStrategy[list[object]]:
    others = st.sampled_from(["step", "heard", "ready", "die"])
    return st.lists(st.one_of(st.sampled_from(Command), others))


@req("C16")
@given(events())
@example([Command.START, "step", "ready", "step", Command.PAUSE, "heard", Command.RESUME])
def test_whatever_happens_what_was_asked_for_last_is_reached(happened: list[object]) -> None:
    world, last = World(), None
    for event in happened:
        if world.removed:
            break
        if isinstance(event, Command):
            last = event if world.command(event) else last
        elif event == "step":
            world.step()
        elif event == "heard":
            world.heard()
        elif event == "ready" and world.running:
            world.running = Running(world.running.revision, True)
        elif event == "die":
            world.running = None
    for _ in range(6):
        if world.removed:
            break
        world.step()
        if world.running:
            world.running = Running(world.running.revision, True)

    if world.desired is Desired.DELETED:
        assert world.removed
    elif world.desired is Desired.STOPPED:
        assert world.running is None
        assert world.state in (State.DEPLOYED, State.STOPPED, State.FAILED)
    else:
        assert world.running == Running(world.revision, True)
        assert world.delivers is (world.desired is Desired.RUNNING)
        assert world.state is (State.RUNNING if world.delivers else State.PAUSED)
    wishes = {
        Command.START: (Desired.RUNNING,),
        Command.RESUME: (Desired.RUNNING,),
        Command.PAUSE: (Desired.PAUSED,),
        Command.STOP: (Desired.STOPPED,),
        Command.DELETE: (Desired.DELETED,),
    }
    if last in wishes:
        assert world.desired in wishes[last]

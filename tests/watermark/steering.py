"""What tests of steering do to a capture as a person does."""

from __future__ import annotations

from headrace.relay.capture import Capture
from headrace.state.records import OPEN, RequestState
from headrace.state.store import StateStore
from tests.watermark.machine import ONE, Machine

ALL_ROWS = [(key, f"v{key}") for key in range(10)]


def first_request(state: StateStore) -> str:
    return state.requests()[0].request_id


def pause(state: StateStore, request_id: str) -> None:
    assert state.move(request_id, RequestState.PAUSED, since=OPEN[:2])


def resume(state: StateStore, request_id: str) -> None:
    assert state.move(request_id, RequestState.QUEUED, since=[RequestState.PAUSED])


def cancel(state: StateStore, request_id: str) -> None:
    assert state.move(request_id, RequestState.CANCELLED, since=OPEN)


def stop_after(machine: Machine, capture: Capture, state: StateStore, chunks: int) -> None:
    """Work until so many chunks of table one are finished."""

    def reached() -> bool:
        return any(p.table == ONE.table and p.chunks >= chunks for p in state.progress())

    machine.work(capture, state, reached)


def state_of(state: StateStore, request_id: str) -> RequestState:
    found = state.request(request_id)
    assert found is not None
    return found.state


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

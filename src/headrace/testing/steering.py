"""Somebody who steers a capture at random: requests are paused, resumed, cancelled and overtaken, the log is held back.

Whatever a person does, the copy must be right in the end; in the end this person resumes what rests, and asks again for
every table whose copy was cancelled.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable

from headrace.state.records import OPEN, RequestState, Scope, Turn
from headrace.state.store import StateStore
from headrace.testing.histories import TABLES

__all__ = ["SteeringHand"]

OFTEN = 0.08
"""Share of the rounds in which something is done."""


class SteeringHand:
    """Acts between the rounds of a simulated capture.

    Args:
        seed: decides everything; independent of what the history draws from its own.
        coverage: counts what was done.
    """

    def __init__(self, seed: int, coverage: Counter[str]) -> None:
        self._rng = random.Random(f"steering {seed}")
        self._coverage = coverage
        self._cancels = self._rng.randrange(3)
        self._cancelled = False
        self._acts: tuple[Callable[[StateStore], None], ...] = (
            self._pause,
            self._resume,
            self._resume,
            self._cancel,
            self._prioritise,
            self._ask,
            self._change_size,
            self._hold_log,
            self._free_log,
            self._free_log,
        )

    def act(self, state: StateStore, *, calm: bool) -> None:
        """Do something now and then; once it is calm, only let things go on."""
        if calm:
            self.let_go(state)
        elif self._rng.random() < OFTEN:
            self._rng.choice(self._acts)(state)

    def let_go(self, state: StateStore) -> None:
        """Resume what rests, and ask again for what was cancelled and is needed."""
        self._free_log(state)
        for turn in state.line():
            state.move(turn.request_id, RequestState.QUEUED, since=[RequestState.PAUSED])
        for table, copy in state.copies().items() if self._cancelled else ():
            if copy.is_cancelled:
                state.submit(Scope.TABLE, table)
                self._coverage["steering: asked again"] += 1

    def _one(self, state: StateStore, *states: RequestState) -> Turn | None:
        turns = [turn for turn in state.line() if turn.state in states]
        return self._rng.choice(turns) if turns else None

    def _move(self, state: StateStore, to: RequestState, *since: RequestState) -> None:
        turn = self._one(state, *since)
        if turn is not None and state.move(turn.request_id, to, since=since):
            self._coverage[f"steering: {turn.state.value} to {to.value}"] += 1

    def _pause(self, state: StateStore) -> None:
        self._move(state, RequestState.PAUSED, RequestState.QUEUED, RequestState.ACTIVE)

    def _resume(self, state: StateStore) -> None:
        self._move(state, RequestState.QUEUED, RequestState.PAUSED)

    def _cancel(self, state: StateStore) -> None:
        if self._cancels:
            self._cancels -= 1
            self._cancelled = True
            self._move(state, RequestState.CANCELLED, *OPEN)

    def _prioritise(self, state: StateStore) -> None:
        turn = self._one(state, *OPEN)
        if turn is not None:
            state.steer(turn.request_id, priority=self._rng.randint(-2, 2))
            self._coverage["steering: priorities"] += 1

    def _ask(self, state: StateStore) -> None:
        schema = self._rng.choice(TABLES)
        if len(state.line()) < 3 and schema.key:
            keys = [(str(key),) for key in self._rng.sample(range(1, 15), 4)]
            priority = self._rng.choice((0, 5))
            state.submit(
                Scope.PRIMARY_KEYS, schema.table, keys, delete_missing=True, priority=priority
            )
            self._coverage["steering: keys with deletes"] += 1

    def _change_size(self, state: StateStore) -> None:
        state.set_pace(chunk_rows=self._rng.choice((1, 2, 4, None)))
        self._coverage["steering: chunk sizes"] += 1

    def _hold_log(self, state: StateStore) -> None:
        state.set_pace(log_paused=True)
        self._coverage["steering: log pauses"] += 1

    def _free_log(self, state: StateStore) -> None:
        if state.pace().log_paused:
            state.set_pace(log_paused=False)

"""The user's word that a lost position may be given up: kept durably, carried out by the next start of capture.

A resync has three states: *ordered*, until capture has begun again behind the gap; *repairing*, while the tables are
brought back; and none.
"""

from __future__ import annotations

import contextlib
import json
import time
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any

from headrace.errors import StateError
from headrace.observe.status import ProcessState
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths
from headrace.replicator.roles import read_role
from headrace.state.store import StateStore
from headrace.state.writer import StateWriter

__all__ = ["Resync", "ResyncState", "order", "order_if_needed", "read"]

_NAME = "resync"
_WELL = (ProcessState.STARTING, ProcessState.RUNNING, ProcessState.STOPPED)
"""What a capture says of itself that nothing keeps from going on where it is."""


class ResyncState(Enum):
    """Where a resync stands."""

    ORDERED = "ordered"
    """The next start of capture carries it out."""
    REPAIRING = "repairing"
    """Capture goes on behind the gap; the tables are brought back."""


@dataclass(frozen=True, slots=True)
class Resync:
    """A resync that is not done.

    Attributes:
        state: where it stands.
        reason: why the position was lost, empty when a person asked without one.
        since_us: when it was ordered, microseconds since 1970 UTC.
    """

    state: ResyncState
    reason: str
    since_us: int

    def put(self, writer: StateWriter) -> None:
        """Keep it, in the transaction of ``writer``."""
        writer.set(_NAME, json.dumps(self.to_json()))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {**asdict(self), "state": self.state.value}

    @staticmethod
    def done(writer: StateWriter) -> None:
        """Forget it: every table is whole."""
        writer.set(_NAME, "")


def read(state: StateStore) -> Resync | None:
    """Return the resync that is not done, None when there is none."""
    text = state.get(_NAME)
    if not text:
        return None
    value = json.loads(text)
    return Resync(ResyncState(value["state"]), value["reason"], value["since_us"])


def order(config: Config, *, reason: str = "", held: bool = False) -> Resync:
    """Keep the order; a repeated one changes nothing before it is carried out.

    Args:
        config: of the replicator.
        reason: why its position was lost.
        held: whether its target shows tables, whatever was captured.

    Raises:
        StateError: nothing was captured yet, so there is nothing to bring back.
    """
    paths = StatePaths.of(config)
    nothing = StateError(
        f"resync: replicator {config.name} has captured nothing yet.",
        next_step="start it: headrace run FILE.",
    )
    if not held and not paths.database.exists():
        raise nothing
    with contextlib.closing(StateStore(paths.database)) as state:
        if not held and state.get("incarnation") is None:
            raise nothing
        resync = Resync(ResyncState.ORDERED, reason, time.time_ns() // 1000)
        state.write([resync.put])
        return resync


def order_if_needed(config: Config, *, held: bool = False) -> Resync:
    """Keep the order of a person, unless capture can go on where it is; what was ordered before may be ordered again.

    Args:
        config: of the replicator.
        held: whether its target shows tables, whatever was captured.

    Raises:
        StateError: nothing was captured yet, or nothing says that the position is lost.
    """
    paths = StatePaths.of(config)
    capture = read_role(paths, "capture")
    if paths.database.exists() and capture is not None and capture.state in _WELL:
        with contextlib.closing(StateStore(paths.database)) as state:
            under_way = read(state)
        if under_way is None:
            raise StateError(
                f"resync: the capture of {config.name} is {capture.state.value} without an error, and nothing says "
                "that its position in the source's log is lost.",
                next_step="headrace verify FILE tells which tables differ; headrace resync FILE --force has every "
                "table compared and repaired all the same.",
            )
    return order(config, held=held)

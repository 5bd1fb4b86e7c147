"""When the reader of change tables hands over what it has."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, cast

from headrace.sources.trigger.assembler import Assembler
from headrace.sources.trigger.cost import Cost
from headrace.sources.trigger.events import Begin, End
from headrace.sources.trigger.queues import Delivered
from headrace.sources.trigger.settings import TriggerSettings
from headrace.sources.trigger.stream import TriggerLogReader

_NEVER_S = 20.0


class OneTransaction:
    """A tick of one transaction that changed no table of ours."""

    def __init__(self, scn: int) -> None:
        self.last_scn = scn
        self._events = iter((Begin(scn, scn, scn), End()))

    def next(self) -> Begin | End | None:
        return next(self._events, None)

    def close(self) -> None:
        pass


class Restless:
    """Change tables of a source whose writers never rest: behind each tick there is another one."""

    usable = True

    def __init__(self) -> None:
        self._give_up_at = time.monotonic() + _NEVER_S

    def refusals(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def walk(self, scn: int, cost: Cost) -> OneTransaction:
        assert time.monotonic() < self._give_up_at, "nothing is handed over"
        return OneTransaction(scn + 1)

    def note(self, scn: int, cost: Cost) -> None:
        pass

    def purge(self) -> bool:
        return False

    def close(self) -> None:
        pass


def test_a_source_that_never_rests_is_handed_over_all_the_while() -> None:
    settings = TriggerSettings(name="t")
    registry = cast("Any", None)
    delivered = Delivered(settings, registry, registry, registry)
    reader = TriggerLogReader(
        Restless(), settings, Assembler(settings, registry, 0), 0, threading.Event(), delivered
    )
    covered = [item.block.covered_scn for _ in range(3) if (item := reader.poll(1.0)) is not None]
    assert len(covered) == 3
    assert 1 < covered[0] < covered[1] < covered[2]

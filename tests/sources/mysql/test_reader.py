"""When the reader of a binary log hands over what it has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

from headrace.sources.mysql.prepared import HeldTransactions
from headrace.sources.mysql.stream import AcknowledgedPosition, MysqlLogReader

_NEVER_S = 20.0


class Restless:
    """A log in which there is always one more event."""

    def __init__(self) -> None:
        self._give_up_at = time.monotonic() + _NEVER_S

    def ready(self, timeout_s: float) -> bool:
        assert time.monotonic() < self._give_up_at, "nothing is handed over"
        return True

    def next(self, timeout_s: float) -> object:
        return object()


class Counted:
    """Takes whole transactions of which one in so many is kept.

    Args:
        kept: 0 where none is.
    """

    full = recalls = open = expects_alike = False

    def __init__(self, kept: int) -> None:
        self._kept = kept
        self.added = 0
        self.has_output = False

    def add(self, event: object) -> None:
        self.added += 1
        self.has_output = self.has_output or bool(self._kept and not self.added % self._kept)

    def take(self) -> int:
        self.has_output = False
        return self.added

    def quiet(self) -> None:
        return None


def reader_of(assembler: Counted, folder: Path) -> MysqlLogReader:
    acknowledged = AcknowledgedPosition(folder / "place")
    held = HeldTransactions(folder / "held", lambda *_: False)
    log = cast("Any", Restless())
    return MysqlLogReader(log, cast("Any", assembler), acknowledged, held, silence_s=60.0)


def test_a_log_that_never_rests_is_handed_over_all_the_while(tmp_path: Path) -> None:
    reader = reader_of(Counted(kept=10), tmp_path)
    taken = [cast("Any", reader.poll(5.0)) for _ in range(3)]
    assert 10 < taken[0] < taken[1] < taken[2]


def test_whoever_waits_is_answered_in_time_though_nothing_is_kept_of_what_comes(
    tmp_path: Path,
) -> None:
    assembler = Counted(kept=0)
    assert reader_of(assembler, tmp_path).poll(0.01) is None
    assert assembler.added > 1

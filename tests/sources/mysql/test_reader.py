"""When the reader of a binary log hands over what it has."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import pytest

from headrace.errors import SourceUnavailable
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

    def add_alike(self, buffer: bytearray, at: int, end: int, checksum: bool) -> int:
        raise AssertionError("the log hands it over itself")

    def take(self) -> int:
        self.has_output = False
        return self.added

    def quiet(self) -> None:
        return None


class Silent:
    """A log in which nothing comes, on a machine that stands still for a while in each wait."""

    def __init__(self, stands_still_s: float) -> None:
        self.now = 1_000.0
        self._stands_still_s = stands_still_s

    def ready(self, timeout_s: float) -> bool:
        self.now += max(timeout_s, 0.0) + self._stands_still_s
        return False


class Arriving(Restless):
    """A log whose next transaction has come in part, and comes whole while its reader is busy."""

    def __init__(self) -> None:
        super().__init__()
        self.handed: list[bool] = []
        self.whole = False

    def hand(self, take: object) -> bool:
        self.handed.append(self.whole)
        return self.whole

    def more(self) -> bool:
        self.whole = True
        return True

    def next(self, timeout_s: float) -> object:
        raise AssertionError("event by event")


def reader_of(assembler: Counted, folder: Path, given: object = None) -> MysqlLogReader:
    acknowledged = AcknowledgedPosition(folder / "place")
    held = HeldTransactions(folder / "held", lambda *_: False)
    log = cast("Any", given or Restless())
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


def test_a_transaction_of_which_the_rest_has_come_is_taken_at_once(tmp_path: Path) -> None:
    assembler, log = Counted(kept=0), Arriving()
    assembler.expects_alike = True
    assert reader_of(assembler, tmp_path, log).poll(0.0) is None
    assert log.handed[:2] == [False, True]


def test_a_machine_that_stands_still_does_not_count_as_a_server_that_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Silent(stands_still_s=50.0)
    monkeypatch.setattr("headrace.sources.mysql.stream.time.monotonic", lambda: log.now)
    reader = reader_of(Counted(kept=0), tmp_path, log)

    def polled(times: int) -> None:
        for _ in range(times):
            assert reader.poll(0.5) is None

    polled(100)
    with pytest.raises(SourceUnavailable, match="said nothing for 60 s"):
        polled(100)

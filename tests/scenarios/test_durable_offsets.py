"""What capture acknowledges, and what it counts as captured, is durable: looked at from outside at every failpoint."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from headrace.changelog import ChangeLogReader
from headrace.errors import SourceUnavailable
from headrace.observe import failpoints
from headrace.relay.capture import Capture
from headrace.relay.log import Log
from headrace.sources.scripted import ScriptedDatabase, ScriptedSource
from headrace.state.store import StateStore
from headrace.testing.histories import TABLES, RandomHistory
from headrace.testing.scripted import ROUNDS, run_dry, scripted_capture
from headrace.testing.simulation import CAPTURE_FAILPOINTS, CUTS
from headrace.watermark.settings import DumpSettings
from tests.requirements import req
from tests.scenarios.crashing_log import open_log


class Crash(BaseException):
    """The process dies here."""


class Life:
    """A scripted database with a random history, and the captures of it that come and go."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.database = ScriptedDatabase(TABLES)
        self.history = RandomHistory(self.database, self.rng, Counter())
        self.history.load()
        self.source = ScriptedSource(self.database, self._weather, most=3)

    def _weather(self) -> None:
        if self.database.backlog < 20:
            for _ in range(self.rng.randrange(4)):
                self.history.step()

    @contextmanager
    def capturing(self) -> Iterator[tuple[Capture, Log, StateStore]]:
        """Give a capture that has begun; at the end the power fails."""
        log, lose = open_log(self.folder)
        try:
            with closing(StateStore(self.folder / "state.db")) as state:
                dump = DumpSettings(chunk_rows=2, snapshot_interval_s=0.0)
                capture = scripted_capture(self.source, self.folder, log, state, dump)
                capture.start()
                yield capture, log, state
        finally:
            failpoints.disarm()
            lose()

    def captured(self) -> Counter[int]:
        """Return the changes of each transaction as another process reads them now."""
        found: Counter[int] = Counter()
        for block in ChangeLogReader(self.folder / "changelog").blocks(0):
            for entry in block.index:
                found[int(entry["scn"])] += int(entry["changes"])
        return found

    def lost(self) -> set[int]:
        """Return the transactions that the source was told to forget, and that the change log does not have."""
        told = self.database.acknowledged
        logged = {one.scn for one in self.database.log if not one.mark and one.scn <= told}
        return logged - self.captured().keys()


def arm_everywhere(what: Callable[[str], None]) -> None:
    for name in CAPTURE_FAILPOINTS:
        failpoints.arm(name, lambda name=name: what(name))  # type: ignore[misc]


@req("C26")
@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_acknowledged_before_it_is_durable(tmp_path: Path, seed: int) -> None:
    life = Life(tmp_path, seed)
    acknowledged = [0]

    def look(name: str) -> None:
        assert not life.lost(), name
        acknowledged.append(life.database.acknowledged)
        if life.rng.random() < 0.01:
            raise Crash

    for _ in range(4):
        with life.capturing() as (capture, _, state):
            arm_everywhere(look)
            try:
                run_dry(capture, state)
            except Crash:
                continue
        # The power has failed: nothing that was not synced is there.
        assert not life.lost()
    assert acknowledged == sorted(acknowledged)
    assert len(set(acknowledged)) > 5


@req("T20")
@pytest.mark.parametrize("place", CUTS)
def test_captured_changes_are_counted_once_whatever_comes_again(tmp_path: Path, place: str) -> None:
    life = Life(tmp_path, 1)
    passes = cuts = 0

    def cut() -> None:
        nonlocal passes, cuts
        passes += 1
        # Some places are passed a few times only: once is certain.
        if passes == 3 or life.rng.random() < 0.2:
            cuts += 1
            raise SourceUnavailable("scripted: the connection was cut.", next_step="open it again.")

    with life.capturing() as (capture, log, state):
        failpoints.arm(place, cut)
        for _ in range(ROUNDS // 10):
            try:
                capture.step(0.0)
            except SourceUnavailable:
                capture.close_connections()
                capture.open_connections()
            assert capture.status().changes == life.captured().total()
        failpoints.disarm()
        life.history.settle()
        assert run_dry(capture, state)
        log.sync()
        assert capture.status().changes == life.captured().total() > 50
    assert cuts

"""When blocks leave: at once after a pause, a little apart while more comes, larger the more comes."""

from __future__ import annotations

import pytest

from headrace.sources.postgres.cadence import Cadence
from headrace.sources.postgres.settings import PostgresSettings

INTERVAL_S = PostgresSettings("").block_interval_s


class Stream:
    """A stream by a clock of its own: rows arrive, blocks leave when they are due and the writer is free.

    Args:
        write_s: what a block takes on its way to the disk; nothing is handed over meanwhile.
    """

    def __init__(self, write_s: float) -> None:
        self.cadence = Cadence(INTERVAL_S)
        self.write_s = write_s
        self.blocks: list[int] = []
        self.latencies: list[float] = []

    def play(self, rate: float, seconds: float, rows: int = 1) -> None:
        """Let transactions of ``rows`` rows arrive evenly, and take everything out."""
        arrivals = [10 + number / rate for number in range(int(rate * seconds))]
        free = 0.0
        while arrivals:
            looked = max(arrivals[0], free)
            self.cadence.begun(looked)
            leaves = max(looked, self.cadence.due_at)
            count = sum(arrival <= leaves for arrival in arrivals[:5_000])
            self.cadence.ended(leaves, count * rows)
            free = leaves + self.write_s
            self.blocks.append(count)
            self.latencies += [free - arrival for arrival in arrivals[:count]]
            del arrivals[:count]


def test_what_comes_after_a_pause_leaves_at_once() -> None:
    cadence = Cadence(0.025)
    for now in (10.0, 10.5, 11.0):
        cadence.begun(now)
        assert cadence.due(now)
        cadence.ended(now, 1)
    assert not cadence.busy


def test_while_more_comes_blocks_keep_their_distance() -> None:
    cadence = Cadence(0.025)
    cadence.begun(10.0)
    cadence.ended(10.0, 1)
    cadence.begun(10.005)
    assert not cadence.due(10.02)
    assert cadence.due(10.026)


@pytest.mark.parametrize("rate", [100, 1_000, 5_000])
def test_no_commit_waits_longer_than_the_goal_leaves_room_for(rate: int) -> None:
    stream = Stream(write_s=0.001)
    stream.play(rate, seconds=2)
    assert not stream.cadence.busy
    # 3 ms inside the process, the disk included; then the reader in the other process has its turn.
    assert max(stream.latencies) <= 0.003


def test_blocks_grow_by_themselves_when_the_disk_is_slow() -> None:
    quick, slow = Stream(write_s=0.0), Stream(write_s=0.02)
    for stream in (quick, slow):
        stream.play(1_000, seconds=2)
    assert max(quick.blocks) <= 2
    assert min(slow.blocks[1:-1]) >= 19


def test_one_large_transaction_among_small_ones_is_no_load() -> None:
    cadence = Cadence(INTERVAL_S)
    for number in range(50):
        cadence.begun(10 + number / 1_000)
        cadence.ended(10 + number / 1_000, 1)
    cadence.begun(10.050)
    cadence.ended(10.050, 300)
    assert not cadence.busy
    cadence.begun(10.050)
    assert cadence.due_at <= 10.050 + 2 * INTERVAL_S


@pytest.mark.parametrize(("rate", "wait_s"), [(30_000, 0.002), (75_000, 0.0125), (300_000, 0.05)])
def test_the_more_comes_the_larger_a_block(rate: int, wait_s: float) -> None:
    cadence = Cadence(0.0)
    for number in range(50):
        cadence.begun(10 + number / 100)
        cadence.ended(10 + number / 100, rate // 100)
    assert cadence.busy
    cadence.begun(10.5)
    assert cadence.due_at - 10.5 == pytest.approx(wait_s, rel=0.01)
    for number in range(1, 20):
        cadence.ended(10.5 + number / 100, 50)
    assert not cadence.busy


def test_nothing_at_hand_is_never_due() -> None:
    assert not Cadence(0.0).due(1e9)


def test_what_is_at_hand_leaves_when_nothing_more_comes() -> None:
    cadence = Cadence(0.0)
    for number in range(50):
        cadence.begun(10 + number / 100)
        cadence.ended(10 + number / 100, 3_000)
    cadence.begun(10.5)
    assert not cadence.due(10.501)
    cadence.lull()
    assert cadence.due(10.501)

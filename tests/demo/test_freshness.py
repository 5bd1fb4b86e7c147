"""Freshness: from the commit at the source to the manifest that shows it."""

from __future__ import annotations

import numpy as np

from headrace.demo.freshness import Freshness, delays_s
from headrace.lake import Manifest


def shown(scn: int, at_s: float) -> Manifest:
    return Manifest(scn, 0, {}, int(at_s * 1e6))


def test_each_commit_waits_for_the_first_manifest_that_holds_it() -> None:
    scns = np.array([5, 10, 11, 20, 21], np.int64)
    commit_us = np.array([1, 2, 3, 4, 5], np.int64) * 1_000_000

    delays = delays_s(scns, commit_us, [shown(10, 7), shown(20, 9)])

    # 21 is not visible yet, and so has no delay.
    assert delays.tolist() == [6.0, 5.0, 6.0, 5.0]


def test_percentiles_and_nothing_to_measure() -> None:
    measured = Freshness.of(np.arange(1, 101, dtype=np.float64))

    assert (measured.transactions, round(measured.p50_s, 2)) == (100, 50.5)
    assert 99 < measured.p99_s < 100
    assert Freshness.of(np.empty(0)).transactions == 0

"""How long a commit takes to become visible in the target tables.

In: the frontier manifests, each saying when which position became visible, and the change log, which
knows when each transaction was committed at the source. Out: percentiles over transactions. Both clocks are
this machine's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from headrace.changelog.reader import ChangeLogReader
from headrace.lake import FrontierStore, Manifest
from headrace.model.block import ORIGIN_LOG
from headrace.replicator.config import Config
from headrace.replicator.paths import StatePaths

__all__ = ["Freshness", "delays_s", "measure"]


@dataclass(frozen=True, slots=True)
class Freshness:
    """Percentiles of source commit → visible, in seconds, over ``transactions``."""

    transactions: int
    p50_s: float
    p95_s: float
    p99_s: float

    @classmethod
    def of(cls, delays: npt.NDArray[np.float64]) -> Freshness:
        """Return the percentiles; all zero when there was no transaction."""
        if not len(delays):
            return cls(0, 0.0, 0.0, 0.0)
        p50, p95, p99 = (float(value) for value in np.percentile(delays, (50, 95, 99)))
        return cls(len(delays), p50, p95, p99)


def delays_s(
    scns: npt.NDArray[np.int64], commit_us: npt.NDArray[np.int64], manifests: Sequence[Manifest]
) -> npt.NDArray[np.float64]:
    """Return the delay of each transaction that some manifest shows; the others are left out."""
    reached = np.array([manifest.scn for manifest in manifests], np.int64)
    written = np.array([manifest.written_us for manifest in manifests], np.int64)
    first = np.searchsorted(reached, scns, side="left")
    shown = first < len(reached)
    delays: npt.NDArray[np.float64] = (written[first[shown]] - commit_us[shown]) / 1e6
    return delays


def measure(config: Config, after_us: int, until_us: int) -> Freshness:
    """Return the freshness of the transactions committed in a span of time."""
    log = ChangeLogReader(StatePaths.of(config).changelog)
    index = log.index(log.tail().oldest_scn)
    index = index[index["origin"] == ORIGIN_LOG]
    index = index[(index["commit_us"] >= after_us) & (index["commit_us"] < until_us)]
    manifests = FrontierStore(config.lake, config.name).list()
    return Freshness.of(delays_s(index["scn"], index["commit_us"], manifests))

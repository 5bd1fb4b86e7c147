"""What the apply job says about itself: numbers per table, and how fresh the tables are.

A freshness sample is the time from a source commit to the moment when the target shows it. One is taken per
second of commit time, so that a busy second does not outvote a quiet one.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Mapping
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from headrace.lake.rewrite import Rewritten

__all__ = [
    "ApplyStatus",
    "BatchCost",
    "FreshnessLog",
    "MaintenanceCost",
    "TableStatus",
    "samples_s",
]

_LOG = logging.getLogger(__name__)
_SECOND_US = 1_000_000
_KEPT_SAMPLES = 3_600
_FILE_LIMIT_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class _Cost:
    """Numbers that are added one by one."""

    def __add__(self, other: Self) -> Self:
        """Return both together."""
        return type(self)(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


@dataclass(frozen=True, slots=True)
class BatchCost(_Cost):
    """What one batch cost one table, or several together.

    Attributes:
        batches: how many.
        rows: change rows.
        files: data files that were written, or lost rows.
        bytes: written, deletion vectors among them.
        probe_s: seconds of looking for the rows that die.
        write_s: seconds of writing.
        commit_s: seconds of the driver's commit.
    """

    batches: int = 0
    rows: int = 0
    files: int = 0
    bytes: int = 0
    probe_s: float = 0.0
    write_s: float = 0.0
    commit_s: float = 0.0


@dataclass(frozen=True, slots=True)
class MaintenanceCost(_Cost):
    """What maintenance did to one table in this process.

    Attributes:
        pieces: of work.
        files_before: files that went.
        files_after: files that came.
        bytes_read: size of the first.
        bytes_written: size of the second.
    """

    pieces: int = 0
    files_before: int = 0
    files_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0

    @classmethod
    def of(cls, done: Rewritten) -> MaintenanceCost:
        """Return what one piece was."""
        return cls(1, done.files_before, done.files_after, done.bytes_read, done.bytes_written)


@dataclass(slots=True)
class TableStatus:
    """One table.

    Attributes:
        state: ``copying``, ``live``, ``failing`` or ``left``.
        applied_scn: the target shows the source up to here.
        rows: change rows that this process committed, each once.
        version: newest version of the target table, -1 before it exists.
        error: name, message and next step of what stands in the way, None when nothing does.
        last_batch: what the newest batch cost, None before the first, or where the target does not measure it.
        all_batches: what all of this process cost.
        maintenance: what it did.
        schema_id: version of the source's table that the target has the columns of, in hex; empty before the first.
    """

    state: str = "copying"
    applied_scn: int = 0
    rows: int = 0
    version: int = -1
    error: dict[str, str] | None = None
    last_batch: BatchCost | None = None
    all_batches: BatchCost = field(default_factory=BatchCost)
    maintenance: MaintenanceCost = field(default_factory=MaintenanceCost)
    schema_id: str = ""


@dataclass(slots=True)
class ApplyStatus:
    """The whole job.

    Attributes:
        frontier_scn: SCN of the newest manifest, 0 before the first.
        frontier_changes: changes up to there (`headrace.lake.frontier.Manifest.changes`).
        covered_scn: what the change log covers.
        lag_s: age of the newest source commit that the frontier lacks, 0 when it lacks none.
        rows_per_s: of the last batch that had rows.
        batches: with rows, in this process.
        stuck_s: for how long no table has got anywhere, 0 while one does.
        batch_s: age of the batch at work, 0 while there is none.
        silent_s: for how long Spark's process has left a question open, 0 while it answers.
        freshness_s: percentiles of the newest samples, empty before the first.
        tables: by ``schema.table``.
    """

    frontier_scn: int = 0
    frontier_changes: int = 0
    covered_scn: int = 0
    lag_s: float = 0.0
    rows_per_s: float = 0.0
    batches: int = 0
    stuck_s: float = 0.0
    batch_s: float = 0.0
    silent_s: float = 0.0
    freshness_s: dict[str, float] = field(default_factory=dict)
    tables: Mapping[str, TableStatus] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return asdict(self)


def samples_s(
    commit_us: npt.NDArray[np.int64], visible_us: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """Return commit time and delay of the last transaction of each second of commit time.

    Args:
        commit_us: commit times, in log order.
        visible_us: when the target showed all of them.
    """
    if not len(commit_us):
        return np.empty(0, np.int64), np.empty(0, np.float64)
    ordered = np.sort(commit_us)
    seconds = ordered // _SECOND_US
    last = np.flatnonzero(np.append(seconds[1:] != seconds[:-1], True))
    return ordered[last], np.maximum(visible_us - ordered[last], 0) / _SECOND_US


class FreshnessLog:
    """Samples, newest in memory and all in a file of one JSON object per batch.

    Args:
        path: of the file; its predecessor is kept beside it when it grows too long. None keeps none.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._delays: deque[float] = deque(maxlen=_KEPT_SAMPLES)

    def add(self, scn: int, commit_us: npt.NDArray[np.int64], visible_us: int) -> None:
        """Take the transactions that became visible with a frontier."""
        times, delays = samples_s(commit_us, visible_us)
        if not len(times):
            return
        self._delays.extend(delays.tolist())
        if self._path is not None:
            self._write(
                {
                    "scn": scn,
                    "visible_us": visible_us,
                    "newest_s": float(delays[-1]),
                    "samples": [[int(t), float(d)] for t, d in zip(times, delays, strict=True)],
                }
            )

    def percentiles(self) -> dict[str, float]:
        """Return p50, p95 and p99 of the kept samples."""
        if not self._delays:
            return {}
        found = np.percentile(np.fromiter(self._delays, np.float64), (50, 95, 99))
        return {
            name: round(float(value), 3)
            for name, value in zip(("p50", "p95", "p99"), found, strict=True)
        }

    def _write(self, line: dict[str, Any]) -> None:
        """Add a line to the file; one that takes none stands in the way of no batch."""
        assert self._path is not None
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            if self._path.exists() and self._path.stat().st_size > _FILE_LIMIT_BYTES:
                self._path.replace(self._path.with_suffix(".1.jsonl"))
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        except OSError as error:
            _LOG.warning("%s takes no sample: %s", self._path, error.strerror)

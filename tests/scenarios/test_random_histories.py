"""F1: random histories, interleavings and crash points through the product, against the truth; and the proof that the
same oracle finds each fault when the rule against it is switched off.

A run takes 300 histories over all cores, the long one 10,000, and that keeps its coverage table.
"""

from __future__ import annotations

import functools
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from benchmarks import harness
from headrace.errors import HeadraceError
from headrace.fold import origin_name
from headrace.model.schema import TableSchema
from headrace.model.snapshot import NO, YES
from headrace.observe import failpoints
from headrace.relay.capture import Capture
from headrace.sources.base import Chunk, ReceivedMark
from headrace.testing.oracle import OracleViolation
from headrace.testing.simulation import CAPTURE_FAILPOINTS, Simulation, SimulationFailed
from headrace.watermark import reconciler as reconciler_module
from headrace.watermark.closing import Closed, Closing, Job
from headrace.watermark.reconciler import Reconciled
from tests.requirements import req
from tests.scenarios.crashing_log import open_log

DEFAULT, LONG = 300, 10_000
STEERED_DEFAULT, STEERED_LONG = 24, 2_000
STEP = 25
BASE = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else None
"""Where histories lie: what a power cut loses is simulated, so no disk is waited for."""
MUST_HAPPEN = (
    "rows before the dump",
    "duplicates before the dump",
    "updates in place (toast)",
    "updates in place (minimal)",
    "updates in place (full)",
    "key changes",
    "key changes with missing columns",
    "swaps",
    "deferred key shifts",
    "delete and re-insert",
    "keyless inserts",
    "keyless deletes and updates",
    "truncates",
    "re-dumps",
    "requests for keys",
    "transactions over several tables",
    "transaction open through the dump",
    "connections cut at capture.after_append",
    "connections cut at capture.after_sync",
    "connections cut at capture.after_progress",
    "windows of chunk rows",
    "apply restarts",
    "apply died between tables",
    "frontiers compared",
)


MUST_BE_STEERED = (
    "steering: QUEUED to PAUSED",
    "steering: ACTIVE to PAUSED",
    "steering: PAUSED to QUEUED",
    "steering: ACTIVE to CANCELLED",
    "steering: asked again",
    "steering: priorities",
    "steering: chunk sizes",
    "steering: keys with deletes",
    "steering: log pauses",
    "frontiers compared",
)


def run_some(first: int, count: int, *, steered: bool = False) -> tuple[Counter[str], list[str]]:
    """Run some seeds in this process; return what happened, and what went wrong."""
    coverage: Counter[str] = Counter()
    faults = []
    for seed in range(first, first + count):
        with tempfile.TemporaryDirectory(dir=BASE) as folder:
            try:
                Simulation(seed, Path(folder), open_log, coverage, steered=steered).run()
            except (SimulationFailed, OracleViolation, HeadraceError) as error:
                faults.append(f"seed {seed}: {type(error).__name__}: {error}")
    return coverage, faults


@req(
    "N01",
    "F1",
    "A-17",
    "P01",
    "P09",
    "P10",
    "P13",
    "H01",
    "H05",
    "H10",
    "T10",
    "C12",
    "C13",
    "A-8",
    "A-9",
    "D04",
)
@pytest.mark.timeout(10_800)
def test_random_histories_with_crashes(request: pytest.FixtureRequest) -> None:
    count = LONG if request.config.getoption("--long") else DEFAULT
    coverage, faults, seconds = run_all(0, count, STEP)
    if count == LONG:
        keep_figures(count, coverage, faults, seconds)
    assert not faults, faults[:5]
    crashes = [f"crash at {name}" for name in CAPTURE_FAILPOINTS]
    assert [name for name in (*MUST_HAPPEN, *crashes) if not coverage[name]] == []


@req("F1", "F7", "N08", "P19", "P06", "A-17")
@pytest.mark.timeout(10_800)
def test_random_histories_that_people_steer(request: pytest.FixtureRequest) -> None:
    count = STEERED_LONG if request.config.getoption("--long") else STEERED_DEFAULT
    coverage, faults, _ = run_all(100_000, count, 6, steered=True)
    assert not faults, faults[:5]
    assert [name for name in MUST_BE_STEERED if not coverage[name]] == []


def run_all(
    first: int, count: int, step: int, *, steered: bool = False
) -> tuple[Counter[str], list[str], float]:
    """Run seeds in as many processes as there are cores; return what happened, what went wrong, and seconds."""
    coverage: Counter[str] = Counter()
    faults: list[str] = []
    begun = time.monotonic()
    # Not forked: a child would inherit the locks of Arrow's and SQLite's threads as they happened to be.
    context = multiprocessing.get_context("spawn")
    run = functools.partial(run_some, count=step, steered=steered)
    with ProcessPoolExecutor(os.cpu_count(), mp_context=context) as pool:
        for part, wrong in pool.map(run, range(first, first + count, step)):
            coverage += part
            faults += wrong
    table = "\n".join(f"{n:>9,}  {name}" for name, n in sorted(coverage.items()))
    seconds = time.monotonic() - begun
    print(f"{count:,} histories in {seconds:.0f} s\n{table}")
    return coverage, faults, seconds


def keep_figures(count: int, coverage: Counter[str], faults: list[str], seconds: float) -> None:
    """Keep the figures of the long run beside those of the benchmarks."""
    harness.write(
        "random_histories",
        seed=0,
        sizes={"histories": count},
        runs=[dict(sorted(coverage.items()))],
        summary={"violations": len(faults), "seconds": seconds},
        measured_on=harness.machine(),
    )


# -- mutations: each switches one rule off, and the oracle must find it -----------------------------


def seeds_until_found(
    most: int, capture_type: type[Capture] = Capture, first: int = 50_000
) -> int | None:
    """Return how many seeds it takes until a run goes wrong, None when ``most`` are not enough."""
    for seed in range(first, first + most):
        with tempfile.TemporaryDirectory(dir=BASE) as folder:
            try:
                Simulation(seed, Path(folder), open_log, Counter(), capture_type).run()
            except (SimulationFailed, OracleViolation, HeadraceError):
                return seed - first + 1
            finally:
                failpoints.disarm()
    return None


class _BeforeLow:
    """What the paper assumes: whatever was streamed before the low mark was seen, nothing after it."""

    def __init__(self, low_scn: int) -> None:
        self.low_scn = low_scn

    def sees(self, xid: npt.NDArray[np.int64], scn: npt.NDArray[np.int64]) -> npt.NDArray[np.int8]:
        return np.where(scn <= self.low_scn, YES, NO).astype(np.int8)


@req("P49", "A-17")
def test_oracle_finds_a_missing_visibility_guard(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = Closing.chunk

    def plain(
        self: Closing,
        job: Job,
        task: object,
        chunk: Chunk,
        mark: ReceivedMark,
    ) -> Closed:
        as_paper = Chunk(chunk.schema, chunk.rows, _BeforeLow(job.low_scn), chunk.last_key)
        return emit(self, job, task, as_paper, mark)  # type: ignore[arg-type]

    monkeypatch.setattr(Closing, "chunk", plain)
    assert seeds_until_found(200)


@req("P44", "A-17", "H04")
def test_oracle_finds_a_missing_collision_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def keep_all(schema: TableSchema, rows: pa.RecordBatch, *_: object) -> Reconciled:
        return Reconciled(rows, np.zeros(rows.num_rows, np.int8), rows.slice(0, 0))

    monkeypatch.setattr(reconciler_module, "_meet", keep_all)
    assert seeds_until_found(100)


@req("A-17")
def test_oracle_finds_a_missing_partial_image_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    meet = reconciler_module._meet

    def any_event_collides(
        schema: TableSchema,
        rows: pa.RecordBatch,
        keys: pa.Array,
        changes: list[pa.RecordBatch],
        folded: pa.Table,
    ) -> Reconciled:
        whole = folded
        for name in ("_missing", *(origin_name(key) for key in schema.key)):
            field = whole.schema.field(name)
            nothing = pa.nulls(whole.num_rows, field.type)
            whole = whole.set_column(whole.schema.get_field_index(name), field, nothing)
        return meet(schema, rows, keys, changes, whole)

    monkeypatch.setattr(reconciler_module, "_meet", any_event_collides)
    # Found by about one history in fifty; begins near one that does, so as not to search each time.
    assert seeds_until_found(200, first=50_050)


class _ProgressFirst(Capture):
    """Writes progress and acknowledges before the change log is durable."""

    def _settle(self, *, owe: bool = False) -> None:
        sync, self._log.sync = self._log.sync, lambda: None  # type: ignore[method-assign]
        try:
            super()._settle(owe=owe)
        finally:
            self._log.sync = sync  # type: ignore[method-assign]
        failpoints.failpoint("log.before_sync")
        sync()


@req("T10", "H10", "A-17")
def test_oracle_finds_progress_before_the_change_log() -> None:
    assert seeds_until_found(300, _ProgressFirst)

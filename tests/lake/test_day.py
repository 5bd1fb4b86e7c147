"""A day of batches in a short time: with maintenance a table's files, and what a batch costs, stay as they are."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from headrace.fold import fold
from headrace.lake import checkpoint, commit, data_writer, pieces, settle, tidy
from headrace.lake.pieces import Sizes
from headrace.lake.rewrite import plan_rewrite, put_rewrite
from headrace.model.change import change_schema
from headrace.testing.notation import table_of
from tests.lake.local_table import LocalTable

SCHEMA = table_of(2)
ROWS = 60_000
CHANGES = 400
SCALE = 25
"""How much smaller all is than what the defaults are made for: batches of ten thousand changes."""
SIZES = Sizes(64 * 2**20 // SCALE, 16 * 2**20 // SCALE, 0.2)
PROMISED = 40
"""Batches whose frontiers are promised."""


@dataclass(frozen=True)
class Look:
    """The table after one batch."""

    files: int
    bytes: int
    on_disk: int
    dead: int
    batch_s: float
    rewritten_bytes: int


class Clock:
    """Time as the table sees it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ms = time.time_ns() // 1_000_000
        for module in (checkpoint, commit, data_writer, settle, tidy):
            monkeypatch.setattr(module, "now_ms", lambda: self.ms)


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(settle, "_SMALL_ROWS", 10_000 // SCALE)
    monkeypatch.setattr(settle, "_SMALL_BYTES", 8 * 2**20 // SCALE)
    for module in (data_writer, settle, pieces):
        monkeypatch.setattr(module, "FILE_ROWS", 1_000_000 // SCALE)
    return Clock(monkeypatch)


Keys = Callable[[np.random.Generator, "Day"], np.ndarray]


class Day:
    """A table of keys that come, change and go; as many come as go."""

    def __init__(self, folder: Path, keys: Keys) -> None:
        self.table = LocalTable(folder, SCHEMA)
        self.generator = np.random.default_rng(7)
        self.keys = keys
        self.live = np.arange(ROWS)
        self.fresh = ROWS
        self.batch("+I", self.live, 1)

    def batch(self, op: str, keys: np.ndarray, scn: int, gone: np.ndarray | None = None) -> None:
        gone = np.empty(0, np.int64) if gone is None else gone
        count = len(keys) + len(gone)
        text = self.generator.bytes(20 * count).hex()
        texts = [text[place : place + 40] for place in range(0, len(text), 40)]
        columns = [
            pa.array(np.full(count, scn)),
            pa.array(np.arange(count), pa.int32()),
            pa.array([op] * len(keys) + ["-D"] * len(gone)),
            pa.nulls(count, pa.binary()),
            pa.array(np.concatenate([keys, gone])),
            pa.array(texts),
        ]
        form = change_schema(SCHEMA)
        cast = [column.cast(field.type) for column, field in zip(columns, form, strict=True)]
        self.table.apply(fold(SCHEMA, [pa.record_batch(cast, schema=form)]), scn)

    def step(self, scn: int) -> None:
        """Change half as many keys as come and go together."""
        chosen = self.keys(self.generator, self)
        changed, gone = chosen[: CHANGES // 2], chosen[CHANGES // 2 :]
        born = np.arange(self.fresh, self.fresh + len(gone))
        self.fresh += len(born)
        self.live = np.concatenate([np.setdiff1d(self.live, gone), born])
        self.batch("=U", np.concatenate([changed, born]), scn, gone)


def uniform(generator: np.random.Generator, day: Day) -> np.ndarray:
    return generator.choice(day.live, CHANGES * 3 // 4, replace=False)


def newest(generator: np.random.Generator, day: Day) -> np.ndarray:
    """Changes hit what is new, and the oldest goes."""
    late = day.live[-len(day.live) // 20 :]
    changed = generator.choice(late, CHANGES // 2, replace=False)
    return np.concatenate([changed, day.live[: CHANGES // 4]])


def looks(folder: Path, clock: Clock, batches: int, keys: Keys, *, maintained: bool) -> list[Look]:
    """Let a day of batches pass and return what was seen after each."""
    day, found = Day(folder, keys), []
    versions = [day.table.table.latest_version() or 0]
    for number in range(batches):
        clock.ms += 86_400_000 // 1_000
        begun = time.monotonic()
        day.step(number + 2)
        batch_s = time.monotonic() - begun
        rewritten = 0
        if maintained and (plan := plan_rewrite(day.table.table.snapshot(), ("k",), SIZES)):
            done = put_rewrite(plan, plan.write(), day.table.table.latest)
            assert done is not None
            rewritten = done.bytes_written
        versions.append(day.table.table.latest_version() or 0)
        if number % 20 == 0:
            tidy.tidy(folder, versions[-PROMISED:][0])
        files = day.table.table.snapshot().files
        found.append(
            Look(
                len(files),
                sum(file.size for file in files),
                sum(path.stat().st_size for path in folder.glob("*.*")),
                sum(int(file.vector["cardinality"]) for file in files if file.vector),
                batch_s,
                rewritten,
            )
        )
    rows = day.table.table.snapshot().to_table()
    assert sorted(rows["k"].to_pylist()) == sorted(day.live.tolist())
    return found


def told(name: str, seen: list[Look]) -> None:
    """Print what the day was like, a tenth of it a line."""
    tenth = max(len(seen) // 10, 1)
    for begin in range(0, len(seen), tenth):
        part = seen[begin : begin + tenth]
        print(
            f"{name} {begin:5d}: files {statistics.median(x.files for x in part):5.0f}  "
            f"MiB {statistics.median(x.bytes for x in part) / 2**20:6.1f}  "
            f"on disk {statistics.median(x.on_disk for x in part) / 2**20:7.1f}  "
            f"dead {statistics.median(x.dead for x in part):7.0f}  "
            f"batch {statistics.median(x.batch_s for x in part) * 1e3:6.0f} ms  "
            f"rewritten {sum(x.rewritten_bytes for x in part) / 2**20:6.1f}"
        )


@pytest.mark.parametrize("keys", [uniform, newest])
def test_sixty_batches_with_maintenance(tmp_path: Path, clock: Clock, keys: Keys) -> None:
    seen = looks(tmp_path, clock, 60, keys, maintained=True)
    told(keys.__name__, seen)
    assert max(look.files for look in seen) <= 20
    assert max(look.dead for look in seen[20:]) < 0.3 * ROWS
    assert max(look.bytes for look in seen) < 1.4 * seen[0].bytes


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("keys", [uniform, newest])
def test_a_day_of_a_thousand_batches_leaves_files_and_bytes_as_they_were(
    tmp_path: Path, clock: Clock, keys: Keys
) -> None:
    seen = looks(tmp_path / "kept", clock, 1_000, keys, maintained=True)
    told(keys.__name__, seen)
    early, late = seen[200:400], seen[-200:]
    assert max(look.dead for look in late) < 0.3 * ROWS
    for what in ("files", "bytes", "on_disk"):
        before, after = (
            statistics.median(getattr(look, what) for look in part) for part in (early, late)
        )
        assert after <= 1.25 * before, what
    if keys is uniform:
        # It is not the batches alone that keep them so.
        plain = looks(tmp_path / "plain", clock, 300, keys, maintained=False)
        told("uniform, without", plain)
        deleted = (statistics.median(look.dead for look in part) for part in (plain[-100:], late))
        assert next(deleted) > 2 * next(deleted)

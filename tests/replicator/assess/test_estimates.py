"""Estimates: from statistics and a short look at the log, and from nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headrace.model.schema import TableId
from headrace.replicator.assess.estimates import (
    FIRST_COPY_ROWS_PER_S,
    estimated,
    sample_log,
)
from headrace.sources.description import TableDescription

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"


def table(name: str, rows: int | None, size: int | None) -> TableDescription:
    return TableDescription(TableId("s", name), (), (), (), rows, size)


def test_the_rate_is_that_of_the_benchmark() -> None:
    measured = json.loads((RESULTS / "freshness.json").read_text())["summary"]["copied_rows_per_s"]
    assert pytest.approx(measured, rel=0.5) == FIRST_COPY_ROWS_PER_S


def test_tables_are_copied_one_after_another_and_the_uncounted_are_left_out() -> None:
    found = estimated([table("a", 100_000, 8_192), table("b", None, None), table("c", 50_000, 1)])
    assert (found.rows, found.bytes, found.first_copy_s) == (150_000, 8_193, 3.0)
    assert [str(one) for one in found.unknown] == ["s.b"]
    said = found.to_json()
    assert (said["tablesUnknown"], said["logBytesPerHour"]) == (["s.b"], None)
    assert [one["firstCopySeconds"] for one in said["tables"]] == [2.0, None, 1.0]


def test_a_limit_that_was_set_counts() -> None:
    assert estimated([table("a", 1_000, 1)], 100.0).first_copy_s == 10.0
    assert estimated([table("a", 100_000, 1)], 1e9).first_copy_s == 2.0


def test_the_log_is_looked_at_for_as_long_as_was_asked() -> None:
    now, written, waits = [10.0], [5_000], list[float]()

    def wait(seconds: float) -> None:
        waits.append(seconds)
        now[0] += seconds
        written[0] += 3_000

    found = sample_log(lambda: written[0], 3.0, wait=wait, clock=lambda: now[0])
    assert found is not None
    assert (waits, found.seconds, found.bytes) == ([3.0], 3.0, 3_000)
    assert found.bytes_per_hour == 3_600_000
    assert sample_log(lambda: 1, 0, wait=wait) is None
    assert waits == [3.0]


def test_a_server_that_was_set_back_meanwhile_has_written_nothing() -> None:
    counts = iter([100, 50])
    found = sample_log(
        lambda: next(counts), 1.0, wait=lambda _: None, clock=iter([0.0, 1.0]).__next__
    )
    assert found is not None
    assert found.bytes == 0

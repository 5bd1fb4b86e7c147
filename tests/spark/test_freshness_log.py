"""Samples of freshness are numbers for people: losing one costs nothing else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from headrace.spark.status import FreshnessLog

COMMITS_US = np.array([1_000_000, 1_500_000, 2_000_000], np.int64)


def test_a_file_that_takes_no_line_stands_in_the_way_of_no_batch(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    for path in (Path("/dev/full"), tmp_path / "file" / "freshness.jsonl"):
        log = FreshnessLog(path)
        log.add(5, COMMITS_US, 3_000_000)
        assert log.percentiles()["p50"] == 1.25
    assert [record.levelname for record in caplog.records] == ["WARNING"] * 2
    assert "No space left" in caplog.text

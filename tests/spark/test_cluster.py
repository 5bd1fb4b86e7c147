"""Rows are worked on in executors: a driver too small for them, and executors in processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pyarrow.compute as pc
import pytest

from headrace.lake.delta_log import DeltaTable
from tests.spark.cluster_program import ROWS, SCHEMA

pytestmark = pytest.mark.spark


def test_a_million_rows_go_through_executors_and_not_through_the_driver(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.cluster_program", str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["failing"] == []
    assert report["executors"] == 2
    assert report["heap_mib"] <= 512
    table = DeltaTable(tmp_path / "lake" / "public" / "big").snapshot()
    assert report["applied_scn"] == table.transactions[f"headrace/cluster/{SCHEMA.table}"]
    rows = table.to_table(["id", "n"])
    assert rows.num_rows == pc.count_distinct(rows["id"]).as_py() == ROWS
    assert pc.sum(rows["n"]).as_py() == 2 * sum(range(ROWS))

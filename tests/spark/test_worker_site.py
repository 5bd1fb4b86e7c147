"""Workers of a local session import what the driver imports, and no archive of it."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql import SparkSession

from headrace.spark import worker_site

SITE = Path(str(worker_site.__file__)).parent


def where(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        yield pa.RecordBatch.from_pydict({"place": [str(pyspark.__file__)]})


@pytest.mark.spark
def test_a_worker_imports_the_packages_of_the_driver(spark: SparkSession) -> None:
    (row,) = spark.range(0, 1, 1, 1).mapInArrow(where, "place STRING").collect()
    assert row.place == pyspark.__file__


def test_archives_stay_where_nothing_else_is_installed(tmp_path: Path) -> None:
    archive = tmp_path / "pyspark.zip"
    program = "import sys; print(sys.path[1].endswith('pyspark.zip'))"
    # Without site-packages there is no other pyspark.
    answer = subprocess.run(
        [sys.executable, "-S", "-c", f"import sitecustomize; {program}"],
        env={"PYTHONPATH": f"{archive}:{SITE}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert answer.stdout == "True\n"

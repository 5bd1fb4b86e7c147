"""What a session of ours does not spend its start on."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.spark.source import register_source
from tests.e2e.pipeline import children

pytestmark = pytest.mark.spark


def test_no_process_searches_for_installed_data_sources(
    spark: SparkSession, tmp_path: Path
) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    # Each kind of worker has a daemon of its own, which stays.
    register_source(spark)
    options = {"path": str(tmp_path), "from_scn": "0", "first_end": "0"}
    spark.readStream.format("headrace").options(**options).load()
    daemons = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(gateway.proc.pid)]
    assert not [daemon for daemon in daemons if b"lookup_data_sources" in daemon]
    assert [daemon for daemon in daemons if b"create_data_source" in daemon]

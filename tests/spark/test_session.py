"""What a session of ours does not spend its start on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from headrace.errors import ConfigError
from headrace.spark.session import SessionSettings, build_session
from headrace.spark.source import register_source
from headrace.testing.notation import table_of
from tests.e2e.pipeline import children
from tests.spark.log import Log

pytestmark = pytest.mark.spark


def test_no_process_searches_for_installed_data_sources(spark: SparkSession, log: Log) -> None:
    gateway = spark.sparkContext._gateway
    assert gateway is not None
    # Each kind of worker has a daemon of its own, which stays.
    register_source(spark)
    log.write(table_of(1), "+I(1)")
    spark.readStream.format("headrace").options(path=str(log.folder), table="public.t").load()
    daemons = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in children(gateway.proc.pid)]
    assert not [daemon for daemon in daemons if b"lookup_data_sources" in daemon]
    assert [daemon for daemon in daemons if b"create_data_source" in daemon]


def test_a_client_without_its_packages_is_told_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As where the extra is not installed.
    for name in [name for name in sys.modules if name.startswith("pyspark.sql.connect")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "grpc", None)
    monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "")
    monkeypatch.delenv("SPARK_CONNECT_MODE_ENABLED")
    with pytest.raises(ConfigError, match="needs packages that are not installed") as caught:
        build_session(SessionSettings(master="sc://127.0.0.1:1"))
    assert "headrace[connect]" in caught.value.next_step


def test_without_java_it_is_said_what_to_install(tmp_path: Path) -> None:
    program = (
        "from headrace.errors import ConfigError\n"
        "from headrace.spark.session import build_session\n"
        "try:\n    build_session()\n"
        "except ConfigError as error:\n    print(error.next_step)\n"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"JAVA_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "install a Java runtime" in told.stdout

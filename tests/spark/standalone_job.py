"""Run by `test_standalone`: the apply job into Delta tables and into a database, on the Spark that it is given.

Prints what it saw as one JSON object.
"""

from __future__ import annotations

import json
import sys
import threading
from dataclasses import replace
from pathlib import Path

from headrace.errors import ConfigError
from headrace.lake.sql.duckdb_file import DuckdbWarehouse
from headrace.lake.sql.postgres import PostgresWarehouse
from headrace.spark.job import ApplySettings, run_apply
from headrace.spark.session import SessionSettings, build_session, is_remote
from headrace.spark.targets.duckdb import DuckdbTarget
from headrace.spark.targets.merge import MergeTarget
from tests.spark.test_modes import SETTINGS


def main(folder: Path, master: str, goal: int, url: str) -> None:
    """Apply a change log twice.

    Args:
        folder: has the change log, and gets the tables.
        master: of the session.
        goal: SCN at which the job ends.
        url: of the database.
    """
    spark = build_session(SessionSettings(master=master))
    lake = ApplySettings(
        pipeline="test",
        changelog=folder / "changelog",
        lake=folder / "lake",
        spark_dir=folder / "spark",
        max_rows_per_batch=100_000,
        trigger_s=0.0,
        stop_at_scn=goal,
        settings=SETTINGS,
    )
    warehouse = replace(
        lake, lake=folder / "frontier", spark_dir=folder / "more", warehouse=PostgresWarehouse(url)
    )
    for settings in (lake, warehouse):
        run_apply(settings, threading.Event(), spark=spark)
    refused = []
    file = DuckdbWarehouse(folder / "w.duckdb")
    for make in (
        lambda: MergeTarget(spark, folder / "lake", "merge"),
        lambda: DuckdbTarget(spark, file, "file"),
    ):
        try:
            make()
        except ConfigError as error:
            refused.append(error.message)
    seen = {"remote": is_remote(spark), "master": spark.conf.get("spark.master")}
    print(json.dumps({**seen, "refused": refused}))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4])

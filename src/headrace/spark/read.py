"""Reading target tables as of one source commit.

In: a pipeline's frontier manifests. Out: DataFrames, each at the version that the frontier names, so that tables
read at one frontier fit together.
"""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import TargetError
from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore, Manifest
from headrace.lake.ledger import table_path
from headrace.model.schema import TableId

__all__ = ["At", "DataFrame", "SparkSession", "frontier_at", "read"]

At = Manifest | int | dt.datetime | None
"""A frontier that `frontier_at` gave; or an SCN or a time of the source, for the newest frontier not above it; or
None for the newest."""


def read(
    spark: SparkSession,
    lake: Path | str,
    pipeline: str,
    table: TableId | str,
    at: At = None,
) -> DataFrame:
    """Return a table as of a frontier.

    Args:
        spark: a session with Delta.
        lake: folder of the target tables.
        pipeline: name of the pipeline that writes them.
        table: ``schema.name``.
        at: which frontier; the same one, from `frontier_at`, for tables that are read together.

    Raises:
        TargetError: there is no such frontier, the table is not part of it, or its version is no longer there.
    """
    name = table if isinstance(table, TableId) else TableId.parse(table)
    manifest = at if isinstance(at, Manifest) else frontier_at(lake, pipeline, at)
    entry = manifest.tables.get(str(name))
    if entry is None or entry.state != "live":
        state = f"is {entry.state}" if entry else "is not known"
        raise TargetError(
            f"{name} {state} at the frontier {manifest.scn} of {pipeline}.",
            next_step="wait until its dump is complete, or read the table's folder as it is.",
        )
    path = table_path(Path(lake).absolute(), name)
    gone = [
        file.path
        for file in DeltaTable(path).snapshot(entry.version).files
        if not file.path.exists()
    ]
    if gone:
        raise TargetError(
            f"Version {entry.version} of {name} has lost {len(gone)} of its files, to a VACUUM perhaps.",
            next_step="read a newer frontier, and let VACUUM keep what frontiers name.",
        )
    return spark.read.format("delta").option("versionAsOf", entry.version).load(str(path))


def frontier_at(lake: Path | str, pipeline: str, at: int | dt.datetime | None = None) -> Manifest:
    """Return the newest frontier that is not above an SCN, or a time of the source, or the newest of all.

    Args:
        lake: folder of the target tables.
        pipeline: name of the pipeline.
        at: a time without a zone is UTC.

    Raises:
        TargetError: there is none.
    """
    store = FrontierStore(lake, pipeline)
    if isinstance(at, dt.datetime):
        utc = at if at.tzinfo else at.replace(tzinfo=dt.UTC)
        manifest = store.not_after(round(utc.timestamp() * 1e6))
        upto = f" at or before {utc.isoformat()}"
    elif at is not None:
        manifest, upto = store.at_or_below(at), f" at or below SCN {at}"
    else:
        manifest, upto = store.latest(), ""
    if manifest is None:
        raise TargetError(
            f"{pipeline} has no frontier{upto} in {lake}.",
            next_step="wait for the first batch, or correct the path and the pipeline's name.",
        )
    return manifest

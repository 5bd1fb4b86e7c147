"""Reading target tables as of one source commit.

In: a pipeline's frontier manifests. Out: DataFrames, each at the version that the frontier names, so that tables
read at one frontier fit together; and, of a table that keeps its versions, the rows at any one commit.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from headrace.errors import TargetError
from headrace.lake.delta_log import DeltaTable
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.ledger import table_path
from headrace.lake.modes import FROM_SCN, TO_SCN, Mode, added_columns, mode_of
from headrace.lake.snapshot import Snapshot
from headrace.model.schema import TableId
from headrace.spark.columns import spark_ddl
from headrace.store import Location, ObjectPath, located, store_of

__all__ = ["At", "DataFrame", "SparkSession", "as_of", "frontier_at", "read"]

At = Manifest | int | dt.datetime | None
"""A frontier that `frontier_at` gave; or an SCN or a time of the source, for the newest frontier not above it; or
None for the newest."""


def read(
    spark: SparkSession,
    lake: Location | str,
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
    manifest = at if isinstance(at, Manifest) else frontier_at(lake, pipeline, at)
    _, held = _held(lake, pipeline, table, manifest)
    return _shown(spark, held)


def as_of(
    spark: SparkSession, lake: Location | str, pipeline: str, table: TableId | str, scn: int
) -> DataFrame:
    """Return the rows that the source had at one SCN, from a table that keeps its versions (``mode: history``).

    The SCN need not be one of the pipeline's frontiers: it may be that of another pipeline of the same source.

    Args:
        spark: a session with Delta.
        lake: folder of the target tables.
        pipeline: name of the pipeline that writes them.
        table: ``schema.name``.
        scn: from the end of the table's first copy up to the newest frontier.

    Returns:
        the source's columns alone.

    Raises:
        TargetError: the table has another mode, does not reach to the SCN or begins behind it, or is not part of the
            frontier.
    """
    manifest = frontier_at(lake, pipeline)
    entry, held = _held(lake, pipeline, table, manifest)
    if mode_of(held) is not Mode.HISTORY:
        raise TargetError(
            f"{table} of {pipeline} is kept by mode {mode_of(held).value}, which keeps no versions of its rows.",
            next_step="read it at a frontier, or keep it in a replicator of its own with mode: history.",
        )
    if manifest.scn < scn:
        raise TargetError(
            f"{table} of {pipeline} shows SCN {manifest.scn}, and not {scn} yet.",
            next_step="ask again when its frontier has passed that SCN.",
        )
    if entry.complete_scn is None or scn < entry.complete_scn:
        raise TargetError(
            f"{table} of {pipeline} was not whole at SCN {scn}: its copy ended at {entry.complete_scn}.",
            next_step="ask for an SCN from there on.",
        )
    versions = f"{FROM_SCN} <= {scn:d} AND ({TO_SCN} IS NULL OR {TO_SCN} > {scn:d})"
    return _shown(spark, held).where(versions).drop(*added_columns(Mode.HISTORY))


def _held(
    lake: Location | str, pipeline: str, table: TableId | str, manifest: Manifest
) -> tuple[TableEntry, Snapshot]:
    """Return what a frontier says of a table that is part of it, and that version, all files of which are there."""
    name = table if isinstance(table, TableId) else TableId.parse(table)
    entry = manifest.tables.get(str(name))
    if entry is None or entry.state != "live":
        state = f"is {entry.state}" if entry else "is not known"
        raise TargetError(
            f"{name} {state} at the frontier {manifest.scn} of {pipeline}.",
            next_step="wait until its dump is complete, or read the table's folder as it is.",
        )
    path = table_path(located(lake).absolute(), name)
    held = DeltaTable(path).snapshot(entry.version)
    gone = store_of(path).missing(path, [file.path for file in held.files])
    if gone:
        raise TargetError(
            f"Version {entry.version} of {name} has lost {gone} of its files, to a VACUUM perhaps.",
            next_step="read a newer frontier, and let VACUUM keep what frontiers name.",
        )
    return entry, held


def _shown(spark: SparkSession, held: Snapshot) -> DataFrame:
    """Return a version of a table."""
    if isinstance(held.folder, ObjectPath):
        # Spark itself reaches an object store only with jars that few sessions have; tasks of ours reach it anyway.
        return _frame(spark, held)
    return spark.read.format("delta").option("versionAsOf", held.version).load(str(held.folder))


def _frame(spark: SparkSession, held: Snapshot) -> DataFrame:
    """Return a version of a table whose files tasks read with our own reader, one after the other."""

    def read_files(numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                for rows in replace(held, files=(held.files[number],)).batches():
                    yield pa.RecordBatch.from_arrays(rows.columns, names=held.schema.names)

    # As many tasks as Spark thinks right: a session of Spark Connect cannot be asked for its cores.
    return spark.range(len(held.files)).mapInArrow(read_files, spark_ddl(held.schema))


def frontier_at(
    lake: Location | str, pipeline: str, at: int | dt.datetime | None = None
) -> Manifest:
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

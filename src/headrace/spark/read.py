"""Reading target tables as of one source commit.

In: a pipeline's frontier manifests. Out: DataFrames, each at the version that the frontier names, so that tables
read at one frontier fit together.
"""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from headrace.errors import TargetError
from headrace.lake.frontier import FrontierStore, Manifest
from headrace.lake.ledger import table_path
from headrace.model.schema import TableId

__all__ = ["frontier_at", "read"]


def read(
    spark: SparkSession,
    lake: Path | str,
    pipeline: str,
    table: TableId | str,
    at: Manifest | int | None = None,
) -> DataFrame:
    """Return a table as of a frontier.

    Args:
        spark: a session with Delta.
        lake: folder of the target tables.
        pipeline: name of the pipeline that writes them.
        table: ``schema.name``.
        at: a frontier that `frontier_at` gave, to read several tables together; an SCN: the newest frontier not above
            it; None: the newest.

    Raises:
        TargetError: there is no such frontier, or the table is not part of it.
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
    return spark.read.format("delta").option("versionAsOf", entry.version).load(str(path))


def frontier_at(lake: Path | str, pipeline: str, scn: int | None = None) -> Manifest:
    """Return the newest frontier that is not above ``scn``.

    Raises:
        TargetError: there is none.
    """
    store = FrontierStore(lake, pipeline)
    manifest = store.latest() if scn is None else store.at_or_below(scn)
    if manifest is None:
        upto = "" if scn is None else f" at or below SCN {scn}"
        raise TargetError(
            f"{pipeline} has no frontier{upto} in {lake}.",
            next_step="wait for the first batch, or correct the path and the pipeline's name.",
        )
    return manifest

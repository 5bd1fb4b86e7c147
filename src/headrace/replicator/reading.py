"""What a pipeline's file says, for who reads its tables: ``headrace.read``, ``as_of`` and ``frontier``."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import TYPE_CHECKING

from headrace.errors import TargetError
from headrace.replicator import config_file
from headrace.replicator.config import Config, ParquetTargetConfig, TargetConfig

if TYPE_CHECKING:
    from headrace.lake.frontier import Manifest
    from headrace.spark.read import At, DataFrame, SparkSession

__all__ = ["as_of", "frontier", "read"]


def read(
    spark: SparkSession, pipeline: Config | Path | str, table: str, at: At = None
) -> DataFrame:
    """Return a target table as it was when the source stood at one commit.

    ::

        then = headrace.frontier("shop.yaml")
        orders = headrace.read(spark, "shop.yaml", "public.orders", then)
        items = headrace.read(spark, "shop.yaml", "public.items", then)   # of the same moment

    Args:
        spark: a session with Delta.
        pipeline: its file, or what the file says.
        table: ``schema.name``.
        at: a frontier; or an SCN or a time of the source, for the newest frontier not above it; or None, the newest.

    Raises:
        ConfigError: the file does not read.
        TargetError: there is no such frontier, the table is not part of it, or its version is no longer there.
    """
    from headrace.spark.read import read as read_table

    config = _in_delta(pipeline)
    return read_table(spark, config.lake, config.name, table, at)


def as_of(spark: SparkSession, pipeline: Config | Path | str, table: str, scn: int) -> DataFrame:
    """Return the rows that the source had at one SCN, from a table with ``mode: history``.

    ::

        then = headrace.frontier("new.yaml", headrace.frontier("old.yaml").scn)
        old = headrace.as_of(spark, "old.yaml", "shop.people", then.scn)
        new = headrace.read(spark, "new.yaml", "shop.people", then)       # of the same commit

    Args:
        spark: a session with Delta.
        pipeline: its file, or what the file says.
        table: ``schema.name``.
        scn: any, from the end of the table's first copy up to the newest frontier; replicators of one source count
            alike.

    Raises:
        ConfigError: the file does not read.
        TargetError: the table has another mode, or does not show this SCN.
    """
    from headrace.spark.read import as_of as rows_as_of

    config = _in_delta(pipeline)
    return rows_as_of(spark, config.lake, config.name, table, scn)


def frontier(pipeline: Config | Path | str, at: int | dt.datetime | None = None) -> Manifest:
    """Return a frontier of a pipeline: one source commit, and the version of every table that shows it.

    Args:
        pipeline: its file, or what the file says.
        at: an SCN or a time of the source (without a zone: UTC); None is the newest.

    Raises:
        ConfigError: the file does not read.
        TargetError: there is none.
    """
    from headrace.spark.read import frontier_at

    config = _config(pipeline)
    return frontier_at(config.lake, config.name, at)


def _config(pipeline: Config | Path | str) -> Config:
    return pipeline if isinstance(pipeline, Config) else config_file.load(Path(pipeline))


def _in_delta(pipeline: Config | Path | str) -> Config:
    """Return what the file says, of a target that keeps versions of its tables."""
    config = _config(pipeline)
    if isinstance(config.target, ParquetTargetConfig):
        raise TargetError(
            f"The tables of {config.name} are files of changes, which hold no state of a table.",
            next_step=f"read the files themselves: {config.target.path}/<schema>/<table>/*.parquet.",
        )
    if not isinstance(config.target, TargetConfig):
        raise TargetError(
            f"The tables of {config.name} are in a warehouse, which keeps no frontier but its present.",
            next_step="query them there; headrace.ledger says which SCN each shows.",
        )
    return config

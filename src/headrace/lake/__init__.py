"""Lakehouse tables without Spark: Delta logs, their ledger, and frontier manifests."""

from headrace.lake.delta_log import DeltaTable
from headrace.lake.errors import CorruptFrontier, CorruptTable, VersionNotFound
from headrace.lake.frontier import FrontierStore, Manifest, TableEntry
from headrace.lake.ledger import app_id, applied_scn, shown_version, table_path
from headrace.lake.snapshot import DataFile, Snapshot

__all__ = [
    "CorruptFrontier",
    "CorruptTable",
    "DataFile",
    "DeltaTable",
    "FrontierStore",
    "Manifest",
    "Snapshot",
    "TableEntry",
    "VersionNotFound",
    "app_id",
    "applied_scn",
    "shown_version",
    "table_path",
]

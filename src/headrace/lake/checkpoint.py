"""Checkpoints: the sum of a table's log up to one version, so that nobody replays it from the beginning.

Source: Delta protocol, "Checkpoints".
"""

from __future__ import annotations

import json
import os
import re
import time
import uuid
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.actions import TableState
from headrace.lake.commit import now_ms, sync_folder
from headrace.lake.delta_log import DeltaTable

__all__ = ["keep_short", "write_checkpoint"]

_DEFAULT_INTERVAL = 20
_DAY_S = 86_400
_LOG_DAYS = 30
"""How long versions can be asked for, as every writer of the format does it by default."""
_TOMBSTONE_DAYS = 7
"""How long a removed file is remembered: until then no vacuum may delete it."""
_LOG_FILE = re.compile(r"(\d{20})\.(?:json|checkpoint\..*)")

_MAP = pa.map_(pa.string(), pa.string())
_VECTOR = pa.struct(
    {
        "storageType": pa.string(),
        "pathOrInlineDv": pa.string(),
        "offset": pa.int32(),
        "sizeInBytes": pa.int32(),
        "cardinality": pa.int64(),
    }
)
_SCHEMA = pa.schema(
    {
        "txn": pa.struct({"appId": pa.string(), "version": pa.int64(), "lastUpdated": pa.int64()}),
        "add": pa.struct(
            {
                "path": pa.string(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "modificationTime": pa.int64(),
                "dataChange": pa.bool_(),
                "stats": pa.string(),
                "tags": _MAP,
                "deletionVector": _VECTOR,
            }
        ),
        "remove": pa.struct(
            {
                "path": pa.string(),
                "deletionTimestamp": pa.int64(),
                "dataChange": pa.bool_(),
                "extendedFileMetadata": pa.bool_(),
                "partitionValues": _MAP,
                "size": pa.int64(),
                "deletionVector": _VECTOR,
            }
        ),
        "metaData": pa.struct(
            {
                "id": pa.string(),
                "name": pa.string(),
                "description": pa.string(),
                "format": pa.struct({"provider": pa.string(), "options": _MAP}),
                "schemaString": pa.string(),
                "partitionColumns": pa.list_(pa.string()),
                "configuration": _MAP,
                "createdTime": pa.int64(),
            }
        ),
        "protocol": pa.struct(
            {
                "minReaderVersion": pa.int32(),
                "minWriterVersion": pa.int32(),
                "readerFeatures": pa.list_(pa.string()),
                "writerFeatures": pa.list_(pa.string()),
            }
        ),
    }
)


def keep_short(folder: Path, version: int, properties: Mapping[str, str]) -> None:
    """Write a checkpoint when one is due, and let go of log files that nobody may ask for any more.

    Args:
        folder: of the table.
        version: that was committed just now.
        properties: of the table.
    """
    interval = int(properties.get("delta.checkpointInterval", _DEFAULT_INTERVAL))
    if version == 0 or version % interval:
        return
    write_checkpoint(folder, version, DeltaTable(folder).state(version))
    # A table that asks for another time leaves the cleaning to the writer that knows intervals.
    if "delta.logRetentionDuration" not in properties:
        _clean(folder / "_delta_log", version)


def write_checkpoint(folder: Path, version: int, state: TableState) -> None:
    """Write the sum of a table's log.

    Args:
        folder: of the table.
        version: of ``state``.
        state: what the log adds up to.

    Raises:
        OSError: the folder refused.
    """
    oldest = now_ms() - _TOMBSTONE_DAYS * _DAY_S * 1_000
    rows: list[dict[str, Any]] = [{"protocol": state.protocol}, {"metaData": state.metadata}]
    rows += [{"txn": action} for action in state.transactions.values()]
    rows += [{"add": {**action, "dataChange": False}} for action in state.files.values()]
    rows += [
        {"remove": {**action, "dataChange": False}}
        for action in state.removed.values()
        if int(action.get("deletionTimestamp") or 0) > oldest
    ]
    log = folder / "_delta_log"
    name = f"{version:020d}.checkpoint.parquet"
    draft = log / f".{name}.{uuid.uuid4()}.tmp"
    with draft.open("xb") as file:
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), file, store_schema=False)
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, log / name)
    hint = log / f"._last_checkpoint.{uuid.uuid4()}.tmp"
    hint.write_text(json.dumps({"version": version, "size": len(rows)}))
    os.replace(hint, log / "_last_checkpoint")
    sync_folder(log)


def _clean(log: Path, version: int) -> None:
    """Delete log files older than the promised time; the newest checkpoint stands for them."""
    oldest = time.time() - _LOG_DAYS * _DAY_S
    for entry in os.scandir(log):
        match = _LOG_FILE.fullmatch(entry.name)
        if match and int(match[1]) < version and entry.stat().st_mtime < oldest:
            with suppress(FileNotFoundError):
                os.unlink(entry.path)

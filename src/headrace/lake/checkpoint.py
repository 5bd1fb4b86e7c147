"""Checkpoints: the sum of a table's log up to one version, so that nobody replays it from the beginning.

Source: Delta protocol, "Checkpoints".
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.actions import TableState
from headrace.lake.commit import now_ms
from headrace.lake.retention import files_kept_ms
from headrace.store import Location, store_of

__all__ = ["is_due", "write_checkpoint"]

_DEFAULT_INTERVAL = 20

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
        "domainMetadata": pa.struct(
            {"domain": pa.string(), "configuration": pa.string(), "removed": pa.bool_()}
        ),
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
                "clusteringProvider": pa.string(),
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


def is_due(version: int, properties: Mapping[str, str]) -> bool:
    """Whether a version is one that gets a checkpoint."""
    interval = int(properties.get("delta.checkpointInterval", _DEFAULT_INTERVAL))
    return version > 0 and version % interval == 0


def write_checkpoint(folder: Location, version: int, state: TableState) -> None:
    """Write the sum of a table's log; files that were removed too long ago are no longer part of it.

    Args:
        folder: of the table.
        version: of ``state``.
        state: what the log adds up to.

    Raises:
        OSError: the folder refused.
    """
    properties = (state.metadata or {}).get("configuration") or {}
    state.forget(now_ms() - files_kept_ms(properties))
    rows: list[dict[str, Any]] = [{"protocol": state.protocol}, {"metaData": state.metadata}]
    rows += [{"txn": action} for action in state.transactions.values()]
    rows += [{"domainMetadata": action} for action in state.domains.values()]
    rows += [{"add": {**action, "dataChange": False}} for action in state.files.values()]
    rows += [{"remove": {**action, "dataChange": False}} for action in state.removed.values()]
    store, log = store_of(folder), folder / "_delta_log"
    with pa.BufferOutputStream() as written:
        pq.write_table(pa.Table.from_pylist(rows, schema=_SCHEMA), written, store_schema=False)
        store.put(log / f"{version:020d}.checkpoint.parquet", written.getvalue().to_pybytes())
    hint = json.dumps({"version": version, "size": len(rows)})
    store.put(log / "_last_checkpoint", hint.encode())

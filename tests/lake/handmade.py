"""Delta tables written by hand: Parquet files and a JSON log, no Spark."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.lake.delta_types import schema_string

Action = Mapping[str, Any]


def protocol(reader: int = 1, writer: int = 2, features: Iterable[str] = ()) -> Action:
    body: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader >= 3:
        body |= {"readerFeatures": [*features], "writerFeatures": [*features]}
    return {"protocol": body}


def metadata(
    schema: pa.Schema | str,
    properties: Mapping[str, str] | None = None,
    partition: Iterable[str] = (),
) -> Action:
    text = schema if isinstance(schema, str) else schema_string(schema)
    return {
        "metaData": {
            "id": "11111111-1111-1111-1111-111111111111",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": text,
            "partitionColumns": [*partition],
            "configuration": dict(properties or {}),
        }
    }


def txn(app: str, version: int) -> Action:
    return {"txn": {"appId": app, "version": version}}


class HandmadeTable:
    """A Delta table that a test writes action by action."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.log = path / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = -1

    def file(
        self,
        rows: pa.Table,
        *,
        name: str | None = None,
        partition: Mapping[str, str | None] | None = None,
        **options: Any,
    ) -> Action:
        """Write a data file and return its ``add``; nothing shows it before it is committed."""
        name = name or f"part-{uuid.uuid4()}.parquet"
        target = self.path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, target, **options)
        return {
            "add": {
                "path": quote(name),
                "partitionValues": dict(partition or {}),
                "size": target.stat().st_size,
                "modificationTime": 0,
                "dataChange": True,
            }
        }

    def commit(self, *actions: Action) -> int:
        """Write the next version."""
        self.version += 1
        text = "".join(json.dumps(action) + "\n" for action in actions)
        self.commit_path(self.version).write_text(text, encoding="utf-8")
        return self.version

    def commit_path(self, version: int) -> Path:
        return self.log / f"{version:020d}.json"

    def create(self, rows: pa.Table, *extra: Action) -> int:
        """Commit version 0 (or a new whole content) with one file."""
        return self.commit(protocol(), metadata(rows.schema), self.file(rows), *extra)

    def replace(self, rows: pa.Table, *extra: Action) -> int:
        """Commit a version whose only content is ``rows``."""
        from headrace.lake.delta_log import DeltaTable

        removes = [
            {"remove": {"path": quote(file.path.name), "dataChange": True}}
            for file in DeltaTable(self.path).snapshot().files
        ]
        return self.commit(*removes, metadata(rows.schema), self.file(rows), *extra)


def remove(add: Action) -> Action:
    return {"remove": {"path": add["add"]["path"], "dataChange": True}}


_STRINGS = pa.map_(pa.string(), pa.string())
_CHECKPOINT = pa.schema(
    [
        ("txn", pa.struct([("appId", pa.string()), ("version", pa.int64())])),
        (
            "add",
            pa.struct(
                [
                    ("path", pa.string()),
                    ("partitionValues", _STRINGS),
                    ("size", pa.int64()),
                    ("modificationTime", pa.int64()),
                    ("dataChange", pa.bool_()),
                ]
            ),
        ),
        ("remove", pa.struct([("path", pa.string()), ("dataChange", pa.bool_())])),
        (
            "metaData",
            pa.struct(
                [
                    ("id", pa.string()),
                    ("schemaString", pa.string()),
                    ("partitionColumns", pa.list_(pa.string())),
                    ("configuration", _STRINGS),
                ]
            ),
        ),
        (
            "protocol",
            pa.struct(
                [
                    ("minReaderVersion", pa.int32()),
                    ("minWriterVersion", pa.int32()),
                    ("readerFeatures", pa.list_(pa.string())),
                    ("writerFeatures", pa.list_(pa.string())),
                ]
            ),
        ),
    ]
)


def write_checkpoint(path: Path, actions: Iterable[Action], *extra: pa.Field) -> None:
    """Write a classic checkpoint file; ``extra`` are top-level columns it has besides."""
    rows = [dict(action) for action in actions]
    pq.write_table(pa.Table.from_pylist(rows, schema=pa.schema([*_CHECKPOINT, *extra])), path)

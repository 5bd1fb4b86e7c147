"""Replaying a Delta log: actions in, the state of the table at one version out.

Pure apart from reading the one file it is given. A later action wins: the last protocol, the last
metadata, the last ``txn`` per application, the last ``domainMetadata`` per domain, and for a file with
its deletion vector the last of ``add`` and ``remove``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.errors import UnsupportedTableFeature
from headrace.lake import mapping
from headrace.lake.errors import CorruptTable
from headrace.lake.vectors import vector_id
from headrace.store import Location, store_of

__all__ = [
    "TableState",
    "check_protocol",
    "check_writable",
    "read_checkpoint",
    "read_commit",
    "unsupported",
]

_WANTED = (
    *("txn", "domainMetadata", "add", "remove", "metaData", "protocol"),
    *("sidecar", "checkpointMetadata"),
)
_PARSED = ("stats_parsed", "partitionValues_parsed")
"""What Spark's checkpoints say once more of a file, as values: no commit has them, and Python's dates hold not all."""
_READABLE = frozenset(
    # All but the last are handled; the vacuum check asks nothing of readers.
    {
        mapping.FEATURE,
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "vacuumProtocolCheck",
    }
)
# Of the features for writers alone: what they ask is kept, see `headrace.lake.clustering`.
_WRITABLE = _READABLE | {"appendOnly", "invariants", "clustering", "domainMetadata"}
_REMEDY = {
    "appendOnly": "set delta.appendOnly to false: copies of rows change with their rows",
    "columnMapping by id": "create the table with delta.columnMapping.mode set to name",
    "v2Checkpoint": "set delta.checkpointPolicy to classic and drop the feature",
}


@dataclass(slots=True)
class TableState:
    """What the actions so far add up to.

    Attributes:
        protocol: the newest.
        metadata: the newest.
        transactions: the newest ``txn`` per application.
        domains: the newest ``domainMetadata`` per domain, but for those that were taken away.
        files: ``add`` actions of the files that count, by path and vector.
        removed: ``remove`` actions of those that no longer do, likewise.
    """

    protocol: Mapping[str, Any] | None = None
    metadata: Mapping[str, Any] | None = None
    transactions: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    domains: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    files: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    removed: dict[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)

    def apply(self, actions: Iterable[Mapping[str, Any]]) -> None:
        """Take the actions of one commit, or of a checkpoint."""
        for action in actions:
            for kind, body in action.items():
                self._take(kind, body)

    def forget(self, before_ms: float) -> None:
        """Drop what is known of files that were removed before a time, in milliseconds since 1970."""
        self.removed = {
            name: action
            for name, action in self.removed.items()
            if int(action.get("deletionTimestamp") or 0) >= before_ms
        }

    def _take(self, kind: str, body: Mapping[str, Any]) -> None:
        if kind == "add":
            name = _name(body)
            self.files[name] = body
            self.removed.pop(name, None)
        elif kind == "remove":
            name = _name(body)
            self.files.pop(name, None)
            self.removed[name] = body
        elif kind == "txn":
            self.transactions[body["appId"]] = body
        elif kind == "domainMetadata":
            self.domains.pop(body["domain"], None)
            if not body["removed"]:
                self.domains[body["domain"]] = body
        elif kind == "metaData":
            self.metadata = body
        elif kind == "protocol":
            self.protocol = body


def _name(body: Mapping[str, Any]) -> tuple[str, str]:
    return body["path"], vector_id(body.get("deletionVector"))


def read_commit(path: Location, table: str) -> list[Mapping[str, Any]]:
    """Return the actions of one commit file.

    Raises:
        CorruptTable: when the file is missing or is not one JSON object per line.
    """
    try:
        # Text of rows stands in bounds of other writers as it is, with all that Python takes for the end of a line.
        lines = store_of(path).read(path).split(b"\n")
        actions = [json.loads(line) for line in lines if line.strip()]
        if not actions or not all(isinstance(action, dict) for action in actions):
            raise ValueError("no actions")
    except (OSError, ValueError) as error:
        raise _damaged(path, table) from error
    return actions


def read_checkpoint(paths: Iterable[Location], table: str) -> Iterator[Mapping[str, Any]]:
    """Yield the actions of a classic checkpoint, one part after the other.

    Raises:
        CorruptTable: when a part is missing or is not Parquet.
        UnsupportedTableFeature: when the checkpoint has sidecar files.
    """
    for path in paths:
        try:
            with pq.ParquetFile(store_of(path).parquet(path)) as file:
                held = file.schema_arrow
                present = [name for name in _WANTED if name in held.names]
                parts = [
                    f"{name}.{part.name}"
                    for name in present
                    for part in held.field(name).type
                    if part.name not in _PARSED
                ]
                actions = file.read(columns=parts)
        except (OSError, pa.ArrowException) as error:
            raise _damaged(path, table) from error
        for kind in present:
            for body in actions.column(kind).drop_null().to_pylist():
                if kind in ("sidecar", "checkpointMetadata"):
                    raise unsupported("v2Checkpoint", table)
                yield {kind: _plain(body)}


_MAPS = ("partitionValues", "configuration", "options", "tags")


def _plain(body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an action read from Parquet as JSON would give it: maps are dictionaries, absent fields are absent."""
    found = {key: value for key, value in body.items() if value is not None}
    for key, value in found.items():
        # The configuration of a domain is text.
        if key in _MAPS and not isinstance(value, str):
            found[key] = dict(value)
        elif isinstance(value, dict):
            found[key] = _plain(value)
    return found


def check_protocol(protocol: Mapping[str, Any], properties: Mapping[str, str], table: str) -> None:
    """Refuse a table whose protocol asks more of a reader than we know.

    Raises:
        UnsupportedTableFeature: naming the feature.
    """
    version = int(protocol["minReaderVersion"])
    if version > 3:
        raise unsupported(f"reader version {version}", table)
    if properties.get(mapping.MODE) == "id":
        raise unsupported("columnMapping by id", table)
    for feature in protocol.get("readerFeatures") or ():
        if feature not in _READABLE:
            raise unsupported(feature, table)


def check_writable(protocol: Mapping[str, Any], properties: Mapping[str, str], table: str) -> None:
    """Refuse a table whose protocol asks more of a writer than we do.

    Raises:
        UnsupportedTableFeature: naming the feature.
    """
    version = int(protocol["minWriterVersion"])
    if version not in (1, 2, 7):
        # The versions between imply features that nobody switched on.
        raise unsupported(f"writer version {version}", table)
    for feature in protocol.get("writerFeatures") or ():
        if feature not in _WRITABLE:
            raise unsupported(feature, table)
    if properties.get("delta.appendOnly") == "true":
        raise unsupported("appendOnly", table)


def unsupported(feature: str, table: str) -> UnsupportedTableFeature:
    """Return the refusal of one feature."""
    remedy = _REMEDY.get(feature, "read the table with Spark, or write it without that feature")
    return UnsupportedTableFeature(
        f"The table {table} uses {feature}, which headrace does not know.",
        next_step=f"{remedy}.",
    )


def _damaged(path: Location, table: str) -> CorruptTable:
    return CorruptTable(
        f"{path.name} in the log of the table {table} is missing or does not read.",
        next_step="restore the file from a backup, or delete the table and dump it again.",
    )

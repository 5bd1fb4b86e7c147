"""Which log actions create a target table, and bring its columns to a newer version of the source's table.

Pure, but that a column of dates is looked into before it takes times. Schemas in, actions out. What Delta cannot do
without a new copy of the table is refused here, before a row is written. Columns are exactly the source's, and those
that a policy keeps; one that was renamed there keeps its values, because the table remembers the numbers that the
source gives its columns.

Source: Delta protocol, "Change Metadata", "Type Widening" and "Column Mapping".
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import pyarrow as pa

from headrace.errors import IncompatibleSchemaChange
from headrace.lake import mapping
from headrace.lake.clustering import clustering_actions
from headrace.lake.commit import Action, commit_info, now_ms
from headrace.lake.delta_types import delta_type
from headrace.lake.ledger import check_folder
from headrace.lake.partitioning import (
    PARTITIONS_PROPERTY,
    UNPARTITIONED,
    Partitioning,
    check_partitions,
)
from headrace.lake.planned import ChangeKind, ColumnChange, planned_changes
from headrace.lake.policies import DEFAULTS, Policies
from headrace.lake.remembered import kept, kept_names, numbered, numbers_of
from headrace.lake.retention import RETENTION
from headrace.lake.snapshot import Snapshot
from headrace.lake.timeless import has_timeless_dates
from headrace.lake.widening import can_widen
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableSchema
from headrace.model.succession import Numbers, successors

__all__ = [
    "SCHEMA_PROPERTY",
    "SHAPE_PROPERTY",
    "VECTORS_PROPERTY",
    "create_actions",
    "evolve_actions",
    "later_names",
    "with_features",
]

SCHEMA_PROPERTY = "headrace.schema_id"
"""Table property that names the version the columns were brought to."""
SHAPE_PROPERTY = "headrace.shape"
"""Table property that names the mode, and the settings, by which a table is not the source's own."""
VECTORS_PROPERTY = "delta.enableDeletionVectors"
"""Table property that allows deletion vectors."""

_NONE: Mapping[str, str] = MappingProxyType({})
"""Of a table that says nothing more of itself."""
_CHECKPOINT_INTERVAL = "20"
_REFUSED_IN_NAMES = frozenset(" ,;{}()\n\t=")
"""What Delta's writers do not allow in a name without column mapping."""


def create_actions(
    schema: TableSchema,
    *,
    vectors: bool,
    partitioning: Partitioning = UNPARTITIONED,
    properties: Mapping[str, str] = _NONE,
) -> list[Action]:
    """Return the first version of a table.

    Args:
        schema: of the source's table.
        vectors: whether rows may be removed by deletion vectors, which not every reader knows.
        partitioning: the columns that lie in paths and not in files.
        properties: further properties of the table.

    Raises:
        UnfitSettings: the table cannot be partitioned by these columns.
        IncompatibleSchemaChange: a column's name is none that Delta takes.
    """
    _check_names(schema)
    check_partitions(schema, partitioning.now)
    columns = table_arrow_schema(schema)
    fields = [_field(field, schema.numbers) for field in columns]
    configuration = {
        VECTORS_PROPERTY: json.dumps(vectors),
        "delta.checkpointInterval": _CHECKPOINT_INTERVAL,
        **RETENTION,
        SCHEMA_PROPERTY: str(schema.schema_id),
        **properties,
    }
    if schema.shape is not None:
        configuration[SHAPE_PROPERTY] = schema.shape.text
    if partitioning.asked:
        configuration[PARTITIONS_PROPERTY] = json.dumps(partitioning.asked)
    metadata = {
        "id": str(uuid.uuid4()),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [*partitioning.now],
        "configuration": configuration,
        "createdTime": now_ms(),
    }
    return [
        {
            "protocol": with_features(
                {"minReaderVersion": 1, "minWriterVersion": 2}, _features(columns, vectors)
            )
        },
        {"metaData": metadata},
        commit_info("CREATE TABLE"),
    ]


def evolve_actions(
    held: Snapshot, schema: TableSchema, policies: Policies = DEFAULTS
) -> list[Action]:
    """Return the actions that bring a table to ``schema``.

    Args:
        held: the table as it is.
        schema: the source's newer version; the numbers of its columns tell one that was renamed.
        policies: what happens to columns that cannot live on; by default they go, or stop the table.

    Raises:
        IncompatibleSchemaChange: a column has a type that its values do not fit, nobody knows whether it was
            dropped or renamed, or it cannot be kept.
        CorruptTable: a file of the table does not read.
    """
    _check_names(schema)
    wanted = table_arrow_schema(schema)
    text = json.loads(held.metadata["schemaString"])
    configuration = {**held.properties, SCHEMA_PROPERTY: str(schema.schema_id)}
    features = _features(wanted, vectors=False)
    names = later_names(held, schema)
    if names is None:
        raise _undecided(held, schema)
    stays = _staying(held, schema, policies)
    renamed = {**names, **stays}
    if not mapping.is_on(configuration) and any(
        renamed.get(old) != old for old in held.schema.names
    ):
        mapping.switch_on(text["fields"], configuration)
    if mapping.is_on(configuration):
        features.append(mapping.FEATURE)
    fields, followed = [], set()
    for field in text["fields"]:
        before = field["name"]
        if before in stays:
            fields.append(kept(field, stays[before]))
            continue
        if before not in names:
            continue
        now = wanted.field(names[before])
        old = held.schema.field(before).type
        followed.add(now.name)
        fields.append(numbered({**field, "name": now.name}, schema.numbers))
        if old != now.type:
            if pa.types.is_date32(old) and has_timeless_dates(held, before):
                raise _incompatible(schema, now.name, "is to hold times, and held infinite dates")
            _widen(fields[-1], old, now.type, schema)
            # Only now: the feature shuts out readers that do not know it.
            configuration["delta.enableTypeWidening"] = "true"
            features.append("typeWidening")
    new = [field for field in wanted if field.name not in followed]
    text["fields"] = fields + [mapping.given(_field(f, schema.numbers), configuration) for f in new]
    actions: list[Action] = [
        {
            "metaData": {
                **held.metadata,
                "schemaString": json.dumps(text),
                "partitionColumns": [renamed[name] for name in held.partition_columns],
                "configuration": configuration,
            }
        },
        commit_info("ALTER TABLE"),
        *clustering_actions(held, text["fields"]),
    ]
    protocol = with_features(held.protocol, features)
    if protocol != dict(held.protocol):
        actions.insert(0, {"protocol": protocol})
    return actions


def _staying(held: Snapshot, schema: TableSchema, policies: Policies) -> dict[str, str]:
    """Return the later name of each column that stays although the source has it no more."""
    stays = {name: name for name in kept_names(held)}
    for change in planned_changes(held, schema, policies):
        if change.kind is ChangeKind.REFUSED and change.column in held.partition_columns:
            raise _unpartitioned(schema, change)
        if change.kind in (ChangeKind.KEEP, ChangeKind.ASIDE):
            stays[change.column] = change.later
        elif change.kind is ChangeKind.REFUSED and change.kept:
            raise _incompatible(schema, change.column, change.detail)
    return stays


def later_names(held: Snapshot, schema: TableSchema) -> dict[str, str] | None:
    """Return the name in ``schema`` of each column that lives on, None when nobody knows.

    Args:
        held: the table as it is.
        schema: a newer version; the numbers of its columns tell one that was renamed.
    """
    gone = kept_names(held)
    names = [name for name in held.schema.names if name not in gone]
    return successors(names, schema.names, numbers_of(held), schema.numbers)


def _undecided(held: Snapshot, schema: TableSchema) -> IncompatibleSchemaChange:
    left = kept_names(held)
    names = [name for name in held.schema.names if name not in left]
    moved = (name for name, other in zip(names, schema.names, strict=False) if name != other)
    gone = next((name for name in names if name not in schema.names), None) or next(moved)
    return _incompatible(schema, gone, "was dropped or renamed, nobody knows which")


def _check_names(schema: TableSchema) -> None:
    """Refuse names that other programs could not read in this table, and a table without a folder of its own."""
    check_folder(schema.table)
    seen: dict[str, str] = {}
    for name in schema.names:
        if _REFUSED_IN_NAMES & set(name):
            table, column = (
                json.dumps(text, ensure_ascii=False) for text in (f"{schema.table}", name)
            )
            mapped = f"tables: {{{table}: {{rename: {{{column}: …}}}}}}"
            next_step = f"give it another name at the target: {mapped}."
            raise _incompatible(schema, name, "has a character in its name", next_step)
        if twin := seen.get(name.lower()):
            next_step = "rename one of the two at the source, or leave it out: source.columns."
            raise _incompatible(schema, name, f"differs from {twin} by case alone", next_step)
        seen[name.lower()] = name


def _field(field: pa.Field, numbers: Numbers) -> dict[str, Any]:
    text = {"name": field.name, "type": delta_type(field.type), "nullable": True, "metadata": {}}
    return numbered(text, numbers)


def _widen(field: dict[str, Any], old: pa.DataType, new: pa.DataType, schema: TableSchema) -> None:
    """Give a column its wider type, and say which one older files have."""
    before, after = delta_type(old), delta_type(new)
    if not can_widen(old, new):
        raise _incompatible(schema, field["name"], f"changed from {before} to {after}")
    changes = [*field["metadata"].get("delta.typeChanges", ())]
    changes.append({"toType": after, "fromType": before})
    field["metadata"] = {**field["metadata"], "delta.typeChanges": changes}
    field["type"] = after


def _features(columns: pa.Schema, vectors: bool) -> list[str]:
    """Return the table features that the columns ask for, of readers and writers alike."""
    features = []
    if vectors:
        features.append("deletionVectors")
    if pa.timestamp("us") in columns.types:
        features.append("timestampNtz")
    return features


def with_features(held: Mapping[str, Any], features: list[str]) -> dict[str, Any]:
    """Return ``held`` with further features; tables without any stay open to the oldest readers."""
    reader = list(held.get("readerFeatures") or ())
    writer = list(held.get("writerFeatures") or ())
    if set(features) <= set(reader):
        return dict(held)
    if int(held["minWriterVersion"]) < 7:
        # What the older version meant without saying it.
        writer += ["appendOnly", "invariants"]
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": list(dict.fromkeys([*reader, *features])),
        "writerFeatures": list(dict.fromkeys([*writer, *features])),
    }


def _unpartitioned(schema: TableSchema, change: ColumnChange) -> IncompatibleSchemaChange:
    return IncompatibleSchemaChange(
        f"{schema.table}.{change.column} cannot be followed: {change.detail}.",
        next_step=(
            "set partition_by to columns that the table has, move the target table away and copy it again: "
            f"headrace dump start FILE --table {schema.table}."
        ),
    )


def _incompatible(
    schema: TableSchema, column: str, what: str, next_step: str = ""
) -> IncompatibleSchemaChange:
    return IncompatibleSchemaChange(
        f"{schema.table}.{column} {what}, which the target table cannot follow.",
        next_step=next_step
        or (
            f"move the target table {schema.table} away and copy it again: "
            f"headrace dump start FILE --table {schema.table}."
        ),
    )

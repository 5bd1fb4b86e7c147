"""Column mapping: the names that data files know, and the names that people see.

Once it is switched on, a column keeps the name under which files hold it, and dropping or renaming it touches no
file. It shuts out readers that do not know it, so a table has it from its first drop or rename on.

Source: Delta protocol, "Column Mapping".
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

__all__ = [
    "FEATURE",
    "MODE",
    "file_schema",
    "from_metadata",
    "given",
    "in_files",
    "is_on",
    "name_in_files",
    "switch_on",
]

FEATURE = "columnMapping"
"""Table feature of readers and writers."""
MODE = "delta.columnMapping.mode"
"""Table property: ``name``, or ``none`` where the feature is not in use."""

_HIGHEST = "delta.columnMapping.maxColumnId"
_ID = "delta.columnMapping.id"
_PHYSICAL = "delta.columnMapping.physicalName"
_FIELD_ID = b"PARQUET:field_id"
_IN_FILES = b"headrace.in_files"

Field = dict[str, Any]


def is_on(properties: Mapping[str, str]) -> bool:
    """Whether names in files are not the names that people see."""
    return properties.get(MODE, "none") != "none"


def switch_on(fields: Sequence[Field], properties: dict[str, str]) -> None:
    """Give each column of a table the name that its files already have for it.

    Args:
        fields: of the table's schema text; changed.
        properties: of the table; changed.
    """
    properties[MODE], properties[_HIGHEST] = "name", "0"
    for field in fields:
        _give(field, field["name"], properties)


def given(field: Field, properties: dict[str, str]) -> Field:
    """Return a new column with a name for files that none of them has yet, where the table wants one."""
    if is_on(properties):
        _give(field, f"col-{uuid.uuid4()}", properties)
    return field


def _give(field: Field, physical: str, properties: dict[str, str]) -> None:
    number = int(properties[_HIGHEST]) + 1
    properties[_HIGHEST] = str(number)
    field["metadata"] = {**field["metadata"], _ID: number, _PHYSICAL: physical}


def from_metadata(metadata: Mapping[str, Any]) -> dict[bytes, bytes] | None:
    """Return what an Arrow field carries of a column's mapping, None of a column without."""
    if _PHYSICAL not in metadata:
        return None
    return {_IN_FILES: str(metadata[_PHYSICAL]).encode(), _FIELD_ID: str(metadata[_ID]).encode()}


def in_files(field: pa.Field) -> str:
    """Return the name of a table's column in its files, and in what the log says of them."""
    held = (field.metadata or {}).get(_IN_FILES)
    return str(field.name) if held is None else held.decode()


def name_in_files(field: Mapping[str, Any]) -> str:
    """Return the same of a field of a schema's text."""
    return str((field.get("metadata") or {}).get(_PHYSICAL, field["name"]))


def file_schema(schema: pa.Schema) -> pa.Schema:
    """Return the columns of a table as a new file of it has them."""
    return pa.schema([field.with_name(in_files(field)) for field in schema])

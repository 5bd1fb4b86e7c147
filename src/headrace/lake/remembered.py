"""What a target table remembers of its columns beside their types: the source's numbers, and which are kept.

A kept column is one that the source no longer has; it stays with the values of its rows.
"""

from __future__ import annotations

import json
from typing import Any

from headrace.lake.snapshot import Snapshot
from headrace.model.schema import Column
from headrace.model.succession import Numbers

__all__ = ["kept", "kept_columns", "kept_names", "numbered", "numbers_of"]

_NUMBER = "headrace.number"
"""Field metadata: the source's number of the column."""
_KEPT = "headrace.kept"
"""Field metadata: the source has no such column any more."""

Field = dict[str, Any]


def numbered(field: Field, numbers: Numbers) -> Field:
    """Return a column that remembers the source's number of it, where that is known."""
    number = numbers.get(field["name"])
    if number is None:
        return field
    return {**field, "metadata": {**field["metadata"], _NUMBER: number}}


def kept(field: Field, name: str) -> Field:
    """Return a column that stays although the source has it no more, under a name."""
    others = {key: value for key, value in field["metadata"].items() if key != _NUMBER}
    return {**field, "name": name, "metadata": {**others, _KEPT: True}}


def numbers_of(held: Snapshot) -> Numbers:
    """Return the source's numbers of a table's columns, as far as they were told."""
    return {
        field["name"]: int(field["metadata"][_NUMBER])
        for field in _fields(held)
        if _NUMBER in (field.get("metadata") or {})
    }


def kept_names(held: Snapshot) -> frozenset[str]:
    """Return the names of the columns that the source no longer has."""
    if _KEPT not in held.metadata["schemaString"]:
        # Parsing takes longer than that, and nearly no table has any.
        return frozenset()
    return frozenset(f["name"] for f in _fields(held) if _KEPT in (f.get("metadata") or {}))


def kept_columns(held: Snapshot) -> tuple[Column, ...]:
    """Return the columns that the source no longer has."""
    names = kept_names(held)
    return tuple(Column(f.name, f.type, "kept") for f in held.schema if f.name in names)


def _fields(held: Snapshot) -> list[Field]:
    found: list[Field] = json.loads(held.metadata["schemaString"])["fields"]
    return found

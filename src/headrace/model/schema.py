"""What a table looks like: its identity, its columns in Arrow terms, its key.

In: facts from a source's catalog. Out: immutable values with a stable 64-bit schema id, which blocks
carry and the registry keeps for ever. Stands under everything; imports nothing of ours but errors.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any, NamedTuple

import pyarrow as pa

from headrace.errors import ProtocolError
from headrace.model.succession import Numbers

__all__ = ["Column", "KeyCheck", "Shape", "TableId", "TableSchema", "parse_type", "render_type"]


class TableId(NamedTuple):
    """A table's identity inside one source database."""

    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    @classmethod
    def parse(cls, text: str) -> TableId:
        """Read ``schema.name``; a name without a dot is looked for in ``public``."""
        schema, dot, name = text.partition(".")
        return cls(schema, name) if dot else cls("public", schema)


class KeyCheck(Enum):
    """When the source checks that a key is unique; decides how changes are folded."""

    IMMEDIATE = "immediate"
    """Row by row: at most one live row per key at any instant. Key-only old images are enough."""
    DEFERRED = "deferred"
    """At statement or transaction end: old images must be whole, transactions are never cut."""
    NONE = "none"
    """No key: the table is a multiset of rows. Old images must be whole."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: the source's own name.
        type: the Arrow type that holds every value exactly; text where Arrow has none.
        source_type: the source's own type name, for people and for assessment.
        nullable: whether the source allows null.
    """

    name: str
    type: pa.DataType
    source_type: str
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Shape:
    """What a target table has instead of the source's own columns.

    Attributes:
        text: mode and settings by which it was made, as the target table remembers them.
        schema_id: of the source's version whose rows it holds.
    """

    text: str
    schema_id: int


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of a table's shape.

    Attributes:
        table: identity.
        columns: in the source's order.
        key: names of the columns that identify a row (the replica identity), empty without a key.
        key_check: when the key is checked.
        numbers: the source's own of the columns, as far as they are known; no part of what makes versions equal.
        shape: of a target table whose columns are not those of the source, None of all others.
        kept: of a target table, names of columns that the source no longer has; no part of the version.
    """

    table: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    key_check: KeyCheck
    numbers: Numbers = field(default_factory=dict, compare=False, repr=False)
    shape: Shape | None = field(default=None, compare=False)
    kept: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def schema_id(self) -> int:
        """64-bit fingerprint of identity, columns, types, key and options; never 0. With a shape, the source's."""
        if self.shape is not None:
            return self.shape.schema_id
        digest = hashlib.sha256(json.dumps(self.to_json(), sort_keys=True).encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1 or 1

    @property
    def names(self) -> list[str]:
        """Column names in order."""
        return [column.name for column in self.columns]

    @property
    def key_indexes(self) -> list[int]:
        """Places of the key columns in ``columns``."""
        names = self.names
        return [names.index(name) for name in self.key]

    def keeping(self, columns: Iterable[Column]) -> TableSchema:
        """Return the same version behind which a target has further columns, that the source no longer has."""
        further = tuple(columns)
        kept = frozenset(column.name for column in further)
        return replace(self, columns=(*self.columns, *further), kept=self.kept | kept)

    def column(self, name: str) -> Column:
        """Return the column called ``name``.

        Raises:
            KeyError: when there is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)

    def to_json(self) -> dict[str, Any]:
        """Return plain values; `from_json` restores an equal schema."""
        return {
            "schema": self.table.schema,
            "table": self.table.name,
            "columns": [
                {
                    "name": c.name,
                    "type": render_type(c.type),
                    "source_type": c.source_type,
                    "nullable": c.nullable,
                }
                for c in self.columns
                if c.name not in self.kept
            ],
            "key": list(self.key),
            "key_check": self.key_check.value,
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> TableSchema:
        """Restore what `to_json` gave.

        Raises:
            ProtocolError: when a field is missing or unknown.
        """
        try:
            return cls(
                TableId(value["schema"], value["table"]),
                tuple(
                    Column(c["name"], parse_type(c["type"]), c["source_type"], c["nullable"])
                    for c in value["columns"]
                ),
                tuple(value["key"]),
                KeyCheck(value["key_check"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise ProtocolError(
                f"A stored table schema is malformed ({type(error).__name__}: {error}).",
                next_step="restore the registry folder of the change log from a backup.",
            ) from error


_NEUTRAL: dict[str, pa.DataType] = {
    "bool": pa.bool_(),
    "int16": pa.int16(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float32": pa.float32(),
    "float64": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", tz="UTC"),
}
_NEUTRAL_NAMES = {type_: name for name, type_ in _NEUTRAL.items()}
_DECIMAL = re.compile(r"decimal\((\d+),(\d+)\)")


def render_type(type_: pa.DataType) -> str:
    """Return the neutral name of an Arrow type; `parse_type` reads it back."""
    if pa.types.is_decimal128(type_):
        return f"decimal({type_.precision},{type_.scale})"
    return _NEUTRAL_NAMES[type_]


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type of a neutral name.

    Raises:
        ValueError: when the name is unknown.
    """
    if text in _NEUTRAL:
        return _NEUTRAL[text]
    if match := _DECIMAL.fullmatch(text):
        return pa.decimal128(int(match[1]), int(match[2]))
    raise ValueError(f"unknown neutral type {text!r}")

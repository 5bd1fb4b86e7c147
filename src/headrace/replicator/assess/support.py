"""What the source can, composed with what the target can: how far each column comes over.

Pure: what a source says of its columns, what a kind of target holds, what was asked for; one verdict per column of the
target out of them. Neither side knows the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

import pyarrow as pa

from headrace.lake.capabilities import Capabilities
from headrace.lake.delta_types import delta_type
from headrace.lake.settings import TableSettings
from headrace.model.schema import TableId, render_type
from headrace.sources.description import ColumnDescription, Given

__all__ = [
    "ColumnSupport",
    "Support",
    "TargetTypes",
    "advice",
    "column_support",
    "composed",
    "computed_support",
    "target_types",
]


class Support(Enum):
    """How far a column comes over."""

    YES = "YES"
    """Every value, in a type that has exactly these values."""
    PARTIAL = "PARTIAL"
    """Every value, in another type."""
    NO = "NO"
    """Not at all."""


@dataclass(frozen=True, slots=True)
class TargetTypes:
    """Which columns a kind of target has.

    Attributes:
        name: of the kind.
        type_of: name of the type that holds an Arrow type, None where none does.
    """

    name: str
    type_of: Callable[[pa.DataType], str | None]


@dataclass(frozen=True, slots=True)
class ColumnSupport:
    """The verdict on one column.

    Attributes:
        source_name: empty for a column that is computed.
        target_name: empty where there is none.
        source_type: the source's own name of its type.
        target_type: the target's, empty where an expression makes the column: Spark alone knows it.
        support: how far it comes over.
        message: what stands in the way, empty for a column that comes over as it is.
        remedies: what to write into the section ``tables`` to have it otherwise.
        transforms: what is done to it on the way; never the text of an expression.
        problem: kind of the problem that stops it, empty without one.
    """

    source_name: str
    target_name: str
    source_type: str
    target_type: str
    support: Support
    message: str = ""
    remedies: tuple[str, ...] = ()
    transforms: tuple[str, ...] = ()
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain values: the design's fields, and those that later versions put beside them."""
        suggestion = None
        if self.support is not Support.YES:
            suggestion = {
                "details": {"message": self.message},
                "message": self.message,
                "transforms": list(self.remedies),
            }
        return {
            "sourceName": self.source_name,
            "targetName": self.target_name,
            "sourceType": self.source_type,
            "targetType": self.target_type,
            "support": self.support.value,
            "transforms": list(self.transforms),
            "suggestion": suggestion,
        }


def composed(given: Given, held: str | None) -> Support:
    """Return how far values come over that a source gives in some way, to a target with a type for them or none."""
    if given is Given.ABSENT or held is None:
        return Support.NO
    return Support.YES if given is Given.EXACT else Support.PARTIAL


def target_types(target: Capabilities) -> TargetTypes:
    """Return which types a kind of target has."""
    if target.format == "delta":
        return TargetTypes(target.name, _or_none(delta_type))
    if target.format == "parquet":
        return TargetTypes(target.name, _or_none(render_type))
    # Only warehouses need the dialects.
    from headrace.lake.sql.types import column_type
    from headrace.replicator.assess.dialects import dialect_of

    dialect = dialect_of(target)
    return TargetTypes(
        target.name, _or_none(lambda type_: dialect.type_of(column_type(type_)).lower())
    )


def column_support(
    table: TableId,
    column: ColumnDescription,
    key: bool,
    settings: TableSettings,
    target: TargetTypes,
) -> ColumnSupport | None:
    """Return the verdict on one of the source's columns, None for one that is not wanted.

    Args:
        table: whose column it is.
        column: as the source describes it.
        key: whether it is part of the key, which is always wanted.
        settings: what was asked for the table.
        target: what its kind holds.
    """
    wanted = column.name not in settings.drop and (
        not settings.select or column.name in settings.select or key
    )
    if not column.captured or not wanted:
        return None
    renamed, masked = dict(settings.rename), dict(settings.mask)
    name = renamed.get(column.name, column.name)
    transforms = [f"rename {column.name} {name}"] if column.name in renamed else []
    if column.given is Given.ABSENT:
        message, remedies = advice(table, column, key)
        return ColumnSupport(column.name, "", column.source_type, "", Support.NO, message, remedies)
    if column.name in masked:
        # Its values are those of the expression, whatever the source gives.
        transforms.append(f"mask {column.name}")
        return ColumnSupport(
            column.name, name, column.source_type, "", Support.YES, transforms=tuple(transforms)
        )
    held = target.type_of(column.arrow)
    support = composed(column.given, held)
    message, remedies = "", tuple[str, ...]()
    if held is None:
        message = f"The target {target.name} has no type for {render_type(column.arrow)}."
        remedies = (f"drop {column.name}",)
    elif support is Support.PARTIAL:
        message, remedies = advice(table, column, key)
    return ColumnSupport(
        column.name,
        name,
        column.source_type,
        held or "",
        support,
        message,
        remedies,
        tuple(transforms),
    )


def computed_support(settings: TableSettings) -> Iterator[ColumnSupport]:
    """Yield the verdicts on columns that the target alone has."""
    for name, _ in settings.compute:
        yield ColumnSupport("", name, "", "", Support.YES, transforms=(f"compute {name}",))


def advice(table: TableId, column: ColumnDescription, key: bool) -> tuple[str, tuple[str, ...]]:
    """Return why a column does not come over as it is, and what can be written to have it otherwise."""
    if column.given is Given.ABSENT:
        return (
            f"{column.name} is generated: its values are not in the log. Compute it at the target, or in a view.",
            (f"compute {column.name} <expression>",),
        )
    if column.asked_as_text:
        message = (
            f"{column.name} is kept as the server renders it, because the configuration asks for that: "
            "take it out of source.text_columns to have it typed."
        )
        return message, ()
    kind = column.source_type.partition("(")[0]
    if kind == "numeric":
        quoted = f'ALTER TABLE "{table.schema}"."{table.name}" ALTER COLUMN "{column.name}"'
        typed = f"CAST(`{column.name}` AS DECIMAL(38, 10))"
        message = (
            f"{column.name} has more digits than a decimal holds, or no bound on them: it is kept as text, "
            f"digit by digit. Bound it at the source: {quoted} TYPE numeric(38, 10); or cast it at the target."
        )
        remedy = f"compute {column.name}_number {typed}" if key else f"mask {column.name} {typed}"
        return message, (remedy,)
    if kind == "jsonb":
        path = f"get_json_object(`{column.name}`, '$.<field>')"
        return (
            f"{column.name} is kept as text, as the server renders jsonb.",
            (f"compute {column.name}_field {path}",),
        )
    message = (
        f"{column.name} is kept as text, as the server renders {column.source_type}: nothing is lost, and who "
        "computes with it has to read that text."
    )
    return message, ()


def _or_none(name_of: Callable[[pa.DataType], str]) -> Callable[[pa.DataType], str | None]:
    """Return the same, with None in place of an error."""

    def found(type_: pa.DataType) -> str | None:
        try:
            return name_of(type_)
        except (KeyError, ValueError):
            return None

    return found

"""What a table looked like when a statement wrote to it, as the trigger says with the statement's first row."""

from __future__ import annotations

import json
from dataclasses import dataclass

from headrace.errors import ProtocolError
from headrace.model.schema import TableId

__all__ = ["Layout", "LayoutColumn", "parse"]


@dataclass(frozen=True, slots=True)
class LayoutColumn:
    """One column; ``filled`` says that rows from before it came may hold a value that no change carried."""

    number: int
    name: str
    type_oid: int
    modifier: int
    generated: bool
    filled: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """A table at one moment.

    Attributes:
        table: its name.
        storage: changes when the table is written anew.
        key: numbers of the columns of its key, empty without one.
        columns: those that a row image has, in its order.
    """

    table: TableId
    storage: int
    key: tuple[int, ...]
    columns: tuple[LayoutColumn, ...]


def parse(text: bytes) -> Layout:
    """Read what the trigger wrote.

    Raises:
        ProtocolError: the trigger did not write it.
    """
    try:
        value = json.loads(text)
        return Layout(
            TableId(value["schema"], value["name"]),
            int(value["storage"]),
            tuple(int(number) for number in value["key"] or ()),
            tuple(LayoutColumn(*column) for column in value["columns"] or ()),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ProtocolError(
            f"A layout of {len(text)} bytes in headrace.txlog_changes does not read.",
            next_step="find who writes there, which only headrace's triggers do; or make the triggers anew: "
            "headrace source triggers install FILE.",
        ) from error

"""What a table looked like when its triggers were made: kept in a table of ours, and named by them in each change.

A layout's id is made of what it says, so that whoever makes triggers for the same table comes to the same one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from headrace.errors import ProtocolError
from headrace.model.schema import TableId
from headrace.sources.mysql.catalog import CatalogRows

__all__ = ["Layout"]


@dataclass(frozen=True, slots=True)
class Layout:
    """A table at one moment.

    Attributes:
        rows: the table as the catalog has it.
        storage: changes when the table is emptied or written anew.
        guarded: columns whose change a constraint may forbid: those of unique indexes and foreign keys.
        turn: counts the times that triggers were made anew although nothing else here differs.
        values: what else tells whether rows may hold other values: the expressions of columns that are computed, and
            how often columns came or went without the table being written anew, where the server says so.
    """

    rows: CatalogRows
    storage: str
    guarded: tuple[str, ...] = ()
    turn: int = 0
    values: tuple[str, ...] = ()

    @property
    def table(self) -> TableId:
        """The table's name."""
        return self.rows.table

    @property
    def text(self) -> str:
        """Everything, to be kept."""
        return json.dumps(
            {
                "table": list(self.rows.table),
                "columns": self.rows.columns,
                "key": self.rows.key,
                "storage": self.storage,
                "guarded": self.guarded,
                "turn": self.turn,
                # Of most tables there is nothing to say, and those of before it was said keep their numbers.
                **({"values": self.values} if self.values else {}),
            },
            sort_keys=True,
        )

    @property
    def layout_id(self) -> int:
        """Its number: 62 bits of a hash, never 0."""
        digest = hashlib.sha256(self.text.encode()).digest()
        return int.from_bytes(digest[:8], "big") >> 2 | 1

    @classmethod
    def parse(cls, text: bytes) -> Layout:
        """Read what was kept.

        Raises:
            ProtocolError: nobody of us wrote it.
        """
        try:
            value = json.loads(text)
            columns = tuple(tuple(column) for column in value["columns"])
            rows = CatalogRows(TableId(*value["table"]), columns, tuple(value["key"]))
            values = tuple(value.get("values", ()))
            return cls(rows, value["storage"], tuple(value["guarded"]), int(value["turn"]), values)
        except (ValueError, KeyError, TypeError) as error:
            raise ProtocolError(
                f"A layout of {len(text)} bytes in headrace.txlog_layouts does not read.",
                next_step="find who writes there, which only headrace does.",
            ) from error

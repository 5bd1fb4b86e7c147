"""Explains layouts: which tables are ours, their schemas, and what is new about them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from headrace.errors import ProtocolError
from headrace.model.block import Body
from headrace.model.change import DELETE, INSERT, UPDATE_NEW, UPDATE_OLD, change_schema
from headrace.model.schema import TableId, TableSchema
from headrace.sources.base import SchemaStore
from headrace.sources.mysql.catalog import TableFacts, facts_schema, own_numbers
from headrace.sources.mysql.charsets import Collations
from headrace.sources.mysql.chunks import rows_batch
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.trigger.mysql.image import cells_of
from headrace.sources.trigger.mysql.layout import Layout
from headrace.sources.trigger.mysql.settings import MysqlTriggerSettings

__all__ = ["LayoutVersions", "Version"]


@dataclass(frozen=True, slots=True)
class Version:
    """What rows behind a layout are; see `headrace.sources.trigger.ports.Version`.

    Attributes:
        table: its name.
        facts: its columns.
        zero_dates: what becomes of a date that is no day.
        schema: the table from here on; None when its rows are not ours to keep.
        announce: payload of the system event that says so, None when nothing is new.
    """

    table: TableId
    facts: TableFacts
    zero_dates: ZeroDates
    schema: TableSchema | None = None
    announce: dict[str, Any] | None = None

    @property
    def anew(self) -> dict[str, Any] | None:
        """None: that a table was emptied or is another one is a row of its own among the changes."""
        return None

    def rows(self) -> CellRows:
        """Return where rows are collected that have the version's schema."""
        assert self.schema is not None
        return CellRows(self.schema, self.facts, self.zero_dates)


class CellRows:
    """Rows of one version; see `headrace.sources.trigger.ports.ImageRows`."""

    def __init__(self, schema: TableSchema, facts: TableFacts, zero_dates: ZeroDates) -> None:
        self._schema = schema
        self._facts = facts
        self._zero_dates: ZeroDates = zero_dates
        self._clear()

    def _clear(self) -> None:
        self._meta: list[tuple[int, int, str]] = []
        self._cells: list[tuple[bytes | None, ...]] = []

    def __len__(self) -> int:
        return len(self._meta)

    @property
    def first(self) -> tuple[int, int]:
        """Place ``(scn, ord)`` of the first row."""
        return self._meta[0][:2]

    def add(self, scn: int, ord_: int, op: bytes, before: bytes | None, after: bytes | None) -> int:
        """Add the rows of one change."""
        images = {
            b"I": ((INSERT, after),),
            b"D": ((DELETE, before),),
            b"U": ((UPDATE_OLD, before), (UPDATE_NEW, after)),
        }[op]
        for place, (code, image) in enumerate(images):
            self._cells.append(tuple(cells_of(image or b"", len(self._facts.columns))))
            self._meta.append((scn, ord_ + place, code))
        return len(images)

    def body(self) -> Body:
        """Return everything added so far as one body and start anew."""
        rows = rows_batch(self._facts, self._schema, self._cells, self._zero_dates)
        scns, ords, ops = zip(*self._meta, strict=True)
        arrays = [
            pa.array(scns, pa.int64()),
            pa.array(ords, pa.int32()),
            pa.array(ops, pa.string()),
            pa.nulls(len(scns), pa.binary()),
            *rows.columns,
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=change_schema(self._schema))
        self._clear()
        return Body(self._schema.schema_id, self._schema.table, batch)


class LayoutVersions:
    """Keeps what was last said of each table. Used from the stream's thread.

    Args:
        settings: which tables.
        kept: returns the text of a layout, None where it is not kept.
        collations: of the server.
        schemas: where versions are kept.
    """

    def __init__(
        self,
        settings: MysqlTriggerSettings,
        kept: Callable[[int], bytes | None],
        collations: Collations,
        schemas: SchemaStore,
    ) -> None:
        self._settings = settings
        self._kept = kept
        self._collations = collations
        self._schemas = schemas
        self._last: dict[TableId, TableSchema] = {}

    def resolve(self, relid: int, layout: bytes) -> Version:
        """Return what the rows of a table are from here on."""
        text = self._kept(int(layout))
        if text is None:
            raise ProtocolError(
                f"A change names the layout {relid}, which headrace.txlog_layouts does not have.",
                next_step="find who writes there or removes from it, which only headrace does; then `headrace resync "
                "FILE`.",
            )
        rows = Layout.parse(text).rows
        facts = rows.facts(self._collations)
        zero_dates = self._settings.database.zero_dates
        if not self._settings.selects(rows.table):
            return Version(rows.table, facts, zero_dates)
        schema = facts_schema(facts)
        self._schemas.put(schema)
        return Version(rows.table, facts, zero_dates, schema, self._announce(schema))

    def _announce(self, schema: TableSchema) -> dict[str, Any] | None:
        """Return the payload of a schema event, None when the table is as last described."""
        last = self._last.get(schema.table)
        self._last[schema.table] = schema
        if last == schema:
            return None
        payload = _told(schema)
        if last is not None:
            payload["was"] = _told(last)
        return payload


def _told(schema: TableSchema) -> dict[str, Any]:
    return {"schema_id": schema.schema_id, "numbers": dict(own_numbers(schema))}

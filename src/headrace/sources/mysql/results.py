"""Selects to record batches, straight from the packets of the connection."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pyarrow as pa

from headrace.errors import UndecodableValue
from headrace.model.change import table_arrow_schema
from headrace.model.schema import TableSchema
from headrace.sources.mysql.catalog import CatalogColumn, TableFacts
from headrace.sources.mysql.connection import Session
from headrace.sources.mysql.engine import Engine, Rows
from headrace.sources.mysql.packets import PacketReader
from headrace.sources.mysql.selected import Stop
from headrace.sources.mysql.settings import ZeroDates
from headrace.sources.mysql.types import ColumnType

__all__ = ["batch_of", "select"]


def select(
    session: Session,
    sql: str,
    engine: Engine,
    facts: TableFacts,
    schema: TableSchema,
    zero_dates: ZeroDates,
    most_bytes: int,
) -> Generator[tuple[pa.RecordBatch, bool], None, None]:
    """Yield the rows of a select of all columns as the columns that the log would have, and whether there are more.

    The session is free again when the generator is at its end or closed.

    Args:
        session: asks.
        sql: selects each column by `headrace.sources.mysql.texts.selected`.
        engine: makes the columns.
        facts: the table as the catalog had it for the select.
        schema: its shape.
        zero_dates: what becomes of a date that is no day.
        most_bytes: a batch ends soon after the row that reaches this size.

    Raises:
        QueryFailed: the server refuses, perhaps in the middle of the rows.
        SourceUnavailable: the connection is gone.
        UndecodableValue: names table and column, never the value.
    """
    with session.prepared(sql) as (packets, wires):
        rows = engine.rows([_known(column) for column in facts.columns], wires)
        while True:
            stop = _taken(packets, rows, most_bytes)
            if stop is Stop.REFUSED:
                return
            if rows.count:
                batch = batch_of(facts, schema, lambda place: rows.column(place, zero_dates))
                try:
                    yield batch, stop is Stop.ENOUGH
                except GeneratorExit:
                    return
                rows.clear()
            if stop is Stop.END:
                return


def _taken(packets: PacketReader, rows: Rows, most_bytes: int) -> Stop:
    """Add rows until there are enough or no more; what comes next is left."""
    found = 0

    def take(buffer: bytearray, at: int, end: int) -> int:
        nonlocal found
        at, found = rows.take(buffer, at, end, most_bytes)
        return at

    while True:
        packets.hand(take)
        if found == Stop.LARGE:
            rows.add(packets.whole())
        elif found == Stop.MORE:
            packets.more()
        else:
            return Stop(found)


def batch_of(
    facts: TableFacts, schema: TableSchema, column: Callable[[int], pa.Array]
) -> pa.RecordBatch:
    """Return the batch of all columns.

    Raises:
        UndecodableValue: for a column that raised ValueError.
    """
    arrays = []
    for place, known in enumerate(facts.columns):
        try:
            arrays.append(column(place))
        except (ValueError, pa.ArrowException) as error:
            type_ = _known(known)
            raise UndecodableValue(
                f"{facts.table}.{known.name}: a value does not fit {type_.arrow}, which stands for {type_.name}.",
                next_step="change the value at the source; source.zero_dates: null lets dates that are no days "
                "be null; or exclude the table.",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=table_arrow_schema(schema))


def _known(column: CatalogColumn) -> ColumnType:
    assert column.type is not None
    return column.type

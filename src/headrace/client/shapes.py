"""Rows as the consumer asked for them: an Arrow schema or a pydantic model per table.

A consumer that was written for one version of a table so reads every later and earlier one: columns it did not ask
for are left out, those the version does not have are null or the model's default, types that grew are widened
exactly. What cannot be is refused by name before a row of that version is delivered, not at the first value that
does not fit.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from headrace.client.errors import Unconvertible
from headrace.model.change import META, missing_matrix
from headrace.model.schema import TableId, TableSchema

if TYPE_CHECKING:
    from pydantic import BaseModel

__all__ = ["ArrowShape", "ModelShape", "Shape", "shapes_of"]


class Shape(Protocol):
    """What a consumer wants of one table."""

    def rows(self, batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
        """Return change rows with the columns that were asked for, behind the meta columns.

        Raises:
            Unconvertible: this version of the table cannot be brought into them.
        """

    def value(self, op: str, row: dict[str, Any], missing: frozenset[str]) -> Any:
        """Return what `Event.value` carries."""


def shapes_of(
    wanted: Mapping[str, pa.Schema | type[BaseModel]],
) -> dict[TableId, Shape]:
    """Return the shapes of a mapping from table name to Arrow schema or pydantic model."""
    return {
        TableId.parse(name): ArrowShape(what) if isinstance(what, pa.Schema) else ModelShape(what)
        for name, what in wanted.items()
    }


class ArrowShape:
    """Columns as an Arrow schema names them."""

    def __init__(self, wanted: pa.Schema) -> None:
        self._wanted = wanted

    def rows(self, batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
        """Return the rows with these columns; a column the version lacks is null."""
        have = batch.schema.names[len(META) :]
        cells = []
        for field in self._wanted:
            if field.name in have:
                cells.append(_widened(batch.column(field.name), field.type, schema, field.name))
            elif field.nullable:
                cells.append(pa.nulls(batch.num_rows, field.type))
            else:
                raise _lacks(schema, field.name)
        return _projected(batch, list(self._wanted.names), cells, list(self._wanted))

    def value(self, _op: str, _row: dict[str, Any], _missing: frozenset[str]) -> None:
        """Return nothing: the row says all."""


class ModelShape:
    """Columns as the fields of a pydantic model, by alias where a field has one."""

    def __init__(self, model: type[BaseModel]) -> None:
        self._model = model
        self._needed = {
            field.alias or name: field.is_required() for name, field in model.model_fields.items()
        }
        self._table = ""

    def rows(self, batch: pa.RecordBatch, schema: TableSchema) -> pa.RecordBatch:
        """Return the rows with the columns that the model knows; its defaults are its own affair."""
        have = batch.schema.names[len(META) :]
        for name, needed in self._needed.items():
            if needed and name not in have:
                raise _lacks(schema, name)
        self._table = str(schema.table)
        names = [name for name in have if name in self._needed]
        cells = [batch.column(name) for name in names]
        fields = [batch.schema.field(name) for name in names]
        return _projected(batch, names, cells, fields)

    def value(self, op: str, row: dict[str, Any], missing: frozenset[str]) -> BaseModel:
        """Return the row as the model; one that lacks columns is not validated, as it never was a whole row."""
        from pydantic import ValidationError

        if missing or op.startswith("-"):
            return self._partial(row)
        try:
            return self._model.model_validate(row)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False, include_context=False)[0]
            column = ".".join(str(part) for part in first["loc"])
            # The message of the library's own error quotes the value.
            raise Unconvertible(
                self._table, column, f"the model refuses a value: {first['type']}"
            ) from None

    def _partial(self, row: dict[str, Any]) -> BaseModel:
        names = {field.alias or name: name for name, field in self._model.model_fields.items()}
        return self._model.model_construct(
            {names[column] for column in row},
            **{names[column]: cell for column, cell in row.items()},
        )


def _projected(
    batch: pa.RecordBatch, names: list[str], cells: list[pa.Array], fields: list[pa.Field]
) -> pa.RecordBatch:
    """Return a batch of the meta columns and these; the mask of missing ones is brought to their places."""
    have = batch.schema.names[len(META) :]
    meta = [batch.column(name) for name in META]
    if meta[3].null_count < batch.num_rows:
        before = missing_matrix(meta[3], len(have))
        after = np.zeros((batch.num_rows, len(names)), bool)
        for place, name in enumerate(names):
            if name in have:
                after[:, place] = before[:, have.index(name)]
        packed = np.packbits(after, axis=1, bitorder="little")
        masks = [bytes(mask) if mask.any() else None for mask in packed]
        meta[3] = pa.array(masks, pa.binary())
    schema = pa.schema([*(batch.schema.field(name) for name in META), *fields])
    # A column that was asked for as not nullable is null where it was not sent.
    loose = pa.schema([field.with_nullable(True) for field in schema])
    return pa.record_batch([*meta, *cells], schema=loose)


def _widened(column: pa.Array, wanted: pa.DataType, schema: TableSchema, name: str) -> pa.Array:
    have = column.type
    if have == wanted:
        return column
    if not _holds(have, wanted):
        raise Unconvertible(
            str(schema.table),
            name,
            f"{have} of the source does not fit into {wanted} in every case",
        )
    try:
        return column.cast(wanted)
    except pa.ArrowInvalid:
        # Its message quotes the value.
        raise Unconvertible(
            str(schema.table),
            name,
            f"a value of {have}, such as an infinite date, is none of {wanted}",
        ) from None


def _holds(have: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether every value of one type is exactly one of the other."""
    types = pa.types
    if types.is_integer(have):
        if types.is_integer(wanted):
            return bool(types.is_signed_integer(wanted) and wanted.bit_width >= have.bit_width)
        if types.is_floating(wanted):
            exact = {16: 11, 32: 24, 64: 53}[wanted.bit_width]
            return bool(have.bit_width <= exact)
        if types.is_decimal(wanted):
            digits = {8: 3, 16: 5, 32: 10, 64: 19}[have.bit_width]
            return bool(wanted.precision - wanted.scale >= digits)
        return False
    if types.is_floating(have):
        return bool(types.is_floating(wanted) and wanted.bit_width >= have.bit_width)
    if types.is_decimal(have):
        return bool(
            types.is_decimal(wanted)
            and wanted.scale >= have.scale
            and wanted.precision - wanted.scale >= have.precision - have.scale
        )
    if types.is_date(have):
        return bool(types.is_timestamp(wanted) and wanted.tz is None)
    if types.is_timestamp(have):
        finer = {"s": 0, "ms": 3, "us": 6, "ns": 9}
        return bool(
            types.is_timestamp(wanted)
            and (wanted.tz is None) == (have.tz is None)
            and finer[have.unit] <= finer[wanted.unit] < 9
        )
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    blobs = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return any(
        any(k(have) for k in kind) and any(k(wanted) for k in kind) for kind in (texts, blobs)
    )


def _lacks(schema: TableSchema, name: str) -> Unconvertible:
    return Unconvertible(
        str(schema.table),
        name,
        "this version of the table has no such column, and null is not allowed",
    )

"""Keys to text and back: what a select of a key's columns shows, from Arrow values, and Arrow values from that."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Sequence

import pyarrow as pa

from headrace.errors import ConfigError
from headrace.model.change import table_arrow_schema
from headrace.model.schema import Column, TableSchema
from headrace.sources.key_columns import refuse_other_width

__all__ = ["key_texts", "row_of_keys"]

_FRACTION = re.compile(r"\((\d)\)")


def key_texts(schema: TableSchema, rows: pa.RecordBatch) -> list[tuple[str, ...]]:
    """Return each row's key, its columns in the order of the schema's key."""
    columns = [_texts(schema.column(name), rows.column(name)) for name in schema.key]
    return list(zip(*columns, strict=True))


def _texts(column: Column, cells: pa.Array) -> list[str]:
    type_ = cells.type
    if pa.types.is_string(type_):
        return [str(cell) for cell in cells.to_pylist()]
    if pa.types.is_binary(type_):
        return [cell.hex().upper() for cell in cells.to_pylist()]
    if pa.types.is_boolean(type_):
        return ["1" if cell else "0" for cell in cells.to_pylist()]
    if pa.types.is_decimal(type_):
        return [format(cell, "f") for cell in cells.to_pylist()]
    if pa.types.is_timestamp(type_):
        match = _FRACTION.search(column.source_type)
        return [
            _moment(us, int(match[1]) if match else 0) for us in cells.cast(pa.int64()).to_pylist()
        ]
    if pa.types.is_floating(type_):
        return [repr(cell) for cell in cells.cast(pa.float64()).to_pylist()]
    if column.source_type == "year":
        return [f"{cell:04d}" for cell in cells.to_pylist()]
    return [str(cell) for cell in cells.to_pylist()]


def _moment(us: int, digits: int) -> str:
    seconds, micros = divmod(us, 1_000_000)
    text = (dt.datetime(1970, 1, 1) + dt.timedelta(seconds=seconds)).isoformat(" ")  # noqa: DTZ001
    return f"{text}.{micros:06d}"[: len(text) + 1 + digits] if digits else text


def row_of_keys(schema: TableSchema, keys: Sequence[Sequence[str]]) -> pa.RecordBatch:
    """Return a row for each rendered key, all other columns null; the reverse of `key_texts`.

    Raises:
        ConfigError: a text is no value of its column, or a key has not as many as the table's.
    """
    for key in keys:
        refuse_other_width(schema.table, schema.key, key)
    cells = dict(zip(schema.key, zip(*keys, strict=True), strict=True)) if keys else {}
    arrays = []
    for column in schema.columns:
        if column.name not in cells:
            arrays.append(pa.nulls(len(keys), column.type))
            continue
        try:
            arrays.append(_values(column, cells[column.name]))
        except (ValueError, pa.ArrowException) as error:
            raise ConfigError(
                f"{schema.table}: a given key is not a value of {column.name}, {column.source_type}.",
                next_step="write keys as the database renders them, bytes in hexadecimal digits.",
            ) from error
    return pa.RecordBatch.from_arrays(arrays, schema=table_arrow_schema(schema))


def _values(column: Column, texts: Sequence[str]) -> pa.Array:
    type_ = column.type
    if pa.types.is_binary(type_):
        return pa.array([bytes.fromhex(text) for text in texts], type_)
    if pa.types.is_boolean(type_):
        return pa.array([text == "1" for text in texts], type_)
    cells = pa.array(texts, pa.string())
    if pa.types.is_timestamp(type_):
        return cells.cast(pa.timestamp("us")).cast(type_)
    if pa.types.is_float32(type_):
        return cells.cast(pa.float64()).cast(type_, safe=False)
    return cells.cast(type_)

"""The one form that each value has in an SQLite file, and back to Arrow.

==================  ===========================================================================================
type                form
==================  ===========================================================================================
boolean             1 or 0
integers            integers
floats              numbers; NaN and -0.0, which SQLite has not, are the texts ``NaN`` and ``-0.0``
decimals            text with all digits of the scale: ``12.50``
text, bytes         text, BLOB
dates               ISO 8601, ``2026-03-01``; ``infinity`` and ``-infinity``
timestamps          ``2026-03-01 12:00:00.000000``, with a time zone ``+00:00`` behind it; both infinities likewise
==================  ===========================================================================================

Years before 1 and beyond 9999: `headrace.model.moments`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from headrace.model.moments import ENDS, moment_texts

__all__ = ["arrow_of", "cells_of"]


def cells_of(values: pa.ChunkedArray | pa.Array) -> list[Any]:
    """Return a column's cells in their form."""
    type_ = values.type
    if pa.types.is_boolean(type_):
        return [None if value is None else int(value) for value in values.to_pylist()]
    if pa.types.is_floating(type_):
        return [_number(value) for value in values.to_pylist()]
    if pa.types.is_decimal(type_):
        return [None if value is None else format(value, "f") for value in values.to_pylist()]
    if pa.types.is_temporal(type_):
        return moment_texts(values, between=" ", zone="+00:00")
    cells: list[Any] = values.to_pylist()
    return cells


def arrow_of(cells: Sequence[Any], type_: pa.DataType) -> pa.Array:
    """Return the column of which these are the cells."""
    if pa.types.is_boolean(type_):
        return pa.array([None if cell is None else bool(cell) for cell in cells], type_)
    if pa.types.is_floating(type_):
        return pa.array([float(cell) if isinstance(cell, str) else cell for cell in cells], type_)
    if pa.types.is_decimal(type_):
        return pa.array([None if cell is None else Decimal(cell) for cell in cells], type_)
    if pa.types.is_date32(type_):
        return _numbers(cells, pa.int32(), "D").view(type_)
    if pa.types.is_timestamp(type_):
        return _numbers(cells, pa.int64(), "us").view(type_)
    return pa.array(cells, type_)


def _number(value: float | None) -> float | str | None:
    if value is None or (value and not math.isnan(value)):
        return value
    if math.isnan(value):
        return "NaN"
    return "-0.0" if math.copysign(1.0, value) < 0 else 0.0


def _numbers(cells: Sequence[str | None], type_: pa.DataType, unit: str) -> pa.Array:
    """Return what `moment_texts` made text of."""
    width = np.iinfo(type_.to_pandas_dtype())
    ends = dict(zip(ENDS, (width.min, width.max), strict=True))
    plain = ["1970-01-01" if c is None or c in ends else c.removesuffix("+00:00") for c in cells]
    whole = np.array(plain, f"datetime64[{unit}]").astype(np.int64).tolist()
    return pa.array(
        [
            None if cell is None else ends.get(cell, number)
            for cell, number in zip(cells, whole, strict=True)
        ],
        type_,
    )

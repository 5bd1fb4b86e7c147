"""Dates and timestamps as text: all that a column can hold, beyond Python's years too.

The ends of the integers stand for the infinities, as in `headrace.sources.postgres.values`. Years before 1 and beyond
9999 are written as in ISO 8601's expanded form, by astronomers' count: 0 is 1 before Christ.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

__all__ = ["ENDS", "moment_texts"]

ENDS = ("-infinity", "infinity")
"""What the lowest and the highest integer are called."""


def moment_texts(
    values: pa.ChunkedArray | pa.Array, *, between: str = "T", zone: str = "Z"
) -> list[str | None]:
    """Return the cells of a column of dates or timestamps as text.

    Args:
        values: ``date32`` or ``timestamp[us]``.
        between: date and time.
        zone: what stands behind a timestamp of a column with a time zone.
    """
    timed = pa.types.is_timestamp(values.type)
    numbers = values.cast(pa.int64() if timed else pa.int32())
    width = np.iinfo(numbers.type.to_pandas_dtype())
    ends = dict(zip((width.min, width.max), ENDS, strict=True))
    given = numbers.to_pylist()
    whole = np.array([0 if n is None or n in ends else n for n in given], np.int64)
    texts = np.datetime_as_string(whole.view(f"datetime64[{'us' if timed else 'D'}]")).tolist()
    behind = zone if timed and values.type.tz else ""
    return [
        None if number is None else ends.get(number) or text.replace("T", between) + behind
        for number, text in zip(given, texts, strict=True)
    ]

"""Dates that no timestamp holds, such as infinite ones: with one in a file, a column of dates never takes times.

In: a table. Out: whether it has any. The log's bounds answer for most files.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from headrace.lake.mapping import in_files
from headrace.lake.snapshot import DataFile, Snapshot

__all__ = ["has_timeless_dates"]

_PLAIN_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_MOST_DAYS = (2**63 - 1) // 86_400_000_000
"""From 1970 to the ends of what a timestamp holds."""


def has_timeless_dates(held: Snapshot, column: str) -> bool:
    """Whether files of a table hold a date that no timestamp holds, such as an infinite one, in rows that count or not.

    No reader then reads them as timestamps. Only files whose bounds leave it open are looked into.

    Raises:
        CorruptTable: one of them does not read.
    """
    field = held.schema.field(column)
    return any(
        _has_timeless(held, file, field)
        for file in held.files
        if not _is_bounded(file, in_files(field))
    )


def _is_bounded(file: DataFile, name: str) -> bool:
    known = file.statistics()
    if known.get("nullCount", {}).get(name) == known.get("numRecords", -1):
        return True
    ends = (known.get(which, {}).get(name) for which in ("minValues", "maxValues"))
    return all(isinstance(end, str) and _PLAIN_DATE.fullmatch(end) for end in ends)


def _has_timeless(held: Snapshot, file: DataFile, field: pa.Field) -> bool:
    try:
        for batch in file.batches(pa.schema([field]), held.partition_columns):
            days = batch.column(0).view(pa.int32()).fill_null(0).to_numpy(zero_copy_only=False)
            if (np.abs(days.astype(np.int64)) > _MOST_DAYS).any():
                return True
    except (OSError, ValueError, pa.ArrowException) as error:
        raise held.corrupt(file, error) from error
    return False

"""Rows into new data files, and the log actions that name them.

A file is durable, under a name nobody has used, before its action is returned; until a commit names it nobody reads it.
Files of a partitioned table lie in folders of their partitions, and each holds rows of one.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from headrace.lake.commit import now_ms
from headrace.lake.mapping import file_schema
from headrace.lake.partition_values import folder_of, split
from headrace.lake.statistics import statistics_of
from headrace.store import Location, store_of

__all__ = ["FILE_ROWS", "write_rows"]

FILE_ROWS = 1_000_000
"""Rows of a full file."""


def write_rows(
    folder: Location,
    rows: pa.Table,
    key: Sequence[str],
    file_rows: int = FILE_ROWS,
    *,
    partitions: Sequence[str] = (),
) -> list[dict[str, Any]]:
    """Write rows, in order of their key, and return the bodies of the ``add`` actions.

    Args:
        folder: of the table.
        rows: with the table's own schema, which knows the columns' names in files.
        key: columns to sort by: the files' bounds then let later commits, and readers, pass most of them over.
        file_rows: rows of a file; the last one of each partition has what is left.
        partitions: columns that lie in paths and not in files.

    Raises:
        UnplacedValue: a partition column holds a value that has no partition.
        OSError: the folder refused.
    """
    own = [name for name in key if name not in partitions]
    adds: list[dict[str, Any]] = []
    folders: dict[Location, None] = {}
    for values, part in split(rows, partitions, f"{folder.parent.name}.{folder.name}"):
        ordered = _sorted(part, own)
        ordered = pa.table(ordered.columns, schema=file_schema(ordered.schema))
        within = PurePosixPath(folder_of(values))
        for begin in range(0, ordered.num_rows, file_rows):
            name = within / f"part-{uuid.uuid4()}.snappy.parquet"
            body = _write_file(folder / str(name), ordered.slice(begin, file_rows))
            adds.append({"path": quote(str(name), safe="/="), "partitionValues": values, **body})
            folders |= dict.fromkeys(folder / str(above) for above in (within, *within.parents))
    store_of(folder).sync(folders)
    return adds


def _sorted(rows: pa.Table, key: Sequence[str]) -> pa.Table:
    if not key:
        return rows
    # By numbers: Arrow takes a name that begins with a point for a path.
    names = [str(place) for place in range(len(key))]
    columns = pa.table([rows[name] for name in key], names=names)
    order = pc.sort_indices(columns, sort_keys=[(name, "ascending") for name in names])
    return rows.take(order)


def _write_file(path: Location, rows: pa.Table) -> dict[str, Any]:
    # Types and statistics are in the log; an Arrow schema in the file would be read by nobody.
    with store_of(path).create(path) as file:
        pq.write_table(rows, file, compression="snappy", store_schema=False)
        size = file.tell()
    return {
        "size": size,
        "modificationTime": now_ms(),
        "dataChange": True,
        "stats": statistics_of(rows),
    }

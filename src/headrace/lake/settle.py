"""From rows that died and rows that were born to the log actions of one commit.

A row that died in a large file is named in the file's deletion vector; small files, and files that are mostly dead,
give their living rows to the new file instead. Each row is thereby written a few times in its life, the number of files
grows with the logarithm of the table, and a batch costs what it changes. All this is done in each partition by itself.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from headrace.lake.commit import Action, now_ms
from headrace.lake.data_file import DataFile, without
from headrace.lake.data_writer import FILE_ROWS, write_rows
from headrace.lake.evolution import VECTORS_PROPERTY
from headrace.lake.partition_values import partition_of, sizes
from headrace.lake.snapshot import Snapshot
from headrace.lake.stages import stage
from headrace.lake.vectors import Places, vector_path, write_vectors
from headrace.store import store_of

__all__ = ["Dead", "discard", "removal", "settle"]

Dead = Mapping[int, Places]
"""Places of rows that die, per index of the snapshot's file; none of them was dead before."""

_SMALL_ROWS = 10_000
"""A file with fewer rows than this costs more to keep than to write again."""
_SMALL_BYTES = 8 * 2**20
"""No file above this is written again because it is small."""
_MOSTLY = 0.5
"""The living rows of a file are written again when they are fewer than this part of its dead ones."""


_OF_OTHERS = ("tags", "clusteringProvider")
"""What an ``add`` says of its file that we have no part in."""


@dataclass(slots=True)
class _Touched:
    """One file of the snapshot that loses rows, or all of them."""

    file: DataFile
    gone: Places
    living: int
    dying: int = 0


@stage("write")
def settle(snapshot: Snapshot, dead: Dead, born: pa.Table, key: Sequence[str]) -> list[Action]:
    """Write what a commit needs and return its ``add`` and ``remove`` actions.

    Args:
        snapshot: the table before.
        dead: rows that die.
        born: rows that come to be, with the snapshot's schema.
        key: columns to sort new files by.

    Raises:
        CorruptTable: a file of the table does not read.
        UnplacedValue: a row has no partition.
        OSError: the folder refused.
    """
    vectors = snapshot.properties.get(VECTORS_PROPERTY) == "true"
    removed: list[DataFile] = []
    marked: list[_Touched] = []
    rest: list[pa.RecordBatch] = []
    columns = snapshot.partition_fields
    totals = Counter(sizes(born, snapshot.partition_columns))
    for touched in _by_living(snapshot, dead):
        living, file = touched.living, touched.file
        partition = partition_of(file.partition_values, columns)
        if living == 0:
            removed.append(file)
        elif _is_absorbed(touched, totals[partition], vectors):
            removed.append(file)
            rest += _living(snapshot, touched)
            totals[partition] += living
        elif touched.dying:
            marked.append(touched)
    rows = pa.concat_tables([born, pa.Table.from_batches(rest, schema=snapshot.schema)])
    adds = write_rows(snapshot.folder, rows, key, partitions=snapshot.partition_columns)
    descriptors = write_vectors(snapshot.folder, [touched.gone for touched in marked])
    for touched, descriptor in zip(marked, descriptors, strict=True):
        removed.append(touched.file)
        adds.append(_marked(touched.file, descriptor))
    return [*({"remove": removal(file)} for file in removed), *({"add": add} for add in adds)]


def discard(snapshot: Snapshot, actions: Sequence[Action]) -> None:
    """Delete the files of a commit that did not come about."""
    known = {file.action["path"] for file in snapshot.files}
    gone = []
    for action in actions:
        add = action.get("add")
        if add is None:
            continue
        if add["path"] not in known:
            gone.append(snapshot.folder / unquote(add["path"]))
        if vector := add.get("deletionVector"):
            gone.append(vector_path(snapshot.folder, vector))
    store_of(snapshot.folder).delete(dict.fromkeys(gone))


def _by_living(snapshot: Snapshot, dead: Dead) -> list[_Touched]:
    """Return every file with what is left of it, the smallest rest first."""
    found = []
    for index, file in enumerate(snapshot.files):
        dying = dead.get(index)
        rows, gone = snapshot.extent(file)
        if dying is not None:
            gone = np.sort(np.concatenate([gone, dying]), kind="stable")
        found.append(_Touched(file, gone, rows - len(gone), 0 if dying is None else len(dying)))
    return sorted(found, key=lambda touched: touched.living)


def _is_absorbed(touched: _Touched, total: int, vectors: bool) -> bool:
    """Whether a file's living rows move into the new file, which has ``total`` rows of its partition so far."""
    if touched.dying and not vectors:
        return True
    if touched.dying and touched.living < len(touched.gone) * _MOSTLY:
        return True
    if touched.file.size > _SMALL_BYTES:
        return False
    few = touched.living <= max(total, _SMALL_ROWS)
    # A batch that changes nothing leaves the files as they are.
    return few and total > 0 and total + touched.living <= FILE_ROWS


def _living(snapshot: Snapshot, touched: _Touched) -> list[pa.RecordBatch]:
    try:
        batches = touched.file.batches(snapshot.schema, snapshot.partition_columns)
        return list(without(batches, touched.gone))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise snapshot.corrupt(touched.file, error) from error


def removal(file: DataFile, *, changes_data: bool = True) -> dict[str, Any]:
    """Return the body of the ``remove`` that ends a file and its vector.

    Args:
        file: of the table.
        changes_data: whether its rows are no longer those of the table, or only in another file.
    """
    body = {
        "path": file.action["path"],
        "deletionTimestamp": now_ms(),
        "dataChange": changes_data,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.partition_values),
        "size": file.size,
    }
    if file.vector:
        body["deletionVector"] = dict(file.vector)
    return body


def _marked(file: DataFile, descriptor: Mapping[str, Any]) -> dict[str, Any]:
    """Return the body of the ``add`` that gives a file a new vector."""
    return {
        "path": file.action["path"],
        "partitionValues": dict(file.partition_values),
        "size": file.size,
        "modificationTime": int(file.action.get("modificationTime") or now_ms()),
        "dataChange": True,
        "stats": _loosened(file),
        "deletionVector": dict(descriptor),
        # Whoever clustered the table knows its files by these.
        **{name: file.action[name] for name in _OF_OTHERS if file.action.get(name) is not None},
    }


def _loosened(file: DataFile) -> str:
    """Return a file's statistics with the note that its bounds may be those of dead rows."""
    known = file.statistics()
    if known.get("tightBounds") is False:
        return str(file.stats)
    if "numRecords" not in known:
        return json.dumps({"numRecords": file.rows(), "tightBounds": False})
    # As text: decimals have more digits than a parsed number keeps.
    return f'{str(file.stats).rstrip()[:-1]},"tightBounds":false}}'

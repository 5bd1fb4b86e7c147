"""Values of partition columns: their texts in the log, the folders of their files, and the rows that share them.

Files of a partitioned table do not hold its partition columns: the log gives one value of each for a whole file, as
text. The empty text stands for null there, so no partition has the empty text itself as its value.

Source: Delta protocol, "Partition Value Serialization".
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from urllib.parse import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import UnplacedValue
from headrace.lake.digest import cell_texts
from headrace.lake.mapping import in_files

__all__ = ["fits", "folder_of", "partition_of", "sizes", "split", "value_of"]

Values = Mapping[str, str | None]
"""Text of each partition column, by its name in files, None for null."""

_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 - the log's text has no zone, or says UTC itself
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"
_FOLDER_CHARS = 200
"""File systems take 255. Folders are for people: two partitions may share one."""


def fits(type_: pa.DataType) -> bool:
    """Whether the values of a type have exact texts, by which partitions can be told apart."""
    return not (pa.types.is_floating(type_) or pa.types.is_binary(type_))


def value_of(text: str | None, type_: pa.DataType) -> pa.Scalar:
    """Return the value that a text of the log stands for.

    Raises:
        pyarrow.ArrowException: the text is none of that type.
    """
    if not text:
        return pa.scalar(None, type_)
    if pa.types.is_timestamp(type_):
        # Writers give a zone-less text in UTC, or mark UTC with a Z; both are the same instant.
        return pa.scalar(text.removesuffix("Z")).cast(pa.timestamp("us")).cast(type_)
    return pa.scalar(text).cast(type_)


def partition_of(values: Values, columns: Sequence[pa.Field]) -> tuple[str | None, ...]:
    """Return what is equal of the values of one partition: writers have several texts for one value.

    Args:
        values: of a file.
        columns: partition columns of its table.

    Raises:
        pyarrow.ArrowException: a text is none of its column's type.
    """
    return tuple(_cell(values.get(in_files(column)), column.type) for column in columns)


@lru_cache(65_536)
def _cell(text: str | None, type_: pa.DataType) -> str | None:
    return _cells(pa.array([value_of(text, type_).as_py()], type_))[0]


def _cells(column: pa.Array) -> list[str | None]:
    found: list[str | None] = cell_texts(column).to_pylist()
    return found


def sizes(rows: pa.Table, names: Sequence[str]) -> dict[tuple[str | None, ...], int]:
    """Return how many rows lie in each of their partitions, which are named as of `partition_of`.

    Args:
        rows: with the columns.
        names: of the partition columns; without any, all rows are one partition.
    """
    firsts, numbers = _numbered(rows, names)
    cells = [_cells(_whole(rows[name]).take(pa.array(firsts))) for name in names]
    partitions: Sequence[tuple[str | None, ...]] = [()] * len(firsts)
    if names:
        partitions = [*zip(*cells, strict=True)]
    counts = np.bincount(numbers, minlength=len(firsts)).tolist()
    return dict(zip(partitions, counts, strict=True))


def split(
    rows: pa.Table, names: Sequence[str], table: str
) -> Iterator[tuple[dict[str, str | None], pa.Table]]:
    """Yield the rows of each partition in their order, without the partition columns, behind its values.

    Args:
        rows: with their table's schema.
        names: of the partition columns; without any, all rows are one partition.
        table: name of the table, for people.

    Raises:
        UnplacedValue: a value has no text in the log.
    """
    if not names:
        yield {}, rows
        return
    firsts, numbers = _numbered(rows, names)
    values = [
        {
            in_files(rows.schema.field(name)): _text(rows[name][int(first)], table, name)
            for name in names
        }
        for first in firsts
    ]
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers, minlength=len(firsts)))
    own = rows.drop_columns(list(names))
    for place, found in enumerate(values):
        begin = ends[place - 1] if place else 0
        yield found, own.take(pa.array(order[begin : ends[place]]))


def _numbered(
    rows: pa.Table, names: Sequence[str]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Return the place of the first row of each partition, and the number of each row's partition."""
    numbers = np.zeros(rows.num_rows, np.int64)
    firsts = np.zeros(min(rows.num_rows, 1), np.int64)
    for name in names:
        coded = _whole(rows[name]).dictionary_encode(null_encoding="encode")
        both = numbers * len(coded.dictionary) + np.asarray(coded.indices)
        _, firsts, numbers = np.unique(both, return_index=True, return_inverse=True)
    return firsts, numbers


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _text(value: pa.Scalar, table: str, column: str) -> str | None:
    """Return the log's text of a value, None of null."""
    if not value.is_valid:
        return None
    type_ = value.type
    try:
        if pa.types.is_date32(type_):
            return (_EPOCH + dt.timedelta(days=value.value)).date().isoformat()
        if pa.types.is_timestamp(type_):
            moment = _EPOCH + dt.timedelta(microseconds=value.value)
            return (
                f"{moment.isoformat('T', 'microseconds')}Z" if type_.tz else moment.isoformat(" ")
            )
    except OverflowError:
        raise UnplacedValue(table, column, "a time outside of the years 1 to 9999") from None
    (text,) = _cells(pa.array([value.as_py()], type_))
    if not text:
        raise UnplacedValue(table, column, "an empty text")
    return text


def folder_of(values: Values) -> str:
    """Return the folder of a partition's files, relative to the table's, in plain ASCII.

    Spark's ``VACUUM`` deletes a file whose path it would encode otherwise than the log does, and other programs may not
    know the encoding of our file names.
    """
    return "/".join(
        f"{quote(name, safe='')}={quote(text, safe='') if text else _NULL_FOLDER}"[:_FOLDER_CHARS]
        for name, text in values.items()
    )

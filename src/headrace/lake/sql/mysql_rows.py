"""Arrow rows as statements that insert many of them, a piece at a time.

In: columns of neutral types. Out: bytes that a session takes which reads a backslash as a letter. ``LOAD DATA LOCAL``
would be faster, but servers and clients forbid it by default.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from headrace.lake.sql.mysql_forms import literals
from headrace.lake.sql.mysql_words import name_of

__all__ = ["RowTooLarge", "insertions"]

_PIECE_ROWS = 16_384
_PIECE_BYTES = 16 * 2**20


class RowTooLarge(Exception):
    """One row alone is more than the server takes in a statement."""


def insertions(
    table: str, rows: pa.Table, most: int, largest: int, *, as_text: bool, signs_zeros: bool
) -> Iterator[bytes]:
    """Yield the statements that insert all rows, in order.

    Args:
        table: identifier of the table.
        rows: whose columns have the names of the table's.
        most: octets of a statement of several rows.
        largest: octets of a statement of one row.
        as_text: as of `literals`.
        signs_zeros: likewise.

    Raises:
        RowTooLarge: there is one.
        UnheldCell: a cell has no form.
    """
    names = ", ".join(map(name_of, rows.column_names))
    head = f"INSERT INTO {table} ({names}) VALUES (".encode()
    waiting: list[bytes] = []
    size = len(head)
    for line in _lines(rows, as_text=as_text, signs_zeros=signs_zeros):
        if len(head) + len(line) + 8 > largest:
            raise RowTooLarge
        if waiting and size + len(line) + 8 > most:
            yield head + b"),(".join(waiting) + b")"
            waiting, size = [], len(head)
        waiting.append(line)
        size += len(line) + 3
    if waiting:
        yield head + b"),(".join(waiting) + b")"


def _lines(rows: pa.Table, *, as_text: bool, signs_zeros: bool) -> Iterator[bytes]:
    """Yield the cells of each row."""
    step = int(max(1, min(_PIECE_ROWS, _PIECE_BYTES * rows.num_rows // max(rows.nbytes, 1))))
    for begin in range(0, rows.num_rows, step):
        piece = rows.slice(begin, step).combine_chunks()
        cells = [
            literals(
                name,
                pa.concat_arrays(column.chunks),
                as_text=as_text,
                signs_zeros=signs_zeros,
            )
            for name, column in zip(piece.column_names, piece.columns, strict=True)
        ]
        yield from pc.binary_join_element_wise(*cells, b",").to_pylist()

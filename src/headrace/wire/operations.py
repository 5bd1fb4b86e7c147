"""What kind of changes a block holds, without a look at their rows.

In: the bytes of a block whose directory was checked before. Out: per table version the positions and operation codes of
its rows, as views into the bytes. The two columns are found by the places of their buffers in the Arrow message, which
takes microseconds; to read a body as a whole takes ten times that, and is for those who need its rows. The bodies'
checksums are not looked at: who reads the rows checks them.

Source: Apache Arrow, "Encapsulated message format" and the schemas Message.fbs and Schema.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from headrace.model.block import SYSTEM_SCHEMA_ID
from headrace.model.change import DELETE, INSERT, PATCH, READ, UPDATE_NEW, UPDATE_OLD
from headrace.wire.block import read_entries
from headrace.wire.body import BodyEntry, read_batch

__all__ = ["CODES", "Operations", "read_operations"]

CODES = {
    op: int.from_bytes(op.encode(), "little")
    for op in (INSERT, UPDATE_OLD, UPDATE_NEW, PATCH, DELETE, READ)
}
"""The number that stands for each operation: its two characters, little-endian."""

_PREFIX = 8
_HEADER_FIELD, _BUFFERS_FIELD = 2, 2
_SCN_DATA, _OP_OFFSETS, _OP_DATA = 1, 5, 6
"""Places of the buffers of ``_scn`` and ``_op``, the first and third column: text has three, other types two."""

_INT = struct.Struct("<i")
_UINT = struct.Struct("<I")
_SHORT = struct.Struct("<H")
_BUFFER = struct.Struct("<qq")


class Operations(NamedTuple):
    """The rows of one table version in one block.

    Attributes:
        schema_id: the version.
        bytes: of the body.
        scns: transaction of each row, ascending.
        codes: operation of each row, as in `CODES`.
    """

    schema_id: int
    bytes: int
    scns: npt.NDArray[np.int64]
    codes: npt.NDArray[np.uint16]


def read_operations(
    block: memoryview, bodies: int, schema_ids: Collection[int]
) -> Iterator[Operations]:
    """Yield what the bodies of some table versions hold.

    Args:
        block: its bytes; header and directory were checked before.
        bodies: in its directory.
        schema_ids: the versions; system events are none.

    Raises:
        ProtocolError: a body is no Arrow stream of change rows.
    """
    for entry in read_entries(block, bodies):
        if entry.schema_id != SYSTEM_SCHEMA_ID and entry.schema_id in schema_ids:
            stream = block[entry.offset : entry.offset + entry.length]
            try:
                scns, codes = _found(stream, entry.rows)
            except (struct.error, ValueError):
                scns, codes = _decoded(stream, entry)
            yield Operations(entry.schema_id, entry.length, scns, codes)


def _found(stream: memoryview, rows: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
    """Return both columns by the places of their buffers.

    Raises:
        ValueError: the message is not laid out as ours are.
    """
    # The schema's message has nothing behind it; the rows' follows.
    message = _PREFIX + _INT.unpack_from(stream, 4)[0]
    metadata = message + _PREFIX
    begin = metadata + _INT.unpack_from(stream, message + 4)[0]
    root = metadata + _UINT.unpack_from(stream, metadata)[0]
    batch = _pointed(stream, root, _HEADER_FIELD)
    buffers = _pointed(stream, batch, _BUFFERS_FIELD)
    first = buffers + 4
    scn_at, scn_bytes = _BUFFER.unpack_from(stream, first + _SCN_DATA * _BUFFER.size)
    op_at, op_bytes = _BUFFER.unpack_from(stream, first + _OP_DATA * _BUFFER.size)
    if scn_bytes < 8 * rows or op_bytes < 2 * rows:
        raise ValueError("buffers of another layout")
    ends_at = begin + _BUFFER.unpack_from(stream, first + _OP_OFFSETS * _BUFFER.size)[0]
    if (
        _INT.unpack_from(stream, ends_at)[0]
        or _INT.unpack_from(stream, ends_at + 4 * rows)[0] != 2 * rows
    ):
        raise ValueError("an operation is not of two characters")
    scns = np.frombuffer(stream, np.int64, rows, begin + scn_at)
    return scns, np.frombuffer(stream, np.uint16, rows, begin + op_at)


def _pointed(stream: memoryview, table: int, field: int) -> int:
    """Return the place that a field of a flatbuffer's table points at.

    Raises:
        ValueError: the table has no such field.
    """
    vtable = table - _INT.unpack_from(stream, table)[0]
    (offset,) = _SHORT.unpack_from(stream, vtable + 4 + 2 * field)
    if not offset:
        raise ValueError("a field is missing")
    place = table + offset
    return int(place + _UINT.unpack_from(stream, place)[0])


def _decoded(
    stream: memoryview, entry: BodyEntry
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint16]]:
    """Return both columns of a body that is laid out in another way."""
    batch = read_batch(stream, entry)
    codes = np.array([CODES.get(op, 0) for op in batch.column("_op").to_pylist()], np.uint16)
    return batch.column("_scn").to_numpy(), codes

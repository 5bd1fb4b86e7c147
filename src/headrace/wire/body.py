"""One body of a block as bytes: an Arrow IPC stream of one batch under a checksum, and several of them as one batch.

``docs/block_format.md`` specifies the layout. No I/O; no state but the schemas that were met.
"""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from headrace.errors import ProtocolError
from headrace.model.block import Body
from headrace.model.schema import TableId

__all__ = [
    "ALIGNMENT",
    "BodyEntry",
    "Readable",
    "checked_stream",
    "encode_stream",
    "joined",
    "malformed",
    "padded",
    "read_batch",
    "read_body",
]

Readable: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | pa.Buffer
"""What a block is read from; a pyarrow buffer goes through ``memoryview``."""

ALIGNMENT = 64
"""Blocks and bodies begin and end at multiples of this many bytes."""

_SCHEMA_KEY = b"headrace.schema"
_TABLE_KEY = b"headrace.table"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_COPIED = 1 << 20
"""Rows of so many bytes are copied once more on their way. A copy of more would be made in memory that the system has
to clear for it first, which takes longer than the copy."""
_PIECE = 32 << 10
"""So are those with less than this in a column: to write many small pieces takes longer too."""
_shapes: dict[TableId | None, tuple[pa.Schema, pa.Buffer]] = {}
"""The last schema of each table that was encoded, and its bytes."""
_told: dict[bytes, tuple[pa.Schema, TableId | None]] = {}
"""What the schema messages say that were read."""
_MOST_TOLD = 1024
_PREFIX = 8
"""Bytes before an Arrow message: a marker, then its length as an int32. A schema message has nothing behind it."""


_IN_ONE_TURN = 5 * 1024
"""So many bytes go through the checksum without letting the interpreter's lock go; more would."""
_SMALL = 64 * 1024
"""Up to here a checksum takes less time than to get the lock back from another thread, which wakes for it in vain."""
_JOINED = 2**20
"""Up to here bodies are joined in the memory of the C library. Arrow's own gives back what rests for ten milliseconds,
and takes whole megabytes for what comes next, which the system clears first: threads that join a little now and then
spent a tenth of their time on that. It is the faster one for more."""


class BodyEntry(NamedTuple):
    """One entry of the directory.

    Attributes:
        schema_id: version of the table, `SYSTEM_SCHEMA_ID` for the system events.
        offset: of the body, from the block's first byte.
        length: of the body with its padding.
        rows: of the record batch.
        crc: CRC-32 of the body with its padding.
    """

    schema_id: int
    offset: int
    length: int
    rows: int
    crc: int


def encode_stream(batch: pa.RecordBatch, table: TableId | None) -> list[Readable]:
    """Return a whole Arrow IPC stream of one batch in pieces, filled up to the alignment.

    Args:
        batch: the rows.
        table: whose they are; None for the system events.
    """
    shape = _shape(batch.schema, table)
    is_large = batch.get_total_buffer_size() > max(_COPIED, _PIECE * batch.num_columns)
    rows = _uncopied(batch) if is_large else [batch.serialize()]
    length = len(shape) + sum(map(len, rows)) + len(_END_OF_STREAM)
    return [shape, *rows, _END_OF_STREAM + bytes(padded(length) - length)]


class _Kept:
    """What Arrow takes for a file: keeps what is written, the columns' own buffers as they are."""

    closed = False

    def __init__(self) -> None:
        self.parts: list[Readable] = []

    def write(self, part: Readable) -> int:
        self.parts.append(part)
        return len(part)

    def close(self) -> None:
        pass


def _uncopied(batch: pa.RecordBatch) -> list[Readable]:
    """Return what `pyarrow.RecordBatch.serialize` does, in pieces that are the batch's own buffers."""
    kept = _Kept()
    # Not closed: that would end a stream, which is done with the padding.
    stream = pa.ipc.new_stream(pa.PythonFile(kept, mode="w"), batch.schema)
    stream.write_batch(batch)
    left = len(batch.schema.serialize())
    # The stream begins with the schema, which the caller has with the table in it.
    while left > 0:
        left -= len(kept.parts.pop(0))
    return kept.parts


def _shape(schema: pa.Schema, table: TableId | None) -> pa.Buffer:
    """Return the message that tells columns and table; for a small body it costs more than the rows."""
    before = _shapes.get(table)
    # Of one version's batches the schema is one and the same, which Arrow sees without a look at its columns.
    if before is not None and before[0].equals(schema, check_metadata=True):
        return before[1]
    named = schema
    if table is not None:
        named = schema.with_metadata(
            {**(schema.metadata or {}), _SCHEMA_KEY: table.schema, _TABLE_KEY: table.name}
        )
    message = named.serialize()
    _shapes[table] = (schema, message)
    return message


def checked_stream(view: memoryview, entry: BodyEntry, crc: int | None = None) -> memoryview:
    """Return the bytes of one body of the block that ``view`` is.

    Args:
        view: the block.
        entry: which body.
        crc: its CRC-32 where that was computed before.

    Raises:
        ProtocolError: when they fail their checksum.
    """
    stream = view[entry.offset : entry.offset + entry.length]
    if crc is None:
        at_once = entry.length <= _IN_ONE_TURN or entry.length > _SMALL
        crc = crc32(stream) if at_once else _crc32_in_turns(stream)
    if crc != entry.crc:
        raise malformed(f"the body of schema {entry.schema_id:016x} fails its checksum")
    return stream


def _crc32_in_turns(stream: memoryview) -> int:
    crc = 0
    for at in range(0, len(stream), _IN_ONE_TURN):
        crc = crc32(stream[at : at + _IN_ONE_TURN], crc)
    return crc


def read_batch(stream: memoryview, entry: BodyEntry) -> pa.RecordBatch:
    """Return the batch of one body as views into the bytes; its schema names no table.

    Raises:
        ProtocolError: when it is no Arrow stream, or not of the rows that the directory names.
    """
    return _read(stream, entry)[0]


def read_body(stream: memoryview, entry: BodyEntry) -> Body:
    """Return one table's rows as views into the bytes.

    Raises:
        ProtocolError: as `read_batch`, and when the schema names no table.
    """
    batch, table = _read(stream, entry)
    if table is None:
        raise malformed(f"the body of schema {entry.schema_id:016x} names no table")
    return Body(entry.schema_id, table, batch)


def joined(bodies: Sequence[Body]) -> Body:
    """Return bodies of one table version as one; the body itself when it is only one.

    Raises:
        ProtocolError: when their columns differ.
    """
    first = bodies[0]
    if len(bodies) == 1:
        return first
    batches = [body.batch for body in bodies]
    is_small = sum(batch.get_total_buffer_size() for batch in batches) <= _JOINED
    pool = pa.system_memory_pool() if is_small else pa.default_memory_pool()
    try:
        batch = pa.concat_batches(batches, memory_pool=pool)
    except pa.ArrowException as error:
        raise malformed(f"bodies of schema {first.schema_id:016x} differ in columns") from error
    return Body(first.schema_id, first.table, batch)


def _read(stream: memoryview, entry: BodyEntry) -> tuple[pa.RecordBatch, TableId | None]:
    """Return the rows of one body, and whose they are."""
    end = _PREFIX + int.from_bytes(stream[4:_PREFIX], "little")
    message = bytes(stream[:end])
    try:
        # To read the schema is most of what a small body costs, and one version's bodies all begin with the same.
        try:
            told = _told[message]
        except KeyError:
            told = _told_by(message)
        batch = pa.ipc.read_record_batch(pa.py_buffer(stream[end:]), told[0])
    except (pa.ArrowException, OSError, ValueError) as error:
        raise malformed(f"the body of schema {entry.schema_id:016x} is no Arrow stream") from error
    if batch.num_rows != entry.rows:
        raise malformed(f"the body of schema {entry.schema_id:016x} has {batch.num_rows} rows")
    return batch, told[1]


def _told_by(message: bytes) -> tuple[pa.Schema, TableId | None]:
    """Read and remember what a schema message tells; the table's name leaves the schema, which is the registry's."""
    schema = pa.ipc.read_schema(pa.py_buffer(message))
    metadata = dict(schema.metadata or {})
    table = None
    if _SCHEMA_KEY in metadata and _TABLE_KEY in metadata:
        table = TableId(metadata.pop(_SCHEMA_KEY).decode(), metadata.pop(_TABLE_KEY).decode())
    if len(_told) >= _MOST_TOLD:
        _told.clear()
    _told[message] = told = (schema.with_metadata(metadata or None), table)
    return told


def padded(length: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def malformed(what: str) -> ProtocolError:
    """Return the error for bytes that are no block."""
    return ProtocolError(
        f"A block is malformed: {what}.",
        next_step="read it again from where it was stored; if that fails too, restore that file.",
    )

"""One body of a block as bytes: an Arrow IPC stream of one batch under a checksum, and several of them as one batch.

``docs/block_format.md`` specifies the layout. No I/O; no state but what was encoded last.
"""

from __future__ import annotations

import mmap
from typing import NamedTuple, TypeAlias

import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from headrace.errors import ProtocolError
from headrace.model.block import Body
from headrace.model.schema import TableId

__all__ = [
    "ALIGNMENT",
    "BodyEntry",
    "Gathered",
    "Readable",
    "body_of",
    "checked_stream",
    "encode_stream",
    "malformed",
    "padded",
    "read_batch",
]

Readable: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | pa.Buffer
"""What a block is read from; a pyarrow buffer goes through ``memoryview``."""

ALIGNMENT = 64
"""Blocks and bodies begin and end at multiples of this many bytes."""

_SCHEMA_KEY = b"headrace.schema"
_TABLE_KEY = b"headrace.table"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"
_shapes: dict[TableId | None, tuple[pa.Schema, pa.Buffer]] = {}
"""The last schema of each table that was encoded, and its bytes."""
_PREFIX = 8
"""Bytes before an Arrow message: a marker, then its length as an int32. A schema message has nothing behind it."""


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
    shape, rows = _shape(batch.schema, table), batch.serialize()
    length = len(shape) + len(rows) + len(_END_OF_STREAM)
    return [shape, rows, _END_OF_STREAM + bytes(padded(length) - length)]


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


def checked_stream(view: memoryview, entry: BodyEntry) -> memoryview:
    """Return the bytes of one body of the block that ``view`` is.

    Raises:
        ProtocolError: when they fail their checksum.
    """
    stream = view[entry.offset : entry.offset + entry.length]
    if crc32(stream) != entry.crc:
        raise malformed(f"the body of schema {entry.schema_id:016x} fails its checksum")
    return stream


def read_batch(stream: memoryview, entry: BodyEntry) -> pa.RecordBatch:
    """Return the batch of one body as views into the bytes.

    Raises:
        ProtocolError: when it is no Arrow stream, or not of the rows that the directory names.
    """
    try:
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            batch = reader.read_next_batch()
    except (pa.ArrowException, StopIteration, OSError) as error:
        raise _no_stream(entry) from error
    return _counted(batch, entry)


def body_of(schema_id: int, batch: pa.RecordBatch) -> Body:
    """Return one table's rows; the table's name leaves the schema, which is the registry's again.

    Raises:
        ProtocolError: when the schema names no table.
    """
    metadata = dict(batch.schema.metadata or {})
    try:
        table = TableId(metadata.pop(_SCHEMA_KEY).decode(), metadata.pop(_TABLE_KEY).decode())
    except (KeyError, UnicodeDecodeError) as error:
        raise malformed(f"the body of schema {schema_id:016x} names no table") from error
    return Body(schema_id, table, batch.replace_schema_metadata(metadata or None))


class Gathered:
    """Bodies of one table version on their way into one.

    They begin with the same bytes, their Arrow schema. It is read once: that is most of what a small body costs.
    """

    def __init__(self, stream: memoryview, entry: BodyEntry) -> None:
        """Begin with the first one.

        Raises:
            ProtocolError: as `read_batch`.
        """
        self._id = entry.schema_id
        self._batches = [read_batch(stream, entry)]
        self._schema = self._batches[0].schema
        self._shape_bytes = _PREFIX + int.from_bytes(stream[4:_PREFIX], "little")
        self._shape = bytes(stream[: self._shape_bytes])

    def add(self, stream: memoryview, entry: BodyEntry) -> None:
        """Take the next one.

        Raises:
            ProtocolError: as `read_batch`.
        """
        if bytes(stream[: self._shape_bytes]) != self._shape:
            self._batches.append(read_batch(stream, entry).replace_schema_metadata(self._metadata))
            return
        try:
            rest = pa.py_buffer(stream[self._shape_bytes :])
            batch = pa.ipc.read_record_batch(rest, self._schema)
        except (pa.ArrowException, OSError) as error:
            raise _no_stream(entry) from error
        self._batches.append(_counted(batch, entry))

    def body(self) -> Body:
        """Return all of them; a view into the bytes when it is only one.

        Raises:
            ProtocolError: when their columns differ, or name no table.
        """
        batch = self._batches[0]
        if len(self._batches) > 1:
            try:
                batch = pa.concat_batches(self._batches)
            except pa.ArrowException as error:
                raise malformed(f"bodies of schema {self._id:016x} differ in columns") from error
        return body_of(self._id, batch)

    @property
    def _metadata(self) -> dict[bytes, bytes] | None:
        metadata: dict[bytes, bytes] | None = self._schema.metadata
        return metadata


def padded(length: int) -> int:
    """Return the next multiple of the alignment."""
    return -(-length // ALIGNMENT) * ALIGNMENT


def malformed(what: str) -> ProtocolError:
    """Return the error for bytes that are no block."""
    return ProtocolError(
        f"A block is malformed: {what}.",
        next_step="read it again from where it was stored; if that fails too, restore that file.",
    )


def _counted(batch: pa.RecordBatch, entry: BodyEntry) -> pa.RecordBatch:
    if batch.num_rows != entry.rows:
        raise malformed(f"the body of schema {entry.schema_id:016x} has {batch.num_rows} rows")
    return batch


def _no_stream(entry: BodyEntry) -> ProtocolError:
    return malformed(f"the body of schema {entry.schema_id:016x} is no Arrow stream")

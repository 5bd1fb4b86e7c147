"""Blocks as bytes, and back without copying the rows.

In: a `headrace.model.block.Block`, or bytes in any buffer (a mapped file, a received body). Out: the other one.
``docs/block_format.md`` specifies the layout byte by byte; the files in ``tests/wire/golden`` hold it fast.
Every byte of a block lies under one of its checksums: header, head (directory and index), and one per body.
No I/O, no state.
"""

from __future__ import annotations

import mmap
import struct
import zlib
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from headrace.errors import ProtocolError
from headrace.model.block import (
    SYSTEM_SCHEMA_ID,
    TRANSACTION_DTYPE,
    Block,
    Body,
    system_batch,
    system_events,
)
from headrace.model.schema import TableId

__all__ = [
    "ALIGNMENT",
    "HEADER_BYTES",
    "MAGIC",
    "VERSION",
    "BlockHeader",
    "BodyEntry",
    "Readable",
    "decode_block",
    "encode_block",
    "encode_parts",
    "read_directory",
    "read_header",
    "read_index",
]

Readable: TypeAlias = bytes | bytearray | memoryview | mmap.mmap | pa.Buffer
"""What a block is read from; a pyarrow buffer goes through ``memoryview``."""

MAGIC = b"HRBK"
VERSION = 1
ALIGNMENT = 64
"""Blocks and bodies begin and end at multiples of this many bytes."""

_HEADER = struct.Struct("<4sHHQIIIIqqqqqQ44sI")
HEADER_BYTES = _HEADER.size
_CRC_AT = HEADER_BYTES - 4
_ENTRY = struct.Struct("<QQQQII")
_ENDS_COMPLETE = 1
_SCHEMA_KEY = b"headrace.schema"
_TABLE_KEY = b"headrace.table"
_END_OF_STREAM = b"\xff\xff\xff\xff\0\0\0\0"


class BlockHeader(NamedTuple):
    """The fixed first 128 bytes of a block, checksums aside.

    Attributes:
        flags: bit 0 is set when no transaction is left open at the end; the others are 0.
        length: bytes of the whole block.
        head_length: bytes of header, directory and index together.
        bodies: entries of the directory.
        transactions: entries of the index.
        head_crc: CRC-32 of everything between header and bodies.
        first_scn: as `Block.first_scn`.
        last_scn: as `Block.last_scn`.
        complete_scn: SCN of the last transaction that ends in the block, 0 when none does.
        covered_scn: as `Block.covered_scn`.
        last_commit_us: commit time of the transaction ``complete_scn``, 0 when there is none.
        rows: change rows in all bodies, system events not counted.
    """

    flags: int
    length: int
    head_length: int
    bodies: int
    transactions: int
    head_crc: int
    first_scn: int
    last_scn: int
    complete_scn: int
    covered_scn: int
    last_commit_us: int
    rows: int

    @property
    def ends_complete(self) -> bool:
        """Whether no transaction is left open at the end of the block."""
        return bool(self.flags & _ENDS_COMPLETE)


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


def encode_block(block: Block) -> bytes:
    """Return the block as bytes; equal blocks give equal bytes."""
    return b"".join(encode_parts(block))


def encode_parts(block: Block) -> list[Readable]:
    """Return the bytes of a block in pieces, the header whole in the first; rows are copied once only."""
    bodies = list(_encoded_bodies(block))
    index = np.ascontiguousarray(block.index, dtype=TRANSACTION_DTYPE)
    head_length = _padded(HEADER_BYTES + _ENTRY.size * len(bodies) + index.nbytes)
    offset = head_length
    directory = []
    for schema_id, rows, stream in bodies:
        length, crc = 0, 0
        for part in stream:
            length, crc = length + len(part), zlib.crc32(part, crc)
        directory.append(_ENTRY.pack(schema_id, offset, length, rows, crc, 0))
        offset += length
    head = _filled(b"".join([*directory, index.tobytes()]))
    ended = index[index["last_piece"] != 0]
    header = _HEADER.pack(
        MAGIC,
        VERSION,
        _ENDS_COMPLETE if block.ends_complete else 0,
        offset,
        head_length,
        len(bodies),
        len(index),
        zlib.crc32(head),
        block.first_scn,
        block.last_scn,
        int(ended["scn"][-1]) if len(ended) else 0,
        block.covered_scn,
        int(ended["commit_us"][-1]) if len(ended) else 0,
        block.rows,
        b"",
        0,
    )[:_CRC_AT]
    seal = struct.pack("<I", zlib.crc32(header))
    return [header + seal + head, *(part for _, _, stream in bodies for part in stream)]


def decode_block(buffer: Readable, *, schema_ids: Collection[int] | None = None) -> Block:
    """Return the block that the buffer holds; its rows and index are views into the buffer.

    Args:
        buffer: exactly one block.
        schema_ids: table versions to decode, None for all. System events and the index always come.

    Raises:
        ProtocolError: when a checksum fails or the bytes do not follow the format; nothing is returned then.
    """
    view = memoryview(buffer)
    header = read_header(view)
    if len(view) != header.length:
        raise _malformed(f"{len(view)} bytes given for a block of {header.length}")
    bodies = []
    events: tuple[Any, ...] = ()
    for entry in read_directory(view, header):
        if entry.schema_id == SYSTEM_SCHEMA_ID:
            events = system_events(_batch(view, entry))
        elif schema_ids is None or entry.schema_id in schema_ids:
            bodies.append(_body(view, entry))
    return Block(_index(view, header), tuple(bodies), events, header.covered_scn)


def read_header(buffer: Readable, offset: int = 0) -> BlockHeader:
    """Return the header of the block that begins at ``offset``; only the header's checksum is checked.

    Raises:
        ProtocolError: when no intact header stands there.
    """
    view = memoryview(buffer)[offset : offset + HEADER_BYTES]
    if len(view) < HEADER_BYTES:
        raise _malformed(f"{len(view)} bytes are too few for a header")
    magic, version, *values, reserved, crc = _HEADER.unpack(view)
    if magic != MAGIC:
        raise _malformed("the magic number is missing")
    if zlib.crc32(view[:_CRC_AT]) != crc:
        raise _malformed("the header fails its checksum")
    if version != VERSION:
        raise _malformed(f"version {version} is not {VERSION}")
    header = BlockHeader(*values)
    if header.flags & ~_ENDS_COMPLETE or any(reserved):
        raise _malformed("reserved bits are set")
    head = HEADER_BYTES + _ENTRY.size * header.bodies
    head += TRANSACTION_DTYPE.itemsize * header.transactions
    if header.head_length != _padded(head) or header.length % ALIGNMENT:
        raise _malformed("the lengths contradict each other")
    return header


def read_directory(buffer: Readable, header: BlockHeader, offset: int = 0) -> tuple[BodyEntry, ...]:
    """Return the directory of the block that begins at ``offset``.

    Raises:
        ProtocolError: when the head fails its checksum or the bodies do not fill the block.
    """
    head = _checked_head(buffer, header, offset)
    entries = []
    end = header.head_length
    for *values, reserved in _ENTRY.iter_unpack(head[: _ENTRY.size * header.bodies]):
        entry = BodyEntry(*values)
        if reserved or entry.offset != end or entry.length % ALIGNMENT:
            raise _malformed("the directory leaves a gap")
        end += entry.length
        entries.append(entry)
    if end != header.length:
        raise _malformed("the bodies do not fill the block")
    return tuple(entries)


def read_index(buffer: Readable, header: BlockHeader, offset: int = 0) -> npt.NDArray[np.void]:
    """Return the transaction index of the block that begins at ``offset``, as a read-only view.

    Raises:
        ProtocolError: when the head fails its checksum.
    """
    _checked_head(buffer, header, offset)
    return _index(memoryview(buffer)[offset:], header)


def _checked_head(buffer: Readable, header: BlockHeader, offset: int) -> memoryview:
    """Return the bytes between header and bodies."""
    head = memoryview(buffer)[offset + HEADER_BYTES : offset + header.head_length]
    if HEADER_BYTES + len(head) != header.head_length:
        raise _malformed("the block ends inside its head")
    if zlib.crc32(head) != header.head_crc:
        raise _malformed("the directory or the index fails its checksum")
    return head


def _index(view: memoryview, header: BlockHeader) -> npt.NDArray[np.void]:
    start = HEADER_BYTES + _ENTRY.size * header.bodies
    return np.frombuffer(view.toreadonly(), TRANSACTION_DTYPE, header.transactions, start)


def _encoded_bodies(block: Block) -> Iterator[tuple[int, int, list[Readable]]]:
    """Yield ``(schema id, rows, pieces of a padded Arrow stream)``, the system events last."""
    for body in block.bodies:
        yield body.schema_id, body.batch.num_rows, _stream(body.batch, body.table)
    if block.system:
        batch = system_batch(block.system)
        yield SYSTEM_SCHEMA_ID, batch.num_rows, _stream(batch, None)


def _stream(batch: pa.RecordBatch, table: TableId | None) -> list[Readable]:
    """Return a whole Arrow IPC stream of one batch, filled up to the alignment."""
    schema = batch.schema
    if table is not None:
        schema = schema.with_metadata(
            {**(schema.metadata or {}), _SCHEMA_KEY: table.schema, _TABLE_KEY: table.name}
        )
    shape, rows = schema.serialize(), batch.serialize()
    length = len(shape) + len(rows) + len(_END_OF_STREAM)
    return [shape, rows, _END_OF_STREAM + bytes(_padded(length) - length)]


def _batch(view: memoryview, entry: BodyEntry) -> pa.RecordBatch:
    """Return the batch of one body as views into the buffer."""
    stream = view[entry.offset : entry.offset + entry.length]
    if zlib.crc32(stream) != entry.crc:
        raise _malformed(f"the body of schema {entry.schema_id:016x} fails its checksum")
    try:
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            batch = reader.read_next_batch()
    except (pa.ArrowException, StopIteration, OSError) as error:
        raise _malformed(f"the body of schema {entry.schema_id:016x} is no Arrow stream") from error
    if batch.num_rows != entry.rows:
        raise _malformed(f"the body of schema {entry.schema_id:016x} has {batch.num_rows} rows")
    return batch


def _body(view: memoryview, entry: BodyEntry) -> Body:
    """Return one table's rows; the table's name leaves the schema, which is the registry's again."""
    batch = _batch(view, entry)
    metadata = dict(batch.schema.metadata or {})
    try:
        table = TableId(metadata.pop(_SCHEMA_KEY).decode(), metadata.pop(_TABLE_KEY).decode())
    except (KeyError, UnicodeDecodeError) as error:
        raise _malformed(f"the body of schema {entry.schema_id:016x} names no table") from error
    return Body(entry.schema_id, table, batch.replace_schema_metadata(metadata or None))


def _padded(length: int) -> int:
    return -(-length // ALIGNMENT) * ALIGNMENT


def _filled(data: bytes) -> bytes:
    """Return the bytes with zeros up to the alignment."""
    return data.ljust(_padded(len(data)), b"\0")


def _malformed(what: str) -> ProtocolError:
    return ProtocolError(
        f"A block is malformed: {what}.",
        next_step="read it again from where it was stored; if that fails too, restore that file.",
    )

"""Blocks as bytes, and back without copying the rows.

In: a `headrace.model.block.Block`, or bytes in any buffer (a mapped file, a received body). Out: the other one.
``docs/block_format.md`` specifies the layout byte by byte; the files in ``tests/wire/golden`` hold it fast.
Every byte of a block lies under one of its checksums: header, head (directory and index), and one per body.
No I/O, no state.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from headrace.model.block import (
    SYSTEM_SCHEMA_ID,
    TRANSACTION_DTYPE,
    Block,
    Body,
    SystemEvent,
    system_batch,
    system_events,
)
from headrace.wire.body import (
    ALIGNMENT,
    BodyEntry,
    Readable,
    checked_stream,
    encode_stream,
    joined,
    malformed,
    padded,
    read_batch,
    read_body,
)

__all__ = [
    "ALIGNMENT",
    "HEADER_BYTES",
    "MAGIC",
    "VERSION",
    "BlockFrame",
    "BlockHeader",
    "BodyEntry",
    "Readable",
    "decode_block",
    "decode_merged",
    "encode_block",
    "encode_parts",
    "encode_under_header",
    "join_indexes",
    "read_directory",
    "read_entries",
    "read_header",
    "read_index",
]

MAGIC = b"HRBK"
VERSION = 1

_HEADER = struct.Struct("<4sHHQIIIIqqqqqQ44sI")
HEADER_BYTES = _HEADER.size
_CRC_AT = HEADER_BYTES - 4
_ENTRY = struct.Struct("<QQQQII")
_TRANSACTION = struct.Struct("<qqqiBBH")
_ENDS_COMPLETE = 1
_RESERVED = bytes(44)
_INDEX_ENTRY_BYTES = TRANSACTION_DTYPE.itemsize
_new = tuple.__new__
"""Makes a named tuple of values that are all there: half of what its class takes to be called."""


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


class BlockFrame(NamedTuple):
    """A block as it lies somewhere or was received; its header is checked, the rest is not yet.

    Attributes:
        header: what it says.
        data: all of its bytes.
        crcs: CRC-32 of each body in the order of the directory, by whom they were computed as the bytes came; None
            for `decode_merged` to compute them.
    """

    header: BlockHeader
    data: memoryview
    crcs: Sequence[int] | None = None


def encode_block(block: Block) -> bytes:
    """Return the block as bytes; equal blocks give equal bytes."""
    return b"".join(encode_parts(block))


def encode_parts(
    block: Block, stored: Mapping[int, tuple[BodyEntry, memoryview]] | None = None
) -> list[Readable]:
    """Return the bytes of a block in pieces, the header whole in the first; rows are copied once only.

    Arguments as of `encode_under_header`.
    """
    return encode_under_header(block, stored)[1]


def encode_under_header(
    block: Block, stored: Mapping[int, tuple[BodyEntry, memoryview]] | None = None
) -> tuple[BlockHeader, list[Readable]]:
    """Return the header of a block, and its bytes as `encode_parts` does.

    Args:
        block: of which bytes are made.
        stored: bodies of it that are bytes already, by table version: the entry that another block's directory has
            of each, and the bytes.
    """
    bodies = list(_encoded_bodies(block, stored or {}))
    # As bytes from here on: of a small block NumPy's records would cost more than its rows.
    index = np.ascontiguousarray(block.index, dtype=TRANSACTION_DTYPE).tobytes()
    head_length = padded(HEADER_BYTES + _ENTRY.size * len(bodies) + len(index))
    offset = head_length
    directory = []
    for schema_id, rows, crc, stream in bodies:
        length = sum(len(part) for part in stream)
        directory.append(_ENTRY.pack(schema_id, offset, length, rows, crc, 0))
        offset += length
    head = _filled(b"".join([*directory, index]))
    complete_scn, commit_us, ends_complete = _last_ended(index)
    header = BlockHeader(
        _ENDS_COMPLETE if ends_complete else 0,
        offset,
        head_length,
        len(bodies),
        len(index) // _TRANSACTION.size,
        crc32(head),
        _scn(index, 0) if index else block.covered_scn,
        _scn(index, len(index) - _TRANSACTION.size) if index else block.covered_scn,
        complete_scn,
        block.covered_scn,
        commit_us,
        block.rows,
    )
    packed = _HEADER.pack(MAGIC, VERSION, *header, b"", 0)[:_CRC_AT]
    seal = struct.pack("<I", crc32(packed))
    return header, [packed + seal + head, *(part for *_, stream in bodies for part in stream)]


def _last_ended(index: bytes) -> tuple[int, int, bool]:
    """Return SCN and commit time of the last transaction that ends in a block, and whether none is open behind it."""
    for at in range(len(index) - _TRANSACTION.size, -1, -_TRANSACTION.size):
        scn, commit_us, *_, last_piece, _ = _TRANSACTION.unpack_from(index, at)
        if last_piece:
            return scn, commit_us, at + _TRANSACTION.size == len(index)
    return 0, 0, not index


def _scn(index: bytes, at: int) -> int:
    """Return the SCN of the entry at a place of an index."""
    scn: int = _TRANSACTION.unpack_from(index, at)[0]
    return scn


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
        raise malformed(f"{len(view)} bytes given for a block of {header.length}")
    return _decoded(BlockFrame(header, view), schema_ids)


def decode_merged(
    blocks: Sequence[BlockFrame],
    *,
    schema_ids: Collection[int] | None = None,
) -> list[Block]:
    """Return neighbouring blocks as few: a block with system events begins another one.

    Such an event announces each change of a table's shape, so the bodies of one table stand in the order of its
    versions, as they do in a block as it was written, and a shape that comes back does not pull its rows before
    those of the shape between. Rows and index entries of several blocks are copied; whatever readers do per block
    they then do once.

    Args:
        blocks: in their order; none but the last may leave a transaction open.
        schema_ids: as for `decode_block`.

    Raises:
        ProtocolError: as `decode_block`, for any of them.
    """
    if len(blocks) == 1:
        return [_decoded(blocks[0], schema_ids)]
    whole: list[Block] = []
    held = _Held()
    for frame in blocks:
        entries = read_directory(frame.data, frame.header)
        if held.index and any(entry.schema_id == SYSTEM_SCHEMA_ID for entry in entries):
            whole.append(held.block())
            held = _Held()
        held.add(frame, entries, schema_ids)
    return [*whole, held.block()]


def _decoded(frame: BlockFrame, schema_ids: Collection[int] | None) -> Block:
    """Return one block. What is done here is done for each that anybody follows: there is nothing to be joined."""
    found: dict[int, Body] = {}
    events: tuple[SystemEvent, ...] = ()
    view, header = frame.data, frame.header
    crcs = frame.crcs or itertools.repeat(None, header.bodies)
    for entry, crc in zip(read_directory(view, header), crcs, strict=True):
        if entry.schema_id == SYSTEM_SCHEMA_ID:
            events += system_events(read_batch(checked_stream(view, entry, crc), entry))
        elif schema_ids is None or entry.schema_id in schema_ids:
            body = read_body(checked_stream(view, entry, crc), entry)
            before = found.get(entry.schema_id)
            found[entry.schema_id] = body if before is None else joined([before, body])
    index = np.frombuffer(_index_bytes(view, header), TRANSACTION_DTYPE)
    return Block(index, tuple(found.values()), events, header.covered_scn)


class _Held:
    """Neighbours that become one block."""

    def __init__(self) -> None:
        self.index: list[memoryview] = []
        self._found: dict[int, list[Body]] = {}
        self._events: list[SystemEvent] = []
        self._covered = 0

    def add(
        self, frame: BlockFrame, entries: Sequence[BodyEntry], schema_ids: Collection[int] | None
    ) -> None:
        view, header = frame.data, frame.header
        crcs = frame.crcs or itertools.repeat(None, header.bodies)
        for entry, crc in zip(entries, crcs, strict=True):
            if entry.schema_id == SYSTEM_SCHEMA_ID:
                self._events += system_events(read_batch(checked_stream(view, entry, crc), entry))
            elif schema_ids is None or entry.schema_id in schema_ids:
                body = read_body(checked_stream(view, entry, crc), entry)
                self._found.setdefault(entry.schema_id, []).append(body)
        self.index.append(_index_bytes(view, header))
        self._covered = max(self._covered, header.covered_scn)

    def block(self) -> Block:
        bodies = tuple([joined(bodies) for bodies in self._found.values()])
        return Block(join_indexes(self.index), bodies, tuple(self._events), self._covered)


def read_header(buffer: Readable, offset: int = 0) -> BlockHeader:
    """Return the header of the block that begins at ``offset``; only the header's checksum is checked.

    Raises:
        ProtocolError: when no intact header stands there.
    """
    view = memoryview(buffer)[offset : offset + HEADER_BYTES]
    if len(view) < HEADER_BYTES:
        raise malformed(f"{len(view)} bytes are too few for a header")
    values = _HEADER.unpack(view)
    if values[0] != MAGIC:
        raise malformed("the magic number is missing")
    if crc32(view[:_CRC_AT]) != values[-1]:
        raise malformed("the header fails its checksum")
    if values[1] != VERSION:
        raise malformed(f"version {values[1]} is not {VERSION}")
    header = _new(BlockHeader, values[2:-2])
    flags, length, head_length, bodies, transactions = header[:5]
    if flags & ~_ENDS_COMPLETE or values[-2] != _RESERVED:
        raise malformed("reserved bits are set")
    head = HEADER_BYTES + _ENTRY.size * bodies + _INDEX_ENTRY_BYTES * transactions
    if head_length != padded(head) or length % ALIGNMENT:
        raise malformed("the lengths contradict each other")
    return header


def read_directory(buffer: Readable, header: BlockHeader, offset: int = 0) -> tuple[BodyEntry, ...]:
    """Return the directory of the block that begins at ``offset``.

    Raises:
        ProtocolError: when the head fails its checksum or the bodies do not fill the block.
    """
    head = _checked_head(buffer, header, offset)
    entries = []
    end = header.head_length
    for values in _ENTRY.iter_unpack(head[: _ENTRY.size * header.bodies]):
        _, offset_, length, _, _, reserved = values
        if reserved or offset_ != end or length % ALIGNMENT:
            raise malformed("the directory leaves a gap")
        end += length
        entries.append(_new(BodyEntry, values[:-1]))
    if end != header.length:
        raise malformed("the bodies do not fill the block")
    return tuple(entries)


def read_entries(block: memoryview, bodies: int) -> list[BodyEntry]:
    """Return the directory of a block of which `read_directory` was content before, unchecked.

    Args:
        block: its bytes.
        bodies: in its directory.
    """
    table = block[HEADER_BYTES : HEADER_BYTES + _ENTRY.size * bodies]
    return [BodyEntry(*values) for *values, _ in _ENTRY.iter_unpack(table)]


def read_index(buffer: Readable, header: BlockHeader, offset: int = 0) -> memoryview:
    """Return the transaction index of the block that begins at ``offset`` as bytes, for `join_indexes`.

    Raises:
        ProtocolError: when the head fails its checksum.
    """
    _checked_head(buffer, header, offset)
    return _index_bytes(memoryview(buffer)[offset:], header)


def join_indexes(parts: Sequence[Readable]) -> npt.NDArray[np.void]:
    """Return the indexes of several blocks as one, read-only; a view into the bytes when it is only one."""
    # NumPy takes its time to see that equal record types are equal; bytes need no such look.
    return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), TRANSACTION_DTYPE)


def _checked_head(buffer: Readable, header: BlockHeader, offset: int) -> memoryview:
    """Return the bytes between header and bodies."""
    head = memoryview(buffer)[offset + HEADER_BYTES : offset + header.head_length]
    if HEADER_BYTES + len(head) != header.head_length:
        raise malformed("the block ends inside its head")
    if crc32(head) != header.head_crc:
        raise malformed("the directory or the index fails its checksum")
    return head


def _index_bytes(view: memoryview, header: BlockHeader) -> memoryview:
    start = HEADER_BYTES + _ENTRY.size * header.bodies
    end = start + _INDEX_ENTRY_BYTES * header.transactions
    return view[start:end].toreadonly()


def _encoded_bodies(
    block: Block, stored: Mapping[int, tuple[BodyEntry, memoryview]]
) -> Iterator[tuple[int, int, int, list[Readable]]]:
    """Yield ``(schema id, rows, CRC-32, pieces of a padded Arrow stream)``, the system events last."""
    for body in block.bodies:
        if body.schema_id in stored:
            entry, data = stored[body.schema_id]
            yield body.schema_id, entry.rows, entry.crc, [data]
            continue
        stream = encode_stream(body.batch, body.table)
        yield body.schema_id, body.batch.num_rows, _crc(stream), stream
    if block.system:
        batch = system_batch(block.system)
        stream = encode_stream(batch, None)
        yield SYSTEM_SCHEMA_ID, batch.num_rows, _crc(stream), stream


def _crc(stream: Iterable[Readable]) -> int:
    crc = 0
    for part in stream:
        crc = crc32(part, crc)
    return crc


def _filled(data: bytes) -> bytes:
    """Return the bytes with zeros up to the alignment."""
    return data.ljust(padded(len(data)), b"\0")

"""The frames of a relay's stream: blocks as they are stored, and notes between them.

``docs/relay_protocol.md`` is the specification. A frame begins with four bytes that name its kind, so whoever reads
can tell them apart before the rest has come. No I/O, no state.
"""

from __future__ import annotations

import json
import struct
from typing import Any

from zlib_ng.zlib_ng import crc32

from headrace.errors import ProtocolError
from headrace.wire.block import HEADER_BYTES, MAGIC
from headrace.wire.body import Readable

__all__ = [
    "NOTE_BYTES",
    "NOTE_MAGIC",
    "PREFIX_BYTES",
    "PROTOCOL",
    "decode_note",
    "encode_note",
    "frame_length",
]

PROTOCOL = 1
"""Version of the relay's protocol that this program speaks."""

NOTE_MAGIC = b"HRNT"

_NOTE = struct.Struct("<4sII")
NOTE_BYTES = _NOTE.size
_BLOCK_LENGTH = struct.Struct("<Q")
_BLOCK_LENGTH_AT = 8

PREFIX_BYTES = _BLOCK_LENGTH_AT + _BLOCK_LENGTH.size
"""Bytes of a frame after which `frame_length` can tell how long it is; no frame of a block is shorter."""

_MOST_NOTE_BYTES = 1 << 20


def encode_note(kind: str, **said: Any) -> bytes:
    """Return the frame of a note: ``heartbeat``, ``end`` or ``error``, and what belongs to it."""
    text = json.dumps({"kind": kind, **said}, separators=(",", ":"), ensure_ascii=False).encode()
    return _NOTE.pack(NOTE_MAGIC, len(text), crc32(text)) + text


def decode_note(frame: Readable) -> dict[str, Any]:
    """Return what a frame of `encode_note` says.

    Raises:
        ProtocolError: it fails its checksum or is no note.
    """
    view = memoryview(frame)
    magic, length, crc = _NOTE.unpack_from(view)
    text = bytes(view[NOTE_BYTES:])
    if magic != NOTE_MAGIC or len(text) != length or crc32(text) != crc:
        raise _malformed("a note fails its checksum")
    try:
        said = json.loads(text)
    except ValueError as error:
        raise _malformed("a note is no JSON") from error
    if not isinstance(said, dict) or not isinstance(said.get("kind"), str):
        raise _malformed("a note says no kind")
    return said


def frame_length(prefix: Readable) -> int:
    """Return the length of the frame that begins with these bytes; 0 while there are too few of them to tell.

    The length of a block is not checked yet: its header has a checksum of its own, and a reader that would not hold
    so much refuses first.

    Raises:
        ProtocolError: no frame begins like this.
    """
    view = memoryview(prefix)
    magic = bytes(view[:4])
    if len(magic) == 4 and magic not in (MAGIC, NOTE_MAGIC):
        raise _malformed("neither a block nor a note begins here")
    if magic == NOTE_MAGIC and len(view) >= NOTE_BYTES:
        length = int(_NOTE.unpack_from(view)[1])
        if length > _MOST_NOTE_BYTES:
            raise _malformed(f"a note of {length:,} bytes")
        return NOTE_BYTES + length
    if magic == MAGIC and len(view) >= PREFIX_BYTES:
        length = int(_BLOCK_LENGTH.unpack_from(view, _BLOCK_LENGTH_AT)[0])
        if length < HEADER_BYTES:
            raise _malformed(f"a block of {length:,} bytes")
        return length
    return 0


def _malformed(what: str) -> ProtocolError:
    return ProtocolError(
        f"The stream of a relay is damaged: {what}.",
        next_step="none: what was not delivered is asked for again.",
    )

"""The bytes of a block: the one form in which changes are stored, sent and read."""

from __future__ import annotations

from headrace.wire.block import (
    BlockHeader,
    BodyEntry,
    decode_block,
    decode_merged,
    encode_block,
    encode_parts,
    join_indexes,
    read_directory,
    read_header,
    read_index,
)

__all__ = [
    "BlockHeader",
    "BodyEntry",
    "decode_block",
    "decode_merged",
    "encode_block",
    "encode_parts",
    "join_indexes",
    "read_directory",
    "read_header",
    "read_index",
]

"""Windows that were put aside: files of blocks, as the change log has them, for a person and for a replay.

Source: Databus, section 3.3 (an event that can never be processed needs a person, and a way past it).
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from headrace.client.rows import RowSlice
from headrace.client.windows import Piece
from headrace.durable import sync_folder
from headrace.errors import StateError
from headrace.model.block import (
    ORIGIN_LOG,
    ORIGIN_SELECT,
    Block,
    Body,
    SystemEvent,
    transaction_index,
)
from headrace.wire.block import decode_block, encode_block, read_header

__all__ = ["DeadLetters", "read_dead_letters"]


class DeadLetters:
    """One file per window, named by source and SCN, readable by its owner alone.

    Args:
        folder: made when it is not there.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def add(self, piece: Piece) -> Path:
        """Put a piece of a window behind what is in its file, durably, and return the file.

        Raises:
            StateError: it cannot be written.
        """
        window = piece.window
        path = self._folder / f"{window.source}-{window.scn}.blocks"
        fresh = os.O_TRUNC if piece.begins else 0
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | fresh, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(encode_block(_block_of(piece)))
                file.flush()
                os.fsync(file.fileno())
            sync_folder(self._folder)
        except OSError as error:
            raise StateError(
                f"The window {window.scn} cannot be put aside into {path} ({type(error).__name__}).",
                next_step="make room there, or name another folder, and skip the window again.",
            ) from error
        return path


def read_dead_letters(path: Path) -> Iterator[Block]:
    """Yield the blocks of a window that was put aside.

    Raises:
        ProtocolError: the file is damaged.
    """
    data = memoryview(path.read_bytes())
    while data:
        length = read_header(data).length
        yield decode_block(data[:length])
        data = data[length:]


def _block_of(piece: Piece) -> Block:
    window = piece.window
    slices = [part for part in piece.parts if isinstance(part, RowSlice)]
    events = tuple(part for part in piece.parts if isinstance(part, SystemEvent))
    found: dict[int, list[RowSlice]] = {}
    for part in slices:
        found.setdefault(part.schema.schema_id, []).append(part)
    bodies = tuple(
        Body(
            schema_id, parts[0].schema.table, pa.concat_batches([part.received() for part in parts])
        )
        for schema_id, parts in found.items()
    )
    changes = sum(part.stop - part.start for part in slices) + len(events)
    origin = ORIGIN_SELECT if window.origin == "select" else ORIGIN_LOG
    entry = (window.scn, window.commit_us, window.xid, changes, origin, int(piece.ends))
    covered = window.scn if piece.ends else window.scn - 1
    return Block(transaction_index([entry]), bodies, events, covered)

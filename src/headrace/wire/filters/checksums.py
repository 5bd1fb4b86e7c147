"""CRC-32 of many short cells at once.

Over cells of one length the checksum is linear: each byte adds its own share, whatever stands beside it. So one table
per place gives the sums of all cells with two steps per byte.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from zlib_ng.zlib_ng import crc32

__all__ = ["checksums"]

_LONG = 64
"""Bytes from which a call per cell costs less than two steps per byte."""


def checksums(cells: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the CRC-32 of each binary cell; none of them is null."""
    _, at, data = cells.buffers()
    offsets = np.frombuffer(at, np.int32)[cells.offset : cells.offset + len(cells) + 1]
    raw = np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8)
    starts, lengths = offsets[:-1].astype(np.int64), np.diff(offsets)
    if len(cells) and lengths.min() == lengths.max() <= _LONG:
        return _sums(raw[offsets[0] : offsets[-1]].reshape(len(cells), -1))
    found = np.empty(len(cells), np.uint32)
    for length in np.unique(lengths):
        rows = np.flatnonzero(lengths == length)
        if length > _LONG:
            found[rows] = [crc32(raw[start : start + length]) for start in starts[rows].tolist()]
        else:
            found[rows] = _sums(raw[starts[rows, np.newaxis] + np.arange(length)])
    return found


def _sums(cells: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint32]:
    """Return the checksum of each row of bytes."""
    count, length = cells.shape
    base, shares = _shares(length)
    sums = np.full(count, base, np.uint32)
    for place in range(length):
        sums ^= shares[place][cells[:, place]]
    return sums


@lru_cache(_LONG + 1)
def _shares(length: int) -> tuple[int, npt.NDArray[np.uint32]]:
    """Return the checksum of zeros, and what each byte at each place adds to it."""
    base = crc32(bytes(length))
    shares = np.empty((length, 256), np.uint32)
    for place in range(length):
        for byte in range(256):
            cell = bytes(place) + bytes([byte]) + bytes(length - place - 1)
            shares[place, byte] = crc32(cell) ^ base
    return base, shares

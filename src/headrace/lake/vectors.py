"""Deletion vectors: places of rows in a data file that no longer count.

A vector is a 64-bit roaring bitmap. Vectors lie side by side in ``deletion_vector_<uuid>.bin``: one version byte, then
per vector its size (4 bytes, big-endian), its bytes, and their CRC-32 (big-endian). The bytes are a magic number
(little-endian) and the bitmap in roaring's portable form; short ones may stand in the log itself, as base 85.

Source: Delta protocol, "Deletion Vectors".
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from pyroaring import BitMap64

from headrace.store import Location, store_of

__all__ = ["Places", "read_vector", "vector_id", "vector_name", "vector_path", "write_vectors"]

Places = npt.NDArray[np.int64]
"""Places of rows in one file, ascending, the first row being 0."""

_VERSION = b"\x01"
_MAGIC = struct.pack("<I", 1681511377)
_PYTHON_85 = (
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
_DELTA_85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_DELTA = bytes.maketrans(_PYTHON_85, _DELTA_85)
_TO_PYTHON = bytes.maketrans(_DELTA_85, _PYTHON_85)
_UUID_CHARS = 20


def vector_id(descriptor: Mapping[str, Any] | None) -> str:
    """Return what tells one vector from another, empty for no vector: a file and its vector are one entry of a log."""
    if not descriptor:
        return ""
    name = f"{descriptor['storageType']}{descriptor['pathOrInlineDv']}"
    offset = descriptor.get("offset")
    return name if offset is None else f"{name}@{offset}"


def read_vector(folder: Location, descriptor: Mapping[str, Any] | None) -> Places:
    """Return the places that a vector names, none for no vector.

    Args:
        folder: of the table.
        descriptor: ``deletionVector`` of an ``add`` action.

    Raises:
        OSError: its file is gone.
        ValueError: its bytes are damaged.
    """
    if not descriptor:
        return np.empty(0, np.int64)
    if descriptor["storageType"] == "i":
        text = descriptor["pathOrInlineDv"].encode().translate(_TO_PYTHON)
        # The text is padded to whole groups of five characters.
        raw = base64.b85decode(text)[: int(descriptor["sizeInBytes"])]
    else:
        raw = _read_file(vector_path(folder, descriptor), descriptor)
    if raw[:4] != _MAGIC:
        raise ValueError("a deletion vector without its magic number")
    places = np.asarray(BitMap64.deserialize(raw[4:]).to_array())
    if len(places) != int(descriptor["cardinality"]):
        raise ValueError("a deletion vector of another cardinality")
    return places.astype(np.int64)


def write_vectors(folder: Location, vectors: Iterable[Places]) -> list[dict[str, Any]]:
    """Write vectors into one new file and return their descriptors; they are durable when this returns.

    Raises:
        OSError: the folder refused.
    """
    name = uuid.uuid4()
    written: list[dict[str, Any]] = []
    whole = bytearray(_VERSION)
    for places in vectors:
        bitmap = BitMap64(places.astype(np.uint64))
        raw = _MAGIC + bitmap.serialize()
        written.append(
            {
                "storageType": "u",
                "pathOrInlineDv": base64.b85encode(name.bytes).translate(_TO_DELTA).decode(),
                "offset": len(whole),
                "sizeInBytes": len(raw),
                "cardinality": len(places),
            }
        )
        whole += struct.pack(">I", len(raw)) + raw + struct.pack(">I", zlib.crc32(raw))
    if written:
        store = store_of(folder)
        with store.create(folder / f"deletion_vector_{name}.bin") as file:
            file.write(whole)
        # The name too: a batch that only deletes writes no data file, whose writer would see to it.
        store.sync([folder])
    return written


def vector_path(folder: Location, descriptor: Mapping[str, Any]) -> Location:
    """Return where the file of a vector lies that is not part of the log."""
    text = str(descriptor["pathOrInlineDv"])
    if descriptor["storageType"] == "p":
        # Only a table in a folder of this machine names files elsewhere: a shallow clone.
        return Path(text.removeprefix("file:"))
    return folder / vector_name(descriptor)


def vector_name(descriptor: Mapping[str, Any]) -> str:
    """Return the name, in the table's folder, of the file of a vector that the table has there."""
    text = str(descriptor["pathOrInlineDv"])
    coded = text[-_UUID_CHARS:].encode().translate(_TO_PYTHON)
    name = f"deletion_vector_{uuid.UUID(bytes=base64.b85decode(coded))}.bin"
    prefix = text[:-_UUID_CHARS]
    return f"{prefix}/{name}" if prefix else name


def _read_file(path: Location, descriptor: Mapping[str, Any]) -> bytes:
    size, begin = int(descriptor["sizeInBytes"]), int(descriptor.get("offset") or 1)
    piece = store_of(path).read_range(path, begin, size + 8)
    raw = piece[4:-4]
    told, check = (int.from_bytes(part, "big") for part in (piece[:4], piece[-4:]))
    if told != size or len(raw) != size or zlib.crc32(raw) != check:
        raise ValueError("a deletion vector that does not match its checksum")
    return raw

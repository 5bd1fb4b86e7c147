"""Types of MariaDB that the log shows as bytes of a fixed length, as the server renders them."""

from __future__ import annotations

import ipaddress
import uuid
from collections.abc import Callable, Mapping, Sequence

__all__ = ["NATIVES", "NATIVE_BYTES"]

NATIVE_BYTES: Mapping[str, int] = {"uuid": 16, "inet6": 16, "inet4": 4}
"""Bytes of each type's values."""


def _uuids(cells: Sequence[bytes]) -> list[str]:
    return [_uuid(cell.ljust(16, b"\0")) for cell in cells]


def _uuid(cell: bytes) -> str:
    # Of versions 1 to 5 the server keeps the parts by their weight: node, clock, then time from high to low, so
    # that the variant's bit lies where others have their version, which never has that bit.
    if cell[6] & 0x80:
        cell = cell[12:16] + cell[10:12] + cell[8:10] + cell[6:8] + cell[:6]
    return str(uuid.UUID(bytes=cell))


def _inet6(cells: Sequence[bytes]) -> list[str]:
    return [_inet6_text(cell.ljust(16, b"\0")) for cell in cells]


def _inet6_text(cell: bytes) -> str:
    # The server shortens a single zero, too, and writes what may be an address of version 4 as one.
    words = [cell[place : place + 2].hex().lstrip("0") or "0" for place in range(0, 16, 2)]
    begin, length = _longest_zeros(words)
    if begin == 0 and (length == 6 or (length == 5 and words[5] == "ffff")):
        return "::" + "ffff:" * (length == 5) + str(ipaddress.IPv4Address(cell[12:]))
    if not length:
        return ":".join(words)
    return ":".join(words[:begin]) + "::" + ":".join(words[begin + length :])


def _longest_zeros(words: Sequence[str]) -> tuple[int, int]:
    """Return where the first of the longest runs of zeros begins, and its length."""
    best, begin = (0, 0), 0
    for place, word in enumerate([*words, ""]):
        if word != "0":
            if place - begin > best[1]:
                best = (begin, place - begin)
            begin = place + 1
    return best


def _inet4(cells: Sequence[bytes]) -> list[str]:
    return [str(ipaddress.IPv4Address(cell.ljust(4, b"\0"))) for cell in cells]


NATIVES: Mapping[str, Callable[[Sequence[bytes]], list[str]]] = {
    "uuid": _uuids,
    "inet6": _inet6,
    "inet4": _inet4,
}
"""How their bytes become text."""

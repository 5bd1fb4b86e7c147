"""Events that only MySQL writes: its ids, and whole transactions compressed."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa

from headrace.sources.mysql.events import Begin, Event, parse_event
from headrace.sources.mysql.gtids import SourceGtid
from headrace.sources.mysql.reading import Reading, broken

__all__ = ["parse_source_gtid", "parse_tagged_gtid", "unpacked"]

_TIME_MASK = (1 << 55) - 1


@functools.lru_cache(256)
def _server(raw: bytes) -> str:
    return str(uuid.UUID(bytes=raw))


def parse_source_gtid(event: Event) -> Begin:
    """Read MySQL's beginning of a transaction."""
    body = event.body()
    body.take(1)
    server = _server(body.take(16))
    number = body.number(8)
    if not body.left:
        return Begin(SourceGtid(server, number), event.time_s * 1_000_000, standalone=None)
    # Which transactions may be applied beside it.
    body.take(17)
    # The highest of 56 bits says whether the time on the first server follows.
    commit_us = body.number(7) & _TIME_MASK
    return Begin(SourceGtid(server, number), commit_us, standalone=None)


def parse_tagged_gtid(event: Event) -> Begin:
    """Read MySQL's beginning of a transaction whose id has a tag: fields, each behind its number."""
    body = event.body()
    for _ in range(3):
        # Form, size, and the last field that nobody may pass over.
        _number(body)
    found: dict[int, int] = {}
    server, tag = b"", ""
    while body.left and 6 not in found:
        match field := _number(body):
            case 0:
                body.take(1)
            case 1:
                server = bytes(_number(body) & 0xFF for _ in range(16))
            case 3:
                tag = body.text(_number(body))
            case _:
                found[field] = _number(body)
    if len(server) != 16 or not found.get(2, 0) or 6 not in found:
        raise broken("a tagged id lacks a part")
    source = f"{uuid.UUID(bytes=server)}:{tag}" if tag else str(uuid.UUID(bytes=server))
    # A number that may be negative has its sign in the lowest bit.
    return Begin(SourceGtid(source, found[2] >> 1), found[6], standalone=None)


def _number(body: Reading) -> int:
    """Return a number whose first byte tells by its lowest ones how many bytes follow."""
    first = body.number(1)
    more = (~first & first + 1).bit_length() - 1
    if more == 8:
        return body.number(8)
    return first >> more + 1 | body.number(more) << 7 - more


_SIZE, _KIND, _INFLATED = 1, 2, 3
_ZSTD, _PLAIN = 0, 255
_MOST = 1 << 30


def unpacked(event: Event) -> Iterator[Event]:
    """Yield the events of a transaction that is compressed as one, at the place of the whole.

    Raises:
        ProtocolError: the bytes do not follow the protocol.
    """
    body = event.body()
    kind = _ZSTD
    while (field := body.length()) != 0:
        part = body.counted()
        if field == _KIND:
            kind = Reading(part, 0, len(part)).length()
    packed = body.take(body.left)
    if kind not in (_ZSTD, _PLAIN):
        raise broken(f"a transaction compressed in the unknown way {kind}")
    source = pa.BufferReader(packed)
    stream = pa.CompressedInputStream(source, "zstd") if kind == _ZSTD else source
    while head := _exactly(stream.read, 19, at_end=True):
        size = int.from_bytes(head[9:13], "little")
        if not 19 <= size <= _MOST:
            raise broken("an event of a compressed transaction has no size")
        inner = parse_event(head + _exactly(stream.read, size - 19), checksum=False)
        yield replace(inner, end_pos=event.end_pos, flags=event.flags)


def _exactly(read: Callable[[int], bytes], count: int, *, at_end: bool = False) -> bytes:
    """Return so many bytes of a stream, none where it may end here."""
    found = b""
    try:
        while len(found) < count and (more := read(count - len(found))):
            found += more
    except OSError:
        raise broken("a compressed transaction does not inflate") from None
    if len(found) < count and not (at_end and not found):
        raise broken("a compressed transaction ends inside an event")
    return found
